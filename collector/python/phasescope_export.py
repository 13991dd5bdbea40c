"""Sends spans where the standard OTEL_* variables say, with the resource that the field contract asks for."""

import os
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


class Identity(NamedTuple):
    """Which run and which of its processes this is."""

    run_id: str
    rank: int
    world_size: int


def identity() -> Identity:
    """What launchers set; what is not a number is passed over, since identity never stops a training run."""
    run_id = os.environ.get("PHASESCOPE_RUN_ID") or os.environ.get("TORCHELASTIC_RUN_ID") or str(uuid.uuid4())
    rank = _number("RANK", 0)
    return Identity(run_id, rank, max(_number("WORLD_SIZE", 1), rank + 1))


def tracer_provider(of: Identity) -> TracerProvider:
    """Exports in batches, on a thread of its own. Its `shutdown` sends what waits."""
    provider = TracerProvider(resource=_resource(of))
    provider.add_span_processor(BatchSpanProcessor(_exporter()))
    return provider


def _resource(of: Identity) -> Resource:
    found = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    name = str(found.attributes["service.name"])
    attributes = {f"phasescope.{key}": value for key, value in of._asdict().items()}
    attributes["process.pid"] = os.getpid()
    attributes["service.instance.id"] = found.attributes.get("service.instance.id") or str(uuid.uuid4())
    attributes["service.name"] = Path(sys.argv[0]).stem if name.startswith("unknown_service") else name
    return found.merge(Resource(attributes))


def _exporter() -> SpanExporter:
    """The exporters read endpoint, headers and the rest from the variables themselves."""
    variable = TRACES_PROTOCOL if os.environ.get(TRACES_PROTOCOL) else PROTOCOL
    protocol = os.environ.get(variable) or "http/protobuf"
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        return Http()
    print(f'{variable}: expected grpc or http/protobuf, found "{protocol}"', file=sys.stderr)
    sys.exit(2)


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
