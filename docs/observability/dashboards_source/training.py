"""The dashboard ``training``: does the run go on, how fast, which rank is slow, does it learn."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import BAD_FROM_ONE, Board, Column, Level, Panel, Query, Row
from .choices import RANKS_OF_THE_RUN as SCOPE
from .choices import SILENCE, run_and_rank
from .promql import RANGE, aggregate, fewer, zero_if_none
from .queries import over_ranks, percentiles
from .training_outcome import LEARNING, THROUGHPUT

RANK, HOST = semconv.NV_DL_RANK, semconv.HOST_NAME
STEP = semconv.DL_TRAINING_STEP_DURATION

# Mean step of each rank, from two series a rank: what is asked over all ranks takes this, and not buckets.
STEP_BY_RANK = SCOPE.mean(STEP, RANK)
SLOWEST_OF_ALL_TIME_SHOWN = aggregate("topk", SCOPE.mean(STEP, RANK, window=RANGE, at_end=True), parameter=8)
KNOWN = aggregate("group", SCOPE.over("present_over_time", STEP, part="count", window=RANGE), RANK)
PROCESSES = aggregate(
    "group", SCOPE.over("present_over_time", STEP, part="count", window=RANGE), RANK, HOST, semconv.PROCESS_PID
)
PROGRESSING = aggregate("sum", SCOPE.over("increase", STEP, part="count", window=SILENCE), RANK) + " > 0"
# Another process of the same rank, or the same series from zero again where process ids repeat, as in containers.
RESTARTS = (
    f"{aggregate('count', PROCESSES, RANK)} - 1 + "
    f"{aggregate('sum', SCOPE.over('resets', STEP, part='count', window=RANGE), RANK)}"
)


IS_IT_RUNNING = Row(
    "Is it running?",
    "Do all ranks make steps, did any start again, and what does the run do now?",
    (
        Panel(
            "Steps a minute",
            "stat",
            "short",
            f"Steps of a rank in a minute, mean over the ranks, in the last `{SILENCE}`. 0: no rank ends a step any "
            "more.",
            "Look for the ranks without a step, then for what they wait in.",
            "slow-run",
            (Query(aggregate("avg", SCOPE.over("rate", STEP, part="count", window=SILENCE)) + " * 60", "steps"),),
            width=4,
            levels=(Level(0, "red"), Level(0.01, "green")),
            decimals=1,
        ),
        Panel(
            "Ranks that make steps",
            "stat",
            "short",
            f"Ranks that ended a step in the last `{SILENCE}`. Less than the world size: the others hang or are gone.",
            "Choose a `silence` that is longer than a step.",
            "troubleshooting",
            (Query(zero_if_none(aggregate("count", PROGRESSING)), "ranks"),),
            width=4,
        ),
        Panel(
            "Ranks without a step",
            "stat",
            "short",
            f"Ranks that made steps in the time shown, and none in the last `{SILENCE}`. All of them: a collective "
            "hangs, or the run is over. Some: those are gone, or nothing arrives from them.",
            "The table of silent ranks on the dashboard of telemetry health names them.",
            "troubleshooting",
            (Query(fewer(aggregate("count", PROGRESSING), aggregate("count", KNOWN)), "ranks"),),
            width=4,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Starts over",
            "stat",
            "short",
            "How often a rank was started again in the time shown, over all ranks. A restart of the whole run counts "
            "once for each rank.",
            "The ranks that were started again stand below; their logs end with the reason.",
            "torchrun",
            (Query(zero_if_none(aggregate("sum", RESTARTS)), "starts"),),
            width=4,
            levels=BAD_FROM_ONE,
        ),
        Panel(
            "Loss now",
            "stat",
            "none",
            "The last loss, mean over the ranks that record one.",
            "A loss that does not move at all may be NaN: NaN is not recorded, and the last number stays.",
            "metrics",
            over_ranks(SCOPE, semconv.DL_TRAINING_LOSS, "avg"),
            width=4,
            decimals=4,
        ),
        Panel(
            "Tokens a second now",
            "stat",
            "si: tok/s",
            "Sum over the ranks. A run that records the rate of the whole run in each rank is shown too large by the "
            "number of ranks.",
            "When it falls, see whether steps take longer or ranks are missing.",
            "slow-run",
            over_ranks(SCOPE, semconv.DL_TRAINING_THROUGHPUT_TOKENS_PER_SEC, "sum"),
            width=4,
        ),
    ),
)

STEPS = Row(
    "Steps",
    "How long does a step take, and does one rank hold the others up?",
    (
        Panel(
            "Step duration over the ranks",
            "timeseries",
            "s",
            "Mean step of each rank; of these the smallest, the median, the 95th percentile and the largest. All "
            "lines together rise: the run is slower as a whole. Only the upper ones: some ranks are slow and do not "
            "wait for the others.",
            "Ranks that wait for each other all show the same time: then the files say which one they wait for.",
            "slow-run",
            (
                Query(aggregate("min", STEP_BY_RANK), "min"),
                Query(aggregate("quantile", STEP_BY_RANK, parameter=0.5), "p50"),
                Query(aggregate("quantile", STEP_BY_RANK, parameter=0.95), "p95"),
                Query(aggregate("max", STEP_BY_RANK), "max"),
            ),
            minimum=0,
        ),
        Panel(
            "Spread between ranks",
            "timeseries",
            "percentunit",
            "Longest mean step less the shortest, as a share of the median. A few per cent are usual; what stays "
            "above a tenth is a straggler.",
            "See the slowest ranks and their nodes, beside.",
            "slow-run",
            (
                Query(
                    f"({aggregate('max', STEP_BY_RANK)} - {aggregate('min', STEP_BY_RANK)})"
                    f" / {aggregate('quantile', STEP_BY_RANK, parameter=0.5)}",
                    "spread",
                ),
            ),
            width=6,
            minimum=0,
        ),
        Panel(
            "Slowest ranks now",
            "bars",
            "s",
            f"The ten ranks with the longest mean step in the last `{SILENCE}`. One that stands out is the straggler; "
            "where all are alike, ranks wait for each other in each step.",
            "Click for its traces, or ask the files of the run: `nemo-lens timeline --summary`.",
            "slow-run",
            (
                Query(
                    aggregate("topk", SCOPE.mean(STEP, RANK, HOST, window=SILENCE), parameter=10),
                    "{{nv_dl_rank}} {{host_name}}",
                ),
            ),
            width=6,
            traces=True,
        ),
        Panel(
            "Single steps",
            "timeseries",
            "s",
            "Percentiles of all steps of all ranks, from the buckets of the histogram, whose bounds double: read "
            "them as a magnitude. A p99 far over the median: now and then a step takes long, for a checkpoint or an "
            "evaluation.",
            "A point on the line leads to a trace, where the database keeps exemplars.",
            "slow-run",
            percentiles(SCOPE, STEP),
            minimum=0,
        ),
        Panel(
            "Slowest ranks of the time shown",
            "timeseries",
            "s",
            "The eight ranks that were slowest over all the time shown, each as a line. A line that leaves the "
            "others at some moment: something happened to that rank or node then.",
            "Compare with the metrics of its node: clocks, temperature, other jobs.",
            "slow-run",
            (Query(f"{STEP_BY_RANK} and on (nv_dl_rank) {SLOWEST_OF_ALL_TIME_SHOWN}", "{{nv_dl_rank}}"),),
            minimum=0,
            traces=True,
        ),
    ),
)

NODES = Row(
    "Ranks and nodes",
    "Which nodes take part, which one is slow, and which ranks were started again?",
    (
        Panel(
            "Ranks on each node",
            "table",
            "short",
            "Nodes with the fewest ranks first, at most fifty. A node with fewer than the others has lost ranks.",
            "See the log of the node's launcher.",
            "slurm",
            (
                Query(
                    aggregate(
                        "bottomk",
                        aggregate(
                            "count",
                            aggregate("group", SCOPE.over("present_over_time", STEP, part="count"), RANK, HOST),
                            HOST,
                        ),
                        parameter=50,
                    ),
                    "{{host_name}}",
                ),
            ),
            width=8,
            columns=(Column(HOST, "node"), Column("Value", "ranks")),
        ),
        Panel(
            "Slowest nodes now",
            "bars",
            "s",
            f"Mean step of the ranks of a node in the last `{SILENCE}`, the ten longest. One node alone: the node, not "
            "a GPU.",
            "Take the node out and start again from the checkpoint.",
            "slow-run",
            (Query(aggregate("topk", SCOPE.mean(STEP, HOST, window=SILENCE), parameter=10), "{{host_name}}"),),
            width=8,
        ),
        Panel(
            "Ranks that were started again",
            "bars",
            "short",
            "How often, in the time shown, the twenty most often. One rank again and again: its GPU or node; all "
            "alike: the launcher starts everything anew when one fails.",
            "The log of the rank ends with the reason.",
            "torchrun",
            (Query(aggregate("topk", f"({RESTARTS}) > 0", parameter=20), "{{nv_dl_rank}}"),),
            width=8,
            levels=BAD_FROM_ONE,
        ),
    ),
)

BOARD = Board(
    "nemo-lens-training",
    "NeMo Lens: training",
    "One training run: whether it goes on, how fast it is, which rank is slow, and whether it learns.",
    run_and_rank(STEP, "count"),
    (IS_IT_RUNNING, STEPS, LEARNING, THROUGHPUT, NODES),
    silence=True,
)
