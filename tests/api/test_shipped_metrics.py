"""The groups that come with the library: what each call records under which name, and the bounds of the histograms."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator

import pytest

from nemo_lens.api import _diagnostics, semconv
from nemo_lens.api.fallbacks import NULL_METER
from nemo_lens.api.instruments import (
    MetricSpec,
    record_gym_metrics,
    record_inference_metrics,
    record_metrics,
    record_rl_metrics,
    record_training_metrics,
    register_metric_group,
    registered_metric_groups,
    registry,
)
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS
from support.meters import Meter
from support.odd_values import Hostile, OfHostileType, Row, tensor

# Call to group and to what each keyword is recorded as: the contract, as it is documented.
CALLS: dict[str, tuple[Callable[..., None], dict[str, str]]] = {
    "inference": (
        record_inference_metrics,
        {
            "request_duration_s": "gen_ai.server.request.duration",
            "time_to_first_token_s": "gen_ai.server.time_to_first_token",
            "time_per_output_token_s": "gen_ai.server.time_per_output_token",
            "input_tokens": "gen_ai.client.token.usage",
            "output_tokens": "gen_ai.client.token.usage",
        },
    ),
    "rl": (
        record_rl_metrics,
        {
            "reward_mean": "rl.reward.mean",
            "kl_divergence": "rl.kl_divergence",
            "policy_loss": "rl.policy_loss",
            "value_loss": "rl.value_loss",
            "entropy": "rl.entropy",
            "grad_norm": "rl.grad_norm",
            "learning_rate": "rl.learning_rate",
            "response_length_mean": "rl.response_length.mean",
            "throughput_tokens_per_sec": "rl.throughput.tokens_per_sec",
            "generation_duration_ms": "rl.generation.duration_ms",
            "rollout_duration_ms": "rl.rollout.duration_ms",
        },
    ),
    "gym": (
        record_gym_metrics,
        {
            "server_request_duration_ms": "gym.server.request_duration_ms",
            "rollout_duration_ms": "gym.rollout.duration_ms",
            "verify_duration_ms": "gym.verify.duration_ms",
            "verify_success_rate": "gym.verify.success_rate",
            "active_servers": "gym.servers.active",
        },
    ),
    "training": (
        record_training_metrics,
        {
            "step_duration_s": "dl.training.step.duration",
            "loss": "dl.training.loss",
            "learning_rate": "dl.training.learning_rate",
            "grad_norm": "dl.training.grad_norm",
            "tokens_per_sec": "dl.training.throughput.tokens_per_sec",
            "samples_per_sec": "dl.training.throughput.samples_per_sec",
            "tflops": "dl.training.throughput.tflops",
            "memory_allocated_bytes": "dl.training.memory.allocated",
            "skipped_iterations": "dl.training.skipped_iterations",
        },
    ),
}
GENAI_KEYWORDS = {
    "model": "gen_ai.request.model",
    "provider_name": "gen_ai.provider.name",
    "operation_name": "gen_ai.operation.name",
}

# As https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/ has them.
GENAI_BUCKETS = {
    "gen_ai.server.request.duration": "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92",
    "gen_ai.server.time_to_first_token": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10",
    "gen_ai.server.time_per_output_token": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5",
    "gen_ai.client.token.usage": "1 4 16 64 256 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864",
}
# What a histogram of ours must tell apart: at least one bound below, one above.
RANGES = {
    "rl.generation.duration_ms": (200, 1_800_000),
    "rl.rollout.duration_ms": (200, 1_800_000),
    "gym.rollout.duration_ms": (200, 1_800_000),
    "gym.server.request_duration_ms": (5, 300_000),
    "gym.verify.duration_ms": (5, 300_000),
    "dl.training.step.duration": (0.02, 600),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    before = registry.groups
    _diagnostics.forget_reported()
    yield
    registry.replace_groups(before)
    _diagnostics.forget_reported()


@pytest.fixture
def meter() -> Meter:
    return Meter()


def shipped(group: str) -> dict[str, MetricSpec]:
    return {spec.name: spec for spec in registered_metric_groups()[group]}


def test_the_groups_are_there() -> None:
    """Importing the package is enough."""
    assert set(CALLS) <= set(registered_metric_groups())


@pytest.mark.parametrize("group", CALLS)
def test_each_metric_is_what_the_tables_say(group: str) -> None:
    """Name, kind, unit and description are those of ``semconv``, and each belongs to one group."""
    _, names = CALLS[group]
    specs = shipped(group)
    assert set(specs) == set(names.values())
    for name, spec in specs.items():
        assert (spec.kind, spec.unit) == semconv.METRIC_FIELDS[name]
        assert spec.description == DESCRIPTIONS[name]
        assert (spec.buckets is not None) == (spec.kind == "histogram")
        keyword = "token_usage" if name == "gen_ai.client.token.usage" else {names[key]: key for key in names}[name]
        assert spec.key == keyword


def test_every_metric_of_the_tables_is_shipped() -> None:
    """No name stands in the tables that nothing records: a call, or Lens for what is about the telemetry itself."""
    recorded = {name for _, names in CALLS.values() for name in names.values()}
    assert set(semconv.METRIC_FIELDS) - set(semconv.OTEL_SDK_METRIC_FIELDS) == recorded


@pytest.mark.parametrize("group", CALLS)
def test_each_keyword_is_recorded_under_its_name(group: str, meter: Meter) -> None:
    """Each keyword by itself and all together: the value under the documented name, nothing under another."""
    call, names = CALLS[group]
    for number, (keyword, name) in enumerate(names.items(), 1):
        alone = Meter()
        call(alone, **{keyword: number})
        assert [(made.name, made.points[0][0]) for made in alone.made if made.points] == [(name, number)]
    call(meter, **{keyword: number for number, keyword in enumerate(names, 1)}, attributes={"split": "train"})
    recorded = [(made.name, value) for made in meter.made for value, _ in made.points]
    assert sorted(recorded) == sorted((name, number) for number, name in enumerate(names.values(), 1))
    assert all(attributes["split"] == "train" for made in meter.made for _, attributes in made.points)


@pytest.mark.parametrize("group", CALLS)
def test_the_keywords_are_the_documented_ones(group: str) -> None:
    """The meter comes first, everything else is an optional keyword, described with the rest in the docstring."""
    call, names = CALLS[group]
    parameters = dict(inspect.signature(call).parameters)
    assert parameters.pop("meter").default is inspect.Parameter.empty
    expected = {*names, "attributes", *(GENAI_KEYWORDS if group == "inference" else ())}
    assert set(parameters) == expected
    assert call.__doc__ is not None
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default is None
        assert f"{name}: " in call.__doc__


@pytest.mark.parametrize("group", CALLS)
def test_nothing_given_records_nothing(group: str, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """Without values there is no point, no instrument and no line."""
    call, names = CALLS[group]
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        call(meter)
        call(meter, **dict.fromkeys(names), attributes={"split": "train"})
        call(NULL_METER, **dict.fromkeys(names, 1))
    assert meter.made == []
    assert not caplog.records


@pytest.mark.parametrize("group", CALLS)
@pytest.mark.parametrize(
    "row", [Row(Hostile()), Row(OfHostileType()), Row("text"), Row([1]), Row(object()), Row(tensor(1.0, "cuda"))]
)
def test_whatever_is_passed_nothing_raises(group: str, row: Row, meter: Meter) -> None:
    """No value, attributes, attribute keyword or meter reaches the caller as an exception."""
    call, names = CALLS[group]
    genai = dict.fromkeys(GENAI_KEYWORDS, row.value) if group == "inference" else {}
    call(meter, **dict.fromkeys(names, row.value), **genai, attributes=row.value)
    call(row.value, **dict.fromkeys(names, 1))
    assert [made.points for made in meter.made if made.points] == []


# ---- inference


def test_a_request_by_the_genai_conventions(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """Durations once, tokens as two points told apart by their type, each with model, provider and operation."""
    record_inference_metrics(
        meter,
        request_duration_s=2.5,
        time_to_first_token_s=0.2,
        time_per_output_token_s=0.01,
        model="llama-3.1-8b",
        input_tokens=120,
        output_tokens=0,
        provider_name="vllm",
        operation_name="chat",
        attributes={"error.type": "timeout", "hf_token": "s3cret"},
    )
    shared = {
        "gen_ai.request.model": "llama-3.1-8b",
        "gen_ai.provider.name": "vllm",
        "gen_ai.operation.name": "chat",
        "error.type": "timeout",
        "hf_token": "[REDACTED]",
    }
    assert {made.name: made.points for made in meter.made} == {
        "gen_ai.server.request.duration": [(2.5, shared)],
        "gen_ai.server.time_to_first_token": [(0.2, shared)],
        "gen_ai.server.time_per_output_token": [(0.01, shared)],
        "gen_ai.client.token.usage": [
            (120, {**shared, "gen_ai.token.type": "input"}),
            (0, {**shared, "gen_ai.token.type": "output"}),
        ],
    }
    assert not caplog.records


@pytest.mark.parametrize("keyword", GENAI_KEYWORDS)
def test_attributes_of_a_request_are_there_only_when_given(keyword: str, meter: Meter) -> None:
    """What is not known is left out, rather than sent empty."""
    record_inference_metrics(meter, request_duration_s=1, output_tokens=5, **{keyword: "x"})  # type: ignore[arg-type]
    assert meter.points("gen_ai.server.request.duration") == [(1, {GENAI_KEYWORDS[keyword]: "x"})]
    assert meter.points("gen_ai.client.token.usage") == [
        (5, {GENAI_KEYWORDS[keyword]: "x", "gen_ai.token.type": "output"})
    ]


def test_the_keywords_win_over_the_attributes(meter: Meter) -> None:
    """As with spans; the type of a token is never the caller's, or input and output would be one number."""
    attributes = {"gen_ai.request.model": "other", "gen_ai.token.type": "other", "gen_ai.provider.name": "kept"}
    record_inference_metrics(meter, request_duration_s=1, input_tokens=2, model="mine", attributes=attributes)
    expected = {"gen_ai.request.model": "mine", "gen_ai.provider.name": "kept"}
    assert meter.points("gen_ai.client.token.usage") == [(2, {**expected, "gen_ai.token.type": "input"})]
    assert meter.points("gen_ai.server.request.duration") == [(1, {**expected, "gen_ai.token.type": "other"})]
    assert attributes["gen_ai.request.model"] == "other"


