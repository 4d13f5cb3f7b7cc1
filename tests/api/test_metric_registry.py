"""Metric groups, and what recording into them does with any value, attributes, key and meter: never raise."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections import OrderedDict, UserDict
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_lens.api import _diagnostics
from nemo_lens.api._values import type_name
from nemo_lens.api.fallbacks import NULL_METER
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    recorders,
    register_metric_group,
    registered_metric_groups,
    registry,
    unregister_metric_group,
)
from nemo_lens.api.instruments.attribute_sets import MAX_ATTRIBUTE_SETS
from support.meters import Meter
from support.odd_values import Endless, FailingScalar, Hostile, OfHostileType, Real, Row, Whole, tensor

SHIPPED = {"inference", "rl", "gym", "training"}
OVERFLOW = {"otel.metric.overflow": True}
INT64_MAX = 2**63 - 1

LOSS = MetricSpec("loss", "my.loss", "gauge", "1", "how wrong")
TIME = MetricSpec("time_s", "my.time", "histogram", "s", buckets=(0.5, 1, 2))
STEPS = MetricSpec("steps", "my.steps", "counter", "{step}")
QUEUE = MetricSpec("queue", "my.queue", "up_down_counter")
SPECS = (LOSS, TIME, STEPS, QUEUE)


class Number(IntEnum):
    THREE = 3


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    before = registry.groups
    _diagnostics.forget_reported()
    register_metric_group("mine", SPECS)
    yield
    registry.replace_groups(before)
    _diagnostics.forget_reported()


@pytest.fixture
def meter() -> Meter:
    return Meter()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- groups


def test_a_registered_group_is_listed_with_its_metrics() -> None:
    """The metrics come back in the order they were given; what comes back is nobody's to change."""
    assert set(registered_metric_groups()) == {*SHIPPED, "mine"}
    assert registered_metric_groups()["mine"] == SPECS
    registered_metric_groups().clear()
    assert registered_metric_groups()["mine"] == SPECS


def test_registering_takes_any_iterable() -> None:
    """A generator is read once."""
    register_metric_group("generated", (spec for spec in SPECS))
    assert registered_metric_groups()["generated"] == SPECS


def test_the_same_content_again_is_no_error() -> None:
    """A module may be imported twice; the order of its metrics does not matter."""
    register_metric_group("mine", [MetricSpec("loss", "my.loss", "gauge", "1", "how wrong"), QUEUE, STEPS, TIME])
    assert registered_metric_groups()["mine"] == SPECS


def test_another_content_is_an_error_unless_it_is_meant(meter: Meter) -> None:
    """A name taken by another library is said, with what it holds; ``allow_override`` replaces."""
    with pytest.raises(ValueError, match="'mine'") as caught:
        register_metric_group("mine", [LOSS])
    assert "allow_override=True" in str(caught.value)
    assert registered_metric_groups()["mine"] == SPECS
    register_metric_group("mine", [LOSS], allow_override=True)
    assert registered_metric_groups()["mine"] == (LOSS,)


@pytest.mark.parametrize(
    ("specs", "word"),
    [
        ([LOSS, MetricSpec("loss", "other")], "key 'loss'"),
        ([LOSS, MetricSpec("other", "my.loss")], r"name 'my\.loss'"),
        ([LOSS, MetricSpec("other", "My.Loss")], r"name 'My\.Loss'"),
        ([], "no metrics"),
    ],
    ids=["key", "name", "case of the name", "empty"],
)
def test_a_group_must_be_unambiguous(specs: list[MetricSpec], word: str) -> None:
    """Two metrics of one key or name, or none at all: nothing is registered, and the message says which."""
    with pytest.raises(ValueError, match=word):
        register_metric_group("other", specs)
    assert "other" not in registered_metric_groups()


@pytest.mark.parametrize("group", ["", " "])
def test_a_group_needs_a_name(group: str) -> None:
    """An empty name is a ValueError."""
    with pytest.raises(ValueError, match="empty"):
        register_metric_group(group, SPECS)


@pytest.mark.parametrize("group", [None, 7, ["mine"]])
def test_a_group_is_named_by_a_text(group: Any) -> None:
    """Another type is a TypeError that names it."""
    with pytest.raises(TypeError, match=type(group).__name__):
        register_metric_group(group, SPECS)


