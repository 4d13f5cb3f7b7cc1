"""What can be chosen at the top of the dashboards: run, ranks, and how long a rank may be silent."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import Variable
from .promql import Scope, equals, matches

# Chosen from a list of Grafana's.
SILENCE = "$silence"
SILENCES = ("1m", "2m", "5m", "10m", "30m", "1h")
DEFAULT_SILENCE = "5m"

ONE_RUN = Scope((equals(semconv.NEMO_RUN_ID, "$run"),))
RANKS_OF_THE_RUN = Scope((*ONE_RUN.matchers, matches(semconv.NV_DL_RANK, "$rank")))
SOME_RUNS = Scope((matches(semconv.NEMO_RUN_ID, "$run"),))


def run_and_rank(metric: str, part: str = "") -> tuple[Variable, ...]:
    """Return the variables that choose one run and its ranks, by the series of a metric, or of a part of it."""
    return (
        Variable("run", "run", Scope(()).select(metric, part=part), semconv.NEMO_RUN_ID),
        Variable("rank", "rank", ONE_RUN.select(metric, part=part), semconv.NV_DL_RANK, several=True),
    )


def runs(metric: str, part: str = "") -> Variable:
    """Return the variable that chooses some or all runs, by the series of a metric, or of a part of it."""
    return Variable("run", "run", Scope(()).select(metric, part=part), semconv.NEMO_RUN_ID, several=True)
