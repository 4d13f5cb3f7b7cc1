"""Which process and thread a span is drawn on: identity, order and names of processes, lanes of a thread."""

from __future__ import annotations

import functools
import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_lens.api.semconv import HOST_NAME, NV_DL_RANK, NV_DL_ROLE, PROCESS_PID, SERVICE_INSTANCE_ID, SERVICE_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nemo_lens.sdk.cli._otlp_spans import Span

MAIN_THREAD = 0
_MAIN_NAMES = ("main", "MainThread")
# No rank has more generations of parents in other threads and processes between it and an open span of its thread.
_MAX_GENERATIONS = 64
# As many spans' parents are not looked up again.
_REMEMBERED_PARENTS = 1024

# Resource attributes that tell two processes apart.
_IDENTITY = (NV_DL_RANK, NV_DL_ROLE, HOST_NAME, PROCESS_PID, SERVICE_INSTANCE_ID, SERVICE_NAME)


@dataclass
class Process:
    """A process of the run: one rank, or one of its forked children, or something without a rank."""

    number: int  # in the order in which they were read
    resource: Mapping[str, object]
    # Thread -> its name, in the order in which they were read; ``MAIN_THREAD`` is the first.
    threads: dict[object, int] = field(default_factory=dict)
    thread_names: list[str] = field(default_factory=lambda: ["main"])
    # Set by ``arrange``.
    pid: int = 0
    name: str = ""
    is_child: bool = False
    first_ns: int = 0

    @property
    def rank(self) -> int | None:
        """The rank, None for a process without one."""
        rank = self.resource.get(NV_DL_RANK)
        return rank if isinstance(rank, int) else None

    def thread(self, thread_id: object, name: object) -> int:
        """Return the number of the thread with this id, 0 for the main thread."""
        if thread_id is None or thread_id == self.resource.get(PROCESS_PID) or name in _MAIN_NAMES:
            return MAIN_THREAD
        if isinstance(thread_id, (dict, tuple)):
            thread_id = str(thread_id)
        number = self.threads.get(thread_id)
        if number is None:
            number = self.threads[thread_id] = len(self.thread_names)
            text = str(name) if name else f"thread {thread_id}"
            if text in self.thread_names:
                text = f"{text} {thread_id}"
            self.thread_names.append(text)
        return number


class Processes:
    """All processes of the input, told apart by their resources."""

    def __init__(self) -> None:
        self.all: list[Process] = []
        self._by_identity: dict[tuple[str, ...], Process] = {}
        self._last: tuple[object, Process] | None = None

    def of(self, resource: Mapping[str, object]) -> Process:
        """Return the process that a resource describes."""
        if self._last is not None and self._last[0] is resource:  # the spans of a message share it
            return self._last[1]
        identity = tuple(str(resource.get(key)) for key in _IDENTITY)
        process = self._by_identity.get(identity)
        if process is None:
            process = self._by_identity[identity] = Process(len(self.all), resource)
            self.all.append(process)
        self._last = resource, process
        return process

    def of_span(self, span: Span) -> tuple[Process, int]:
        """Return the process and the thread of a span."""
        process = self.of(span.resource)
        return process, process.thread(span.attributes.get("thread.id"), span.attributes.get("thread.name"))

    def arrange(self, first_ns: Mapping[int, int], parents: Iterable[tuple[int, int]]) -> list[Process]:
        """Name and number the processes and return them in the order to draw: ranks, their children, the others.

        Args:
            first_ns: process number -> when its first span starts, in epoch nanoseconds.
            parents: pairs of process numbers, the first a child of the second by a span.
        """
        for process in self.all:
            process.first_ns = first_ns.get(process.number, 0)
        for child, parent in parents:
            ours, other = self.all[child], self.all[parent]
            if ours.rank is not None and ours.rank == other.rank and _age(other) < _age(ours):
                ours.is_child = True
        ordered = sorted(self.all, key=_place)
        # Where a viewer sorts by name, rank 10 comes after rank 09.
        digits = max((len(str(process.rank)) for process in ordered if process.rank is not None), default=1)
        sharing: dict[str, list[Process]] = {}
        for pid, process in enumerate(ordered, 1):
            process.pid = pid
            process.name = process_name(process.resource, digits)
            if not process.is_child:
                sharing.setdefault(process.name, []).append(process)
        for process in ordered:
            if process.is_child or len(sharing[process.name]) > 1:
                process.name += _distinction(process.resource)
        return ordered


