"""Ranks side by side, step by step: in which phases one of them stands out.

What a rank spends in a phase, less the median of the other ranks in the same step, is its lag: what makes one step
longer than another on every rank drops out. A rank stands out in a phase when its lag, the median over its steps, is

- at least `MIN_SHARE` of a step: it matters;
- `MIN_SPREADS` times the spread (scaled median absolute deviation) among the other ranks of what they usually spend,
  less the step's median: they are alike and it is not;
- `MIN_ERRORS` times the standard error of that median, from the scatter of the lags over the steps: it is no chance.
  With few steps the scatter is itself uncertain, which `_errors_needed` makes up for;
- above zero in so many steps as a sign test at `MIN_SIGN_ERRORS` standard errors asks for, which with twelve
  steps or fewer is all of them: what is fast in most steps and slow in some has a scatter of zero.

Medians, so that a slow first step, a checkpoint or one bad step decide nothing.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from nemo_lens.sdk.cli._timeline.summary.phases import ALL_WORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nemo_lens.sdk.cli._timeline.summary.phases import RankSteps
    from nemo_lens.sdk.cli._timeline.summary.span_table import Rank

MIN_RANKS = 2
MIN_STEPS = 5
MIN_SHARE = 0.05
MIN_SPREADS = 4.0
MIN_ERRORS = 4.0
MIN_SIGN_ERRORS = 3.0

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MEDIAN_ERROR = 1.2533  # standard error of a median, in those of a mean

# Ranks come in at least this part of a step apart, and leave within this part of that: they have met there.
_APART = 0.02
_TOGETHER = 0.25


class Lag(NamedTuple):
    """How much longer a rank is in a phase than the other ranks, in nanoseconds a step."""

    phase: int
    lag_ns: float
    own_ns: float  # the median of what the rank spends in the phase
    others_ns: float  # the median of what the others do
    slower_steps: int  # in how many of its steps it is longer than the median of the others
    steps: int
    waiting: bool


class Comparison:
    """The ranks side by side, step by step."""

    def __init__(self, ranks: Mapping[Rank, RankSteps]) -> None:
        self._ranks = list(ranks)
        self._steps = list(ranks.values())
        keys = {key: None for steps in self._steps for key in steps.keys}
        columns = {key: at for at, key in enumerate(keys)}
        # For each rank, the column of each of its steps; for each column, the ranks that have it.
        self._columns = [[columns[key] for key in steps.keys] for steps in self._steps]
        self._present: list[list[int]] = [[] for _ in columns]
        for at, own in enumerate(self._columns):
            for column in own:
                self._present[column].append(at)
        periods: list[list[float]] = [list(steps.period_ns) for steps in self._steps]
        self.period_ns = statistics.median(value for own in periods for value in own)
        self._longer = {
            rank: statistics.median(lags) if lags else 0.0
            for rank, lags in zip(self._ranks, self._lags(periods), strict=True)
        }

    def longer_period(self, rank: Rank) -> float:
        """Return how much longer the steps of this rank are than the others', with the time between them."""
        return self._longer[rank]

    def standing_out(self, *phases: int, waiting: bool = False) -> dict[Rank, Lag]:
        """Return the ranks that stand out in this phase, or in these taken together."""
        spent = self._spent(*phases)
        threshold = MIN_SHARE * self.period_ns
        if max(map(max, spent)) < threshold:
            return {}
        series = self._lags(spent)
        lags = [statistics.median(own) if own else 0.0 for own in series]
        scatters = [_spread(own, lag) for own, lag in zip(series, lags, strict=True)]
        usual = self._usual(spent)
        usual_scatter = statistics.median(scatters)
        found = {}
        for at, (rank, lag) in enumerate(zip(self._ranks, lags, strict=True)):
            if lag < threshold or len(series[at]) < MIN_STEPS:
                continue
            others = usual[:at] + usual[at + 1 :]
            if lag < MIN_SPREADS * _spread(others, statistics.median(others)):
                continue
            steps = len(series[at])
            error = _MEDIAN_ERROR * max(scatters[at], usual_scatter) / math.sqrt(steps)
            slower = sum(value > 0 for value in series[at])
            if lag < _errors_needed(steps) * error or slower < _slower_steps_needed(steps):
                continue
            found[rank] = Lag(
                phases[0] if len(phases) == 1 else ALL_WORK,
                lag,
                statistics.median(spent[at]),
                statistics.median(statistics.median(own) for own in spent[:at] + spent[at + 1 :]),
                slower,
                steps,
                waiting,
            )
        return found

    def meet_in(self, phase: int) -> bool:
        """Return whether the ranks come into this phase at different times and leave it together."""
        starts: list[list[int]] = [[] for _ in self._present]
        ends: list[list[int]] = [[] for _ in self._present]
        for at, steps in enumerate(self._steps):
            own = steps.phases.get(phase)
            if own is None:
                continue
            for step, start, end in zip(own.steps, own.last_start_ns, own.last_end_ns, strict=True):
                if start:
                    starts[self._columns[at][step]].append(start)
                    ends[self._columns[at][step]].append(end)
        apart = [max(own) - min(own) for own in starts if len(own) >= MIN_RANKS]
        together = [max(own) - min(own) for own in ends if len(own) >= MIN_RANKS]
        if len(apart) < MIN_STEPS:
            return False
        typical = statistics.median(apart)
        return typical >= _APART * self.period_ns and statistics.median(together) <= _TOGETHER * typical

    def medians(self, phase: int) -> dict[Rank, float]:
        """Return what each rank spends in the phase in its median step, in nanoseconds."""
        return {rank: statistics.median(own) for rank, own in zip(self._ranks, self._spent(phase), strict=True)}

    def _spent(self, *phases: int) -> list[list[float]]:
        """Return what each rank spends in the phases in each of its steps, 0 where it has none of them."""
        spent = []
        for steps in self._steps:
            own = [0.0] * len(steps.keys)
            for found in (steps.phases[phase] for phase in phases if phase in steps.phases):
                for step, value in zip(found.steps, found.self_ns, strict=True):
                    own[step] += value
            spent.append(own)
        return spent

    def _usual(self, values: list[list[float]]) -> list[float]:
        """Return for each rank its value less the median of all ranks in the same step, in the median step."""
        middles = [statistics.median(cell) for cell in self._cells(values)]
        return [
            statistics.median(value - middles[column] for column, value in zip(own, values[at], strict=True))
            for at, own in enumerate(self._columns)
        ]

    def _cells(self, values: list[list[float]]) -> list[list[float]]:
        """Return the values of each step, of the ranks in `_present`."""
        cells: list[list[float]] = [[] for _ in self._present]
        for at, own in enumerate(self._columns):
            for column, value in zip(own, values[at], strict=True):
                cells[column].append(value)
        return cells

    def _lags(self, values: list[list[float]]) -> list[list[float]]:
        """Return for each rank and step its value less the median of the other ranks that have this step."""
        lags: list[list[float]] = [[] for _ in values]
        for ranks, cell in zip(self._present, self._cells(values), strict=True):
            if len(cell) < MIN_RANKS:
                continue
            order = sorted(range(len(cell)), key=cell.__getitem__)
            ordered = [cell[at] for at in order]
            for place, at in enumerate(order):
                lags[ranks[at]].append(cell[at] - _median_without(ordered, place))
        return lags


def _median_without(ordered: Sequence[float], place: int) -> float:
    left = len(ordered) - 1
    upper, lower = left // 2, (left - 1) // 2
    return (ordered[lower + (lower >= place)] + ordered[upper + (upper >= place)]) / 2


def _spread(values: Sequence[float], middle: float) -> float:
    return _MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values) if values else 0.0


def _errors_needed(steps: int) -> float:
    return MIN_ERRORS * (1 + 5 / steps)


def _slower_steps_needed(steps: int) -> float:
    return min(float(steps), (steps + MIN_SIGN_ERRORS * math.sqrt(steps)) / 2)
