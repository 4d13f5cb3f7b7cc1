"""OTLP JSON lines laid out by hand, as any writer may have written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
BASE_NS = 1_700_000_000_000_000_000


def value(given: object) -> dict[str, Any]:
    """Return an ``AnyValue``."""
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    if isinstance(given, float):
        return {
            "doubleValue": given if given - given == 0 else str(given).replace("inf", "Infinity").replace("nan", "NaN")
        }
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(item) for item in given]}}
    if isinstance(given, dict):
        return {"kvlistValue": {"values": attributes(given)}}
    return {} if given is None else {"stringValue": given}


def attributes(given: dict[str, object]) -> list[dict[str, Any]]:
    """Return a list of ``KeyValue``."""
    return [{"key": key, "value": value(item)} for key, item in given.items()]


def span(name: str, number: int, parent: int = 0, start: int = 0, end: int = 1000, **fields: Any) -> dict[str, Any]:
    """Return a span whose id is ``number``; ``start`` and ``end`` are nanoseconds into the run."""
    made: dict[str, Any] = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(BASE_NS + start),
        "endTimeUnixNano": str(BASE_NS + end),
        **fields,
    }
    if parent:
        made["parentSpanId"] = f"{parent:016x}"
    if isinstance(made.get("attributes"), dict):
        made["attributes"] = attributes(made["attributes"])
    return made


def link(number: int, **own: object) -> dict[str, Any]:
    """Return a link to the span with this number."""
    return {"traceId": TRACE, "spanId": f"{number:016x}", "attributes": attributes(own)}


def event(name: str, at: int, **own: object) -> dict[str, Any]:
    """Return an event ``at`` nanoseconds into the run."""
    return {"name": name, "timeUnixNano": str(BASE_NS + at), "attributes": attributes(own)}


def line(*spans: dict[str, Any], scope: str = "lib", **resource: object) -> str:
    """Return one line with these spans; ``nv__dl__rank=1`` is the resource attribute ``nv.dl.rank``."""
    own = {key.replace("__", "."): item for key, item in resource.items()}
    group = {"scope": {"name": scope}, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"resource": {"attributes": attributes(own)}, "scopeSpans": [group]}]})


def write(path: Path, *lines: str) -> Path:
    """Write a file of these lines."""
    path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
    return path
