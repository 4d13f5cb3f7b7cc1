"""Which rank is slow, and in which phase, or that none stands out.

Ranks that train together wait for each other: the steps of all take the same time, and the slow rank is the one that is
long in a phase of work and short in the collective in which the others wait for it. So not steps are compared but the
self times of their phases, among ranks of one role. A rank that is a little slow in many phases, in none of them by
enough, is found by all its phases of work together.

A phase is waiting when its name says so, or when the ranks come into it at different times and leave it together. A
long wait is the mark of a rank that is early: it counts only when the rank's steps take longer by it, too. Waiting for
data or for the own device is not meant: there a rank waits for no other rank.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_lens.sdk.cli._timeline.summary.comparison import MIN_RANKS, MIN_STEPS, Comparison, Lag
from nemo_lens.sdk.cli._timeline.summary.phases import ALL_WORK, UNTRACED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nemo_lens.sdk.cli._timeline.summary.phases import RankSteps
    from nemo_lens.sdk.cli._timeline.summary.span_table import Rank

_WAITING = re.compile(
    r"all[-_. ]?(reduce|gather|to[-_. ]?all)|reduce[-_. ]?scatter|barrier|broadcast|collective"
    r"|communicat|(?<![a-z])(recv|receive|comm|gather|nccl|gloo)(?![a-z])",
    re.IGNORECASE,
)
# For whom? Not for another rank, when it is for one of these.
_WAITING_FOR_SOMETHING = re.compile(r"synchroni[sz]e|(?<![a-z])(wait|sync)(?![a-z])", re.IGNORECASE)
_NO_RANK = re.compile(
    r"data|batch|sample|load|input|fetch|queue|file|disk|storage|cuda|gpu|device|stream|host", re.IGNORECASE
)


class Wait(NamedTuple):
    """A phase in which the others wait for the slow rank, in nanoseconds a step."""

    phase: int
    own_ns: float
    others_ns: float


@dataclass
class Straggler:
    """A rank that is slow: in which phases, the worst first; how much longer its steps are; where the others wait."""

    rank: Rank
    lags: list[Lag]
    longer_step_ns: float
    period_ns: float  # the median over all steps of all ranks of the role, the time between steps included
    waits: list[Wait] = field(default_factory=list)

    @property
    def lag_ns(self) -> float:
        """The sum over the phases, in nanoseconds a step."""
        return sum(lag.lag_ns for lag in self.lags)

    @property
    def step_share(self) -> float:
        """That as a part of a step."""
        return self.lag_ns / self.period_ns


@dataclass
class Verdict:
    """The slow ranks, the slowest first; ``reason`` says why there is none."""

    stragglers: list[Straggler]
    reason: str = ""
    period_ns: float = 0.0  # of the role with the longest, 0 when no ranks were compared


def judge(ranks: Mapping[Rank, RankSteps], names: Sequence[str]) -> Verdict:
    """Find the ranks that are slow.

    Args:
        ranks: the steps of each rank.
        names: the names of the phases by number.

    Returns:
        The verdict.
    """
    roles: dict[str, dict[Rank, RankSteps]] = defaultdict(dict)
    for rank, steps in sorted(ranks.items()):
        roles[rank.role][rank] = steps
    verdicts = [_judge_role(alike, names) for alike in roles.values()]
    compared = [verdict for verdict in verdicts if verdict.period_ns] or verdicts
    stragglers = [straggler for verdict in compared for straggler in verdict.stragglers]
    stragglers.sort(key=lambda straggler: -straggler.step_share)
    reason = "" if stragglers else next((verdict.reason for verdict in compared if verdict.reason), "")
    return Verdict(stragglers, reason, max(verdict.period_ns for verdict in compared))


def _judge_role(ranks: Mapping[Rank, RankSteps], names: Sequence[str]) -> Verdict:
    able = {rank: steps for rank, steps in ranks.items() if len(steps.keys) >= MIN_STEPS}
    if len(able) < MIN_RANKS:
        if len(ranks) < MIN_RANKS:
            role = next(iter(ranks)).role
            of_role = f" of role {role}" if role else ""
            return Verdict([], f"there are steps of one rank only{of_role}: nothing to compare it with")
        return Verdict([], f"fewer than {MIN_STEPS} steps a rank: too few to tell chance from cause")
    compared = Comparison(able)
    if not compared.period_ns:
        return Verdict([], "the steps take no time")
    found: dict[Rank, list[Lag]] = {rank: [] for rank in able}
    waiting: list[int] = []
    working: list[int] = []
    for phase in sorted({phase for steps in able.values() for phase in steps.phases}):
        waits = (phase >= 0 and _is_wait(names[phase])) or compared.meet_in(phase)
        (waiting if waits else working).append(phase)
        for rank, lag in compared.standing_out(phase, waiting=waits).items():
            if not waits or compared.longer_period(rank) >= lag.lag_ns / 2:
                found[rank].append(lag)
    if len(working) > 1:
        for rank, lag in compared.standing_out(*working).items():
            found[rank] = found[rank] or [lag]
    stragglers = [
        Straggler(rank, sorted(lags, key=lambda lag: -lag.lag_ns), compared.longer_period(rank), compared.period_ns)
        for rank, lags in found.items()
        if lags
    ]
    stragglers.sort(key=lambda straggler: -straggler.lag_ns)
    if len(able) == len(stragglers) == 2 and stragglers[0].longer_step_ns < stragglers[0].lag_ns / 2:
        one, other = (f"rank {each.rank.number} in {phase_name(each.lags[0].phase, names)}" for each in stragglers)
        return Verdict(
            [],
            f"{one} and {other} take longer than the other one does: one waits for the other, "
            "and neither the names nor the clocks say which",
            compared.period_ns,
        )
    for straggler in stragglers:
        straggler.waits = _waits_for(straggler, waiting, compared)
    return Verdict(stragglers, period_ns=compared.period_ns)


def phase_name(phase: int, names: Sequence[str]) -> str:
    """Return what a phase is called."""
    own = {UNTRACED: "no span, between the steps", ALL_WORK: "all phases of work together"}
    return own.get(phase) or names[phase]


def _is_wait(name: str) -> bool:
    if _WAITING.search(name):
        return True
    return _WAITING_FOR_SOMETHING.search(name) is not None and _NO_RANK.search(name) is None


def _waits_for(straggler: Straggler, waiting: Sequence[int], compared: Comparison) -> list[Wait]:
    """Return the phases in which the other ranks wait for this one, the longest wait first."""
    waits = []
    for phase in waiting:
        medians = compared.medians(phase)
        own = medians.pop(straggler.rank)
        others = statistics.median(medians.values())
        if others - own >= straggler.lag_ns / 4:
            waits.append(Wait(phase, own, others))
    return sorted(waits, key=lambda wait: wait.own_ns - wait.others_ns)
