"""The shipped group ``inference``: requests to a generative model, by the GenAI semantic conventions."""

from __future__ import annotations

from nemo_lens.api.instruments._shipped import doubling, shipped_spec
from nemo_lens.api.instruments.recording import cleaned_attributes, is_off, record_metrics
from nemo_lens.api.semconv import metrics as names
from nemo_lens.api.semconv.span import (
    GENAI_OPERATION_NAME,
    GENAI_PROVIDER_NAME,
    GENAI_REQUEST_MODEL,
    GENAI_TOKEN_TYPE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, SupportsFloat

GROUP = "inference"

# The bounds that https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/ advises, number by number.
_REQUEST_S = doubling(0.01, 81.92)
_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_OUTPUT_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4**power for power in range(14))

SPECS = (
    shipped_spec("request_duration_s", names.GENAI_SERVER_REQUEST_DURATION, _REQUEST_S),
    shipped_spec("time_to_first_token_s", names.GENAI_SERVER_TIME_TO_FIRST_TOKEN, _FIRST_TOKEN_S),
    shipped_spec("time_per_output_token_s", names.GENAI_SERVER_TIME_PER_OUTPUT_TOKEN, _OUTPUT_TOKEN_S),
    shipped_spec("token_usage", names.GENAI_CLIENT_TOKEN_USAGE, _TOKENS),
)


def record_inference_metrics(
    meter: Any,
    *,
    request_duration_s: SupportsFloat | None = None,
    time_to_first_token_s: SupportsFloat | None = None,
    time_per_output_token_s: SupportsFloat | None = None,
    model: str | None = None,
    input_tokens: SupportsFloat | None = None,
    output_tokens: SupportsFloat | None = None,
    provider_name: str | None = None,
    operation_name: str | None = None,
    attributes: Mapping[str, object] | None = None,
) -> None:
    """Record a request to a generative model under ``gen_ai.*``; never raise.

    What is None is left out. Follows https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/, which asks for
    ``provider_name`` and ``operation_name`` on each measurement, and for ``error.type`` where the request failed.

    Args:
        meter: meter to record on, as ``get_meter`` returns.
        request_duration_s: time of the request at the server, to its last token, in seconds.
        time_to_first_token_s: time to the first token, in seconds.
        time_per_output_token_s: time per token after the first, in seconds.
        model: model that was asked for: ``gen_ai.request.model``.
        input_tokens: tokens of the prompt.
        output_tokens: tokens of the answer. Each of the two is a point of ``gen_ai.client.token.usage``, told apart by
            ``gen_ai.token.type``.
        provider_name: who serves the model, such as ``openai``: ``gen_ai.provider.name``.
        operation_name: such as ``chat`` or ``embeddings``: ``gen_ai.operation.name``.
        attributes: more attributes of all these measurements: few keys of few values each. The keywords win over them.
    """
    if is_off(meter):
        return
    # A copy of a dict cannot fail; anything else is read with care.
    shared = dict(attributes) if type(attributes) is dict else cleaned_attributes(GROUP, attributes)
    for key, value in (
        (GENAI_OPERATION_NAME, operation_name),
        (GENAI_PROVIDER_NAME, provider_name),
        (GENAI_REQUEST_MODEL, model),
    ):
        if value is not None:
            shared[key] = value
    record_metrics(
        meter,
        GROUP,
        {
            "request_duration_s": request_duration_s,
            "time_to_first_token_s": time_to_first_token_s,
            "time_per_output_token_s": time_per_output_token_s,
        },
        attributes=shared,
    )
    for kind, tokens in (("input", input_tokens), ("output", output_tokens)):
        if tokens is not None:
            record_metrics(meter, GROUP, {"token_usage": tokens}, attributes={**shared, GENAI_TOKEN_TYPE: kind})
