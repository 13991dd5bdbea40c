"""Measures the phases of a training loop and writes them to OpenTelemetry spans, as phasescope's Rust library does.

The names are those of the field contract, docs/fields.md. Verdicts are left to the collector.
"""

import itertools
import re
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Protocol

from opentelemetry.trace import Span, Status, StatusCode, Tracer

PHASES = frozenset(
    "model optimizer_create input forward backward optimizer_step clear_gradients eval checkpoint collective".split()
)
# Fields of phases that the contract knows; others are written under the name that the program gives.
RESERVED = ("step", "input_elements", "optimizer_stepped")
# What PyTorch says when it refuses an allocation, on a GPU and on the CPU.
REFUSALS = ("out of memory", "can't allocate memory", "not enough memory")
REQUESTED = re.compile(r"tried to allocate (\d+(?:\.\d+)?) (bytes?|kib|mib|gib)\b")
UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

# The place among all ends of phases is the process's, however many `Phases` there are.
_ENDS = itertools.count()


class CounterSource(Protocol):
    """Memory counters of one device by the contract's names, without what it cannot measure.

    The peak is the highest `allocated` between the last reset and the last read.
    """

    def read(self) -> Dict[str, int]: ...
    def peak(self) -> Optional[int]: ...
    def reset_peak(self) -> None: ...


class TorchCuda:
    """PyTorch's caching allocator of one GPU. A read neither asks the device nor waits for it."""

    NAMES = {
        "allocated": "allocated_bytes.all.current",
        "reserved": "reserved_bytes.all.current",
        "active": "active_bytes.all.current",
        "requested": "requested_bytes.all.current",
        "inactive_split": "inactive_split_bytes.all.current",
        "alloc_retries": "num_alloc_retries",
        "ooms": "num_ooms",
    }

    def __init__(self, index: int = 0) -> None:
        import torch

        self._cuda, self._index, self.device_name = torch.cuda, index, f"cuda:{index}"
        # Before its first use the allocator has no counters; an empty tensor allocates nothing.
        torch.empty(0, device=self.device_name)
        self._total = torch.cuda.mem_get_info(index)[1]
        self._peak: Optional[int] = None

    def read(self) -> Dict[str, int]:
        stats = self._cuda.memory_stats(self._index)
        self._peak = stats.get("allocated_bytes.all.peak")
        counters = {name: stats[key] for name, key in self.NAMES.items() if key in stats}
        return {**counters, "device_total": self._total}

    def peak(self) -> Optional[int]:
        return self._peak

    def reset_peak(self) -> None:
        self._cuda.reset_peak_memory_stats(self._index)


class Around(NamedTuple):
    """What a phase begins in."""

    step: Optional[int] = None
    optimizer_stepped: Optional[bool] = None
    depth: int = 0


_AROUND: ContextVar[Around] = ContextVar("phasescope_around", default=Around())


@dataclass(eq=False)
class Open:
    """A phase that is open."""

    start: Dict[str, int]
    outside_delta: Optional[int] = None
    since: float = 0.0
    peak: Optional[int] = None
    disturbed: bool = False


