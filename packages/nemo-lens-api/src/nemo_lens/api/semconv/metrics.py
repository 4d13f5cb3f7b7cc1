"""Metric names with their kinds and units."""

from __future__ import annotations

from nemo_lens.api.semconv.otel_sdk import OTEL_SDK_METRIC_FIELDS

GENAI_SERVER_REQUEST_DURATION = "gen_ai.server.request.duration"
GENAI_SERVER_TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
GENAI_SERVER_TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"
GENAI_CLIENT_TOKEN_USAGE = "gen_ai.client.token.usage"

RL_REWARD_MEAN = "rl.reward.mean"
RL_KL_DIVERGENCE = "rl.kl_divergence"
RL_POLICY_LOSS = "rl.policy_loss"
RL_VALUE_LOSS = "rl.value_loss"
RL_ENTROPY = "rl.entropy"
RL_GRAD_NORM = "rl.grad_norm"
RL_LEARNING_RATE = "rl.learning_rate"
RL_RESPONSE_LENGTH_MEAN = "rl.response_length.mean"
RL_THROUGHPUT_TOKENS_PER_SEC = "rl.throughput.tokens_per_sec"
RL_GENERATION_DURATION_MS = "rl.generation.duration_ms"
RL_ROLLOUT_DURATION_MS = "rl.rollout.duration_ms"

GYM_SERVER_REQUEST_DURATION_MS = "gym.server.request_duration_ms"
GYM_ROLLOUT_DURATION_MS = "gym.rollout.duration_ms"
GYM_VERIFY_DURATION_MS = "gym.verify.duration_ms"
GYM_VERIFY_SUCCESS_RATE = "gym.verify.success_rate"
GYM_SERVERS_ACTIVE = "gym.servers.active"

DL_TRAINING_STEP_DURATION = "dl.training.step.duration"
DL_TRAINING_LOSS = "dl.training.loss"
DL_TRAINING_LEARNING_RATE = "dl.training.learning_rate"
DL_TRAINING_GRAD_NORM = "dl.training.grad_norm"
DL_TRAINING_THROUGHPUT_TOKENS_PER_SEC = "dl.training.throughput.tokens_per_sec"
DL_TRAINING_THROUGHPUT_SAMPLES_PER_SEC = "dl.training.throughput.samples_per_sec"
DL_TRAINING_THROUGHPUT_TFLOPS = "dl.training.throughput.tflops"
DL_TRAINING_MEMORY_ALLOCATED = "dl.training.memory.allocated"
DL_TRAINING_SKIPPED_ITERATIONS = "dl.training.skipped_iterations"

# Name to kind and unit (UCUM).
METRIC_FIELDS: dict[str, tuple[str, str]] = {
    GENAI_SERVER_REQUEST_DURATION: ("histogram", "s"),
    GENAI_SERVER_TIME_TO_FIRST_TOKEN: ("histogram", "s"),
    GENAI_SERVER_TIME_PER_OUTPUT_TOKEN: ("histogram", "s"),
    GENAI_CLIENT_TOKEN_USAGE: ("histogram", "{token}"),
    RL_REWARD_MEAN: ("gauge", "1"),
    RL_KL_DIVERGENCE: ("gauge", "1"),
    RL_POLICY_LOSS: ("gauge", "1"),
    RL_VALUE_LOSS: ("gauge", "1"),
    RL_ENTROPY: ("gauge", "1"),
    RL_GRAD_NORM: ("gauge", "1"),
    RL_LEARNING_RATE: ("gauge", "1"),
    RL_RESPONSE_LENGTH_MEAN: ("gauge", "{token}"),
    RL_THROUGHPUT_TOKENS_PER_SEC: ("gauge", "{token}/s"),
    RL_GENERATION_DURATION_MS: ("histogram", "ms"),
    RL_ROLLOUT_DURATION_MS: ("histogram", "ms"),
    GYM_SERVER_REQUEST_DURATION_MS: ("histogram", "ms"),
    GYM_ROLLOUT_DURATION_MS: ("histogram", "ms"),
    GYM_VERIFY_DURATION_MS: ("histogram", "ms"),
    GYM_VERIFY_SUCCESS_RATE: ("gauge", "1"),
    GYM_SERVERS_ACTIVE: ("gauge", "{server}"),
    DL_TRAINING_STEP_DURATION: ("histogram", "s"),
    DL_TRAINING_LOSS: ("gauge", "1"),
    DL_TRAINING_LEARNING_RATE: ("gauge", "1"),
    DL_TRAINING_GRAD_NORM: ("gauge", "1"),
    DL_TRAINING_THROUGHPUT_TOKENS_PER_SEC: ("gauge", "{token}/s"),
    DL_TRAINING_THROUGHPUT_SAMPLES_PER_SEC: ("gauge", "{sample}/s"),
    DL_TRAINING_THROUGHPUT_TFLOPS: ("gauge", "{TFLOP}/s"),
    DL_TRAINING_MEMORY_ALLOCATED: ("gauge", "By"),
    DL_TRAINING_SKIPPED_ITERATIONS: ("counter", "{iteration}"),
    **OTEL_SDK_METRIC_FIELDS,
}
