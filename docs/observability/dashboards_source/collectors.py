"""The collectors between the jobs and the stores: a row of the dashboard ``telemetry-health``."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import BAD_FROM_ONE, Level, Panel, Query, Row
from .collector_metrics import ACCEPTED, EXPORTER, GIVEN_UP, QUEUE_CAPACITY, QUEUE_FULL, QUEUE_SIZE, REFUSED
from .promql import Scope, aggregate, zero_if_none

# Collectors send their own metrics less often than jobs do.
EVERY = "1m"
# All of them: a collector belongs to no run.
SCOPE = Scope(())
LOST = {signal: (QUEUE_FULL[signal], GIVEN_UP[signal]) for signal in QUEUE_FULL}
FILL = f"{SCOPE.latest(QUEUE_SIZE)} / {SCOPE.latest(QUEUE_CAPACITY)}"


def rates(metrics: dict[str, str], what: str = "") -> tuple[Query, ...]:
    """Return what the collectors count a second, by signal; 0 where nothing was counted yet."""
    return tuple(Query(zero_if_none(SCOPE.rate(metric)), f"{signal}{what}") for signal, metric in metrics.items())


COLLECTORS = Row(
    "Do the collectors hold?",
    "What the collectors take, refuse and lose, over all of them whatever `run` says. Of collectors that send their "
    "own metrics, as those of this documentation do.",
    (
        Panel(
            "Lost by collectors",
            "stat",
            "short",
            "Spans, log records and data points that collectors dropped in the time shown: their queue was full, or "
            "what they send to refused for good.",
            "See the reason below, then the store or the gateway.",
            "observability/index",
            tuple(
                Query(" + ".join(f"({zero_if_none(SCOPE.growth(metric))})" for metric in metrics), signal)
                for signal, metrics in LOST.items()
            ),
            width=8,
            every=EVERY,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Fullest queues of collectors",
            "bars",
            "percentunit",
            "The ten fullest queues, by node and exporter. Full: the collector drops.",
            "All to one store: the store. One node alone: its network.",
            "observability/index",
            (
                Query(
                    aggregate("topk", aggregate("max", FILL, semconv.HOST_NAME, EXPORTER), parameter=10),
                    "{{host_name}} {{exporter}}",
                ),
            ),
            width=16,
            every=EVERY,
            levels=(Level(0.5, "orange"), Level(0.9, "red")),
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Taken by collectors",
            "timeseries",
            "cps",
            "A second, over all collectors. A node and its gateway both count. Less than what the jobs hand on: it "
            "does not reach them.",
            "`nemo-lens doctor` in a job says where it sends to.",
            "observability/index",
            rates(ACCEPTED),
            width=8,
            every=EVERY,
            minimum=0,
        ),
        Panel(
            "Refused by collectors",
            "timeseries",
            "cps",
            "A second: the memory limiter sends jobs away, which try again and drop when their queue is full.",
            "Give the collector more memory (`COLLECTOR_MEMORY_MIB`), or record less.",
            "observability/index",
            rates(REFUSED),
            width=8,
            every=EVERY,
            minimum=0,
        ),
        Panel(
            "Lost by collectors, by reason",
            "timeseries",
            "cps",
            "A second: queue full, or given up: refused for good, or tried for as long as the configuration says.",
            "Queue full: what the exporter sends to is away or slow; the queue is `COLLECTOR_QUEUE_BYTES`. Given up: "
            "see the collector's log.",
            "observability/index",
            (*rates(QUEUE_FULL, ": queue full"), *rates(GIVEN_UP, ": given up")),
            width=8,
            every=EVERY,
            minimum=0,
        ),
    ),
)
