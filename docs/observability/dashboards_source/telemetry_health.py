"""The dashboard ``telemetry-health``: do all ranks report, is anything lost, do the queues hold."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import BAD_FROM_ONE, Board, Column, Level, Panel, Query, Row
from .choices import SILENCE, runs
from .choices import SOME_RUNS as SCOPE
from .collectors import COLLECTORS
from .promql import RANGE, aggregate, differs, equals, fewer
from .telemetry_losses import EXPORTED, LOSS, PROCESSED

RUN, RANK, HOST = semconv.NEMO_RUN_ID, semconv.NV_DL_RANK, semconv.HOST_NAME
# Every process that exports metrics has this one.
ALIVE = semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED
HAS_RANK = differs(RANK, "")
DONE = equals(semconv.ERROR_TYPE, "")

# What waits in the queue of a signal, and what fits into it; what its exporter has been given.
QUEUES = {
    "spans": (semconv.OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE, semconv.OTEL_SDK_PROCESSOR_SPAN_QUEUE_CAPACITY),
    "log records": (semconv.OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE, semconv.OTEL_SDK_PROCESSOR_LOG_QUEUE_CAPACITY),
}
INFLIGHT = {
    "spans": semconv.OTEL_SDK_EXPORTER_SPAN_INFLIGHT,
    "log records": semconv.OTEL_SDK_EXPORTER_LOG_INFLIGHT,
    "data points": semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT,
}


def ranks(window: str, *by: str) -> str:
    """Return the ranks that reported in a window."""
    return aggregate("group", SCOPE.over("present_over_time", ALIVE, HAS_RANK, window=window), RUN, RANK, *by)


def fill(signal: str) -> str:
    """Return the share of a signal's queues that is full."""
    size, capacity = QUEUES[signal]
    return f"{SCOPE.latest(size)} / {SCOPE.latest(capacity)}"


def arrived(signal: str) -> Query:
    """Return what is confirmed of a signal, a second."""
    return Query(SCOPE.rate(EXPORTED[signal], more=(DONE,)), "confirmed")


REPORTING = Row(
    "Do all ranks report?",
    "How many ranks report, which are silent, and how many should there be?",
    (
        Panel(
            "Ranks that report",
            "stat",
            "short",
            f"Ranks of the runs chosen from which metrics came in the last `{SILENCE}`.",
            "Compare with the world size, beside.",
            "troubleshooting",
            (Query(aggregate("count", ranks(SILENCE)), "ranks"),),
            width=4,
            levels=(Level(0, "red"), Level(1, "green")),
        ),
        Panel(
            "Silent ranks",
            "stat",
            "short",
            f"Ranks that reported in the time shown, and not in the last `{SILENCE}`. The run is over, or: the "
            "process is gone, hangs in a call that holds the interpreter, or does not reach its collector.",
            "The table names them; `nemo-lens doctor` on the node says whether the collector is reached.",
            "troubleshooting",
            (Query(fewer(aggregate("count", ranks(SILENCE)), aggregate("count", ranks(RANGE))), "ranks"),),
            width=4,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Ranks that report, by run",
            "table",
            "short",
            "Of each run the ranks that report, and its world size. Fewer than the world size: the others never "
            "reported, or recorded nothing. No world size: the application did not give `nv.dl.world_size`. At most "
            "fifty runs.",
            "See the environment of a rank that is missing.",
            "switch-on",
            (
                Query(
                    aggregate(
                        "topk",
                        aggregate("count", ranks(SILENCE, semconv.NV_DL_WORLD_SIZE), RUN, semconv.NV_DL_WORLD_SIZE),
                        parameter=50,
                    ),
                    "{{nemo_run_id}}",
                ),
            ),
            width=8,
            columns=(
                Column(RUN, "run"),
                Column(semconv.NV_DL_WORLD_SIZE, "world size"),
                Column("Value", "ranks that report"),
            ),
        ),
        Panel(
            "Which ranks are silent",
            "table",
            "short",
            f"Ranks that reported in the time shown and not in the last `{SILENCE}`, at most fifty of them. All of "
            "one node: the node or its collector.",
            "See the log of the rank, and the collector of its node.",
            "troubleshooting",
            (
                Query(
                    aggregate(
                        "topk",
                        f"{ranks(RANGE, HOST)} unless on (nemo_run_id, nv_dl_rank) {ranks(SILENCE)}",
                        parameter=50,
                    ),
                    "{{nv_dl_rank}}",
                ),
            ),
            width=8,
            columns=(Column(RUN, "run"), Column(RANK, "rank"), Column(HOST, "node")),
        ),
        Panel(
            "Ranks that report, over time",
            "timeseries",
            "short",
            f"As above, at each moment. It falls `{SILENCE}` after ranks fell silent.",
            "See what happened at that moment on those nodes.",
            "troubleshooting",
            (Query(aggregate("count", ranks(SILENCE)), "ranks"),),
            width=24,
            minimum=0,
        ),
    ),
)

