"""Runs of ``nemo-lens timeline`` and what is read from the trace that they write."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from nemo_lens.sdk.cli import main

TraceEvent = dict[str, Any]


def trace_of(*paths: Path, out: Path, code: int = 0) -> dict[str, Any]:
    """Draw the files into ``out`` and return the trace."""
    assert main(["timeline", *map(str, paths), "-o", str(out), "--quiet"]) == code
    return loaded(out)


def loaded(out: Path) -> dict[str, Any]:
    """Return the trace of a file, which is strict JSON."""
    content = out.read_bytes()
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    trace: dict[str, Any] = json.loads(text.decode("utf-8"), parse_constant=refuse)
    return trace


def of_phase(trace: dict[str, Any], phase: str) -> list[TraceEvent]:
    """Return the events of one phase: X spans, i events, s and f arrows, C counters, M metadata."""
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def tracks(trace: dict[str, Any]) -> dict[str, dict[str, list[TraceEvent]]]:
    """Return process name -> track name -> the spans on it, in the order to draw."""
    names: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    for event in of_phase(trace, "M"):
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        if event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
    found: dict[str, dict[str, list[TraceEvent]]] = {processes[pid]: {} for pid in sorted(processes)}
    by_track = defaultdict(list)
    for event in of_phase(trace, "X"):
        by_track[event["pid"], event["tid"]].append(event)
    for (pid, tid), events in sorted(by_track.items()):
        found[processes[pid]][names[pid, tid]] = events
    return found


def nested(events: list[TraceEvent]) -> list[str]:
    """Return the names of one track's spans, each indented by its depth in the picture."""
    lines: list[str] = []
    ends: list[float] = []
    for event in events:
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        lines.append("  " * len(ends) + event["name"])
        ends.append(event["ts"] + event["dur"])
    return lines
