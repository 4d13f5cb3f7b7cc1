"""Rows of PyTorch profiles: which there are, their names and order, and the events on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_lens.sdk.cli._timeline.profile.kineto_events import COUNTER, SLICE
from nemo_lens.sdk.cli._timeline.trace_events import encoded, metadata, to_json
from nemo_lens.sdk.cli._timeline.tracks import MAIN_THREAD, lane_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nemo_lens.sdk.cli._timeline.profile.kineto_events import Names, Place
    from nemo_lens.sdk.cli._timeline.profile.spool import ArrowEnd, ProfileSpool
    from nemo_lens.sdk.cli._timeline.trace_events import Clock
    from nemo_lens.sdk.cli._timeline.tracks import Process

# The order of the rows of a process.
_HOST, _GPU, _OTHER = range(3)
_OVERHEAD_PID = -1


class RowKey(NamedTuple):
    """What makes places of several files of a process one row."""

    kind: int
    device: int
    tid: tuple[int, int, str]  # numbers before texts


@dataclass
class Row:
    """A row of the picture. ``thread`` is the thread of spans below which it is, None for none."""

    key: RowKey
    name: str
    thread: int | None
    tracks: list[int] = field(default_factory=list)
    is_drawn: bool = False


def row_of(place: Place, names: Names, process: Process) -> Row:
    """Return the row of a place of a profile."""
    tid = (0, place.tid, "") if isinstance(place.tid, int) else (1, 0, str(place.tid))
    name = names.threads.get(place) or (f"thread {place.tid}" if tid[0] == 0 else str(place.tid))
    if place.pid in names.gpus and isinstance(place.pid, int):
        name = names.threads.get(place) or (f"stream {place.tid}" if tid[0] == 0 else str(place.tid))
        return Row(RowKey(_GPU, place.pid, tid), f"GPU {place.pid} {name}", None)
    if place.pid == names.host_pid:
        thread = MAIN_THREAD if place.tid == place.pid else process.threads.get(place.tid)
        return Row(RowKey(_HOST, 0, tid), name, thread)
    if place.pid == _OVERHEAD_PID:
        name = "profiler overhead"
    return Row(RowKey(_OTHER, place.pid if isinstance(place.pid, int) else 0, tid), name, None)


class Drawing:
    """Draws one row: its lanes and their track numbers."""

    def __init__(
        self, spool: ProfileSpool, pid: int, row: Row, clock: Clock, new_tid: Callable[[], int], first_arrow: int
    ) -> None:
        self._spool = spool
        self._pid = pid
        self._row = row
        self._clock = clock
        self._new_tid = new_tid
        self._first_arrow = first_arrow
        self._lanes = NestingLanes()
        self._tids: list[int] = []

    def events(self) -> Iterator[bytes]:
        for row in self._spool.rows(self._row.tracks):
            start = self._clock.at(row.start_ns).encode()
            if row.kind == COUNTER:
                yield b'{"ph":"C","pid":%d,"ts":%b,%b}' % (self._pid, start, row.body)
                continue
            lane = self._lanes.place(row.start_ns, row.end_ns) if row.kind == SLICE else 0
            while lane >= len(self._tids):
                yield from self._new_lane()
            where = b'"pid":%d,"tid":%d,"ts":%b' % (self._pid, self._tids[lane], start)
            if row.kind == SLICE:
                duration = self._clock.between(row.start_ns, row.end_ns).encode()
                yield b'{"ph":"X",%b,"dur":%b,%b}' % (where, duration, row.body)
            else:
                yield b'{"ph":"i","s":"t",%b,%b}' % (where, row.body)
            # Right behind the slice: a viewer hangs an arrow on the innermost one that it has seen at that time.
            if row.has_arrows:
                for arrow in self._spool.arrow_ends(row.seq):
                    yield self._arrow(arrow, where)

    def _new_lane(self) -> Iterator[bytes]:
        tid = self._new_tid()
        name = lane_name(self._row.name, len(self._tids))
        self._tids.append(tid)
        yield encoded(metadata("thread_name", self._pid, tid, "name", name))
        yield encoded(metadata("thread_sort_index", self._pid, tid, "sort_index", tid))

    def _arrow(self, arrow: ArrowEnd, where: bytes) -> bytes:
        phase = '"ph":"s"' if arrow.begins else '"ph":"f","bp":"e"'
        kind = to_json(arrow.kind)
        number = self._first_arrow + arrow.number
        return encoded(f'{{{phase},"cat":{kind},"name":{kind},"id":{number},') + where + b"}"


class NestingLanes:
    """The lanes of one row. On each, any two slices are disjoint or one is inside the other."""

    def __init__(self) -> None:
        self._open: list[list[tuple[int, int]]] = []  # of each lane start and end of the slices that are open

    def place(self, start_ns: int, end_ns: int) -> int:
        """Return the lane for the next slice; slices come by start, the longest first.

        It goes into the slice that began last of those it fits into, else onto the first lane that is free.
        """
        fitting: tuple[int, int] | None = None
        free = len(self._open)
        for lane, stack in enumerate(self._open):
            while stack and stack[-1][1] <= start_ns:
                stack.pop()
            if not stack:
                free = min(free, lane)
            elif stack[-1][1] >= end_ns and (fitting is None or stack[-1][0] > fitting[0]):
                fitting = stack[-1][0], lane
        lane = free if fitting is None else fitting[1]
        if lane == len(self._open):
            self._open.append([])
        self._open[lane].append((start_ns, end_ns))
        return lane
