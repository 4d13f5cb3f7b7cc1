"""What a metric may be: each field of ``MetricSpec`` checked where the metric is declared."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from nemo_lens.api.instruments import MetricSpec

PLAIN = ("gauge", "histogram", "counter", "up_down_counter")
OBSERVABLE = ("observable_gauge", "observable_counter", "observable_up_down_counter")


def nothing() -> None:
    """Observe nothing."""


def test_the_defaults_are_those_of_a_bare_gauge() -> None:
    """Key and name are enough: a gauge without unit, description, buckets and callback."""
    spec = MetricSpec("loss", "my.loss")
    assert (spec.key, spec.name, spec.kind, spec.unit, spec.description) == ("loss", "my.loss", "gauge", "", "")
    assert spec.buckets is None
    assert spec.callback is None


@pytest.mark.parametrize("kind", [*PLAIN, *OBSERVABLE])
def test_each_kind_is_taken(kind: str) -> None:
    """The seven kinds of OpenTelemetry, under those names."""
    spec = MetricSpec("k", "my.metric", kind, callback=nothing if kind in OBSERVABLE else None)
    assert spec.kind == kind


def test_a_spec_is_a_value() -> None:
    """It cannot be changed, equals one of the same content, is hashed like it, and survives copying and pickling."""
    spec = MetricSpec("k", "my.metric", "histogram", "s", "how long", [0.5, 1])  # type: ignore[arg-type]
    same = MetricSpec(key="k", name="my.metric", kind="histogram", unit="s", description="how long", buckets=(0.5, 1.0))
    assert spec == same
    assert len({spec, same, copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))}) == 1
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "other",
    [
        {"key": "other"},
        {"name": "other"},
        {"kind": "counter", "buckets": None},
        {"unit": "ms"},
        {"description": "other"},
        {"buckets": (1.0,)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_specs_that_differ_in_one_field_are_not_equal(other: dict[str, Any]) -> None:
    """Each field counts, so that a changed registration is seen as one."""
    fields: dict[str, Any] = {"key": "k", "name": "m", "kind": "histogram", "unit": "s", "description": "d"}
    fields["buckets"] = (2.0,)
    assert MetricSpec(**fields) != MetricSpec(**{**fields, **other})


@pytest.mark.parametrize(
    "name", ["a", "dl.training.loss", "a_b-c/d.e9", "a" + "b" * 254, "gen_ai.client.token.usage", "UpperCase"]
)
def test_names_of_the_syntax_are_taken(name: str) -> None:
    """A letter, then letters, digits and ``_.-/``, 255 in all, as OpenTelemetry has it."""
    assert MetricSpec("k", name).name == name


@pytest.mark.parametrize("name", ["", " ", "9a", ".a", "a b", "größe", "a\n", "a" + "b" * 255, "_a", "a:b"])
def test_other_names_are_refused(name: str) -> None:
    """A name that the SDK would refuse is refused where it is declared, and named."""
    with pytest.raises(ValueError, match="instrument name") as caught:
        MetricSpec("my key", name)
    assert repr(name) in str(caught.value)
    assert "'my key'" in str(caught.value)


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_refused(key: str) -> None:
    """A metric without a key could not be recorded."""
    with pytest.raises(ValueError, match=r"key of metric 'my\.metric'"):
        MetricSpec(key, "my.metric")


@pytest.mark.parametrize("key", ["meter", "group", "values", "attributes", "self", "not an identifier"])
def test_a_key_may_be_called_anything(key: str) -> None:
    """No key is reserved: what cannot be a keyword argument is recorded in the mapping."""
    assert MetricSpec(key, "my.metric").key == key


def test_an_unknown_kind_names_the_kinds_and_the_nearest() -> None:
    """The message names the metric, what was given, what there is and what was probably meant."""
    with pytest.raises(ValueError, match="did you mean 'histogram'") as caught:
        MetricSpec("k", "my.metric", "histogramm")
    for word in ("'my.metric'", "'histogramm'", *PLAIN, *OBSERVABLE):
        assert word in str(caught.value)


@pytest.mark.parametrize("unit", ["é", "u" * 64])
def test_a_unit_that_the_sdk_would_refuse(unit: str) -> None:
    """Units are at most 63 ASCII characters."""
    with pytest.raises(ValueError, match="unit") as caught:
        MetricSpec("k", "my.metric", unit=unit)
    assert "63" in str(caught.value)
    assert MetricSpec("k", "my.metric", unit="u" * 63).unit == "u" * 63


@pytest.mark.parametrize("field", ["key", "name", "kind", "unit", "description"])
@pytest.mark.parametrize("value", [None, 7, b"text", ["text"]])
def test_a_text_that_is_none_is_a_type_error(field: str, value: Any) -> None:
    """A field of a wrong type is named, with the type that was given."""
    with pytest.raises(TypeError, match=rf"^{field} .*{type(value).__name__}"):
        MetricSpec(**{"key": "k", "name": "my.metric", field: value})


# ---- buckets


def _numbers() -> Iterator[float]:
    yield from (0.5, 1, 2)


@pytest.mark.parametrize(
    "buckets", [(0.5, 1, 2), [0.5, 1, 2], _numbers(), np.array([0.5, 1, 2]), range(3), np.arange(3), [-1, 0, 1e300]]
)
def test_buckets_are_any_increasing_numbers(buckets: Any) -> None:
    """Lists, tuples, generators, ranges and arrays become a tuple of plain numbers, which any SDK takes."""
    bounds = MetricSpec("k", "my.metric", "histogram", buckets=buckets).buckets
    assert bounds is not None
    assert len(bounds) == 3
    for bound in bounds:
        assert type(bound) in (int, float)


@pytest.mark.parametrize(
    ("buckets", "word"),
    [
        ((), "empty"),
        ((1, 1), "increase"),
        ((2, 1), "increase"),
        ((1, float("inf")), "inf"),
        ((float("nan"),), "nan"),
        ((-float("inf"), 1), "-inf"),
        ((True, 2), "True"),
        (("1", "2"), "'1'"),
        ((1, None), "None"),
        ((1, 10**400), "finite"),
        (([1],), r"\[1\]"),
    ],
)
def test_buckets_that_cannot_work_are_refused(buckets: Any, word: str) -> None:
    """Empty, not increasing, not finite or not numbers: the message names the metric and what is wrong."""
    with pytest.raises(ValueError, match=word) as caught:
        MetricSpec("k", "my.metric", "histogram", buckets=buckets)
    assert "'my.metric'" in str(caught.value)


@pytest.mark.parametrize("buckets", [5, "1, 2", b"12"])
def test_buckets_that_are_no_numbers_at_all(buckets: Any) -> None:
    """What is no iterable of numbers is a TypeError that names the metric."""
    with pytest.raises(TypeError, match=r"'my\.metric'"):
        MetricSpec("k", "my.metric", "histogram", buckets=buckets)


@pytest.mark.parametrize("kind", [kind for kind in (*PLAIN, *OBSERVABLE) if kind != "histogram"])
def test_buckets_belong_to_histograms(kind: str) -> None:
    """Bucket advice for another kind is a mistake, and said."""
    with pytest.raises(ValueError, match=kind):
        MetricSpec("k", "my.metric", kind, buckets=(1.0,), callback=nothing if kind in OBSERVABLE else None)


# ---- callbacks


class Reading:
    """A callable object, as a method or a partial is one."""

    def __call__(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    "callback", [nothing, lambda: 1, Reading(), len], ids=["function", "lambda", "object", "builtin"]
)
def test_a_callback_is_any_callable(callback: Callable[[], Any]) -> None:
    """Functions, lambdas and callable objects alike."""
    assert MetricSpec("k", "my.metric", "observable_gauge", callback=callback).callback is callback


@pytest.mark.parametrize("kind", OBSERVABLE)
def test_an_observable_kind_needs_its_callback(kind: str) -> None:
    """Without one nothing would ever be observed."""
    with pytest.raises(ValueError, match="callback") as caught:
        MetricSpec("k", "my.metric", kind)
    assert kind in str(caught.value)


@pytest.mark.parametrize("kind", PLAIN)
def test_no_other_kind_has_a_callback(kind: str) -> None:
    """A callback that nobody would call is a mistake; the kinds that call one are named."""
    with pytest.raises(ValueError, match="observable_gauge") as caught:
        MetricSpec("k", "my.metric", kind, callback=nothing)
    assert kind in str(caught.value)


def test_a_callback_that_cannot_be_called() -> None:
    """A number is not a callback."""
    with pytest.raises(TypeError, match=r"callback of metric 'my\.metric'.* int"):
        MetricSpec("k", "my.metric", "observable_gauge", callback=3)  # type: ignore[arg-type]
