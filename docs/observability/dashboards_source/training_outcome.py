"""What a training run brings: rows of the dashboard ``training`` on learning, throughput and memory."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import Panel, Query, Row
from .choices import RANKS_OF_THE_RUN as SCOPE
from .promql import aggregate
from .queries import over_ranks

RANK, HOST = semconv.NV_DL_RANK, semconv.HOST_NAME
SKIPPED = semconv.DL_TRAINING_SKIPPED_ITERATIONS
TOKENS, SAMPLES = semconv.DL_TRAINING_THROUGHPUT_TOKENS_PER_SEC, semconv.DL_TRAINING_THROUGHPUT_SAMPLES_PER_SEC
TFLOPS, MEMORY = semconv.DL_TRAINING_THROUGHPUT_TFLOPS, semconv.DL_TRAINING_MEMORY_ALLOCATED

LEARNING = Row(
    "Does it learn?",
    "Loss, gradient, learning rate and skipped iterations.",
    (
        Panel(
            "Loss",
            "timeseries",
            "none",
            "Mean, smallest and largest over the ranks that record one. A jump that does not come back is a "
            "divergence; a line that does not move at all is NaN, which is not recorded.",
            "Go back to the checkpoint before the jump; see the norm of the gradient at that moment.",
            "metrics",
            over_ranks(SCOPE, semconv.DL_TRAINING_LOSS, "avg", "min", "max"),
        ),
        Panel(
            "Norm of the gradient",
            "timeseries",
            "none",
            "Mean and largest over the ranks, on a logarithmic scale. Peaks before the loss jumps.",
            "Peaks again and again: learning rate, clipping, or a bad shard of data.",
            "metrics",
            over_ranks(SCOPE, semconv.DL_TRAINING_GRAD_NORM, "avg", "max"),
            logarithmic=True,
        ),
        Panel(
            "Learning rate",
            "timeseries",
            "sci",
            "As the schedule has it. After a restart it has to go on where it was, not begin anew.",
            "A warm-up after a restart: the state of the scheduler was not loaded.",
            "metrics",
            over_ranks(SCOPE, semconv.DL_TRAINING_LEARNING_RATE, "max"),
        ),
        Panel(
            "Skipped iterations",
            "timeseries",
            "short",
            "Iterations a minute whose update was skipped, mean over the ranks. A few at the beginning are the loss "
            "scale finding its place; a steady rate is not.",
            "The gradient overflows or is not finite: see loss scale and the norm of the gradient.",
            "metrics",
            (Query(aggregate("avg", SCOPE.over("rate", SKIPPED)) + " * 60", "skipped a minute"),),
            minimum=0,
        ),
    ),
)

THROUGHPUT = Row(
    "Throughput and memory",
    "What comes out, over all and for each rank, and does the memory hold?",
    (
        Panel(
            "Tokens a second",
            "timeseries",
            "si: tok/s",
            "Sum over the ranks. See the remark at the number on top for runs that record the rate of the whole run.",
            "A step down: ranks are gone, or steps take longer.",
            "slow-run",
            over_ranks(SCOPE, TOKENS, "sum"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Tokens a second and rank",
            "timeseries",
            "si: tok/s",
            "Smallest, mean and largest of a rank. The smallest alone falls: one rank is slow.",
            "See the slowest ranks.",
            "slow-run",
            over_ranks(SCOPE, TOKENS, "min", "avg", "max"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Samples a second",
            "timeseries",
            "si: samples/s",
            "Sum over the ranks. Tokens fall and samples do not: sequences are shorter.",
            "See the data loader's order of samples.",
            "slow-run",
            over_ranks(SCOPE, SAMPLES, "sum"),
            width=8,
            minimum=0,
        ),
        Panel(
            "TFLOP/s of a rank",
            "timeseries",
            "tflops",
            "Smallest, mean and largest over the ranks. Compare with the peak of the GPU; a slow decay is heat or a "
            "clock.",
            "See the metrics of the GPUs of the rank that is smallest.",
            "slow-run",
            over_ranks(SCOPE, TFLOPS, "min", "avg", "max"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Memory of a rank",
            "timeseries",
            "bytes",
            "Device memory that tensors occupy: smallest, mean and largest over the ranks. A line that only grows is "
            "a leak and ends in an out-of-memory error.",
            "Something keeps tensors over steps: often a loss that is added up with its graph.",
            "metrics",
            over_ranks(SCOPE, MEMORY, "min", "avg", "max"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Fullest ranks now",
            "bars",
            "bytes",
            "The ten ranks with most memory in use. One that stands out will be the first to run out.",
            "Pipeline stages differ by design; ranks of one stage should not.",
            "metrics",
            (
                Query(
                    aggregate("topk", aggregate("max", SCOPE.latest(MEMORY), RANK, HOST), parameter=10),
                    "{{nv_dl_rank}} {{host_name}}",
                ),
            ),
            width=8,
        ),
    ),
)
