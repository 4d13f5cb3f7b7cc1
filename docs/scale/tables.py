"""The tables of the page on scale, in Markdown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reference_pages.markdown import table_head, table_row
from scale.volume import Part, Volume, gateways, of_job
from scale.workload import GROUPS, PRESETS, Job, spans_per_step

RANKS = (8, 64, 512, 1024, 4096, 16_384)
_DAY_S = 86_400
# Intervals to which a large job may slow its exports down.
_SLOW_METRICS_S, _SLOW_SPANS_S = 60.0, 30.0
# The largest trace that Grafana Tempo takes unless its max_bytes_per_trace says otherwise.
_LARGEST_TRACE = 5_000_000
_WAYS = {
    "plain": "OTLP/HTTP, no compression",
    "gzip": "OTLP/HTTP, gzip",
    "file": "file, `.jsonl`",
    "file.gz": "file, `.jsonl.gz`",
}


def tables(job: Job, ranks: Iterable[int], sizes: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name."""
    ranks = tuple(ranks)
    made = {
        "presets": _presets(job),
        "sizes": _sizes(sizes),
        "volume": _volume(job, ranks, sizes),
        "metrics": _metrics(job, ranks, sizes),
        "collectors": _collectors(job, ranks, sizes),
        "reductions": _reductions(job, ranks[-1], sizes),
        "traces": _traces(job, ranks, sizes),
        "load": _load(sizes),
    }
    return {name: "\n".join(lines) for name, lines in made.items()}


def _presets(job: Job) -> Iterator[str]:
    yield from table_head("group", "around", "spans a step", "here", *(f"`{name}`" for name in PRESETS))
    for name, group in GROUPS.items():
        marks = ("x" if name in groups else "" for groups in PRESETS.values())
        yield table_row(f"`{name}`", group.around, group.formula, _number(group.spans_per_step(job)), *marks)
    yield table_row("all", "", "", "", *(_number(spans_per_step(job, name)) for name in PRESETS))


def _sizes(sizes: Mapping[str, Any]) -> Iterator[str]:
    first = next(iter(sizes["traces"].values()))["plain"]
    yield from table_head("bytes of a request or line", *_WAYS.values())
    for preset, curves in sizes["traces"].items():
        for batch in first:
            what = f"`{preset}`, {batch} span{'s' if batch != '1' else ''}"
            yield table_row(what, *(_exact(curves[way][batch]) for way in _WAYS))
    yield table_row("1 log record", *(_exact(sizes["logs"][way]["1"]) for way in _WAYS))
    points = sizes["metrics"]["points"]
    yield table_row(
        f"the {points} data points of a rank", *(_exact(sizes["metrics"]["ways"][way]["1"]) for way in _WAYS)
    )


def _volume(job: Job, ranks: Iterable[int], sizes: Mapping[str, Any]) -> Iterator[str]:
    yield from table_head(
        "ranks", "preset", "spans/s", "requests/s", "MB/s", "MB/s, gzip", "`.jsonl` a day", "`.jsonl.gz` a day", "cores"
    )
    for number in ranks:
        for preset in PRESETS:
            total = of_job(job, number, [Part(1, preset)], sizes)
            yield table_row(
                _exact(number),
                f"`{preset}`",
                _number(total.spans),
                _number(total.requests),
                _number(total.size["plain"] / 1e6),
                _number(total.size["gzip"] / 1e6),
                *_stored(total),
                _number(total.cores),
            )


def _metrics(job: Job, ranks: Iterable[int], sizes: Mapping[str, Any]) -> Iterator[str]:
    each, slow = _number(job.metric_interval_s), _number(_SLOW_METRICS_S)
    yield from table_head(
        "ranks", "series", f"points/s, every {each} s", f"points/s, every {slow} s", "series of 100 runs"
    )
    for number in ranks:
        series = number * sizes["metrics"]["series"]
        points = number * sizes["metrics"]["points"]
        yield table_row(
            _exact(number),
            _exact(series),
            _number(points / job.metric_interval_s),
            _number(points / _SLOW_METRICS_S),
            _exact(100 * series),
        )


