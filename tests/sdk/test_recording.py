"""What is recorded by group and key arrives at OpenTelemetry's SDK, observed values too, within bounded memory."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from nemo_lens.api import NemoLensConfig, _diagnostics, get_meter, setup_telemetry, span_cm
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    record_training_metrics,
    recorders,
    register_metric_group,
    registry,
    unregister_metric_group,
)
from nemo_lens.api.instruments.attribute_sets import MAX_ATTRIBUTE_SETS
from support.odd_values import Hostile, Row, tensor

OVERFLOW = {"otel.metric.overflow": True}
LONG = 30  # seconds that nothing here takes, but for a failure


class Reader:
    """A meter of the SDK, and what is read from it."""

    def __init__(self, meter: Any, reader: InMemoryMetricReader) -> None:
        self.meter, self._reader = meter, reader

    def metrics(self) -> dict[str, Any]:
        """Collect, and return each metric by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        every = [m for part in data.resource_metrics for scope in part.scope_metrics for m in scope.metrics]
        return {metric.name: metric for metric in every}

    def points(self, name: str) -> list[Any]:
        """Collect, and return the data points of a metric; none when there is no such metric."""
        metric = self.metrics().get(name)
        return [] if metric is None else list(metric.data.data_points)

    def values(self, name: str) -> dict[Any, Any]:
        """Collect, and return the numbers of a metric by their attributes."""
        return {frozenset(dict(point.attributes).items()): point.value for point in self.points(name)}

    def value(self, name: str) -> Any:
        """Collect, and return the one number of a metric; None when there is none."""
        found = list(self.values(name).values())
        return found[0] if len(found) == 1 else found or None


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    before = registry.groups
    _diagnostics.forget_reported()
    yield
    registry.replace_groups(before)
    _diagnostics.forget_reported()


@pytest.fixture
def sdk() -> Iterator[Reader]:
    """A meter of a provider of its own."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield Reader(provider.get_meter("tests"), reader)
    provider.shutdown()


@contextlib.contextmanager
def telemetry() -> Iterator[Reader]:
    """Set up telemetry that is read here; the meter is the handle's."""
    reader = InMemoryMetricReader()
    config = NemoLensConfig(enabled=True, traces_enabled=True, exporter="console", run_id="r")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    handle = setup_telemetry(
        config,
        metric_reader=reader,
        span_exporter=InMemorySpanExporter(),
        resource_attributes={"nv.dl.rank": 0},
    )
    try:
        yield Reader(handle.meter, reader)
    finally:
        handle.shutdown()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def observed(callback: Callable[[], Any], kind: str = "observable_gauge") -> None:
    """Register the one observable metric of the tests, ``my.observed``."""
    register_metric_group("observed", [MetricSpec("seen", "my.observed", kind, callback=callback)], allow_override=True)


# ---- kinds


