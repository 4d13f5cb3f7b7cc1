"""The summary of a run as a JSON object. Times are nanoseconds; parts are fractions of 1."""

from __future__ import annotations

from typing import Any

from nemo_lens.sdk.cli._timeline.summary.phases import ALL_WORK, UNTRACED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nemo_lens.sdk.cli._timeline.summary.numbers import NameTimes, Summary
    from nemo_lens.sdk.cli._timeline.summary.span_table import Rank
    from nemo_lens.sdk.cli._timeline.summary.straggler import Straggler

# Changes when a key changes its meaning or goes.
SCHEMA_VERSION = 1
_KINDS = {UNTRACED: "between_steps", ALL_WORK: "all_phases"}


def summary_json(summary: Summary) -> dict[str, Any]:
    """Return the summary as what ``json`` can write."""
    step = summary.step
    verdict = summary.verdict
    return {
        "schema_version": SCHEMA_VERSION,
        "spans": summary.spans,
        "duplicates": summary.duplicates,
        "without_duration": summary.without_duration,
        "run_ids": summary.run_ids,
        "ranks": [_rank(rank, summary) for rank in summary.ranks],
        "missing_ranks": summary.missing,
        "short_ranks": [
            {**_rank(rank, summary), "steps": steps, "others_steps": usual}
            for rank, (steps, usual) in summary.short.items()
        ],
        "step": step
        and {
            "name": step.name,
            "origin": step.origin,
            "count": step.count,
            "ranks": step.ranks,
            "median_ns": step.median_ns,
            "period_median_ns": round(verdict.period_ns) or None,
        },
        "slow_ranks": [_straggler(straggler, summary) for straggler in verdict.stragglers],
        "no_verdict": verdict.reason or None,
        "names": [_times(row, summary) for row in summary.times],
    }


def _rank(rank: Rank, summary: Summary) -> dict[str, Any]:
    return {"rank": rank.number, "role": rank.role or None, "host": summary.hosts.get(rank)}


def _phase(phase: int, summary: Summary) -> str | None:
    return None if phase in _KINDS else summary.names[phase]


def _straggler(straggler: Straggler, summary: Summary) -> dict[str, Any]:
    return {
        **_rank(straggler.rank, summary),
        "lag_ns": round(straggler.lag_ns),
        "step_share": straggler.step_share,
        "longer_step_ns": round(straggler.longer_step_ns),
        "phases": [
            {
                "kind": _KINDS.get(lag.phase, "span"),
                "name": _phase(lag.phase, summary),
                "lag_ns": round(lag.lag_ns),
                "own_ns": round(lag.own_ns),
                "others_ns": round(lag.others_ns),
                "slower_steps": lag.slower_steps,
                "steps": lag.steps,
                "waiting": lag.waiting,
            }
            for lag in straggler.lags
        ],
        "waited_for_in": [
            {"name": _phase(wait.phase, summary), "own_ns": round(wait.own_ns), "others_ns": round(wait.others_ns)}
            for wait in straggler.waits
        ],
    }


def _times(row: NameTimes, summary: Summary) -> dict[str, Any]:
    slowest = row.slowest
    return {
        "name": row.name,
        "ranks": row.ranks,
        "count": row.count,
        "total_ns": row.total_ns,
        "self_ns": row.self_ns,
        "median_ns": row.median_ns,
        "p95_ns": row.p95_ns,
        "max_ns": row.max_ns,
        "slowest": slowest
        and {**_rank(slowest.rank, summary), "median_ns": slowest.median_ns, "slower_by": slowest.slower_by},
        "share": row.share,
        "self_share": row.self_share,
    }
