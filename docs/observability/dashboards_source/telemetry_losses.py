"""What telemetry loses, where and why: a row of the dashboard ``telemetry-health``."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import BAD_FROM_ONE, Panel, Query, Row
from .choices import SOME_RUNS as SCOPE
from .promql import aggregate, differs, zero_if_none

RUN, RANK, HOST, REASON = semconv.NEMO_RUN_ID, semconv.NV_DL_RANK, semconv.HOST_NAME, semconv.ERROR_TYPE
FAILED = differs(REASON, "")

# What was put into the queue of a signal, or dropped, and what its exporter was given.
PROCESSED = {
    "spans": semconv.OTEL_SDK_PROCESSOR_SPAN_PROCESSED,
    "log records": semconv.OTEL_SDK_PROCESSOR_LOG_PROCESSED,
}
EXPORTED = {
    "spans": semconv.OTEL_SDK_EXPORTER_SPAN_EXPORTED,
    "log records": semconv.OTEL_SDK_EXPORTER_LOG_EXPORTED,
    "data points": semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED,
}


def lost(metrics: dict[str, str]) -> tuple[Query, ...]:
    """Return what was lost in the time shown, by signal."""
    return tuple(
        Query(zero_if_none(SCOPE.growth(metric, more=(FAILED,))), signal) for signal, metric in metrics.items()
    )


def loses_most(metrics: dict[str, str]) -> tuple[Query, ...]:
    """Return the ranks that lost most in the time shown, by signal."""
    return tuple(
        Query(
            aggregate("topk", SCOPE.growth(metric, RUN, RANK, HOST, more=(FAILED,)) + " > 0", parameter=10),
            f"{signal}: {{{{nv_dl_rank}}}} {{{{host_name}}}}",
        )
        for signal, metric in metrics.items()
    )


def by_reason(metrics: dict[str, str]) -> tuple[Query, ...]:
    """Return what is lost a second, by signal and reason."""
    return tuple(
        Query(SCOPE.rate(metric, REASON, more=(FAILED,)), f"{signal}: {{{{error_type}}}}")
        for signal, metric in metrics.items()
    )


LOSS = Row(
    "Is anything lost?",
    "What is dropped before it is sent, what is sent in vain, why, and by which ranks?",
    (
        Panel(
            "Dropped",
            "stat",
            "short",
            "Spans and log records dropped in the time shown because a queue was full, or after shutdown. More than "
            "0: the picture has holes.",
            "Switch fewer span groups on, or make the queue larger: `OTEL_BSP_MAX_QUEUE_SIZE`.",
            "exporting",
            lost(PROCESSED),
            width=6,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Not confirmed",
            "stat",
            "short",
            "Spans, log records and data points in the time shown whose export failed for good. Data points are "
            "counted by later exports: where none succeeds any more the rank is silent instead.",
            "See the reason beside, then the collector.",
            "troubleshooting",
            lost(EXPORTED),
            width=6,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Dropped, by reason",
            "timeseries",
            "cps",
            "A second. `queue_full`: more comes than is sent, or the collector does not answer, then exports fail too. "
            "`already_shutdown`: recorded after shutdown.",
            "Fails the export too? Then the collector first.",
            "exporting",
            by_reason(PROCESSED),
            width=6,
            minimum=0,
        ),
        Panel(
            "Not confirmed, by reason",
            "timeseries",
            "cps",
            "A second, by `error.type`: the exception, `rejected` by the receiver, or `_OTHER`: nothing is said.",
            "The reason's name is a section of the page.",
            "troubleshooting",
            by_reason(EXPORTED),
            width=6,
            minimum=0,
        ),
        Panel(
            "Ranks that drop most",
            "bars",
            "short",
            "The ten ranks of each signal that dropped most in the time shown; empty when nothing was dropped. Rank "
            "0 alone: it records more than the others.",
            "Lower what that rank records, or its sampling.",
            "cost",
            loses_most(PROCESSED),
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Ranks whose exports fail most",
            "bars",
            "short",
            "The ten ranks of each signal with most exports in vain in the time shown; empty when none failed. All "
            "of one node: its collector.",
            "`nemo-lens doctor` on that node.",
            "troubleshooting",
            loses_most(EXPORTED),
            levels=BAD_FROM_ONE,
        ),
    ),
)