def process_name(resource: Mapping[str, object], digits: int = 1) -> str:
    """Return rank, role and host of a process as far as they are known, else what else is known."""
    rank = resource.get(NV_DL_RANK)
    parts = [f"rank {rank:0{digits}}" if isinstance(rank, int) else f"rank {rank}"] if NV_DL_RANK in resource else []
    if NV_DL_ROLE in resource:
        parts.append(str(resource[NV_DL_ROLE]))
    if not parts and SERVICE_NAME in resource:
        parts.append(str(resource[SERVICE_NAME]))
    if HOST_NAME in resource:
        parts.append(str(resource[HOST_NAME]))
    return " ".join(parts) or _distinction(resource).strip() or "process"


def _distinction(resource: Mapping[str, object]) -> str:
    if PROCESS_PID in resource:
        return f" pid {resource[PROCESS_PID]}"
    return f" {resource[SERVICE_INSTANCE_ID]}" if SERVICE_INSTANCE_ID in resource else ""


def _age(process: Process) -> tuple[int, int]:
    return process.first_ns, process.number


def _place(process: Process) -> tuple[object, ...]:
    rank = process.rank
    others = tuple(
        str(process.resource.get(key, "")) for key in (SERVICE_INSTANCE_ID, HOST_NAME, NV_DL_ROLE, SERVICE_NAME)
    )
    pid = process.resource.get(PROCESS_PID)
    last = (pid if isinstance(pid, int) else 0, process.number)
    if rank is None:
        return (2, 0, others, *last)
    role = str(process.resource.get(NV_DL_ROLE, "trainer"))
    return (int(process.is_child), 0 if role == "trainer" else 1, rank, role, process.first_ns, *last)


class _Open(NamedTuple):
    end_ns: int
    key: bytes
    lane: int


class Lanes:
    """The lanes of one thread. On each, any two spans are disjoint or one is inside the other and below it in the tree.

    Args:
        parent_of: gives the parent of a span, empty for none, None for a span that is not in the input.
    """

    def __init__(self, parent_of: Callable[[bytes], bytes | None]) -> None:
        # Spans that ended are ancestors, too, and those of the spans to come.
        self._parent_of = functools.lru_cache(_REMEMBERED_PARENTS)(parent_of)
        self._stacks: list[list[_Open]] = []
        self._free: list[int] = []  # a heap: lanes without an open span, the first one on top
        self._open: dict[bytes, int] = {}  # span -> its lane
        self._ends: list[tuple[int, int, int]] = []  # a heap: end, the innermost first, and lane
        self._placed = 0

    def place(self, key: bytes, parent: bytes, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return lane and depth for the next span; spans come by start, the longest first.

        Args:
            key: the span's id.
            parent: its parent's id, empty for none.
            start_ns: epoch nanoseconds.
            end_ns: epoch nanoseconds, not before ``start_ns``.
        """
        self._close_until(start_ns)
        lane = self._lane_of_ancestor(parent)
        if lane is None or self._stacks[lane][-1].end_ns < end_ns:
            lane = self._free_lane()
        stack = self._stacks[lane]
        self._placed += 1
        stack.append(_Open(end_ns, key, lane))
        self._open[key] = lane
        # Perfetto draws under a span without length whatever starts at the same time.
        heapq.heappush(self._ends, (max(end_ns, start_ns + 1), -self._placed, lane))
        return lane, len(stack) - 1

    def _close_until(self, time_ns: int) -> None:
        while self._ends and self._ends[0][0] <= time_ns:
            lane = heapq.heappop(self._ends)[2]
            stack = self._stacks[lane]
            self._open.pop(stack.pop().key, None)
            if not stack:
                heapq.heappush(self._free, lane)

    def _lane_of_ancestor(self, key: bytes) -> int | None:
        """Return the lane on which the nearest open ancestor is the innermost span."""
        for _ in range(_MAX_GENERATIONS):
            if not key:
                return None
            lane = self._open.get(key)
            if lane is not None:
                return lane if self._stacks[lane][-1].key == key else None
            above = self._parent_of(key)
            if above is None:
                return self._lane_of_trace(key)
            key = above
        return None

    def _lane_of_trace(self, key: bytes) -> int | None:
        # The ancestor is lost. What is open on the first lane is taken for one when it is of the same trace.
        first = self._stacks[0][-1] if self._stacks and self._stacks[0] else None
        return 0 if first is not None and first.key[:16] == key[:16] else None

    def _free_lane(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._stacks.append([])
        return len(self._stacks) - 1


def lane_name(thread: str, lane: int) -> str:
    """Return the name of the track of a lane."""
    return f"{thread} ({lane + 1})" if lane else thread
