"""From spans to the picture: pours what is read into the spool, and draws what is in the spool."""

from __future__ import annotations

import heapq
import json

from nemo_lens.sdk.cli._timeline.spool import ArrowEnd, SpanRow, Spool, span_key
from nemo_lens.sdk.cli._timeline.trace_events import Clock, encoded, metadata, resource_text, span_body, span_events
from nemo_lens.sdk.cli._timeline.tracks import MAIN_THREAD, Lanes, Process, Processes, lane_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nemo_lens.sdk.cli._otlp_spans import Span
    from nemo_lens.sdk.cli._timeline.profile.profiler import Profiles

# Tracks that are not main threads get numbers from here on, each its own: a main thread has its process's number, by
# which viewers know it, and nobody draws so many processes.
_FIRST_TID = 100_000


class Picture:
    """The spans and points of a run.

    Args:
        spool: holds them between reading and drawing.
        profiles: what PyTorch profilers recorded of the same run; all read before ``finish``.
    """

    def __init__(self, spool: Spool, profiles: Profiles | None = None) -> None:
        self.spool = spool
        self.profiles = profiles
        self.processes = Processes()
        self.without_start = 0
        self.ordered: list[Process] = []
        self.first_ns = 0
        self.last_ns = 0
        self.tracks = 0
        self.clock = Clock(0, 0)
        self._next_tid = _FIRST_TID

    def add(self, span: Span) -> None:
        """Pour a span into the spool. One that has no time at all cannot be drawn and is counted."""
        start_ns = span.start_ns if span.start_ns > 0 else span.end_ns
        if start_ns <= 0:
            self.without_start += 1
            return
        end_ns = max(span.end_ns, start_ns)
        process, thread = self.processes.of_span(span)
        self.spool.add_span(
            process.number,
            thread,
            start_ns,
            end_ns,
            span_key(span.trace_id, span.span_id),
            span_key(span.trace_id, span.parent_id),
            span_body(span),
            span_events(span, end_ns),
            tuple(span_key(link.trace_id, link.span_id) for link in span.links),
        )

    def add_point(self, resource: Mapping[str, object], time_ns: int, body: str) -> None:
        """Pour an event without a lane, such as a counter's, into the spool: its JSON without braces, pid and ts."""
        self.spool.add_point(self.processes.of(resource).number, time_ns, encoded(body))

    def finish(self) -> None:
        """Find duplicates and arrows, name and order the processes; nothing is added after this."""
        self.spool.finish()
        extents = self.spool.threads()
        first_ns: dict[int, int] = {}
        for extent in extents:
            first_ns[extent.process] = min(first_ns.get(extent.process, extent.first_ns), extent.first_ns)
        points = self.spool.point_extents()
        for process, first, _ in points:
            first_ns.setdefault(process, first)
        profiles = [] if self.profiles is None else self.profiles.place(self.processes, extents)
        for process, first, _ in profiles:
            first_ns[process] = min(first_ns.get(process, first), first)
        self.ordered = self.processes.arrange(first_ns, self.spool.process_parents())
        others = [*points, *profiles]
        self.first_ns = min([extent.first_ns for extent in extents] + [first for _, first, _ in others], default=0)
        self.last_ns = max([extent.last_ns for extent in extents] + [last for _, _, last in others], default=0)
        self.clock = Clock(self.first_ns, self.last_ns)

    def new_tid(self) -> int:
        """Return a track number that nothing else has."""
        self._next_tid += 1
        return self._next_tid - 1

    def events(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        """Yield all events as JSON.

        Args:
            progress: called now and then with the number of spans drawn.
        """
        for process in self.ordered:
            yield from _process_metadata(process)
        yield from self._spans(progress)
        pids = {process.number: process.pid for process in self.ordered}
        for number, time_ns, body in self.spool.point_rows():
            yield b'{%b,"pid":%d,"ts":%b}' % (body, pids[number], self.clock.at(time_ns).encode())

    def _spans(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        thread: _Thread | None = None
        for drawn, row in enumerate(self.spool.rows()):
            if drawn % 1000 == 0:
                progress(drawn)
            if thread is None or (row.process, row.thread) != thread.key:
                if thread is not None:
                    yield from thread.rest()
                    yield from self._below(thread.process, thread.key[1])
                thread = _Thread(self, row)
            yield from thread.span(row)
        if thread is not None:
            yield from thread.rest()
            yield from self._below(thread.process, thread.key[1])
        for process in self.ordered:
            yield from self._below(process, None)

    def _below(self, process: Process, thread: int | None) -> Iterator[bytes]:
        """Yield what a profiler recorded of a thread; of None, what is left of the process."""
        if self.profiles is not None:
            yield from self.profiles.below(process, thread, self.clock, self._new_track, self.spool.arrows)

    def _new_track(self) -> int:
        self.tracks += 1
        return self.new_tid()


class _Thread:
    """The thread that is being drawn: its lanes and their track numbers."""

    def __init__(self, picture: Picture, row: SpanRow) -> None:
        self.key = (row.process, row.thread)
        self.process = picture.processes.all[row.process]
        self._picture = picture
        self._lanes = Lanes(picture.spool.parent_of)
        self._tids: list[int] = []
        self._resource = encoded(resource_text(self.process.resource))
        # A heap of instant events that are still to be written: time, order, text.
        self._instants: list[tuple[int, int, bytes]] = []

    def span(self, row: SpanRow) -> Iterator[bytes]:
        """Yield the span, its arrows, and the instant events of this thread that lie before it."""
        yield from self._instants_before(row.start_ns)
        lane, depth = self._lanes.place(row.id, row.parent, row.start_ns, row.end_ns)
        if lane == len(self._tids):
            yield from self._new_lane()
        clock = self._picture.clock
        where = b'"pid":%d,"tid":%d,"ts":' % (self.process.pid, self._tids[lane])
        start, duration = clock.at(row.start_ns).encode(), clock.between(row.start_ns, row.end_ns).encode()
        resource = self._take_resource() if depth == 0 else b""
        yield b'{"ph":"X",%b%b,"dur":%b,%b%b}}' % (where, start, duration, row.body, resource)
        # Right behind the span: a viewer hangs an arrow on the last slice that it has seen, be it an instant event.
        if row.has_arrows:
            for end in self._picture.spool.arrow_ends(row.seq):
                yield b"{%b,%b%b}" % (_arrow(end), where, start)
        if row.events:
            for time_ns, body in json.loads(row.events):
                text = b'{"ph":"i","s":"t",%b%b,%b}' % (where, clock.at(time_ns).encode(), encoded(body))
                heapq.heappush(self._instants, (time_ns, len(self._instants), text))

    def rest(self) -> Iterator[bytes]:
        """Yield what is left after the last span."""
        yield from self._instants_before(None)

    def _instants_before(self, time_ns: int | None) -> Iterator[bytes]:
        while self._instants and (time_ns is None or self._instants[0][0] < time_ns):
            yield heapq.heappop(self._instants)[2]

    def _new_lane(self) -> Iterator[bytes]:
        lane, thread = len(self._tids), self.key[1]
        tid = self.process.pid if thread == MAIN_THREAD and lane == 0 else self._picture.new_tid()
        self._tids.append(tid)
        self._picture.tracks += 1
        name = lane_name(self.process.thread_names[thread], lane)
        yield encoded(metadata("thread_name", self.process.pid, tid, "name", name))
        yield encoded(metadata("thread_sort_index", self.process.pid, tid, "sort_index", tid))

    def _take_resource(self) -> bytes:
        """Return the resource for the first span of the thread, nothing for the others."""
        resource, self._resource = self._resource, b""
        return resource


def _process_metadata(process: Process) -> Iterator[bytes]:
    labels = ", ".join(
        f"{title} {process.resource[key]}"
        for key, title in (("service.name", "service"), ("nemo.run.id", "run"), ("process.pid", "pid"))
        if key in process.resource
    )
    for name, argument, value in (
        ("process_name", "name", process.name),
        ("process_sort_index", "sort_index", process.pid),
        ("process_labels", "labels", labels),
    ):
        if value:
            yield encoded(metadata(name, process.pid, 0, argument, value))


def _arrow(end: ArrowEnd) -> bytes:
    phase = '"ph":"s"' if end.begins else '"ph":"f","bp":"e"'
    name = f"{end.kind} (starts later)" if end.backwards else end.kind
    return f'{phase},"cat":"{end.kind}","name":"{name}","id":{end.number}'.encode()