@pytest.mark.parametrize("specs", [None, 5, ["my.loss"], [("loss", "my.loss")], LOSS])
def test_a_group_is_made_of_specs(specs: Any) -> None:
    """What is no iterable of MetricSpec is a TypeError."""
    with pytest.raises(TypeError):
        register_metric_group("other", specs)
    assert "other" not in registered_metric_groups()


def test_unregistering(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """A group is gone at once and can be registered anew, with other content too; an unknown one is no error."""
    unregister_metric_group("mine")
    unregister_metric_group("mine")
    unregister_metric_group("nobody")
    assert "mine" not in registered_metric_groups()
    record_metrics(meter, "mine", loss=1)
    assert meter.made == []
    assert len(warnings_of(caplog)) == 1
    register_metric_group("mine", [LOSS])
    record_metrics(meter, "mine", loss=2)
    assert meter.values("my.loss") == [2]


# ---- recording


def test_each_kind_is_recorded_by_its_own_call(meter: Meter) -> None:
    """A gauge is set, a histogram records, counters add; name, unit, description and buckets reach the meter."""
    record_metrics(meter, "mine", loss=0.5, time_s=1.5, steps=2, queue=-3)
    assert {made.name: (made.kind, made.unit, made.description, made.points) for made in meter.made} == {
        "my.loss": ("gauge", "1", "how wrong", [(0.5, {})]),
        "my.time": ("histogram", "s", "", [(1.5, {})]),
        "my.steps": ("counter", "{step}", "", [(2, {})]),
        "my.queue": ("up_down_counter", "", "", [(-3, {})]),
    }
    assert meter["my.time"].buckets == (0.5, 1, 2)
    register_metric_group("default buckets", [MetricSpec("t", "other.time", "histogram")])
    record_metrics(meter, "default buckets", t=1)
    assert meter["other.time"].buckets is None


def test_values_come_as_a_mapping_and_as_keywords(meter: Meter) -> None:
    """Both are recorded; the keyword wins where both have a key; the mapping stays as it is."""
    values = {"loss": 1, "steps": 5}
    for form in (values, MappingProxyType(values), OrderedDict(values), UserDict(values)):
        record_metrics(meter, "mine", form, loss=2)
    assert meter.values("my.loss") == [2] * 4
    assert meter.values("my.steps") == [5] * 4
    assert values == {"loss": 1, "steps": 5}


def test_keys_may_be_called_like_the_arguments(meter: Meter) -> None:
    """``meter``, ``group`` and ``values`` are keywords like any other; ``attributes`` goes through the mapping."""
    keys = ("meter", "group", "values", "attributes", "self", "not an identifier")
    register_metric_group("odd", [MetricSpec(key, f"odd.n{number}") for number, key in enumerate(keys)])
    record_metrics(meter, "odd", meter=1, group=2, values=3, attributes={"a": "b"})
    record_metrics(meter, "odd", {"attributes": 4, "not an identifier": 5}, self=6)
    assert {made.name: made.points for made in meter.made} == {
        "odd.n0": [(1, {"a": "b"})],
        "odd.n1": [(2, {"a": "b"})],
        "odd.n2": [(3, {"a": "b"})],
        "odd.n3": [(4, {})],
        "odd.n4": [(6, {})],
        "odd.n5": [(5, {})],
    }


def test_nothing_to_record_is_no_problem(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """No values, an empty mapping, and values that are None leave no line: an optional value is passed on as it is."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        record_metrics(meter, "mine")
        record_metrics(meter, "mine", {})
        record_metrics(meter, "mine", {"steps": None}, loss=None, attributes=None)
    assert [made.points for made in meter.made if made.points] == []
    assert not caplog.records


@pytest.mark.parametrize(
    "row",
    [
        Row(1.5, 1.5),
        Row(-0.0, 0.0),
        Row(7, 7),
        Row(True, 1),
        Row(False, 0),
        Row(INT64_MAX, INT64_MAX),
        Row(INT64_MAX + 1, 2.0**63),
        Row(-INT64_MAX - 1, -INT64_MAX - 1),
        Row(-INT64_MAX - 2, -(2.0**63)),
        Row(2**1000, 2.0**1000),
        Row(Number.THREE, 3),
        Row(Whole(7), 7),
        Row(Real(1.5), 1.5),
        Row(Decimal("1.5"), 1.5),
        Row(Fraction(3, 2), 1.5),
        Row(np.float16(1.5), 1.5),
        Row(np.float32(1.5), 1.5),
        Row(np.float64(1.5), 1.5),
        Row(np.longdouble(1.5), 1.5),
        Row(np.int8(-7), -7),
        Row(np.int64(7), 7),
        Row(np.uint64(2**64 - 1), 2.0**64),
        Row(np.bool_(True), 1),
        Row(np.array(7), 7),
        Row(np.array(1.5, dtype=np.float32), 1.5),
        Row(np.array(Decimal("1.5"), dtype=object), 1.5),
        Row(tensor(1.5), 1.5),
        Row(tensor(2, kind="Parameter", module="torch.nn.parameter"), 2),
        Row(tensor(True), 1),
    ],
)
def test_what_holds_a_number_is_that_number(row: Row, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever holds a number is recorded as a plain int or float that OTLP can carry; no user code is called."""
    record_metrics(meter, "mine", loss=row.value)
    (value,) = meter.values("my.loss")
    assert value == row.sent
    assert type(value) is type(row.sent)
    assert not caplog.records


@pytest.mark.parametrize(
    "row",
    [
        Row("1.5", "str"),
        Row(b"1", "bytes"),
        Row([1.5], "list"),
        Row((1, 2), "tuple"),
        Row({"a": 1}, "dict"),
        Row(1j, "complex"),
        Row(object(), "object"),
        Row(Hostile(), "Hostile"),
        Row(OfHostileType(), "OfHostileType"),
        Row(OfHostileType, "HostileType"),
        Row(10**400, "float"),
        Row(Decimal("1e400"), ""),
        Row(Decimal("sNaN"), "ValueError"),
        Row(Fraction(10**400), "OverflowError"),
        Row(np.zeros(3), "array"),
        Row(np.zeros(1), "array"),
        Row(np.complex64(1), "complex"),
        Row(np.clongdouble(1), ""),
        Row(np.str_("1"), "str"),
        Row(np.array("1"), "str"),
        Row(np.datetime64("2026-01-02T03:04:05"), "datetime"),
        Row(FailingScalar(), "RuntimeError"),
        Row(Endless(), ""),
        Row(tensor(1.5, dimensions=1), "dimensions"),
        Row(tensor(1.5, kind="DTensor", module="torch.distributed.tensor"), "DTensor"),
    ],
)
def test_what_holds_no_number_costs_itself_alone(row: Row, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING with key, group and reason, however often it comes; what is beside it is recorded each time."""
    finite = type(row.value) is not Decimal or row.value.is_nan()
    for _ in range(3):
        record_metrics(meter, "mine", {"loss": row.value}, steps=1)
    assert meter.values("my.loss") == []
    assert meter.values("my.steps") == [1, 1, 1]
    said = warnings_of(caplog)
    if finite:
        (message,) = said
        for word in ("'loss'", "'mine'", row.sent):
            assert word in message
    else:
        assert said == []  # beyond what a float holds it is infinite


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        np.float32("nan"),
        Decimal("NaN"),
        Decimal("Infinity"),
        tensor(float("nan")),
    ],
)
def test_what_is_not_finite_is_skipped(value: Any, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """NaN and infinity would spoil a sum for ever: one DEBUG line for each metric, and no WARNING."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        for _ in range(3):
            record_metrics(meter, "mine", loss=value, time_s=value)
    assert meter.values("my.loss") == meter.values("my.time") == []
    assert [record.levelname for record in caplog.records] == ["DEBUG", "DEBUG"]
    assert "'loss'" in caplog.text
    assert "'time_s'" in caplog.text


@pytest.mark.parametrize("key", ["steps", "time_s"])
@pytest.mark.parametrize("value", [-1, -0.5, np.float32(-1), -(2**70)])
def test_what_only_grows_takes_nothing_negative(
    key: str, value: Any, meter: Meter, caplog: pytest.LogCaptureFixture
) -> None:
    """A counter and a histogram refuse a negative value with one WARNING that says the kind; zero is taken."""
    for _ in range(3):
        record_metrics(meter, "mine", {key: value})
        record_metrics(meter, "mine", {key: 0})
    assert meter.values("my.steps" if key == "steps" else "my.time") == [0, 0, 0]
    (message,) = warnings_of(caplog)
    assert repr(key) in message
    assert ("counter" if key == "steps" else "histogram") in message


def test_a_tensor_on_a_device_is_refused_with_a_hint(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """Reading it would make the job wait: it is never read, and one WARNING per metric says what to do instead."""
    for _ in range(3):
        record_metrics(meter, "mine", loss=tensor(1.5, "cuda"), queue=tensor(1.5, "mps"), steps=1)
    assert meter.values("my.loss") == meter.values("my.queue") == []
    assert meter.values("my.steps") == [1, 1, 1]
    said = warnings_of(caplog)
    assert [("'loss'" in message, "'queue'" in message) for message in said] == [(True, False), (False, True)]
    assert all("device" in message and "pass the number" in message for message in said)


# ---- problems, each said once


@pytest.mark.parametrize("group", ["mime", "", None, 7, ["mine"], b"mine", Row(Hostile())])
def test_an_unknown_group_is_said_once(group: Any, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING that names it, or its type; for a misspelt one also the groups there are and the nearest."""
    group = group.value if type(group) is Row else group
    for _ in range(3):
        record_metrics(meter, group, loss=1)
        assert create_metric_instruments(meter, group) == {}
    (message,) = warnings_of(caplog)
    if group == "mime":
        for word in ("'mime'", "did you mean 'mine'", *SHIPPED):
            assert word in message
    if type(group) is not str:
        assert type(group).__name__ in message


def test_an_unknown_key_is_said_once(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING for each unknown key, with the keys there are and the nearest; the others are recorded."""
    for _ in range(3):
        record_metrics(meter, "mine", {"lsos": 1, 7: 2}, stepz=3, loss=4)  # type: ignore[dict-item]
    assert meter.values("my.loss") == [4, 4, 4]
    said = warnings_of(caplog)
    assert len(said) == 3
    assert "'lsos'" in said[0]
    assert "did you mean 'loss'" in said[0]
    assert "time_s" in said[0]
    assert "7" in said[1]
    assert "did you mean 'steps'" in said[2]


class FailingMapping(UserDict[str, Any]):
    def keys(self) -> Any:
        raise RuntimeError("no keys")

    items = keys  # type: ignore[assignment]


@pytest.mark.parametrize("values", [5, "text", [("loss", 1)], object(), FailingMapping(loss=1), Row(Hostile())])
def test_values_that_are_no_mapping_are_said_once(values: Any, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING with the type that was given; the keywords are recorded."""
    values = values.value if type(values) is Row else values
    for _ in range(3):
        record_metrics(meter, "mine", values, steps=1)
    assert meter.values("my.steps") == [1, 1, 1]
    (message,) = warnings_of(caplog)
    assert type(values).__name__ in message
    assert "'mine'" in message


@pytest.mark.parametrize("attributes", [5, "text", [("a", 1)], {"a"}, Row(Hostile()), Row(OfHostileType())])
def test_attributes_that_are_no_mapping_are_said_once(
    attributes: Any, meter: Meter, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING with the type that was given; the values are recorded without attributes."""
    attributes = attributes.value if type(attributes) is Row else attributes
    for _ in range(3):
        record_metrics(meter, "mine", loss=1, attributes=attributes)
    assert meter.points("my.loss") == [(1, {})] * 3
    (message,) = warnings_of(caplog)
    assert type_name(attributes) in message


def test_attributes_are_cleaned_and_redacted(meter: Meter) -> None:
    """The same table as for spans: numpy numbers, paths, secrets, what cannot be sent."""
    attributes = {"a": np.int64(1), "hf_token": "s3cret", "bad": {}, "none": None, "split": "train"}
    record_metrics(meter, "mine", loss=1, attributes=attributes)
    record_metrics(meter, "mine", loss=2, attributes=MappingProxyType({"tokens": ["a", "b"], "api_key": "x"}))
    record_metrics(meter, "mine", loss=3, attributes=FailingMapping(a=1))
    record_metrics(meter, "mine", loss=4, attributes={})
    assert meter.points("my.loss") == [
        (1, {"a": 1, "hf_token": "[REDACTED]", "split": "train"}),
        (2, {"tokens": ("a", "b"), "api_key": "[REDACTED]"}),
        (3, {}),
        (4, {}),
    ]
    assert attributes["hf_token"] == "s3cret"


def test_what_the_caller_changes_later_is_not_sent(meter: Meter) -> None:
    """A dict that is used again for the next call leaves the points before as they were."""
    attributes: dict[str, Any] = {"split": "train"}
    instrument = create_metric_instruments(meter, "mine")["loss"]
    kept: list[dict[str, Any]] = []
    instrument._take = lambda amount, given, context=None: kept.append(given)
    record_metrics(meter, "mine", loss=1, attributes=attributes)
    attributes["split"] = "test"
    record_metrics(meter, "mine", loss=1, attributes=attributes)
    assert kept == [{"split": "train"}, {"split": "test"}]


class Slotted:
    """A meter that cannot be referenced weakly."""

    __slots__ = ()

    def create_counter(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it must not be used")


@pytest.mark.parametrize("unusable", [None, 5, "text", object(), Row(Hostile()), Row(OfHostileType()), Slotted()])
def test_a_meter_that_cannot_be_used_is_said_once(unusable: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING, with its type, whatever is recorded; nothing raises."""
    unusable = unusable.value if type(unusable) is Row else unusable
    for _ in range(3):
        record_metrics(unusable, "mine", loss=1, steps=2)
        assert create_metric_instruments(unusable, "mine") == {}
    (message,) = warnings_of(caplog)
    assert type_name(unusable) in message


class Failing(Meter):
    """A meter whose gauges cannot be made, and whose counters fail."""

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        self.tried = getattr(self, "tried", 0) + 1
        raise RuntimeError("no gauges")

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        counter = super().create_counter(name, unit, description)

        def add(*args: Any) -> None:
            raise ZeroDivisionError("no adding")

        counter.add = add
        return counter


def test_a_meter_and_an_instrument_that_fail_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """The others are recorded; an instrument that cannot be made is not tried again with each value."""
    meter = Failing()
    for _ in range(3):
        record_metrics(meter, "mine", loss=1, steps=2, queue=3)
    assert meter.values("my.queue") == [3, 3, 3]
    assert meter.tried == 1
    making, adding = warnings_of(caplog)
    for word in ("'my.loss'", "Failing", "RuntimeError"):
        assert word in making
    for word in ("'my.steps'", "ZeroDivisionError"):
        assert word in adding
    assert set(create_metric_instruments(meter, "mine")) == {"loss", "time_s", "steps", "queue"}


class OldMeter:
    """A meter of an OpenTelemetry that has no gauge."""

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        return Meter().create_counter(name, unit, description)


def test_a_meter_without_a_kind_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A kind that this meter cannot make costs that metric alone."""
    meter = OldMeter()
    for _ in range(3):
        record_metrics(meter, "mine", loss=1, steps=2)
    (message,) = warnings_of(caplog)
    assert "'my.loss'" in message


def test_recording_into_the_null_meter_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """With telemetry off nothing is looked at, so nothing is said either; the instruments are there all the same."""
    record_metrics(NULL_METER, "nobody", {"x": object()}, attributes=5)  # type: ignore[arg-type]
    instruments = create_metric_instruments(NULL_METER, "mine")
    assert set(instruments) == {"loss", "time_s", "steps", "queue"}
    instruments["steps"].add(1)
    instruments["loss"].set(1)
    instruments["time_s"].record(1)
    assert not caplog.records


# ---- instruments


def test_instruments_are_made_once_for_each_meter() -> None:
    """The same instruments at every call, made on first use or all at once; each meter has its own."""
    one, other = Meter(), Meter()
    record_metrics(one, "mine", loss=1)
    made = create_metric_instruments(one, "mine")
    assert set(made) == {"loss", "time_s", "steps", "queue"}
    for key, instrument in create_metric_instruments(one, "mine").items():
        assert instrument is made[key]
    for _ in range(3):
        record_metrics(one, "mine", loss=1, steps=1)
        record_metrics(other, "mine", loss=1)
    assert len(one.made) == 4
    assert len(other.made) == 1
    assert create_metric_instruments(other, "mine")["loss"] is not made["loss"]


def test_a_meter_is_not_kept_alive() -> None:
    """When a meter is gone, so are its instruments, and another one in its place has its own."""
    gc.collect()  # meters of tests before
    before = len(recorders._by_meter)
    meter = Meter()
    record_metrics(meter, "mine", loss=1)
    instrument = weakref.ref(meter.made[0])
    gone = weakref.ref(meter)
    assert len(recorders._by_meter) == before + 1
    del meter
    gc.collect()
    assert gone() is None
    assert instrument() is None
    assert len(recorders._by_meter) == before
    for _ in range(200):  # ids are used again
        another = Meter()
        record_metrics(another, "mine", loss=2)
        assert another.values("my.loss") == [2]
        del another


class Incomparable(Meter):
    """A meter that cannot be hashed or compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")


def test_a_meter_need_not_be_hashable(caplog: pytest.LogCaptureFixture) -> None:
    """Meters are told apart by identity."""
    one, other = Incomparable(), Incomparable()
    for meter in (one, other, one):
        record_metrics(meter, "mine", steps=1)
    assert (one.values("my.steps"), other.values("my.steps")) == ([1, 1], [1])
    assert not caplog.records


def test_a_changed_registration_takes_effect(meter: Meter) -> None:
    """Recorded before or not, the next value goes to the instrument of the new spec."""
    record_metrics(meter, "mine", loss=1, time_s=1)
    register_metric_group(
        "mine",
        [
            MetricSpec("loss", "my.loss.total", "counter"),
            MetricSpec("time_s", "my.time", "histogram", "s", buckets=(9,)),
        ],
        allow_override=True,
    )
    record_metrics(meter, "mine", loss=2, time_s=2)
    assert [(made.name, made.kind, made.buckets, made.points) for made in meter.made] == [
        ("my.loss", "gauge", None, [(1, {})]),
        ("my.time", "histogram", (0.5, 1, 2), [(1, {})]),
        ("my.loss.total", "counter", None, [(2, {})]),
        ("my.time", "histogram", (9,), [(2, {})]),
    ]


def test_threads_that_record_and_change_the_registry(caplog: pytest.LogCaptureFixture) -> None:
    """Recording while others register and unregister raises nothing, makes each instrument once and loses nothing."""
    meter, stop = Meter(), threading.Event()
    failures: list[BaseException] = []

    def change(number: int) -> None:
        while not stop.is_set():
            register_metric_group(f"other{number}", SPECS)
            registered_metric_groups()
            unregister_metric_group(f"other{number}")

    def record(number: int) -> None:
        for _ in range(2000):
            record_metrics(meter, "mine", steps=1, attributes={"thread": number})
            record_metrics(meter, "other0", queue=1)

    def guarded(work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as fault:
            failures.append(fault)

    changing = [threading.Thread(target=guarded, args=(change, number)) for number in range(2)]
    recording = [threading.Thread(target=guarded, args=(record, number)) for number in range(4)]
    for thread in (*changing, *recording):
        thread.start()
    for thread in recording:
        thread.join()
    stop.set()
    for thread in changing:
        thread.join()
    assert failures == []
    assert sum(meter.values("my.steps")) == 8000
    assert len([made for made in meter.made if made.name == "my.steps"]) == 1
    assert all("other0" in message for message in warnings_of(caplog))


# ---- attribute sets


def test_attribute_sets_are_capped(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """2000 sets in all, the empty one included; what comes later keeps its value, not its attributes; said once."""
    for step in range(2 * MAX_ATTRIBUTE_SETS):
        record_metrics(meter, "mine", steps=1, attributes={"step": step})
    record_metrics(meter, "mine", steps=1)
    points = meter.points("my.steps")
    sets = {frozenset(attributes.items()) for _, attributes in points}
    assert MAX_ATTRIBUTE_SETS == 2000
    assert len(sets) == MAX_ATTRIBUTE_SETS + 1
    assert frozenset(OVERFLOW.items()) in sets
    assert sum(value for value, _ in points) == 2 * MAX_ATTRIBUTE_SETS + 1
    (message,) = warnings_of(caplog)
    for word in ("'my.steps'", "2000", "otel.metric.overflow", "step"):
        assert word in message


def test_sets_seen_before_the_cap_stay_themselves(meter: Meter) -> None:
    """Past the cap a known set goes on as it is; each metric and each meter counts for itself."""
    for step in range(2 * MAX_ATTRIBUTE_SETS):
        record_metrics(meter, "mine", steps=1, attributes={"step": step})
    other = Meter()
    for target in (meter, other):
        record_metrics(target, "mine", steps=1, queue=1, attributes={"step": 5})
    record_metrics(meter, "mine", steps=1, queue=1, attributes={"step": 99_999})
    assert [attributes for _, attributes in meter.points("my.steps")[-2:]] == [{"step": 5}, OVERFLOW]
    assert [attributes for _, attributes in meter.points("my.queue")] == [{"step": 5}, {"step": 99_999}]
    assert other.points("my.steps") == [(1, {"step": 5})]


def test_two_metrics_of_one_name_share_the_cap(meter: Meter) -> None:
    """They are one instrument of the SDK, whichever group records."""
    register_metric_group("other", [MetricSpec("n", "my.steps", "counter", "{step}")])
    for step in range(MAX_ATTRIBUTE_SETS):
        record_metrics(meter, "mine", steps=1, attributes={"step": step})
        record_metrics(meter, "other", n=1, attributes={"step": -1 - step})
    sets = {frozenset(attributes.items()) for _, attributes in meter.points("my.steps")}
    assert len(sets) == MAX_ATTRIBUTE_SETS  # 1999 of them, and the overflow; nothing came without attributes


# ---- whatever is passed

_scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**60, 2**1100)
    | st.floats()
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from(
        [
            Row(value)
            for value in (
                *(
                    Hostile(),
                    OfHostileType(),
                    OfHostileType,
                    Endless(),
                    FailingScalar(),
                    np.zeros(3),
                    np.float32("nan"),
                ),
                *(np.longdouble(1), np.str_("x"), tensor(1.0), tensor(1.0, "cuda"), object(), Number.THREE),
            )
        ]
    )
)
_anything: st.SearchStrategy[Any] = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
_keys: st.SearchStrategy[Any] = st.sampled_from(["loss", "time_s", "steps", "queue", "lost", 7, None, ("a",)])


def unpacked(value: Any) -> Any:
    """Return a generated value with its rows replaced by what they hold."""
    if type(value) is Row:
        return value.value
    if type(value) is dict:
        return {key: unpacked(item) for key, item in value.items()}
    return [unpacked(item) for item in value] if type(value) is list else value


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(_keys, _anything, max_size=4) | _anything,
    st.dictionaries(st.text(max_size=3) | st.integers(), _anything, max_size=3) | _anything,
    st.sampled_from(["mine"] * 5 + ["training", "nobody"]) | _anything,
    st.sampled_from(["meter"] * 5 + ["failing"]) | _anything,
)
def test_whatever_is_passed_nothing_raises(values: Any, attributes: Any, group: Any, target: Any) -> None:
    """No value, attributes, group or meter raises; what reaches an instrument is finite, its attributes clean."""
    meter = {"meter": Meter, "failing": Failing}[target]() if target in ("meter", "failing") else unpacked(target)
    record_metrics(meter, unpacked(group), unpacked(values), attributes=unpacked(attributes))
    create_metric_instruments(meter, unpacked(group))
    if type(meter) is not Meter:
        return
    for made in meter.made:
        for value, sent in made.points:
            assert type(value) in (int, float)
            assert value - value == 0
            assert type(value) is float or abs(value) <= 2**63
            for key, attribute in sent.items():
                assert type(key) is str
                assert type(attribute) in (bool, int, float, str, tuple)
