"""``metrics.md``: every metric that is shipped, by group, with its kind, unit, keyword and bounds."""

from __future__ import annotations

from collections.abc import Iterator

from nemo_lens.api import semconv
from nemo_lens.api.instruments import gym, inference, rl, training
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS

from .markdown import listed, paragraph, section, table, title

# Title, what the names begin with, the group that records them if any, what there is to say.
GROUPS = (
    ("Training", "dl.training.", training, "Recorded by `record_training_metrics`."),
    ("Reinforcement learning", "rl.", rl, "Recorded by `record_rl_metrics`."),
    ("Environments", "gym.", gym, "Recorded by `record_gym_metrics`."),
    (
        "Inference",
        "gen_ai.",
        inference,
        (
            "Recorded by `record_inference_metrics`, with the attributes `gen_ai.operation.name`, "
            "`gen_ai.provider.name`, `gen_ai.request.model` and, for tokens, `gen_ai.token.type`. Names and bounds are "
            "those of the GenAI conventions."
        ),
    ),
    (
        "Telemetry itself",
        "otel.sdk.",
        None,
        (
            "Recorded by the SDK wheel, following the OpenTelemetry conventions for SDK metrics: what waits, what was "
            "dropped, what was exported and what was not."
        ),
    ),
)
# What the keyword does not say: one value of the call becomes a point of another metric.
_KEYWORDS = {semconv.GENAI_CLIENT_TOKEN_USAGE: ("input_tokens", "output_tokens")}


def lines() -> Iterator[str]:
    """Return the lines of the page."""
    yield from title("Metrics")
    yield from paragraph(
        "Units are those of UCUM. Each name is a constant of `nemo_lens.api.semconv`. Attributes are what the caller "
        "gives, besides those named here. [Record metrics](../metrics.md) says how they are recorded, "
        "[Attributes](attributes.md) what the resource says of the process that recorded them."
    )
    for group, prefix, home, note in GROUPS:
        yield from section(group)
        yield from paragraph(note)
        rows = [(name, *fields) for name, fields in semconv.METRIC_FIELDS.items() if name.startswith(prefix)]
        if home is None:
            yield from table(
                ("name", "kind", "unit", "what it is"),
                ((f"`{name}`", kind, f"`{unit}`", DESCRIPTIONS[name]) for name, kind, unit in rows),
            )
            continue
        keywords = {spec.name: _KEYWORDS.get(spec.name, (spec.key,)) for spec in home.SPECS}
        yield from table(
            ("name", "kind", "unit", "what it is", "keyword"),
            ((f"`{name}`", kind, f"`{unit}`", DESCRIPTIONS[name], listed(keywords[name])) for name, kind, unit in rows),
        )
    yield from _attributes_of_the_sdk()
    yield from _bounds()


def _attributes_of_the_sdk() -> Iterator[str]:
    yield from section("Attributes of the `otel.sdk.*` metrics", 3)
    yield from table(
        ("name", "type", "what it is"),
        ((f"`{name}`", kind.__name__, DESCRIPTIONS[name]) for name, kind in semconv.OTEL_SDK_METRIC_ATTRIBUTES.items()),
    )


def _bounds() -> Iterator[str]:
    yield from section("Bounds of the histograms")
    yield from paragraph(
        "Advice to the SDK, in the unit of the metric; a view, or "
        "`OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION`, goes before it."
    )
    yield from table(
        ("histogram", "bounds"),
        (
            (f"`{spec.name}`", ", ".join(_number(bound) for bound in spec.buckets))
            for home in (training, rl, gym, inference)
            for spec in home.SPECS
            if spec.buckets
        ),
    )


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"
