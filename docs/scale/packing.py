"""Takes captured OTLP apart: counts what is in it, and packs the same spans or records into requests of other sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# So many requests of a size are packed, from all over what was captured.
_SAMPLES = 16


class _Shape(NamedTuple):
    request: Any
    resources: str
    scopes: str
    items: str
    json: tuple[str, str, str]


_SHAPES = {
    "traces": _Shape(
        ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans", ("resourceSpans", "scopeSpans", "spans")
    ),
    "logs": _Shape(
        ExportLogsServiceRequest,
        "resource_logs",
        "scope_logs",
        "log_records",
        ("resourceLogs", "scopeLogs", "logRecords"),
    ),
}


def count(signal: str, body: bytes) -> int:
    """Return the number of spans or log records in a request."""
    return sum(1 for _ in _items(signal, body))


def requests(signal: str, bodies: list[bytes], batch: int) -> list[bytes]:
    """Pack captured spans or log records into requests of ``batch`` each; none when there are too few."""
    shape = _SHAPES[signal]
    items = [item for body in bodies for item in _items(signal, body)]
    return [_packed(shape, items[start : start + batch]) for start in _starts(len(items), batch)]


def lines(signal: str, captured: list[bytes], batch: int) -> list[bytes]:
    """Pack the items of captured OTLP JSON lines into lines of ``batch`` each, as ``requests`` does."""
    resources, scopes, leaf = _SHAPES[signal].json
    entries = [entry for line in captured for entry in json.loads(line)[resources]]
    flat = [(entry, scope, item) for entry in entries for scope in entry[scopes] for item in scope[leaf]]
    packed = []
    for start in _starts(len(flat), batch):
        part = flat[start : start + batch]
        by_scope: dict[str, dict[str, Any]] = {}
        for _, scope, item in part:
            by_scope.setdefault(str(scope["scope"]), {**scope, leaf: []})[leaf].append(item)
        line = {resources: [{**part[0][0], scopes: list(by_scope.values())}]}
        packed.append(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
    return packed


def resource(body: bytes) -> dict[str, int]:
    """Return the number of resource attributes in a request of spans, and what they weigh."""
    found = ExportTraceServiceRequest.FromString(body).resource_spans[0].resource
    return {"attributes": len(found.attributes), "bytes": found.ByteSize()}


def points(body: bytes) -> dict[str, int]:
    """Return how many data points a request of metrics has, and as how many series a Prometheus-like store keeps them.

    A histogram is a series for each bucket, one for the sum and one for the count; the rest are one series a point.
    """
    total = series = health = 0
    for entry in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in entry.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                assert kind, metric.name
                for point in getattr(metric, kind).data_points:
                    total += 1
                    health += metric.name.startswith("otel.sdk.")
                    series += len(point.explicit_bounds) + 3 if kind == "histogram" else 1
    return {"points": total, "points of health": health, "series": series}


def _items(signal: str, body: bytes) -> Iterator[tuple[Any, Any, Any]]:
    shape = _SHAPES[signal]
    for entry in getattr(shape.request.FromString(body), shape.resources):
        for scope in getattr(entry, shape.scopes):
            for item in getattr(scope, shape.items):
                yield entry.resource, scope.scope, item


def _packed(shape: _Shape, items: list[tuple[Any, Any, Any]]) -> bytes:
    request = shape.request()
    entry = getattr(request, shape.resources).add()
    entry.resource.CopyFrom(items[0][0])
    by_scope: dict[str, Any] = {}
    for _, scope, item in items:
        if scope.name not in by_scope:
            by_scope[scope.name] = getattr(entry, shape.scopes).add()
            by_scope[scope.name].scope.CopyFrom(scope)
        getattr(by_scope[scope.name], shape.items).add().CopyFrom(item)
    text: bytes = request.SerializeToString()
    return text


def _starts(items: int, batch: int) -> list[int]:
    last = items - batch
    if last < 0:
        return []
    return sorted({round(last * number / (_SAMPLES - 1)) for number in range(_SAMPLES)})