def test_attributes_of_a_request_that_are_no_mapping(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """They cost themselves alone and one WARNING; the keywords are sent."""
    for _ in range(3):
        record_inference_metrics(meter, input_tokens=2, model="mine", attributes=[("a", 1)])  # type: ignore[arg-type]
    assert (
        meter.points("gen_ai.client.token.usage")
        == [(2, {"gen_ai.request.model": "mine", "gen_ai.token.type": "input"})] * 3
    )
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "list" in record.getMessage()


# ---- buckets


@pytest.mark.parametrize("name", GENAI_BUCKETS)
def test_the_bounds_of_genai_histograms_are_those_of_the_conventions(name: str) -> None:
    """Number by number, so that dashboards made for the conventions fit."""
    assert shipped("inference")[name].buckets == tuple(float(bound) for bound in GENAI_BUCKETS[name].split())


@pytest.mark.parametrize("name", RANGES)
def test_the_bounds_of_our_histograms_fit_what_they_measure(name: str) -> None:
    """The range that occurs lies inside, and what doubles moves to another bucket; no series grows past 20 bounds."""
    low, high = RANGES[name]
    (spec,) = [spec for group in CALLS for spec in registered_metric_groups()[group] if spec.name == name]
    assert spec.buckets is not None
    assert spec.buckets[0] < low < high < spec.buckets[-1]
    assert max(above / below for below, above in zip(spec.buckets, spec.buckets[1:], strict=False)) <= 2.001
    assert len(spec.buckets) <= 20


def test_every_histogram_of_ours_is_in_the_table() -> None:
    """A new one needs its range above."""
    histograms = {name for name, (kind, _) in semconv.METRIC_FIELDS.items() if kind == "histogram"}
    assert histograms == {*GENAI_BUCKETS, *RANGES}


def test_a_shipped_group_can_be_changed(meter: Meter) -> None:
    """Its buckets may be replaced by registering it anew, and more be recorded by ``record_metrics``."""
    specs = [
        MetricSpec(spec.key, spec.name, spec.kind, spec.unit, buckets=(1.0, 2.0))
        if spec.key == "step_duration_s"
        else spec
        for spec in registered_metric_groups()["training"]
    ]
    register_metric_group("training", [*specs, MetricSpec("mfu", "my.mfu")], allow_override=True)
    record_training_metrics(meter, step_duration_s=1.5)
    record_metrics(meter, "training", mfu=0.4)
    assert meter["dl.training.step.duration"].buckets == (1.0, 2.0)
    assert meter.values("my.mfu") == [0.4]
