#!/usr/bin/env python3
"""Pretends to train: the phases of a loop on a scripted device, the twin of tests/export/src/bin/train.rs.

Needs no PyTorch, so that the diagnosis of a Python run can be compared with that of a Rust run, number for number.
"""

import argparse
import sys
from typing import Dict, Optional

from phasescope_export import identity, tracer_provider
from phasescope_phases import Phases

# Bytes of the model, and of one forward's activations.
PARAMETERS = 32 << 20
ACTIVATIONS = 48 << 20


class Scripted:
    """A pretended device; only `allocated` and its peak are measured."""

    def __init__(self) -> None:
        self.allocated = self.highest = 0

    def allocate(self, size: int) -> None:
        self.allocated += size
        self.highest = max(self.highest, self.allocated)

    def free(self, size: int) -> None:
        self.allocated -= size

    def read(self) -> Dict[str, int]:
        return {"allocated": self.allocated}

    def peak(self) -> int:
        return self.highest

    def reset_peak(self) -> None:
        self.highest = self.allocated


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--leak-from", type=int, metavar="STEP", help="from this step on the activations are kept")
    options = parser.parse_args()
    me = identity()
    provider = tracer_provider(me)
    device = Scripted()
    phases = Phases(provider.get_tracer("phasescope"), device, *me, device_name="cuda:0")
    try:
        train(phases, device, options.steps, options.leak_from)
    finally:
        provider.shutdown()
    return 0


def train(phases: Phases, device: Scripted, steps: int, leak_from: Optional[int]) -> None:
    with phases.phase("model"):
        device.allocate(PARAMETERS)
    for number in range(steps):
        with phases.step(number):
            with phases.phase("forward"):
                device.allocate(ACTIVATIONS)
            with phases.phase("backward"):
                device.allocate(PARAMETERS)
                device.free(0 if leak_from is not None and number >= leak_from else ACTIVATIONS)
            with phases.phase("optimizer_step"):
                pass
            with phases.phase("clear_gradients"):
                device.free(PARAMETERS)


if __name__ == "__main__":
    sys.exit(main())