QUEUE = Row(
    "Do the queues hold?",
    "How full are they, and how much is on its way?",
    (
        Panel(
            "Fill of the queues",
            "timeseries",
            "percentunit",
            "95th percentile and largest over all queues of a signal. What stays above a half drops at the next burst.",
            "Shorten `OTEL_BSP_SCHEDULE_DELAY`, enlarge the queue, or record less.",
            "exporting",
            tuple(
                query
                for signal in QUEUES
                for query in (
                    Query(aggregate("quantile", fill(signal), parameter=0.95), f"{signal}: p95"),
                    Query(aggregate("max", fill(signal)), f"{signal}: max"),
                )
            ),
            width=8,
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Fullest queues now",
            "bars",
            "percentunit",
            "The ten fullest queues of each signal. Full: this rank drops.",
            "See whether its exports fail.",
            "exporting",
            tuple(
                Query(
                    aggregate("topk", aggregate("max", fill(signal), RUN, RANK, HOST), parameter=10),
                    f"{signal}: {{{{nv_dl_rank}}}} {{{{host_name}}}}",
                )
                for signal in QUEUES
            ),
            width=8,
            levels=(Level(0.5, "orange"), Level(0.9, "red")),
            minimum=0,
            maximum=1,
        ),
        Panel(
            "On the way",
            "timeseries",
            "short",
            "Spans, log records and data points that were given to the exporter and have not come back, over all "
            "ranks. A high line that does not fall: the collector takes them and does not answer.",
            "See the collector's own queue.",
            "troubleshooting",
            tuple(Query(aggregate("sum", SCOPE.latest(metric)), signal) for signal, metric in INFLIGHT.items()),
            width=8,
            minimum=0,
        ),
    ),
)

VOLUME = Row(
    "How much is it?",
    "What the jobs record, and what the collector has to take.",
    (
        Panel(
            "Spans",
            "timeseries",
            "cps",
            "A second, over all ranks: handed to exporters, and confirmed. Confirmed stays below: exports fail.",
            "Compare with what was planned for this number of ranks.",
            "scale",
            (Query(SCOPE.rate(PROCESSED["spans"], more=(DONE,)), "handed on"), arrived("spans")),
            width=6,
            minimum=0,
        ),
        Panel(
            "Log records",
            "timeseries",
            "cps",
            "A second, over all ranks: handed to exporters, and confirmed.",
            "A rise is usually a warning in a loop: read the logs.",
            "logs",
            (Query(SCOPE.rate(PROCESSED["log records"], more=(DONE,)), "handed on"), arrived("log records")),
            width=6,
            minimum=0,
        ),
        Panel(
            "Data points",
            "timeseries",
            "cps",
            "A second, over all ranks. A rise without more ranks: an attribute of a metric takes ever new values.",
            "Take that attribute off the metric.",
            "metrics",
            (arrived("data points"),),
            width=6,
            minimum=0,
        ),
        Panel(
            "By exporter",
            "timeseries",
            "cps",
            "Confirmed spans a second, by the kind of exporter.",
            "More than one kind: some processes are configured otherwise.",
            "exporting",
            (
                Query(
                    SCOPE.rate(EXPORTED["spans"], semconv.OTEL_COMPONENT_TYPE, more=(DONE,)), "{{otel_component_type}}"
                ),
            ),
            width=6,
            minimum=0,
        ),
    ),
)

BOARD = Board(
    "nemo-lens-telemetry-health",
    "NeMo Lens: telemetry health",
    "The telemetry itself: whether all ranks report, and whether what they record arrives.",
    (runs(ALIVE),),
    (REPORTING, LOSS, QUEUE, VOLUME, COLLECTORS),
    silence=True,
)
