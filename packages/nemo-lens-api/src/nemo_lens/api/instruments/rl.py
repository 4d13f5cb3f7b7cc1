"""The shipped group ``rl``: what a reinforcement-learning loop knows after each step."""

from __future__ import annotations

from nemo_lens.api.instruments._shipped import doubling, shipped_spec
from nemo_lens.api.instruments.recording import record_metrics
from nemo_lens.api.semconv import metrics as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsFloat

GROUP = "rl"

# Generating the responses of a step, or rolling out an episode, takes from a tenth of a second (a small model, short
# answers) to the better part of an hour (an agent with tools): 100 ms to 55 minutes, 16 bounds.
_ROLLOUT_MS = doubling(100.0, 3_600_000.0)

SPECS = (
    shipped_spec("reward_mean", names.RL_REWARD_MEAN),
    shipped_spec("kl_divergence", names.RL_KL_DIVERGENCE),
    shipped_spec("policy_loss", names.RL_POLICY_LOSS),
    shipped_spec("value_loss", names.RL_VALUE_LOSS),
    shipped_spec("entropy", names.RL_ENTROPY),
    shipped_spec("grad_norm", names.RL_GRAD_NORM),
    shipped_spec("learning_rate", names.RL_LEARNING_RATE),
    shipped_spec("response_length_mean", names.RL_RESPONSE_LENGTH_MEAN),
    shipped_spec("throughput_tokens_per_sec", names.RL_THROUGHPUT_TOKENS_PER_SEC),
    shipped_spec("generation_duration_ms", names.RL_GENERATION_DURATION_MS, _ROLLOUT_MS),
    shipped_spec("rollout_duration_ms", names.RL_ROLLOUT_DURATION_MS, _ROLLOUT_MS),
)


def record_rl_metrics(
    meter: Any,
    *,
    reward_mean: SupportsFloat | None = None,
    kl_divergence: SupportsFloat | None = None,
    policy_loss: SupportsFloat | None = None,
    value_loss: SupportsFloat | None = None,
    entropy: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    learning_rate: SupportsFloat | None = None,
    response_length_mean: SupportsFloat | None = None,
    throughput_tokens_per_sec: SupportsFloat | None = None,
    generation_duration_ms: SupportsFloat | None = None,
    rollout_duration_ms: SupportsFloat | None = None,
    attributes: Mapping[str, object] | None = None,
) -> None:
    """Record the numbers of a reinforcement-learning step under ``rl.*``; never raise.

    What is None is left out. The names and units are those of ``nemo_lens.api.semconv``.

    Args:
        meter: meter to record on, as ``get_meter`` returns.
        reward_mean: mean reward of the step.
        kl_divergence: divergence of the policy from the reference policy.
        policy_loss: loss of the policy.
        value_loss: loss of the value function.
        entropy: entropy of the policy.
        grad_norm: norm of the gradient.
        learning_rate: learning rate of the step.
        response_length_mean: mean length of a response, in tokens.
        throughput_tokens_per_sec: tokens a second.
        generation_duration_ms: time to generate the responses of the step, in milliseconds.
        rollout_duration_ms: time of one rollout, in milliseconds.
        attributes: attributes of all these measurements: few keys of few values each, never the step.
    """
    record_metrics(
        meter,
        GROUP,
        {
            "reward_mean": reward_mean,
            "kl_divergence": kl_divergence,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
            "response_length_mean": response_length_mean,
            "throughput_tokens_per_sec": throughput_tokens_per_sec,
            "generation_duration_ms": generation_duration_ms,
            "rollout_duration_ms": rollout_duration_ms,
        },
        attributes=attributes,
    )