def _collectors(job: Job, ranks: Iterable[int], sizes: Mapping[str, Any]) -> Iterator[str]:
    yield from table_head(
        "ranks",
        "connections to one central collector",
        "collectors on nodes",
        "connections of these to gateways",
        *(f"gateways, `{preset}`" for preset in PRESETS),
    )
    for number in ranks:
        nodes = math.ceil(number / job.ranks_per_node)
        loads = (of_job(job, number, [Part(1, preset)], sizes).cores for preset in PRESETS)
        connections = number * sizes["connections"]
        needed = (_exact(gateways(cores)) if number > job.ranks_per_node else "" for cores in loads)
        yield table_row(_exact(number), _exact(connections), _exact(nodes), _exact(nodes), *needed)


def _reductions(job: Job, ranks: int, sizes: Mapping[str, Any]) -> Iterator[str]:
    one = 1 / job.ranks_per_node
    mixes = {
        "`all` on every rank": [Part(1, "all")],
        "`all` on one rank of each node, `minimal` on the others": [Part(one, "all"), Part(1 - one, "minimal")],
        "`all`, one step in a hundred sampled": [Part(1, "all", 0.01)],
        "`all` on one rank of the job, `minimal` on the others": [
            Part(1 / ranks, "all"),
            Part(1 - 1 / ranks, "minimal"),
        ],
        "`default` on every rank": [Part(1, "default")],
        "`default`, one step in ten sampled": [Part(1, "default", 0.1)],
        "`default` on one rank of each node, no spans on the others": [Part(one, "default"), Part(1 - one, None)],
        "`minimal` on every rank": [Part(1, "minimal")],
        "no spans": [Part(1, None)],
    }
    slow = dataclasses.replace(job, metric_interval_s=_SLOW_METRICS_S, span_delay_s=_SLOW_SPANS_S)
    yield from table_head(
        f"{_exact(ranks)} ranks", "spans/s", "requests/s", "MB/s, gzip", "`.jsonl` a day", "`.jsonl.gz` a day"
    )
    rows = [(name, of_job(job, ranks, parts, sizes)) for name, parts in mixes.items()]
    for name in ("`default` on every rank", "`minimal` on every rank", "no spans"):
        rows.append((f"{name}, slow intervals", of_job(slow, ranks, mixes[name], sizes)))
    for name, total in rows:
        yield table_row(
            name,
            _number(total.spans),
            _number(total.requests),
            _number(total.size["gzip"] / 1e6),
            *_stored(total),
        )


def _traces(job: Job, ranks: Iterable[int], sizes: Mapping[str, Any]) -> Iterator[str]:
    yield from table_head("ranks", *(f"`{preset}`" for preset in PRESETS))
    for number in ranks:
        cells = []
        for preset in PRESETS:
            curve = sizes["traces"][preset]["plain"]
            # What a span adds to a trace: the resource stands once for a batch.
            a_span = (curve["512"] - curve["64"]) / (512 - 64)
            a_step = number * spans_per_step(job, preset) * a_span
            steps = _LARGEST_TRACE / a_step
            full = f"full after {_duration(steps * job.step_time_s)}" if steps >= 1 else "no step fits"
            cells.append(f"{_number(a_step / 1e6)} MB a step, {full}")
        yield table_row(_exact(number), *cells)


def _load(sizes: Mapping[str, Any]) -> Iterator[str]:
    spent = sizes["collector"]["us per request"]
    yield from table_head("request", "processor time", "a core takes in a second")
    for batch, microseconds in spent["traces"].items():
        taken = f"{_number(1e6 / microseconds)} requests, {_number(int(batch) * 1e6 / microseconds)} spans"
        yield table_row(f"{batch} span{'s' if batch != '1' else ''}", f"{_number(microseconds)} us", taken)
    for signal, what in (("metrics", f"{sizes['metrics']['points']} data points"), ("logs", "1 log record")):
        microseconds = spent[signal]["1"]
        yield table_row(what, f"{_number(microseconds)} us", f"{_number(1e6 / microseconds)} requests")


def _stored(total: Volume) -> tuple[str, str]:
    plain, compressed = (_bytes(total.size[way] * _DAY_S) for way in ("file", "file.gz"))
    return plain, compressed


def _exact(value: float) -> str:
    return f"{round(value):,}".replace(",", " ")


def _number(value: float) -> str:
    """Return a figure to three digits, or as a whole number where it is one."""
    if not value:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return _exact(rounded) if digits <= 0 or rounded == int(rounded) else f"{rounded:.{digits}f}".rstrip("0")


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if value >= size:
            return f"{_number(value / size)} {unit}"
    return f"{_number(value / 1e6)} MB"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(seconds)} s"
