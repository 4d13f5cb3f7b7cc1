"""The shipped group ``training``: what a training loop knows after each step."""

from __future__ import annotations

from nemo_lens.api.instruments._shipped import doubling, shipped_spec
from nemo_lens.api.instruments.recording import record_metrics
from nemo_lens.api.semconv import metrics as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsFloat

GROUP = "training"

# From a toy model's step of 10 ms to one of 10 minutes, on a batch that takes that long: 17 bounds, of which the
# steps of one run fall into two or three.
_STEP_S = doubling(0.01, 700.0)

SPECS = (
    shipped_spec("step_duration_s", names.DL_TRAINING_STEP_DURATION, _STEP_S),
    shipped_spec("loss", names.DL_TRAINING_LOSS),
    shipped_spec("learning_rate", names.DL_TRAINING_LEARNING_RATE),
    shipped_spec("grad_norm", names.DL_TRAINING_GRAD_NORM),
    shipped_spec("tokens_per_sec", names.DL_TRAINING_THROUGHPUT_TOKENS_PER_SEC),
    shipped_spec("samples_per_sec", names.DL_TRAINING_THROUGHPUT_SAMPLES_PER_SEC),
    shipped_spec("tflops", names.DL_TRAINING_THROUGHPUT_TFLOPS),
    shipped_spec("memory_allocated_bytes", names.DL_TRAINING_MEMORY_ALLOCATED),
    shipped_spec("skipped_iterations", names.DL_TRAINING_SKIPPED_ITERATIONS),
)


def record_training_metrics(
    meter: Any,
    *,
    step_duration_s: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    learning_rate: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    tokens_per_sec: SupportsFloat | None = None,
    samples_per_sec: SupportsFloat | None = None,
    tflops: SupportsFloat | None = None,
    memory_allocated_bytes: SupportsFloat | None = None,
    skipped_iterations: SupportsFloat | None = None,
    attributes: Mapping[str, object] | None = None,
) -> None:
    """Record the numbers of a training step under ``dl.training.*``; never raise.

    What is None is left out. The names and units are those of ``nemo_lens.api.semconv``.

    Args:
        meter: meter to record on, as ``get_meter`` returns.
        step_duration_s: time of the step, in seconds.
        loss: loss of the step.
        learning_rate: learning rate of the step.
        grad_norm: norm of the gradient, before clipping where the loop has that one.
        tokens_per_sec: tokens a second, of this process or of the run: say which in ``attributes`` or the docs.
        samples_per_sec: samples a second.
        tflops: floating-point operations a second, in units of 10^12.
        memory_allocated_bytes: device memory that tensors occupy, in bytes.
        skipped_iterations: iterations whose update was skipped **since the last call**; they are added up.
        attributes: attributes of all these measurements: few keys of few values each, never the iteration.
    """
    record_metrics(
        meter,
        GROUP,
        {
            "step_duration_s": step_duration_s,
            "loss": loss,
            "learning_rate": learning_rate,
            "grad_norm": grad_norm,
            "tokens_per_sec": tokens_per_sec,
            "samples_per_sec": samples_per_sec,
            "tflops": tflops,
            "memory_allocated_bytes": memory_allocated_bytes,
            "skipped_iterations": skipped_iterations,
        },
        attributes=attributes,
    )
