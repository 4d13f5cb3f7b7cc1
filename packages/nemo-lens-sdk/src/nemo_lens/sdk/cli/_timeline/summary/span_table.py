"""The times of all spans in compact columns, a table for each thread of each process, for the summary of a run.

Some 40 bytes a span, whatever its attributes, and 250 an iteration of a process: a million spans take 50 MB or so.
"""

from __future__ import annotations

import itertools
from array import array
from typing import NamedTuple

from nemo_lens.api.semconv import (
    DL_ITERATION,
    HOST_NAME,
    NEMO_RUN_ID,
    NV_DL_RANK,
    NV_DL_ROLE,
    NV_DL_RUN_UUID,
    NV_DL_WORLD_SIZE,
    PROCESS_PID,
    SERVICE_INSTANCE_ID,
    SLURM_RESTART_COUNT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nemo_lens.sdk.cli._otlp_spans import Span

_LAST_NS = 2**63 - 1
_NO_ITERATION = -(2**63)


class Rank(NamedTuple):
    """A rank of a run. Two roles, such as trainer and generator, may number their ranks alike."""

    number: int
    role: str


class Row(NamedTuple):
    """A span of one thread. Times are epoch nanoseconds."""

    start_ns: int
    end_ns: int
    name: int
    iteration: int | None


class ThreadTable:
    """The spans of one thread of one process; ``rank`` is None for a process without rank.

    ``run`` tells the runs apart, and the attempts of one that was started again.
    """

    def __init__(self, rank: Rank | None, run: str) -> None:
        self.rank, self.run = rank, run
        self.start_ns = _LAST_NS
        self.duplicates = 0  # known when all rows were read
        self._starts, self._ends, self._iterations = array("q"), array("q"), array("q")
        self._names = array("l")
        self._ids = array("q")

    def append(self, row: Row, span_key: int) -> None:
        """Add a span; ``span_key`` tells it from every other span."""
        self.start_ns = min(self.start_ns, row.start_ns)
        self._starts.append(row.start_ns)
        self._ends.append(row.end_ns)
        self._names.append(row.name)
        self._iterations.append(_NO_ITERATION if row.iteration is None else row.iteration)
        self._ids.append(span_key)

    def rows(self) -> Iterator[Row]:
        """Yield the spans by start, of those that start together the longer first. One that was read twice comes once.

        Writers give a parent after its children: of two spans with the same times the later one is the outer.
        """
        starts, ends = self._starts, self._ends
        # Two stable sorts: keys of two numbers would take more memory than all the columns.
        order = sorted(range(len(starts) - 1, -1, -1), key=ends.__getitem__, reverse=True)
        order.sort(key=starts.__getitem__)
        self.duplicates = 0
        for _, same in itertools.groupby(order, lambda at: (starts[at], ends[at])):
            seen = set()
            for at in same:
                if self._ids[at] in seen:
                    self.duplicates += 1
                    continue
                seen.add(self._ids[at])
                iteration = self._iterations[at]
                yield Row(starts[at], ends[at], self._names[at], None if iteration == _NO_ITERATION else iteration)


class SpanTable:
    """The spans of a run."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.without_duration = 0  # spans that lack a start or an end, or end before they start
        self.hosts: dict[Rank, str] = {}
        self.run_ids: set[str] = set()
        self.world_size = 0  # the largest that a rank states
        self.threads: dict[tuple[object, ...], ThreadTable] = {}
        # Of each name: spans, those of them that carry dl.iteration, and their time in nanoseconds.
        self.counts: list[int] = []
        self.with_iteration: list[int] = []
        self.totals: list[int] = []
        # Of each iteration of each process, the longest span: its duration and the number of its name.
        self.longest: dict[tuple[object, ...], tuple[int, int]] = {}
        self._name_numbers: dict[str, int] = {}
        self._resource: Mapping[str, object] | None = None
        self._process: tuple[object, ...] = ()
        self._rank: Rank | None = None
        self._run = ""

    def add(self, span: Span) -> None:
        """Take in one span."""
        if not 0 < span.start_ns <= span.end_ns <= _LAST_NS:
            self.without_duration += 1
            return
        if span.resource is not self._resource:  # spans of one message share it
            self._enter(span.resource)
        number = self._name_numbers.setdefault(span.name, len(self.names))
        if number == len(self.names):
            self.names.append(span.name)
            for column in (self.counts, self.with_iteration, self.totals):
                column.append(0)
        self.counts[number] += 1
        self.totals[number] += span.end_ns - span.start_ns
        iteration = _whole(span.attributes.get(DL_ITERATION))
        if iteration is not None:
            self.with_iteration[number] += 1
            place = (*self._process, iteration)
            self.longest[place] = max(self.longest.get(place, (-1, 0)), (span.end_ns - span.start_ns, number))
        key = (*self._process, _whole(span.attributes.get("thread.id")))
        table = self.threads.get(key)
        if table is None:
            table = self.threads[key] = ThreadTable(self._rank, self._run)
        table.append(Row(span.start_ns, span.end_ns, number, iteration), hash((span.trace_id, span.span_id)))

    def _enter(self, resource: Mapping[str, object]) -> None:
        self._resource = resource
        number = _number(resource.get(NV_DL_RANK))
        host = str(resource.get(HOST_NAME, ""))
        self._rank = None
        if number is not None:
            self._rank = Rank(number, str(resource.get(NV_DL_ROLE, "")))
            if host:
                self.hosts.setdefault(self._rank, host)
            self.world_size = max(self.world_size, _number(resource.get(NV_DL_WORLD_SIZE)) or 0)
        run_id = str(resource.get(NEMO_RUN_ID, ""))
        if run_id:
            self.run_ids.add(run_id)
        requeued = _number(resource.get(SLURM_RESTART_COUNT)) or ""
        self._run = f"{run_id} {resource.get(NV_DL_RUN_UUID, '')} {requeued}".strip()
        process = (str(resource.get(key)) for key in (PROCESS_PID, SERVICE_INSTANCE_ID))
        self._process = (self._rank, host, *process, self._run)


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LAST_NS:
        return value
    return None


def _number(value: object) -> int | None:
    # What comes from OTEL_RESOURCE_ATTRIBUTES is text.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return _whole(value)
