"""Exemplars, temporality and histogram aggregation, as the standard variables ask for them, at a receiver."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.all_signals import CUMULATIVE, SENDER, check_kinds, clean_environ, send
from support.otlp_decode import Record
from support.otlp_receiver import OtlpReceiver
from support.programs import every_kind

_FILTER = "OTEL_METRICS_EXEMPLAR_FILTER"
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_AGGREGATION = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
_DELTA = 1

# Kinds that each preference reports as deltas.
_DELTAS = {
    "cumulative": (),
    "delta": ("histogram", "counter", "observable_counter"),
    "lowmemory": ("histogram", "counter"),
}


def points_of(receiver: OtlpReceiver, name: str) -> list[Record]:
    """Return what arrived of a metric."""
    return [point for point in receiver.points() if point["name"] == name]


def test_exemplars_are_of_sampled_spans(otlp_receiver: OtlpReceiver) -> None:
    """By default what is measured inside a sampled span has an exemplar with its ids, and what is not has none."""
    sent = send({**otlp_receiver.environ("http/protobuf"), _FILTER: " Trace_Based "})
    check_kinds(sent, otlp_receiver.points())
    for name in ("steps", "queue", "loss", "step.duration"):  # measured outside of every span
        assert [point["exemplars"] for point in points_of(otlp_receiver, name)] == [[]], name


def test_spans_that_are_not_sampled_have_no_exemplars(otlp_receiver: OtlpReceiver) -> None:
    """A span that nobody will see is no exemplar."""
    send({**otlp_receiver.environ("http/protobuf"), "OTEL_TRACES_SAMPLER": "always_off"})
    assert len(points_of(otlp_receiver, "kinds.samples")) == 1
    assert [point["exemplars"] for point in otlp_receiver.points() if point["exemplars"]] == []


def test_every_measurement_can_be_an_exemplar(otlp_receiver: OtlpReceiver) -> None:
    """With ``always_on``, measurements outside of spans are exemplars too, without ids."""
    sent = send({**otlp_receiver.environ("http/protobuf"), _FILTER: "always_on"})
    (steps,) = points_of(otlp_receiver, "steps")
    assert steps["exemplars"] == [{"trace_id": "", "span_id": "", "value": 5}]
    (duration,) = points_of(otlp_receiver, "kinds.step.duration")
    assert {exemplar["span_id"] for exemplar in duration["exemplars"]} == {sent["job_id"]}


def test_exemplars_can_be_switched_off(otlp_receiver: OtlpReceiver) -> None:
    """With ``always_off`` there is none."""
    send({**otlp_receiver.environ("grpc"), _FILTER: "always_off"})
    assert len(points_of(otlp_receiver, "kinds.samples")) == 1
    assert [point["exemplars"] for point in otlp_receiver.points() if point["exemplars"]] == []


@pytest.mark.parametrize("preference", list(_DELTAS))
def test_the_temporality_of_each_kind(otlp_receiver: OtlpReceiver, preference: str) -> None:
    """Each kind of metric is reported as the preference asks, and over several exports the numbers add up."""
    environ = {**otlp_receiver.environ("http/protobuf"), _TEMPORALITY: preference.upper()}
    run = subprocess.run(
        [sys.executable, "-W", "error", str(SENDER.parent / "measure_run.py"), "run", "0", "10"],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"confirmed": [True, True]}
    for spec in every_kind.SPECS:
        expected = _DELTA if spec.kind in _DELTAS[preference] else CUMULATIVE
        found = points_of(otlp_receiver, spec.name)
        if "gauge" in spec.kind:
            expected = 0
        assert {point["temporality"] for point in found} == {expected}, spec.name
    samples = [point["value"] for point in points_of(otlp_receiver, "kinds.samples")]
    duration = [(point["count"], point["value"]) for point in points_of(otlp_receiver, "kinds.step.duration")]
    if preference == "cumulative":
        assert (samples[0], samples[-1]) == (5, 11)
        assert set(duration) == {(3, 6.0)}
    else:
        assert samples == [5, 6]
        assert duration == [(3, 6.0)]
    read = [point["value"] for point in points_of(otlp_receiver, "kinds.read")]
    assert sum(read) == 2500 if preference == "delta" else set(read) == {2500}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_exponential_histograms(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Histograms are exponential when the variable says so, whatever bounds are advised, and keep their exemplars."""
    sent = send({**otlp_receiver.environ(protocol), _AGGREGATION: "base2_exponential_bucket_histogram"})
    (advised,) = points_of(otlp_receiver, "kinds.step.duration")
    (own,) = points_of(otlp_receiver, "step.duration")
    for point in (advised, own):
        assert (point["kind"], point["count"], point["value"]) == ("exponentialHistogram", 3, 6.0)
        assert point["bounds"] == []
    assert {exemplar["span_id"] for exemplar in advised["exemplars"]} == {sent["job_id"]}
    assert points_of(otlp_receiver, "kinds.samples")[0]["kind"] == "sum"
