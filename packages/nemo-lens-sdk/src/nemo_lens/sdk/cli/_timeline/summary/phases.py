"""Where the time of a thread goes: every moment to one span, and the steps of a rank as numbers to compare.

A moment belongs to the span that was started last of those open: the innermost one of nested spans, and of spans that
overlap (coroutines, a generator around the body of its loop) the one that began after the others. So the time of a span
is its self time, a step is not blamed for what is below it, and no moment counts twice.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nemo_lens.sdk.cli._timeline.summary.span_table import Row

# The phase of the moments between two steps in which no span is open.
UNTRACED = -1
# All phases together in which a rank does not wait for the others.
ALL_WORK = -2


@dataclass
class Phase:
    """One phase of one rank: for each step that has it, the self time, and start and end of its last span (or 0)."""

    steps: array[int] = field(default_factory=lambda: array("l"))
    self_ns: array[int] = field(default_factory=lambda: array("q"))
    last_start_ns: array[int] = field(default_factory=lambda: array("q"))
    last_end_ns: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class RankSteps:
    """The steps of one rank. A period is a step and the time before it, back to the end of the step before."""

    # The run that the steps to come are of; empty when that is not known.
    run: str = ""
    # What the same step has on every rank: its run, its dl.iteration, or None without one, and how many like it came
    # before.
    keys: list[tuple[str, int | None, int]] = field(default_factory=list)
    period_ns: array[int] = field(default_factory=lambda: array("q"))
    phases: dict[int, Phase] = field(default_factory=lambda: defaultdict(Phase))
    _seen: dict[tuple[str, int | None], int] = field(default_factory=lambda: defaultdict(int))

    def append(self, iteration: int | None, spent: dict[int, int], last: dict[int, tuple[int, int]]) -> None:
        """Add a step.

        Args:
            iteration: its ``dl.iteration``.
            spent: the self time of each phase in its period, in nanoseconds.
            last: start and end of the last span of each phase.
        """
        number = len(self.keys)
        self.keys.append((self.run, iteration, self._seen[self.run, iteration]))
        self._seen[self.run, iteration] += 1
        self.period_ns.append(sum(spent.values()))
        for name, self_ns in spent.items():
            phase = self.phases[name]
            phase.steps.append(number)
            phase.self_ns.append(self_ns)
            start, end = last.get(name, (0, 0))
            phase.last_start_ns.append(start)
            phase.last_end_ns.append(end)


@dataclass
class TimeSpent:
    """Time by name, in nanoseconds, over all threads."""

    steps: int = 0
    step_ns: int = 0
    self_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    # Inside a step, on the step's thread: as a part of the step's time, with and without what is below.
    in_steps_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    in_steps_self_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class Sweep:
    """Goes through the spans of one thread in the order of their starts.

    Args:
        step: the number of the name of step spans, None when there is none. A step inside a step is no step.
        spent: takes the times.
        rank_steps: takes the steps, None for a process without rank.
    """

    def __init__(self, step: int | None, spent: TimeSpent, rank_steps: RankSteps | None) -> None:
        self._step, self._spent, self._rank_steps = step, spent, rank_steps
        self._now = 0
        self._open: list[tuple[int, int, bool]] = []  # end, name, whether it began in a step
        self._step_end: int | None = None  # of the step that is open
        self._iteration: int | None = None
        self._any_step = False
        self._period: dict[int, int] = defaultdict(int)
        self._last: dict[int, tuple[int, int]] = {}
        self._covered: dict[int, int] = {}  # of each name, until when the open step's time is counted

    def run(self, rows: Iterable[Row]) -> None:
        """Take in all spans of the thread."""
        for row in rows:
            self._advance(row.start_ns)
            self._push(row)
        self._advance(max((end for end, _, _ in self._open), default=self._now))
        self._close_step()

    def _push(self, row: Row) -> None:
        if self._step_end is not None and row.start_ns >= self._step_end:
            self._close_step()
        # A step that ends within another is a part of it; one that goes on is the next.
        if row.name == self._step and (self._step_end is None or row.end_ns > self._step_end):
            self._close_step()
            self._begin_step(row)
        inside = self._step_end is not None
        if self._step_end is not None:
            end = min(row.end_ns, self._step_end)
            covered = self._covered.get(row.name, row.start_ns)
            if end > covered:
                self._spent.in_steps_ns[row.name] += end - max(row.start_ns, covered)
                self._covered[row.name] = end
        self._last[row.name] = row.start_ns, row.end_ns
        self._open.append((row.end_ns, row.name, inside))

    def _begin_step(self, row: Row) -> None:
        if not self._any_step:  # what came before the first one is start-up
            self._any_step = True
            self._period.clear()
            self._last.clear()
        self._step_end = row.end_ns
        self._iteration = row.iteration
        self._covered.clear()
        self._spent.steps += 1
        self._spent.step_ns += row.end_ns - row.start_ns

    def _close_step(self) -> None:
        if self._step_end is None:
            return
        self._step_end = None
        if self._rank_steps is not None:
            self._rank_steps.append(self._iteration, self._period, self._last)
        self._period.clear()
        self._last.clear()

    def _advance(self, until: int) -> None:
        while self._open and self._now < until:
            end, name, inside = self._open[-1]
            if end <= self._now:
                self._open.pop()
                continue
            self._spend(name, inside, min(end, until))
        if self._now and self._now < until:
            self._spend(UNTRACED, False, until)
        self._now = until

    def _spend(self, name: int, inside: bool, until: int) -> None:
        if self._step_end is not None:
            if self._now >= self._step_end:
                self._close_step()
            elif inside:
                self._spent.in_steps_self_ns[name] += min(until, self._step_end) - self._now
        self._period[name] += until - self._now
        self._spent.self_ns[name] += until - self._now
        self._now = until
