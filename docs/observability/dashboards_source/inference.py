"""The dashboard ``inference``: requests to generative models, how many, how fast, and how many tokens."""

from __future__ import annotations

from nemo_lens.api import semconv

from .board import Board, Level, Panel, Query, Row, Variable
from .choices import SOME_RUNS, runs
from .promql import Scope, differs, equals, matches, share, zero_if_none
from .queries import percentiles

MODEL, OPERATION = semconv.GENAI_REQUEST_MODEL, semconv.GENAI_OPERATION_NAME
REQUEST, TOKENS = semconv.GENAI_SERVER_REQUEST_DURATION, semconv.GENAI_CLIENT_TOKEN_USAGE
FIRST, EACH = semconv.GENAI_SERVER_TIME_TO_FIRST_TOKEN, semconv.GENAI_SERVER_TIME_PER_OUTPUT_TOKEN

SCOPE = Scope((*SOME_RUNS.matchers, matches(MODEL, "$model"), matches(OPERATION, "$operation")))
FAILED = differs(semconv.ERROR_TYPE, "")
INPUT, OUTPUT = (equals(semconv.GENAI_TOKEN_TYPE, kind) for kind in ("input", "output"))

REQUESTS = Row(
    "Requests",
    "How many come, how many fail?",
    (
        Panel(
            "Requests a second",
            "stat",
            "reqps",
            "Over all models chosen. 0: nothing comes in, or nothing is recorded.",
            "See whether the processes report at all, on the dashboard of telemetry health.",
            "troubleshooting",
            (Query(SCOPE.rate(REQUEST, part="count"), "requests"),),
            width=4,
        ),
        Panel(
            "Failed requests",
            "stat",
            "percentunit",
            "Share of the requests that were recorded with `error.type`.",
            "See the reasons, beside, and the traces of such requests.",
            "metrics",
            (
                Query(
                    share(
                        f"({zero_if_none(SCOPE.rate(REQUEST, part='count', more=(FAILED,)))})",
                        SCOPE.rate(REQUEST, part="count"),
                    ),
                    "failed",
                ),
            ),
            width=4,
            levels=(Level(0.01, "orange"), Level(0.05, "red")),
        ),
        Panel(
            "Requests by model",
            "timeseries",
            "reqps",
            "A second, by `gen_ai.request.model`. A step to nothing: its servers are gone, or clients went elsewhere.",
            "See the servers of that model.",
            "metrics",
            (Query(SCOPE.rate(REQUEST, MODEL, part="count"), "{{gen_ai_request_model}}"),),
            width=8,
            minimum=0,
        ),
        Panel(
            "Failures by reason",
            "timeseries",
            "reqps",
            "A second, by `error.type`. A time-out under load is a queue; anything else is a fault.",
            "Look for the error in the traces.",
            "metrics",
            (Query(SCOPE.rate(REQUEST, semconv.ERROR_TYPE, part="count", more=(FAILED,)), "{{error_type}}"),),
            width=8,
            minimum=0,
        ),
    ),
)

LATENCY = Row(
    "How fast?",
    "Time of a request, to its first token, and for each token after it.",
    (
        Panel(
            "Request duration",
            "timeseries",
            "s",
            "Percentiles of the time to the last token. Longer answers take longer: compare with tokens out of a "
            "request before calling it slow.",
            "See which of the two next panels has risen with it.",
            "metrics",
            percentiles(SCOPE, REQUEST),
            width=8,
            minimum=0,
        ),
        Panel(
            "Time to first token",
            "timeseries",
            "s",
            "Percentiles: waiting in the queue and reading the prompt. It rises first when load is too high.",
            "Add replicas; bound the length of prompts, or the batch that is prefilled at a time.",
            "metrics",
            percentiles(SCOPE, FIRST),
            width=8,
            minimum=0,
        ),
        Panel(
            "Time per output token",
            "timeseries",
            "s",
            "Percentiles: the speed of decoding. It rises with the number of requests in a batch.",
            "A rise without more requests: the cache swaps, or a GPU is slow.",
            "metrics",
            percentiles(SCOPE, EACH),
            width=8,
            minimum=0,
        ),
        Panel(
            "p95 by model",
            "timeseries",
            "s",
            "95th percentile of the duration of requests, by model.",
            "Look at that model alone: choose it on top.",
            "metrics",
            (Query(SCOPE.percentile(0.95, REQUEST, MODEL), "{{gen_ai_request_model}}"),),
            width=12,
            minimum=0,
        ),
        Panel(
            "Mean by operation",
            "timeseries",
            "s",
            "Mean duration of requests, by `gen_ai.operation.name`: a chat and an embedding differ by orders of "
            "magnitude.",
            "Look at one operation alone: choose it on top.",
            "metrics",
            (Query(SCOPE.mean(REQUEST, OPERATION), "{{gen_ai_operation_name}}"),),
            width=12,
            minimum=0,
        ),
    ),
)

USAGE = Row(
    "Tokens",
    "How many go in and come out?",
    (
        Panel(
            "Tokens in, by model",
            "timeseries",
            "si: tok/s",
            "Tokens of prompts a second.",
            "A rise with the same number of requests: prompts grow, often a conversation that is sent whole.",
            "metrics",
            (Query(SCOPE.rate(TOKENS, MODEL, part="sum", more=(INPUT,)), "{{gen_ai_request_model}}"),),
            width=8,
            minimum=0,
        ),
        Panel(
            "Tokens out, by model",
            "timeseries",
            "si: tok/s",
            "Tokens of answers a second: what the servers produce.",
            "Flat while requests rise: the servers are at their limit.",
            "metrics",
            (Query(SCOPE.rate(TOKENS, MODEL, part="sum", more=(OUTPUT,)), "{{gen_ai_request_model}}"),),
            width=8,
            minimum=0,
        ),
        Panel(
            "Tokens of a request",
            "timeseries",
            "si: tok",
            "Mean tokens of a prompt and of an answer.",
            "Answers at the limit are cut off.",
            "metrics",
            (Query(SCOPE.mean(TOKENS, semconv.GENAI_TOKEN_TYPE), "{{gen_ai_token_type}}"),),
            width=8,
            minimum=0,
        ),
    ),
)

BOARD = Board(
    "nemo-lens-inference",
    "NeMo Lens: inference",
    "Requests to generative models: how many, how fast, how many tokens.",
    (
        runs(REQUEST, "count"),
        Variable("model", "model", SOME_RUNS.select(REQUEST, part="count"), MODEL, several=True),
        Variable("operation", "operation", SOME_RUNS.select(REQUEST, part="count"), OPERATION, several=True),
    ),
    (REQUESTS, LATENCY, USAGE),
)
