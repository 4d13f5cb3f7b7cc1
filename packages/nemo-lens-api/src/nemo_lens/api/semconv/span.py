"""Span attributes: which one is this span about?"""

from __future__ import annotations

# Set by Lens itself. NEMO_SPAN_TRUNCATED also names the event that carries the reason.
NEMO_SPAN_TRUNCATED = "nemo.span.truncated"
NEMO_SPAN_TRUNCATED_REASON = "nemo.span.truncated.reason"
NEMO_SPAN_INTERRUPTED = "nemo.span.interrupted"
INVERTED_SKEW = "inverted.skew"
INVERTED_START_EPOCH_SECONDS = "inverted.start_epoch_seconds"
INVERTED_END_EPOCH_SECONDS = "inverted.end_epoch_seconds"
INVERTED_DELTA_SECONDS = "inverted.delta_seconds"
THREAD_ID = "thread.id"
THREAD_NAME = "thread.name"

DL_ITERATION = "dl.iteration"
DL_MICROBATCH_ID = "dl.microbatch_id"
DL_BATCH_SIZE = "dl.batch_size"
DL_SEQUENCE_LENGTH = "dl.sequence_length"
DL_DATA_PARALLEL_RANK = "dl.data_parallel.rank"
DL_DATA_PARALLEL_SIZE = "dl.data_parallel.size"
DL_TENSOR_PARALLEL_RANK = "dl.tensor_parallel.rank"
DL_TENSOR_PARALLEL_SIZE = "dl.tensor_parallel.size"
DL_PIPELINE_PARALLEL_RANK = "dl.pipeline_parallel.rank"
DL_PIPELINE_PARALLEL_SIZE = "dl.pipeline_parallel.size"

RL_ALGORITHM = "rl.algorithm"
RL_GENERATION_BACKEND = "rl.generation.backend"
RL_NUM_ROLLOUTS = "rl.num_rollouts"
RL_REWARD = "rl.reward"

GYM_SERVER_NAME = "gym.server.name"
GYM_SERVER_TYPE = "gym.server.type"
GYM_NUM_SERVERS = "gym.num_servers"
GYM_ROLLOUT_BATCH_SIZE = "gym.rollout.batch_size"

GENAI_OPERATION_NAME = "gen_ai.operation.name"
GENAI_PROVIDER_NAME = "gen_ai.provider.name"
GENAI_REQUEST_MODEL = "gen_ai.request.model"
GENAI_TOKEN_TYPE = "gen_ai.token.type"

# Every span attribute and the type it is sent as; the inverted times are decimal text, which keeps nanoseconds.
SPAN_FIELDS: dict[str, type[bool] | type[int] | type[float] | type[str]] = {
    NEMO_SPAN_TRUNCATED: bool,
    NEMO_SPAN_TRUNCATED_REASON: str,
    NEMO_SPAN_INTERRUPTED: str,
    INVERTED_SKEW: bool,
    INVERTED_START_EPOCH_SECONDS: str,
    INVERTED_END_EPOCH_SECONDS: str,
    INVERTED_DELTA_SECONDS: str,
    THREAD_ID: int,
    THREAD_NAME: str,
    DL_ITERATION: int,
    DL_MICROBATCH_ID: int,
    DL_BATCH_SIZE: int,
    DL_SEQUENCE_LENGTH: int,
    DL_DATA_PARALLEL_RANK: int,
    DL_DATA_PARALLEL_SIZE: int,
    DL_TENSOR_PARALLEL_RANK: int,
    DL_TENSOR_PARALLEL_SIZE: int,
    DL_PIPELINE_PARALLEL_RANK: int,
    DL_PIPELINE_PARALLEL_SIZE: int,
    RL_ALGORITHM: str,
    RL_GENERATION_BACKEND: str,
    RL_NUM_ROLLOUTS: int,
    RL_REWARD: float,
    GYM_SERVER_NAME: str,
    GYM_SERVER_TYPE: str,
    GYM_NUM_SERVERS: int,
    GYM_ROLLOUT_BATCH_SIZE: int,
    GENAI_OPERATION_NAME: str,
    GENAI_PROVIDER_NAME: str,
    GENAI_REQUEST_MODEL: str,
    GENAI_TOKEN_TYPE: str,
}