def test_every_kind_arrives(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """Gauges keep the last value, counters add, histograms count by the bounds of the spec; unit and text are there."""
    register_metric_group(
        "mine",
        [
            MetricSpec("loss", "my.loss", "gauge", "1", "how wrong"),
            MetricSpec("time", "my.time", "histogram", "s", buckets=(1, 2.5)),
            MetricSpec("steps", "my.steps", "counter", "{step}"),
            MetricSpec("queue", "my.queue", "up_down_counter"),
        ],
    )
    for value in (3.0, np.float32(0.5), tensor(2.0)):
        record_metrics(sdk.meter, "mine", loss=value, time=value, steps=value, queue=-value if value == 3.0 else value)
    found = sdk.metrics()
    assert (found["my.loss"].unit, found["my.loss"].description) == ("1", "how wrong")
    values = {name: metric.data.data_points[0] for name, metric in found.items()}
    assert values["my.loss"].value == 2.0
    assert (values["my.steps"].value, found["my.steps"].data.is_monotonic) == (5.5, True)
    assert (values["my.queue"].value, found["my.queue"].data.is_monotonic) == (-0.5, False)
    time = values["my.time"]
    assert (list(time.explicit_bounds), list(time.bucket_counts), time.sum) == ([1, 2.5], [1, 1, 1], 5.5)
    assert complaints(caplog) == []


@pytest.mark.parametrize("group", ["inference", "rl", "gym", "training"])
def test_the_sdk_takes_every_shipped_metric(group: str, sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """Each is made without a word of complaint, and the bounds of its histograms are the advised ones."""
    specs = registry.groups[group].values()
    record_metrics(sdk.meter, group, {spec.key: 1 for spec in specs})
    found = sdk.metrics()
    assert set(found) == {spec.name for spec in specs}
    for spec in specs:
        if spec.kind == "histogram":
            assert tuple(found[spec.name].data.data_points[0].explicit_bounds) == spec.buckets
    assert complaints(caplog) == []


def test_attributes_arrive_clean(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """What OpenTelemetry would refuse is converted or dropped before, a secret is redacted."""
    attributes = {"path": Path("/data"), "n": np.int64(3), "hf_token": "s3cret", "bad": {}, "list": ["a", "b"]}
    record_training_metrics(sdk.meter, loss=1, attributes=attributes)
    (point,) = sdk.points("dl.training.loss")
    assert dict(point.attributes) == {"path": "/data", "n": 3, "hf_token": "[REDACTED]", "list": ("a", "b")}
    assert complaints(caplog) == []


def test_values_that_the_sdk_cannot_send_do_not_reach_it(sdk: Reader) -> None:
    """Integers beyond 64 bits become floats, whatever is not finite is skipped: no total is spoiled."""
    register_metric_group("mine", [MetricSpec("n", "my.n", "counter"), MetricSpec("g", "my.g")])
    for value in (1, float("nan"), float("inf"), -1, 2):
        record_metrics(sdk.meter, "mine", n=value)
    record_metrics(sdk.meter, "mine", g=2**70)
    values = {name: metric.data.data_points[0].value for name, metric in sdk.metrics().items()}
    assert values == {"my.n": 3, "my.g": 2.0**70}
    assert type(values["my.g"]) is float


def test_instruments_go_with_their_meter() -> None:
    """When a provider is gone, nothing of its meters is kept."""
    gc.collect()
    before = len(recorders._by_meter)
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    record_training_metrics(provider.get_meter("a"), loss=1)
    record_training_metrics(provider.get_meter("b"), loss=1)
    assert len(recorders._by_meter) == before + 2
    provider.shutdown()
    del provider
    gc.collect()
    assert len(recorders._by_meter) == before


def test_a_changed_kind_is_recorded_from_then_on(sdk: Reader) -> None:
    """A group registered anew with other metrics is recorded as it is now."""
    register_metric_group("mine", [MetricSpec("n", "my.gauge")])
    record_metrics(sdk.meter, "mine", n=5)
    register_metric_group("mine", [MetricSpec("n", "my.counter", "counter")], allow_override=True)
    record_metrics(sdk.meter, "mine", n=5)
    record_metrics(sdk.meter, "mine", n=5)
    assert sdk.value("my.gauge") == 5
    assert sdk.value("my.counter") == 10


def test_no_total_is_lost_while_groups_come_and_go(sdk: Reader) -> None:
    """Threads that record add up exactly while another registers and unregisters a group beside theirs."""
    register_metric_group("mine", [MetricSpec("n", "my.n", "counter")])
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            observed(lambda: 1)
            unregister_metric_group("observed")

    def add(number: int) -> None:
        for step in range(3000):
            record_metrics(sdk.meter, "mine", n=1, attributes={"thread": number, "part": step % 3})

    changing = threading.Thread(target=change)
    adding = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in (changing, *adding):
        thread.start()
    for thread in adding:
        thread.join(LONG)
    stop.set()
    changing.join(LONG)
    values = sdk.values("my.n")
    assert len(values) == 12
    assert set(values.values()) == {1000}


# ---- the cap


def test_attribute_sets_without_end(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """100 000 sets: 2000 series and the overflow at the reader, the total exact, one WARNING, the rest not kept."""
    register_metric_group("mine", [MetricSpec("n", "my.n", "counter")])
    record_metrics(sdk.meter, "mine", n=1)
    for step in range(100_000):
        record_metrics(sdk.meter, "mine", n=1, attributes={"step": step})
    values = sdk.values("my.n")
    assert len(values) == MAX_ATTRIBUTE_SETS + 1
    assert values[frozenset()] == values[frozenset({("step", 7)})] == 1
    assert values[frozenset(OVERFLOW.items())] == 100_001 - MAX_ATTRIBUTE_SETS
    assert sum(values.values()) == 100_001
    (message,) = complaints(caplog)
    assert "my.n" in message
    spec = registry.groups["mine"]["n"]
    assert len(recorders._by_meter[id(sdk.meter)][spec].sets.seen) == MAX_ATTRIBUTE_SETS


@pytest.mark.parametrize(("kind", "total"), [("observable_counter", 100_000), ("observable_gauge", None)])
def test_observed_attribute_sets_without_end(
    kind: str, total: int | None, sdk: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """The same cap where a callback gives the sets; what a counter observes past it is added up."""
    observed(lambda: ((1, {"step": step}) for step in range(100_000)), kind)
    create_metric_instruments(sdk.meter, "observed")
    values: dict[Any, Any] = {}
    until = time.monotonic() + LONG
    while not values and time.monotonic() < until:  # on a slow machine it is delivered late
        values = sdk.values("my.observed")
    assert len(values) == MAX_ATTRIBUTE_SETS  # 1999 and the overflow: nothing came without attributes
    if total is not None:
        assert sum(values.values()) == total
    assert len([message for message in complaints(caplog) if "otel.metric.overflow" in message]) == 1


# ---- observed metrics

EMPTY = frozenset[Any]()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (7, {EMPTY: 7}),
        (1.5, {EMPTY: 1.5}),
        (True, {EMPTY: 1}),
        (np.float32(1.5), {EMPTY: 1.5}),
        (np.array(7), {EMPTY: 7}),
        (tensor(1.5), {EMPTY: 1.5}),
        ([7], {EMPTY: 7}),
        ((7,), {EMPTY: 7}),
        (np.array([7.0]), {EMPTY: 7.0}),
        ((7, {"gpu": 0}), {frozenset({("gpu", 0)}): 7}),
        ([(7, {"gpu": 0}), (8, {"gpu": 1})], {frozenset({("gpu", 0)}): 7, frozenset({("gpu", 1)}): 8}),
        ([(7, None), (8, {"gpu": np.int64(1)})], {EMPTY: 7, frozenset({("gpu", 1)}): 8}),
        ([(7, {"hf_token": "s3cret"})], {frozenset({("hf_token", "[REDACTED]")}): 7}),
        ([1, (2, {"a": "b"})], {EMPTY: 1, frozenset({("a", "b")}): 2}),
        (None, {}),
        ([], {}),
        ([None], {}),
        (float("nan"), {}),
        ([float("inf"), (3, {"a": "b"})], {frozenset({("a", "b")}): 3}),
    ],
)
def test_what_a_callback_may_return(
    given: Any, sent: dict[Any, Any], sdk: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """A number in whatever holds one, a pair, or an iterable of them; nothing is nothing observed."""
    observed(lambda: given)
    create_metric_instruments(sdk.meter, "observed")
    assert sdk.values("my.observed") == sent
    assert complaints(caplog) == []


def test_a_callback_may_be_a_generator(sdk: Reader) -> None:
    """It is run anew at each collection."""
    count = iter(range(10))

    def look() -> Iterator[tuple[int, dict[str, Any]]]:
        yield next(count), {"gpu": 0}
        yield next(count), {"gpu": 1}

    observed(look)
    create_metric_instruments(sdk.meter, "observed")
    assert list(sdk.values("my.observed").values()) == [0, 1]
    assert list(sdk.values("my.observed").values()) == [2, 3]


@pytest.mark.parametrize("kind", ["observable_gauge", "observable_counter", "observable_up_down_counter"])
def test_every_observable_kind_arrives(kind: str, sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """What the callback says is the value, not added to the one before; a counter gives nothing negative."""
    given = iter([5, 7, -1, -2, 9])
    observed(lambda: next(given), kind)
    create_metric_instruments(sdk.meter, "observed")
    create_metric_instruments(sdk.meter, "observed")
    seen = [sdk.value("my.observed") for _ in range(5)]
    if kind == "observable_counter":
        assert [value for value in seen if value is not None] in ([5, 7, 9], [5, 7, 7, 7, 9])
        (message,) = complaints(caplog)
        assert "negative" in message
    else:
        assert seen == [5, 7, -1, -2, 9]
        assert complaints(caplog) == []


@pytest.mark.parametrize(
    "row",
    [
        Row("text", "str"),
        Row(["text", "text"], "str"),
        Row(object(), "object"),
        Row(Hostile(), ""),
        Row([Hostile()], ""),
        Row([[1]], "list"),
        Row([(1, 2, 3)], "tuple"),
        Row([(1, 5)], "tuple"),
        Row({"loss": 1}, "str"),
        Row(tensor(1.5, "cuda"), "device"),
        Row([(tensor(1.5, "cuda"), {"a": "b"})], "device"),
    ],
)
def test_what_a_callback_may_not_return_is_said_once(row: Row, sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING that names the metric and what was given, however often it is collected; nothing raises."""
    observed(lambda: row.value)
    create_metric_instruments(sdk.meter, "observed")
    for _ in range(3):
        assert sdk.values("my.observed") == {}
    (message,) = complaints(caplog)
    assert "'my.observed'" in message
    assert row.sent in message


def test_a_callback_that_raises_is_said_once(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """It costs its own observation alone, also half-way through a generator, and is called again next time."""
    fails = [True, True, True]

    def look() -> Iterator[int]:
        yield 1
        if fails:
            raise ZeroDivisionError("not today")

    observed(look)
    register_metric_group("other", [MetricSpec("seen", "my.other", "observable_gauge", callback=lambda: 5)])
    create_metric_instruments(sdk.meter, "observed")
    create_metric_instruments(sdk.meter, "other")
    for _ in range(3):
        assert sdk.value("my.other") == 5
        assert fails.pop()
    assert sdk.value("my.observed") == 1
    (message,) = complaints(caplog)
    assert "'my.observed'" in message
    assert "ZeroDivisionError" in message


def test_a_slow_callback_holds_nothing_up(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """It gives nothing while it runs, is not started again, is said once; what it found comes the next time."""
    release, finished = threading.Event(), threading.Event()
    calls = []

    def look() -> int:
        calls.append(threading.current_thread())
        if len(calls) == 1:
            release.wait(LONG)
            finished.set()
            return 41
        return 42

    observed(look)
    register_metric_group("other", [MetricSpec("seen", "my.other", "observable_gauge", callback=lambda: 5)])
    create_metric_instruments(sdk.meter, "observed")
    create_metric_instruments(sdk.meter, "other")
    for _ in range(3):
        found = sdk.metrics()
        assert "my.observed" not in found
        assert found["my.other"].data.data_points[0].value == 5
    assert len(calls) == 1
    assert calls[0].daemon, "a callback that hangs must not keep the process from its end"
    release.set()
    finished.wait(LONG)
    calls[0].join(LONG)
    seen = [sdk.value("my.observed"), sdk.value("my.observed")]
    assert seen in ([41, 42], [42, 42])
    assert len(calls) == 3
    (message,) = complaints(caplog)
    assert "'my.observed'" in message
    assert "1 s" in message


def test_what_a_slow_callback_found_is_delivered(sdk: Reader) -> None:
    """One that is always too slow is always one collection behind, and nothing that it found is dropped."""
    turns: list[threading.Event] = [threading.Event() for _ in range(3)]
    threads: list[threading.Thread] = []

    def look() -> int:
        threads.append(threading.current_thread())
        number = len(threads)
        turns[number - 1].wait(LONG)
        return number

    observed(look)
    create_metric_instruments(sdk.meter, "observed")
    assert sdk.value("my.observed") is None
    for number in (1, 2):
        turns[number - 1].set()
        threads[number - 1].join(LONG)
        assert sdk.value("my.observed") == number
    turns[2].set()


def test_each_reader_of_a_provider_sees_what_is_observed() -> None:
    """Two readers, as an application with Prometheus and OTLP has, collect at once and get the same."""
    observed(lambda: 7)
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    provider = MeterProvider(readers, shutdown_on_exit=False)
    both = [Reader(provider.get_meter("tests"), reader) for reader in readers]
    create_metric_instruments(both[0].meter, "observed")
    seen: list[Any] = []
    collecting = [
        threading.Thread(target=lambda reader=reader: seen.extend(reader.value("my.observed") for _ in range(50)))
        for reader in both
    ]
    for thread in collecting:
        thread.start()
    for thread in collecting:
        thread.join(LONG)
    provider.shutdown()
    assert seen == [7] * 100


def test_observing_sees_the_context_variables_of_the_collection(sdk: Reader) -> None:
    """A callback that asks for the current span or the attributes of a scope is not in another world."""
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")
    observed(lambda: 1 if variable.get() == "set" else 0)
    create_metric_instruments(sdk.meter, "observed")
    variable.set("set")
    assert sdk.value("my.observed") == 1


def test_a_group_that_is_gone_is_observed_no_more(sdk: Reader) -> None:
    """Registered again it goes on, with the callback that it has then, also the first one again."""

    def one() -> int:
        return 1

    def two() -> int:
        return 2

    observed(one)
    create_metric_instruments(sdk.meter, "observed")
    assert sdk.value("my.observed") == 1
    unregister_metric_group("observed")
    assert sdk.value("my.observed") is None
    for callback, value in ((two, 2), (one, 1), (two, 2)):
        observed(callback)
        assert sdk.value("my.observed") == value
        create_metric_instruments(sdk.meter, "observed")
        assert sdk.value("my.observed") == value


def test_an_observed_metric_is_not_recorded(sdk: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """A value for it is one WARNING that says what to do; the callback's stays."""
    observed(lambda: 1)
    for _ in range(3):
        record_metrics(sdk.meter, "observed", seen=5)
    assert sdk.value("my.observed") is None
    create_metric_instruments(sdk.meter, "observed")
    record_metrics(sdk.meter, "observed", seen=5)
    assert sdk.value("my.observed") == 1
    (message,) = complaints(caplog)
    for word in ("'seen'", "'observed'", "create_metric_instruments"):
        assert word in message


# ---- with telemetry set up


def test_a_meter_from_before_the_set_up() -> None:
    """Everything works through it from the set-up on, observed metrics made before or after it included."""
    register_metric_group(
        "mine",
        [
            MetricSpec("loss", "my.loss"),
            MetricSpec("time", "my.time", "histogram", buckets=(1.0,)),
            MetricSpec("steps", "my.steps", "counter"),
            MetricSpec("queue", "my.queue", "up_down_counter"),
        ],
    )
    observed(lambda: 7)
    early, other = get_meter("early", "1"), get_meter("other")
    create_metric_instruments(early, "observed")
    record_metrics(early, "mine", loss=100, time=100, steps=100, queue=100)
    with telemetry() as reader:
        create_metric_instruments(other, "observed")
        for _ in range(2):
            record_metrics(early, "mine", loss=1, time=0.5, steps=2, queue=-3, attributes={"split": "train"})
        found = reader.metrics()
        values = {name: found[name].data.data_points[0] for name in ("my.loss", "my.steps", "my.queue", "my.time")}
        assert (values["my.loss"].value, values["my.steps"].value, values["my.queue"].value) == (1, 4, -6)
        assert (values["my.time"].count, list(values["my.time"].explicit_bounds)) == (2, [1.0])
        assert dict(values["my.loss"].attributes) == {"split": "train"}
        assert reader.value("my.observed") == 7


def test_a_histogram_points_to_the_span_it_was_recorded_in() -> None:
    """Inside a span the point carries an exemplar with the ids of that span."""
    with telemetry() as reader, span_cm("step") as span:
        record_training_metrics(reader.meter, step_duration_s=0.5)
        (point,) = reader.points("dl.training.step.duration")
        (exemplar,) = point.exemplars
        context = span.get_span_context()
        assert (exemplar.trace_id, exemplar.span_id, exemplar.value) == (context.trace_id, context.span_id, 0.5)


EXIT = """
import sys, threading
from nemo_lens.api import NemoLensConfig, setup_telemetry
from nemo_lens.api.instruments import *

hang = threading.Event()
register_metric_group("mine", [
    MetricSpec("quick", "my.quick", "observable_gauge", callback=lambda: 7),
    MetricSpec("hangs", "my.hangs", "observable_gauge", callback=hang.wait),
    MetricSpec("raises", "my.raises", "observable_gauge", callback=lambda: 1 / 0),
    MetricSpec("steps", "my.steps", "counter"),
])
config = NemoLensConfig(enabled=True, exporter="file", file_path=sys.argv[1], run_id="r")
handle = setup_telemetry(config, resource_attributes={"nv.dl.rank": 0})
create_metric_instruments(handle.meter, "mine")
record_metrics(handle.meter, "mine", steps=3)
"""


@pytest.mark.parametrize("closing", ["", "handle.shutdown()\n"], ids=["at exit", "shutdown"])
def test_metrics_are_observed_at_the_end(closing: str, tmp_path: Path) -> None:
    """At the interpreter's exit, where Python starts no more threads, and at shutdown: values arrive, hangs do not."""
    # Early releases of 3.12 start no thread here: a callback then runs in the collection, and must not hang.
    inline = not closing and sys.version_info[:2] == (3, 12)
    program = EXIT.replace('MetricSpec("hangs"', "# ") if inline else EXIT
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + closing, str(tmp_path / "{signal}.jsonl")],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = {
        metric["name"]: (metric.get("gauge") or metric["sum"])["dataPoints"][0]["asInt"]
        for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        for resource in json.loads(line)["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    }
    assert found == {"my.quick": "7", "my.steps": "3"}
    assert done.stderr.count("my.raises") == 1
