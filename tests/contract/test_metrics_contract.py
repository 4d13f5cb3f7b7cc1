"""Metrics by group and key towards the caller: the same over every backend, through every meter there is."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.api import instruments
from nemo_lens.api.instruments import registry

PLAIN = {"loss": 0.5, "time_s": 1.5, "steps": 2, "queue": -1}
OBSERVED = ("free", "done", "waiting")


@pytest.fixture(autouse=True)
def _mine() -> Iterator[None]:
    before = registry.groups
    instruments.register_metric_group(
        "mine",
        [
            instruments.MetricSpec("loss", "my.loss", "gauge", "1"),
            instruments.MetricSpec("time_s", "my.time", "histogram", "s", buckets=(1.0, 2.0)),
            instruments.MetricSpec("steps", "my.steps", "counter"),
            instruments.MetricSpec("queue", "my.queue", "up_down_counter"),
            instruments.MetricSpec("free", "my.free", "observable_gauge", callback=lambda: 3),
            instruments.MetricSpec("done", "my.done", "observable_counter", callback=lambda: [4]),
            instruments.MetricSpec(
                "waiting", "my.waiting", "observable_up_down_counter", callback=lambda: [(-5, {"q": 1})]
            ),
        ],
    )
    yield
    registry.replace_groups(before)


def meters(lens: Any) -> dict[str, Any]:
    """Return a meter by each way to one, under the scope it has."""
    return {
        "early": lens.early_meter,
        "late": lens.get_meter("late", "1"),
        "nemo.lens": lens.handle.meter,
        "provider": lens.handle.meter_provider.get_meter("provider"),
    }


def exported(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the one value of each metric by name, by scope."""
    found: dict[str, dict[str, Any]] = {}
    for path in folder.glob("metrics*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for resource in json.loads(line)["resourceMetrics"]:
                for scope in resource["scopeMetrics"]:
                    by_name = found.setdefault(scope["scope"]["name"], {})
                    for metric in scope["metrics"]:
                        (data,) = [metric[kind] for kind in ("gauge", "sum", "histogram") if kind in metric]
                        for point in data["dataPoints"]:
                            value = point.get("asDouble", point.get("asInt", point.get("sum")))
                            by_name[metric["name"]] = float(value)
    return found


def test_every_public_name_is_under_the_contract() -> None:
    """Each name of ``instruments.__all__`` is used by this suite, so that a new one cannot be forgotten."""
    used = set(re.findall(r"\binstruments\.(\w+)", Path(__file__).read_text(encoding="utf-8")))
    assert set(instruments.__all__) - used == set()


def test_every_kind_through_every_meter(lens: Any, tmp_path: Path) -> None:
    """Each kind is taken by each meter, before setup or after; with a backend that exports, its value arrives."""
    for meter in meters(lens).values():
        made = instruments.create_metric_instruments(meter, "mine")
        if not lens.case.vendored:
            assert set(made) == {*PLAIN, *OBSERVED}
        assert instruments.record_metrics(meter, "mine", PLAIN, attributes={"split": "train"}) is None
        for key, instrument in instruments.create_metric_instruments(meter, "mine").items():
            assert instrument is made[key]
    assert lens.handle.force_flush(10_000) is True
    if lens.case.exports:
        values = {"my.loss": 0.5, "my.time": 1.5, "my.steps": 2, "my.queue": -1}
        observed = {"my.free": 3, "my.done": 4, "my.waiting": -5}
        assert exported(tmp_path) == {scope: {**values, **observed} for scope in meters(lens)}


def test_the_shipped_calls(lens: Any, tmp_path: Path) -> None:
    """Each returns nothing over any backend, with values, without and with what cannot be used."""
    for meter in meters(lens).values():
        for value in (1, None, "text", object()):
            attributes = {"split": "train"} if value == 1 else value
            for done in (
                instruments.record_training_metrics(meter, loss=value, step_duration_s=value, attributes=attributes),
                instruments.record_rl_metrics(meter, reward_mean=value, attributes=attributes),
                instruments.record_gym_metrics(meter, active_servers=value, attributes=attributes),
                instruments.record_inference_metrics(meter, input_tokens=value, model="m", attributes=attributes),
            ):
                assert done is None
    assert lens.handle.force_flush(10_000) is True
    if lens.case.exports:
        names = {"dl.training.loss", "dl.training.step.duration", "rl.reward.mean", "gym.servers.active"}
        for scope, values in exported(tmp_path).items():
            assert scope in meters(lens)
            assert names | {"gen_ai.client.token.usage"} <= set(values)


def test_the_registry_needs_no_backend(lens: Any) -> None:
    """Groups are registered, listed and forgotten alike, and errors of a declaration are raised alike."""
    assert {"inference", "rl", "gym", "training", "mine"} <= set(instruments.registered_metric_groups())
    with pytest.raises(ValueError, match="did you mean 'gauge'"):
        instruments.MetricSpec("k", "my.metric", "gage")
    with pytest.raises(ValueError, match="allow_override"):
        instruments.register_metric_group("mine", [instruments.MetricSpec("k", "my.metric")])
    assert instruments.unregister_metric_group("mine") is None
    assert "mine" not in instruments.registered_metric_groups()


def test_problems_are_said_and_never_raised(lens: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong, at most one WARNING each and no exception; after shutdown recording is harmless."""
    with caplog.at_level(logging.WARNING, "nemo_lens"):
        for _ in range(3):
            for meter in meters(lens).values():
                instruments.record_metrics(meter, "nobody", loss=1)
                instruments.record_metrics(meter, "mine", {"lost": 1, "free": 2, "loss": "text"}, attributes=5)
                assert instruments.create_metric_instruments(meter, "nobody") == {}
    messages = [record.getMessage() for record in caplog.records if record.name == "nemo_lens"]
    assert len(messages) == len(set(messages))
    if lens.case.exports:
        assert len(messages) == 5
    lens.handle.shutdown()
    for meter in meters(lens).values():
        instruments.record_metrics(meter, "mine", PLAIN)
        instruments.create_metric_instruments(meter, "mine")
