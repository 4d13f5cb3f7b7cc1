"""The numbers of a run: times by span name, what the steps are made of, and the verdict."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from nemo_lens.sdk.cli._timeline.summary.phases import RankSteps, Sweep, TimeSpent
from nemo_lens.sdk.cli._timeline.summary.straggler import Verdict, judge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nemo_lens.sdk.cli._timeline.summary.span_table import Rank, SpanTable


# So many ranks no run has: beyond it the number is wrong.
_MAX_WORLD_SIZE = 1_000_000


class UnknownStepError(Exception):
    """No span has the name that ``--step`` gives."""


@dataclass(frozen=True)
class Slowest:
    """The rank whose median duration is the longest; ``slower_by`` is 0.5 for half as long again as the median rank."""

    rank: Rank
    median_ns: int
    slower_by: float | None  # None when there is no other rank


@dataclass(frozen=True)
class NameTimes:
    """The spans of one name. Times are nanoseconds; shares are parts of the time of all steps, None outside of them."""

    name: str
    ranks: int
    count: int
    total_ns: int
    self_ns: int
    median_ns: int
    p95_ns: int  # the least that 95 % of the durations do not exceed
    max_ns: int
    slowest: Slowest | None
    share: float | None
    self_share: float | None


@dataclass(frozen=True)
class Step:
    """Which spans the steps are, and whether that was ``given``, or found by ``dl.iteration`` or by their ``name``."""

    name: str
    origin: str
    count: int
    ranks: int
    median_ns: int


@dataclass
class Summary:
    """What is known about a run."""

    spans: int
    duplicates: int
    without_duration: int
    ranks: list[Rank]
    hosts: dict[Rank, str]
    run_ids: list[str]
    missing: list[int]  # ranks of which there is no span, though the others know of them
    short: dict[Rank, tuple[int, int]]  # ranks with far fewer steps than the others: how many they have, and these
    step: Step | None
    times: list[NameTimes]  # what the steps spend most of their time in comes first
    verdict: Verdict
    names: Sequence[str] = field(repr=False)  # of phases, by number


def summarize(table: SpanTable, step_name: str | None = None) -> Summary:
    """Compute the summary of a run.

    Args:
        table: the spans.
        step_name: the name of the spans that are steps; by default it is found.

    Returns:
        The summary.

    Raises:
        UnknownStepError: there is no span of this name.
    """
    step, origin = _find_step(table, step_name)
    spent = TimeSpent()
    steps: dict[Rank, RankSteps] = defaultdict(RankSteps)
    durations: dict[int, dict[Rank | None, array[int]]] = defaultdict(lambda: defaultdict(lambda: array("q")))
    duplicates = 0
    runs = _runs_of_several_ranks(table)
    # By start, so that the steps of a rank that was started again come after those from before.
    for thread in sorted(table.threads.values(), key=lambda thread: thread.start_ns):
        rows = []
        for row in thread.rows():
            durations[row.name][thread.rank].append(row.end_ns - row.start_ns)
            rows.append(row)
        duplicates += thread.duplicates
        own = None
        if thread.rank and any(row.name == step for row in rows):
            own = steps[thread.rank]
            own.run = thread.run if thread.run in runs else ""
        Sweep(step, spent, own).run(rows)
    times = [_times(table.names[name], name, by_rank, spent) for name, by_rank in durations.items()]
    times.sort(key=lambda row: (row.self_share is None, -(row.self_share or 0), -row.self_ns, row.name))
    found = None
    if step is not None:
        ordered = sorted(value for values in durations[step].values() for value in values)
        ranks = sum(rank is not None for rank in durations[step])
        found = Step(table.names[step], origin, spent.steps, ranks, _median(ordered))
    ranks_seen = sorted({thread.rank for thread in table.threads.values() if thread.rank})
    return Summary(
        spans=sum(row.count for row in times),
        duplicates=duplicates,
        without_duration=table.without_duration,
        ranks=ranks_seen,
        hosts=table.hosts,
        run_ids=sorted(table.run_ids),
        missing=_missing(table.world_size, {rank.number for rank in ranks_seen}),
        short=_short(steps),
        step=found,
        times=times,
        verdict=_verdict(steps, table.names, found),
        names=table.names,
    )


def _verdict(steps: dict[Rank, RankSteps], names: Sequence[str], step: Step | None) -> Verdict:
    if step is None:
        return Verdict([], "no span looks like a step: name the one that is by --step NAME")
    if not steps:
        return Verdict([], "the steps are of no rank: nothing to compare")
    return judge(steps, names)


def _runs_of_several_ranks(table: SpanTable) -> set[str]:
    # Where no run id was given each rank has made up its own, which tells nothing.
    ranks = defaultdict(set)
    for thread in table.threads.values():
        ranks[thread.run].add(thread.rank)
    return {run for run, of_run in ranks.items() if len(of_run - {None}) > 1}


def _missing(world_size: int, there: set[int]) -> list[int]:
    if not there or world_size > _MAX_WORLD_SIZE:
        return []
    return [number for number in range(world_size) if number not in there]


def _short(steps: dict[Rank, RankSteps]) -> dict[Rank, tuple[int, int]]:
    # By run and role. The last step or two may not have been written when the job was ended.
    groups: dict[tuple[str, str], dict[Rank, int]] = defaultdict(dict)
    for rank, own in sorted(steps.items()):
        for run, count in Counter(run for run, _, _ in own.keys).items():
            groups[run, rank.role][rank] = count
    found = {}
    for counts in groups.values():
        usual = round(statistics.median(counts.values()))
        found.update({rank: (count, usual) for rank, count in counts.items() if count < 0.9 * usual - 1})
    return found


def _find_step(table: SpanTable, name: str | None) -> tuple[int | None, str]:
    if name is not None:
        if name not in table.names:
            raise UnknownStepError(name)
        return table.names.index(name), "given"
    numbers = range(len(table.names))
    by_attribute = [at for at in numbers if table.with_iteration[at] * 2 > table.counts[at]]
    by_name = [at for at in numbers if table.names[at].lower().endswith("step")]
    # What is below a step may carry its iteration, or be called a step, too: the outer one is the longest of most
    # iterations, and of those without one has the most time.
    outermost = Counter(name for _, name in table.longest.values())
    for candidates, origin in ((by_attribute, "dl.iteration"), (by_name, "name")):
        if candidates:
            return max(candidates, key=lambda at: (outermost[at], table.totals[at])), origin
    return None, ""


def _times(text: str, name: int, by_rank: dict[Rank | None, array[int]], spent: TimeSpent) -> NameTimes:
    ordered = sorted(value for values in by_rank.values() for value in values)
    medians = {rank: _median(sorted(values)) for rank, values in by_rank.items() if rank is not None}
    below_steps = name in spent.in_steps_ns and spent.step_ns > 0
    return NameTimes(
        name=text,
        ranks=len(medians),
        count=len(ordered),
        total_ns=sum(ordered),
        self_ns=spent.self_ns.get(name, 0),
        median_ns=_median(ordered),
        p95_ns=ordered[-(-len(ordered) * 95 // 100) - 1],
        max_ns=ordered[-1],
        slowest=_slowest(medians),
        share=spent.in_steps_ns[name] / spent.step_ns if below_steps else None,
        self_share=spent.in_steps_self_ns.get(name, 0) / spent.step_ns if below_steps else None,
    )


def _slowest(medians: dict[Rank, int]) -> Slowest | None:
    if not medians:
        return None
    rank = max(sorted(medians), key=medians.__getitem__)
    middle = statistics.median_low(medians.values())
    slower_by = medians[rank] / middle - 1 if len(medians) > 1 and middle else None
    return Slowest(rank, medians[rank], slower_by)


def _median(ordered: Sequence[int]) -> int:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