class Phases:
    """Spans of runs, steps and phases, with what `counters` says at the edges of phases."""

    def __init__(
        self, tracer: Tracer, counters: CounterSource, run_id: str, rank: int, world_size: int, device_name: str,
        parameter_bytes: Optional[int] = None, device_bytes: Optional[int] = None, batch_size: Optional[int] = None,
    ) -> None:
        self.tracer, self.counters, self.device_name = tracer, counters, device_name
        # May be set later, as soon as the model is there: a phase tells what is known at its end.
        self.parameter_bytes, self.device_bytes, self.batch_size = parameter_bytes, device_bytes, batch_size
        self._identity = _named(run_id=run_id, rank=rank, world_size=world_size)
        self._lock = threading.Lock()
        self._open: List[Open] = []
        # Allocated at the last reset of the peak, and when the last outer phase ended.
        self._base: Optional[int] = None
        self._last_end: Optional[int] = None

    @contextmanager
    def run(self) -> Iterator[Span]:
        """Around a whole run, which is one trace then."""
        with self._span("run", _named(run_id=self._identity["phasescope.run_id"])) as span:
            yield span

    @contextmanager
    def step(self, number: int, optimizer_stepped: Optional[bool] = None) -> Iterator[Span]:
        """One training step, counted from 0. Of micro-steps whose optimizer does not run say so."""
        told = {**_named(step=number, optimizer_stepped=optimizer_stepped), **self._identity}
        with self._span("step", told) as span:
            token = _AROUND.set(_AROUND.get()._replace(step=number, optimizer_stepped=optimizer_stepped))
            try:
                yield span
            finally:
                _AROUND.reset(token)

    @contextmanager
    def phase(self, name: str, **fields: Any) -> Iterator[Span]:
        """A phase, with `input_elements` and `optimizer_stepped` where they are known, and `step` outside of steps.

        A name that is not in `PHASES` is measured as `other`.
        """
        around = _AROUND.get()
        told = {"step": around.step, "optimizer_stepped": around.optimizer_stepped, **fields}
        attributes = {key: value for key, value in told.items() if key not in RESERVED and value is not None}
        attributes.update(_named(phase=name if name in PHASES else "other", **{k: told.get(k) for k in RESERVED}))
        with self._span(name, attributes) as span:
            opened = self._enter(around.depth)
            token = _AROUND.set(around._replace(step=told["step"], depth=around.depth + 1))
            failure: Dict[str, Any] = {}
            try:
                yield span
            except BaseException as error:
                failure = _failure(error)
                span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__name__))
                raise
            finally:
                _AROUND.reset(token)
                span.set_attributes({**self._leave(opened, around.depth), **failure})

    def _span(self, name: str, attributes: Dict[str, Any]) -> ContextManager[Span]:
        # A phase sets its status itself, with the message that the contract asks for.
        quiet: Dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
        return self.tracer.start_as_current_span(name, attributes=attributes, **quiet)

    def _enter(self, depth: int) -> Open:
        with self._lock:
            start = self.counters.read()
            allocated, peak = start.get("allocated"), self.counters.peak()
            self._fold(peak)
            self.counters.reset_peak()
            if peak is not None and allocated is not None:
                self._base = allocated
            opened = Open(start)
            if depth == 0 and allocated is not None and self._last_end is not None:
                opened.outside_delta = allocated - self._last_end
            self._open.append(opened)
        opened.since = time.perf_counter()
        return opened

    def _leave(self, opened: Open, depth: int) -> Dict[str, Any]:
        seconds = time.perf_counter() - opened.since
        with self._lock:
            start, end = opened.start, self.counters.read()
            self._fold(self.counters.peak())
            self._open.remove(opened)
            if depth == 0:
                self._last_end = end.get("allocated")
            sequence = next(_ENDS)
        facts = _named(
            sequence=sequence, depth=depth, host_duration=seconds, batch_size=self.batch_size,
            parameter_bytes=self.parameter_bytes, device_bytes=self.device_bytes,
        )
        delta = {name: end[name] - start[name] for name in start if name in end}
        for edge, values in (("start", start), ("end", end), ("delta", delta)):
            facts.update({f"phasescope.{name}.{edge}": value for name, value in values.items()})
        highest = {"peak": opened.peak, "peak_disturbed": opened.disturbed or None}
        facts.update(_named("phasescope.allocated.", outside_delta=opened.outside_delta, **highest))
        return {**self._identity, **facts, "phasescope.device.name": self.device_name}

    def _fold(self, peak: Optional[int]) -> None:
        """Hands the allocator's one peak to all phases that are open, before a reset takes it from them."""
        if peak is not None:
            for phase in self._open:
                # Below the last reset: the program has reset it too.
                phase.disturbed |= self._base is not None and peak < self._base
                phase.peak = max(phase.peak or 0, peak)


def _named(prefix: str = "phasescope.", /, **values: Any) -> Dict[str, Any]:
    """What is known, under its name in the contract: absent is never zero."""
    return {prefix + name: value for name, value in values.items() if value is not None}


def _failure(error: BaseException) -> Dict[str, Any]:
    message = str(error).lower()
    # By name, so that torch need not be there.
    refused = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    if not refused and not any(text in message for text in REFUSALS):
        return {"error.type": "error"}
    found = REQUESTED.search(message)
    requested = int(float(found[1]) * UNITS.get(found[2], 1)) if found else None
    return {"error.type": "out_of_memory", **_named("phasescope.out_of_memory.", requested=requested)}
