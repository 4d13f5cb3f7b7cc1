"""OTLP requests as flat records: one dict a span, a metric point or a log record, with its resource and scope.

Reads the OTLP JSON mapping (a Collector's output, files) as well as protobuf messages, so that what arrived over
different ways can be compared field by field. Ids are hex, times integer
nanoseconds, attribute values Python values.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

Record = dict[str, Any]
_ID_FIELDS = ("traceId", "spanId", "parentSpanId")


def message_to_json(message: Any) -> Record:
    """Return a protobuf request as OTLP JSON: like protobuf's own mapping, but with ids in hex."""
    from google.protobuf.json_format import MessageToDict  # the API wheel is tested where protobuf is absent

    payload: Record = MessageToDict(message, use_integers_for_enums=True)
    _ids_to_hex(payload)
    return payload


def _ids_to_hex(node: Any) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in _ID_FIELDS:
                node[key] = base64.b64decode(value).hex()
            else:
                _ids_to_hex(value)
    elif isinstance(node, list):
        for item in node:
            _ids_to_hex(item)


def attributes_of(node: Mapping[str, Any]) -> Record:
    """Return the ``attributes`` list of an OTLP JSON object as a dict of Python values."""
    return {item["key"]: value_of(item.get("value", {})) for item in node.get("attributes", ())}


def value_of(value: Mapping[str, Any]) -> Any:
    """Return an OTLP ``AnyValue`` as a Python value; an empty one is ``None``."""
    if "intValue" in value:
        return int(value["intValue"])
    if "doubleValue" in value:
        return float(value["doubleValue"])
    if "arrayValue" in value:
        return [value_of(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {item["key"]: value_of(item["value"]) for item in value["kvlistValue"].get("values", ())}
    return value.get("stringValue", value.get("boolValue", value.get("bytesValue")))


def spans_of(payload: Mapping[str, Any]) -> Iterator[Record]:
    """Yield each span of an ``ExportTraceServiceRequest`` in OTLP JSON."""
    for place, span in _items(payload, "resourceSpans", "scopeSpans", "spans"):
        yield {
            **place,
            "name": span.get("name", ""),
            "trace_id": span["traceId"],
            "span_id": span["spanId"],
            "parent_id": span.get("parentSpanId", ""),
            "kind": span.get("kind", 0),
            "start": int(span["startTimeUnixNano"]),
            "end": int(span["endTimeUnixNano"]),
            "flags": span.get("flags", 0),
            "trace_state": span.get("traceState", ""),
            "attributes": attributes_of(span),
            "events": [
                {"name": item["name"], "time": int(item["timeUnixNano"]), "attributes": attributes_of(item)}
                for item in span.get("events", ())
            ],
            "links": [
                {"trace_id": item["traceId"], "span_id": item["spanId"], "attributes": attributes_of(item)}
                for item in span.get("links", ())
            ],
            "status": span.get("status", {}).get("code", 0),
            "description": span.get("status", {}).get("message", ""),
        }


def points_of(payload: Mapping[str, Any]) -> Iterator[Record]:
    """Yield each data point of an ``ExportMetricsServiceRequest`` in OTLP JSON."""
    for place, metric in _items(payload, "resourceMetrics", "scopeMetrics", "metrics"):
        for kind in ("gauge", "sum", "histogram", "exponentialHistogram", "summary"):
            if kind not in metric:
                continue
            data = metric[kind]
            for point in data.get("dataPoints", ()):
                value = int(point["asInt"]) if "asInt" in point else point.get("asDouble", point.get("sum"))
                yield {
                    **place,
                    "name": metric["name"],
                    "unit": metric.get("unit", ""),
                    "metric_description": metric.get("description", ""),
                    "kind": kind,
                    "monotonic": data.get("isMonotonic", False),
                    "temporality": data.get("aggregationTemporality", 0),
                    "attributes": attributes_of(point),
                    "value": value,
                    "count": int(point.get("count", 0)),
                    "bounds": list(point.get("explicitBounds", ())),
                    "bucket_counts": [int(item) for item in point.get("bucketCounts", ())],
                    "exemplars": [
                        {
                            "trace_id": item.get("traceId", ""),
                            "span_id": item.get("spanId", ""),
                            "value": int(item["asInt"]) if "asInt" in item else item.get("asDouble"),
                        }
                        for item in point.get("exemplars", ())
                    ],
                    "start": int(point.get("startTimeUnixNano", 0)),
                    "time": int(point["timeUnixNano"]),
                }


def logs_of(payload: Mapping[str, Any]) -> Iterator[Record]:
    """Yield each record of an ``ExportLogsServiceRequest`` in OTLP JSON."""
    for place, record in _items(payload, "resourceLogs", "scopeLogs", "logRecords"):
        yield {
            **place,
            "body": value_of(record.get("body", {})),
            "severity": record.get("severityNumber", 0),
            "severity_text": record.get("severityText", ""),
            "event_name": record.get("eventName", ""),
            "trace_id": record.get("traceId", ""),
            "span_id": record.get("spanId", ""),
            "attributes": attributes_of(record),
            "time": int(record.get("timeUnixNano", 0)),
        }


def _items(payload: Mapping[str, Any], outer: str, middle: str, inner: str) -> Iterator[tuple[Record, Record]]:
    for group in payload.get(outer, ()):
        for scoped in group.get(middle, ()):
            scope = scoped.get("scope", {})
            place = {
                "resource": attributes_of(group.get("resource", {})),
                "scope": scope.get("name", ""),
                "scope_version": scope.get("version", ""),
                "scope_attributes": attributes_of(scope),
                "schema_url": scoped.get("schemaUrl", ""),
            }
            for item in scoped.get(inner, ()):
                yield place, item


READERS = {"traces": spans_of, "metrics": points_of, "logs": logs_of}
