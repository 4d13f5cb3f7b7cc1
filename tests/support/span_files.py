"""Files of OTLP JSON lines as the file exporter writes them, of any number of ranks and spans, made from templates.

Each rank has one ``train.run`` over its steps; a step has microbatches of a forward and a backward each, a collective
that links to the one of rank 0, and an optimizer step; a second thread loads the next step's data. Every 50th step
fails. The same arguments give the same bytes.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE_NS = 1_700_000_000_000_000_000
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
STEP_NS = 200_000_000
FAILING = 50
BATCH = 512  # spans of a line, the batch processor's default
_STEPS_A_POINT = 10

_RESOURCE = (
    '{{"attributes":[{{"key":"service.name","value":{{"stringValue":"span-files"}}}},'
    '{{"key":"service.instance.id","value":{{"stringValue":"span-files-rank{rank}"}}}},'
    '{{"key":"process.pid","value":{{"intValue":"{pid}"}}}},'
    '{{"key":"host.name","value":{{"stringValue":"gpu-{node:04}"}}}},'
    '{{"key":"nemo.run.id","value":{{"stringValue":"span-files"}}}},'
    '{{"key":"nv.dl.rank","value":{{"intValue":"{rank}"}}}},'
    '{{"key":"nv.dl.world_size","value":{{"intValue":"{ranks}"}}}},'
    '{{"key":"nv.dl.role","value":{{"stringValue":"trainer"}}}}]}}'
)
_THREADS = (("4711", "MainThread"), ("4712", "loader"))
_STATUS_OK = "{}"
_STATUS_ERROR = '{"message":"FloatingPointError: loss is nan","code":2}'
_EXCEPTION = (
    ',"events":[{{"timeUnixNano":"{time}","name":"exception","attributes":['
    '{{"key":"exception.type","value":{{"stringValue":"FloatingPointError"}}}},'
    '{{"key":"exception.message","value":{{"stringValue":"loss is nan"}}}}]}}]'
)
_METRICS = (
    '{{"resourceMetrics":[{{"resource":{resource},"scopeMetrics":[{{"scope":{{"name":"span-files"}},"metrics":['
    '{{"name":"train.step.duration","unit":"s","histogram":{{"dataPoints":[{{"startTimeUnixNano":"{start}",'
    '"timeUnixNano":"{time}","count":"{step}","sum":{sum},"bucketCounts":["0","{step}"],"explicitBounds":[0.1],'
    '"min":0.2,"max":0.2}}],"aggregationTemporality":2}}}},'
    '{{"name":"train.tokens","unit":"{{token}}","sum":{{"dataPoints":[{{"startTimeUnixNano":"{start}",'
    '"timeUnixNano":"{time}","asInt":"{tokens}"}}],"aggregationTemporality":2,"isMonotonic":true}}}},'
    '{{"name":"train.loss","unit":"1","gauge":{{"dataPoints":[{{"timeUnixNano":"{time}","asDouble":{loss}}}]}}}}'
    "]}}]}}]}}\n"
)


@dataclass(frozen=True)
class SpanFiles:
    """What was written.

    Args:
        traces: the files of spans, one for each rank.
        metrics: the files of metrics, one for each rank.
        spans: how many spans there are in all.
        errors: how many of them have the status ERROR.
        links: how many links they have in all.
        points: how many data points of metrics there are in all.
    """

    traces: list[Path]
    metrics: list[Path]
    spans: int
    errors: int
    links: int
    points: int

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return [*self.traces, *self.metrics]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.paths)


def write_span_files(
    folder: Path, ranks: int, spans: int, *, compress: bool = False, microbatches: int = 4
) -> SpanFiles:
    """Write ``spans`` spans, spread evenly over the files of ``ranks`` ranks, and metrics of them into ``folder``.

    Args:
        folder: an existing folder.
        ranks: how many processes have a file each.
        spans: how many spans in all, at least one a rank.
        compress: whether the files are gzip, a member for each line.
        microbatches: how many each step has.
    """
    suffix = ".jsonl.gz" if compress else ".jsonl"
    traces, metrics = [], []
    errors = links = points = 0
    for rank in range(ranks):
        pid = 1000 + rank
        resource = _RESOURCE.format(rank=rank, pid=pid, node=rank // 8, ranks=ranks)
        share = spans // ranks + (rank < spans % ranks)
        rows = _Rank(rank, share, microbatches)
        head = f'{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"nemo.lens"}},"spans":['
        traces.append(folder / f"traces-rank{rank}-{pid}{suffix}")
        with traces[-1].open("wb") as file:
            everything = rows.spans()
            while batch := list(itertools.islice(everything, BATCH)):
                line = f"{head}{','.join(batch)}]}}]}}]}}\n".encode("ascii")
                file.write(gzip.compress(line, 1, mtime=0) if compress else line)
        metrics.append(folder / f"metrics-rank{rank}-{pid}{suffix}")
        with metrics[-1].open("wb") as file:
            for step in range(_STEPS_A_POINT, rows.steps + 1, _STEPS_A_POINT):
                text = _METRICS.format(
                    resource=resource,
                    start=BASE_NS,
                    time=BASE_NS + step * STEP_NS,
                    step=step,
                    sum=round(step * 0.2, 3),
                    tokens=step * 4096,
                    loss=round(10 / step, 6),
                )
                line = text.encode("ascii")
                file.write(gzip.compress(line, 1, mtime=0) if compress else line)
                points += 3
        errors, links = errors + rows.errors, links + rows.links
    return SpanFiles(traces, metrics, spans, errors, links, points)


class _Rank:
    """The spans of one rank in the order in which they end, each as JSON text."""

    def __init__(self, rank: int, count: int, microbatches: int) -> None:
        self._rank = rank
        self._count = count
        self._microbatches = microbatches
        self.steps = self.errors = self.links = 0

    def spans(self) -> Iterator[str]:
        """Yield ``count`` spans: whole steps, then the rest of the number as further forwards, then the run."""
        a_step = 4 + 3 * self._microbatches
        left = self._count - 1
        while left >= a_step:
            yield from self._step(self.steps, a_step)
            self.steps += 1
            left -= a_step
        end = self.steps * STEP_NS
        for number in range(left):
            start = end + number * 1000
            yield self._span(1 + self.steps * a_step + number, 0, "forward", start, start + 1000, self.steps)
        yield self._span(0, None, "train.run", 0, end + left * 1000, None)

    def _step(self, step: int, a_step: int) -> Iterator[str]:
        start, first = step * STEP_NS, 1 + step * a_step
        failing = step % FAILING == FAILING - 1
        # What the loader thread makes during the step before, and a little of this one.
        yield self._span(first + 1, 0, "data.load", max(0, start - STEP_NS // 2), start + 1_000_000, step, thread=1)
        each = (STEP_NS - 60_000_000) // self._microbatches
        # Ranks differ by a little, so that spans do not all begin at once.
        skew = self._rank % 7 * 10_000
        for microbatch in range(self._microbatches):
            number, at = first + 4 + 3 * microbatch, start + 5_000_000 + microbatch * each + skew
            for child, (name, begin, end) in enumerate((("forward", 0.01, 0.4), ("backward", 0.41, 0.9))):
                yield self._span(
                    number + 1 + child, number, name, at + int(begin * each), at + int(end * each), step, microbatch
                )
            yield self._span(number, first, "train.microbatch", at, at + int(0.91 * each), step, microbatch)
        end = start + STEP_NS - 50_000_000
        link = _span_id(0, first + 2) if self._rank else ""
        self.links += bool(link)
        yield self._span(first + 2, first, "comm.all_reduce", end, end + 20_000_000, step, link=link)
        yield self._span(first + 3, first, "optimizer.step", end + 21_000_000, end + 40_000_000, step, failing=failing)
        yield self._span(first, 0, "train.step", start, start + STEP_NS - 5_000_000, step, failing=failing)
        self.errors += 2 * failing

    def _span(
        self,
        number: int,
        parent: int | None,
        name: str,
        start: int,
        end: int,
        step: int | None,
        microbatch: int | None = None,
        *,
        thread: int = 0,
        link: str = "",
        failing: bool = False,
    ) -> str:
        parent_field = "" if parent is None else f'"parentSpanId":"{_span_id(self._rank, parent)}",'
        own = ""
        for key, index in (("dl.iteration", step), ("dl.microbatch_id", microbatch)):
            if index is not None:
                own += f'{{"key":"{key}","value":{{"intValue":"{index}"}}}},'
        thread_id, thread_name = _THREADS[thread]
        events = _EXCEPTION.format(time=BASE_NS + end) if failing else ""
        links = f',"links":[{{"traceId":"{TRACE_ID}","spanId":"{link}","flags":768}}]' if link else ""
        return (
            f'{{"traceId":"{TRACE_ID}","spanId":"{_span_id(self._rank, number)}",{parent_field}"name":"{name}",'
            f'"kind":1,"startTimeUnixNano":"{BASE_NS + start}","endTimeUnixNano":"{BASE_NS + end}",'
            f'"attributes":[{own}{{"key":"thread.id","value":{{"intValue":"{thread_id}"}}}},'
            f'{{"key":"thread.name","value":{{"stringValue":"{thread_name}"}}}}]{events}{links},'
            f'"status":{_STATUS_ERROR if failing else _STATUS_OK},"flags":256}}'
        )


def _span_id(rank: int, number: int) -> str:
    # Scattered like random ones, so that no index has it easy; multiplying by an odd number makes no two the same.
    return f"{((rank + 1) << 40 | number) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:016x}"
