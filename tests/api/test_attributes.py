"""Attribute values by the written table, redaction by key, and that no input whatever raises."""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict, UserDict, deque, namedtuple
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_lens.api import _diagnostics, _text
from nemo_lens.api._values import MAX_CHARACTERS, MAX_ITEMS
from nemo_lens.api.attributes import (
    DEFAULT_REDACT_KEYS,
    clean_attributes,
    clean_text,
    cleaned_keywords,
    redact_value,
    safe_set_span_attributes,
    text_limit,
)
from support.odd_values import Endless, FailingScalar, Hostile, OfHostileType, Real, Row, Whole, tensor

INT64_MAX = 2**63 - 1
REDACTED = "[REDACTED]"


class Color(Enum):
    RED = "red"


class Number(IntEnum):
    THREE = 3


class Bits(IntFlag):
    READ = 1
    WRITE = 2


class Mode(str, Enum):
    FAST = "fast"


class Ids(Enum):
    BOTH = (1, 2)


class Text(str):
    def __str__(self) -> str:
        raise RuntimeError("user code was called")

    __repr__ = __len__ = __hash__ = __eq__ = __getitem__ = __iter__ = encode = isascii = __str__  # type: ignore[assignment]


class Items(list):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("user code was called")

    __len__ = __getitem__ = __bool__ = __iter__  # type: ignore[assignment]


Point = namedtuple("Point", ["x", "y"])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _diagnostics.forget_reported()
    _text.forget_text_limit()
    yield
    _diagnostics.forget_reported()
    _text.forget_text_limit()


def cleaned(value: object, key: str = "k") -> Any:
    """Return what is left of a value; ``None`` when it is dropped. The second time it takes the fast path."""
    clean_attributes({key: 0})
    return clean_attributes({key: value}).get(key)


@pytest.mark.parametrize(
    "row",
    [
        Row(True, True),
        Row(7, 7),
        Row(INT64_MAX, INT64_MAX),
        Row(-INT64_MAX - 1, -INT64_MAX - 1),
        Row(INT64_MAX + 1, "9223372036854775808"),
        Row(-INT64_MAX - 2, "-9223372036854775809"),
        Row(1.5, 1.5),
        Row(float("inf"), float("inf")),
        Row("text", "text"),
        Row("größe 😀", "größe 😀"),
        Row("a\ud800b", "a\ufffdb"),
        Row("\ud83d\ude00", "😀"),
        Row("", ""),
        Row(b"bytes", "bytes"),
        Row("größe".encode(), "größe"),
        Row(bytearray(b"bytes"), "bytes"),
        Row(PurePosixPath("/data/run"), "/data/run"),
        Row(PureWindowsPath("C:/data"), "C:\\data"),
        Row(PurePosixPath("/data/\udcff"), "/data/\ufffd"),
        Row(uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        Row(datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), "2026-01-02T03:04:05.000006+00:00"),
        Row(datetime(2026, 1, 2), "2026-01-02T00:00:00"),
        Row(date(2026, 1, 2), "2026-01-02"),
        Row(Color.RED, "red"),
        Row(Number.THREE, 3),
        Row(Bits.READ | Bits.WRITE, 3),
        Row(Mode.FAST, "fast"),
        Row(Ids.BOTH, (1, 2)),
        Row(Text("text"), "text"),
        Row(Whole(7), 7),
        Row(Whole(2**70), "1180591620717411303424"),
        Row(Real(1.5), 1.5),
        Row(np.float64(1.5), 1.5),
        Row(np.float32(1.5), 1.5),
        Row(np.float16(1.5), 1.5),
        Row(np.int8(-7), -7),
        Row(np.uint64(2**64 - 1), "18446744073709551615"),
        Row(np.bool_(True), True),
        Row(np.str_("text"), "text"),
        Row(np.bytes_(b"bytes"), "bytes"),
        Row(np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
        Row(np.array(7), 7),
        Row(np.array(1.5, dtype=np.float32), 1.5),
    ],
)
def test_one_value_becomes_what_the_table_says(row: Row) -> None:
    """A value is sent as the table says, with exactly that type, and nothing the user wrote is called."""
    result = cleaned(row.value)
    assert result == row.sent
    assert type(result) is type(row.sent)
    assert clean_attributes({"new.name": row.value})["new.name"] == row.sent


def test_not_a_number_is_kept() -> None:
    """NaN is a float like any other; exporters write it."""
    assert cleaned(float("nan")) != cleaned(float("nan"))


@pytest.mark.parametrize(
    "row",
    [
        Row([], ()),
        Row([1, 2], (1, 2)),
        Row((1.5, 2.5), (1.5, 2.5)),
        Row(["a", "b\ud800"], ("a", "b\ufffd")),
        Row([True, False], (True, False)),
        Row([1, 2.5], (1.0, 2.5)),
        Row([1, None, 2], (1, 2)),
        Row([None], ()),
        Row([1, 2**70], ("1", "1180591620717411303424")),
        Row([0.5, 2**70], (0.5, float(2**70))),
        Row([0.5, 10**400], ("0.5", "1" + "0" * 400)),
        Row([np.float32(0.5), 1], (0.5, 1.0)),
        Row([np.int64(1), Number.THREE], (1, 3)),
        Row([Color.RED, Mode.FAST, PurePosixPath("/p"), b"b"], ("red", "fast", "/p", "b")),
        Row(deque([1, 2]), (1, 2)),
        Row(range(3), (0, 1, 2)),
        Row(Point(1, 2), (1, 2)),
        Row(Items(["a"]), ("a",)),
    ],
)
def test_a_sequence_becomes_a_tuple_of_one_type(row: Row) -> None:
    """Sequences of usable values become tuples whose items all have one type; no user ``__iter__`` is called."""
    result = cleaned(row.value)
    assert result == row.sent
    assert type(result) is tuple
    assert {type(item) for item in result} == {type(item) for item in row.sent}


class NoOffset(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta:
        raise RuntimeError("no offset")

    dst = utcoffset

    def tzname(self, dt: datetime | None) -> str:
        return "broken"


RECURSIVE: list[object] = []
RECURSIVE.append(RECURSIVE)

UNUSABLE = {
    "mapping": {"a": 1},
    "set": {1},
    "object": object(),
    "hostile": Hostile(),
    "hostile type": OfHostileType(),
    "a type": OfHostileType,
    "decimal": Decimal(1),
    "complex": 1j,
    "not UTF-8": b"\xff",
    "mixed": ["a", 1],
    "mixed bool": [True, 1],
    "nested": [[1]],
    "recursive": RECURSIVE,
    "hostile inside": [1, Hostile()],
    "array": np.zeros(3),
    "object array": np.array({"a": 1}, dtype=object),
    "numpy complex": np.complex64(1),
    "failing item": FailingScalar(),
    "endless item": Endless(),
    "failing zone": datetime(2026, 1, 2, tzinfo=NoOffset()),
    "generator": iter([1]),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_sent_is_dropped_with_one_debug_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A value the table does not know costs itself alone and one DEBUG line for its key, however often it comes."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        for _ in range(3):
            assert clean_attributes({"before": 1, "bad.name": UNUSABLE[name], "after": 2}) == {"before": 1, "after": 2}
    assert [record.levelname for record in caplog.records if "'bad.name'" in record.getMessage()] == ["DEBUG"]


def test_none_is_skipped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """An attribute that is None is how an optional one is left out: no line about it."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        assert clean_attributes({"a": None, "b": 1, "c": np.datetime64("NaT", "s")}) == {"b": 1}
    assert not caplog.records


@pytest.mark.parametrize("row", [Row(key) for key in (1, None, b"k", "", Hostile(), OfHostileType(), ("a",))])
def test_a_key_that_is_no_name_is_dropped(row: Row) -> None:
    """Keys that are not strings, or empty, drop their value; the others stay."""
    assert clean_attributes({row.value: 1, "ok": 2}) == {"ok": 2}


def test_a_key_is_text_too() -> None:
    """A str enum member names what it is worth, a lone surrogate in a key cannot spoil the batch."""
    result = clean_attributes({Mode.FAST: 1, "a\ud800": 2, "k" * 5000: 3})
    assert result == {"fast": 1, "a\ufffd": 2, "k" * 1024: 3}
    assert {type(key) for key in result} == {str}
    assert clean_attributes({"a\ud800": 2}) == {"a\ufffd": 2}


class RaisingItems(UserDict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("no items")


class BreakingItems(UserDict[str, object]):
    def items(self) -> Any:
        yield "good", 1
        raise RuntimeError("no more")


class EndlessItems(UserDict[str, object]):
    def items(self) -> Any:
        while True:
            yield "k", 1


@pytest.mark.parametrize(
    "row",
    [
        Row(None, {}),
        Row({}, {}),
        Row(OrderedDict(a=1), {"a": 1}),
        Row(UserDict(a=1), {"a": 1}),
        Row(RaisingItems(a=1), {}),
        Row(BreakingItems(), {"good": 1}),
        Row(EndlessItems(), {"k": 1}),
        Row([("a", 1)], {}),
        Row("text", {}),
        Row(5, {}),
        Row(Hostile(), {}),
        Row(OfHostileType(), {}),
    ],
)
def test_any_mapping_is_read_as_far_as_it_goes(row: Row) -> None:
    """What is no mapping, fails in the middle or never ends neither raises nor hangs."""
    assert clean_attributes(row.value) == row.sent
    safe_set_span_attributes(RecordingSpan(), row.value)


def test_the_callers_mapping_stays_as_it_is() -> None:
    """Cleaning returns a new dict and a new tuple: what the caller changes later is not sent."""
    steps = [1, 2]
    attrs: dict[str, object] = {"steps": steps, "token": "x"}
    result = clean_attributes(attrs)
    steps.append(3)
    assert attrs["token"] == "x"
    assert result == {"steps": (1, 2), "token": REDACTED}


def test_long_text_is_cut_at_the_default(caplog: pytest.LogCaptureFixture) -> None:
    """8192 characters are kept, also of bytes, of a key seen before and inside a sequence; one DEBUG line says so."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        for value in ("x" * 9000, b"x" * 9000, "😀" * 9000, ("😀" * 9000).encode(), 2**40000):
            assert len(cleaned(value)) == 8192
        assert [len(item) for item in cleaned(["x" * 9000, "y"])] == [8192, 1]
        assert cleaned("x" * 8192) == "x" * 8192
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


@pytest.mark.parametrize(("given", "limit"), [("3", 3), (" 10000 ", 10000), ("0", 0), ("", 8192)])
def test_the_variable_wins_over_the_default_limit(given: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`` is the limit, smaller or greater than the default, for names as well."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", given)
    assert cleaned("x" * 20000) == "x" * limit
    assert clean_text("x" * 20000) == "x" * limit
    assert clean_text(b"x" * 20000) == "x" * limit
    assert text_limit() == limit


@pytest.mark.parametrize("given", ["-1", "many", "1e3", "٣", "9" * 5000])
def test_a_limit_that_is_no_number_is_said_and_ignored(
    given: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad limit leaves the default, with one WARNING naming the variable."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", given)
    assert len(cleaned("x" * 20000)) == 8192
    assert len(cleaned("x" * 20000, "other")) == 8192
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in caplog.text


@pytest.mark.parametrize("items", [[1] * 20000, range(10**12), deque([0.5] * 20000)], ids=["list", "range", "deque"])
def test_a_long_sequence_is_cut(items: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One attribute cannot outgrow a message: its first items are sent, one DEBUG line says so."""
    with caplog.at_level(logging.DEBUG, "nemo_lens"):
        assert len(cleaned(items)) == MAX_ITEMS
        assert len(cleaned(items)) == MAX_ITEMS
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_a_sequence_of_long_texts_is_cut() -> None:
    """The texts of one sequence together are bounded as well; one that just fits is whole."""
    assert sum(map(len, cleaned(["x" * 8000] * 100))) <= MAX_CHARACTERS
    assert len(cleaned(["x" * 8192] * 32)) == 32
    assert len(cleaned([1] * MAX_ITEMS)) == MAX_ITEMS


@pytest.mark.parametrize("bits", [2048, 2049, 100_000])
def test_huge_integers_become_text_however_strict_the_interpreter(bits: int) -> None:
    """Past 4300 digits Python refuses decimal text: an integer so large is sent in hexadecimal instead of raising."""
    text = cleaned(2**bits - 1)
    assert int(text, 16 if text.startswith("0x") else 10) == (
        2**bits - 1 if len(text) < 8192 else int("0x" + "f" * (8192 - 2), 16)
    )


def test_a_cpu_tensor_without_dimensions_is_its_number() -> None:
    """Tensors and parameters that hold one number on the CPU are read; arrays of them are not."""
    assert cleaned(tensor(1.5)) == 1.5
    assert cleaned(tensor(2, kind="Parameter", module="torch.nn.parameter")) == 2
    assert cleaned([tensor(1.5), tensor(2.5)]) == (1.5, 2.5)
    assert cleaned(tensor(1.5, dimensions=1)) is None


def test_a_tensor_of_another_kind_is_not_read() -> None:
    """The ``item()`` of a distributed tensor is a collective: a type torch does not have by that name is left alone."""
    assert cleaned(tensor(1.5, kind="DTensor", module="torch.distributed.tensor")) is None


def test_a_tensor_on_a_device_is_refused_with_one_hint(caplog: pytest.LogCaptureFixture) -> None:
    """Reading it would synchronise the device: it is dropped, and one WARNING in all says why and what to do."""
    for key in ("loss", "grad_norm", "loss"):
        assert cleaned(tensor(1.5, "cuda"), key) is None
    hints = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(hints) == 1
    assert "device" in hints[0].getMessage()


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "Authorization",
        "API_KEY",
        "api-key",
        "http.request.header.x-api-key",
        "http.request.header.cookie",
        "hf_token",
        "db.PASSWORD",
        "wandb_api_key",
        "proxy-authorization",
        "client_secret",
        "aws.secret_access_key",
        "gen_ai.prompt",
        "output_text",
        "prompt",
    ],
)
def test_text_under_a_secret_key_is_replaced(key: str) -> None:
    """Whatever the spelling, text under a secret key does not leave, converted or inside a sequence neither."""
    for value in ("s3cret", "größe", b"s3cret", Text("s3cret"), Mode.FAST, PurePosixPath("/s3cret"), uuid.UUID(int=1)):
        assert cleaned(value, key) == REDACTED
        assert redact_value(key, value) == REDACTED
    assert cleaned(["a", "b"], key) == (REDACTED, REDACTED)
    assert redact_value(key, ["a", 1]) == [REDACTED, 1]
    assert redact_value(key, ("a", ["b"], {"c": "d"})) == (REDACTED, REDACTED, REDACTED)
    assert redact_value(key, {"user": "x"}) == REDACTED
    assert redact_value(key, Hostile()) == REDACTED


@pytest.mark.parametrize("key", ["token", "hf_token", "key"])
@pytest.mark.parametrize("value", [7, 1.5, True, np.float32(1.5)])
def test_numbers_under_a_secret_key_stay(key: str, value: Any) -> None:
    """A count of tokens is no secret: only text is replaced."""
    assert cleaned(value, key) == value
    assert cleaned([value, value], key) == (value, value)
    assert redact_value(key, value) is value
    assert redact_value(key, None) is None


@pytest.mark.parametrize(
    "key", ["gen_ai.token.type", "gen_ai.usage.input_tokens", "tokens", "keyboard", "token.kind", "monkey", "text.len"]
)
def test_ordinary_keys_are_left_alone(key: str) -> None:
    """Only the last segment counts, and only as a whole or after an underscore."""
    assert cleaned("input", key) == "input"
    assert redact_value(key, "input") == "input"


def test_the_redact_keys_can_be_chosen() -> None:
    """The keys given are the whole say; credential endings count for those among them."""
    attrs = {"Patient-Name": "x", "token": "x", "hf_token": "x"}
    assert clean_attributes(attrs, ["patient_name"]) == {**attrs, "Patient-Name": REDACTED}
    assert clean_attributes(attrs, {"token"}) == {"Patient-Name": "x", "token": REDACTED, "hf_token": REDACTED}
    assert clean_attributes(attrs, ()) == attrs
    assert clean_attributes(attrs, DEFAULT_REDACT_KEYS | {"patient-name"}) == dict.fromkeys(attrs, REDACTED)
    assert clean_attributes(attrs, "token")["token"] == REDACTED
    assert redact_value("patient.name", "x", ["name"]) == REDACTED


@pytest.mark.parametrize("row", [Row(keys) for keys in (None, 5, Hostile(), [["a"]])])
def test_redact_keys_that_cannot_be_read_leave_the_default(row: Row) -> None:
    """A mistake in the redact keys neither raises nor lets secrets through."""
    assert clean_attributes({"token": "x"}, row.value) == {"token": REDACTED}


def test_the_default_covers_what_is_promised() -> None:
    """The documented keys are all there."""
    promised = """prompt input_text output_text text password token secret key api_key apikey access_key secret_key
        access_token auth_token authorization cookie credentials"""
    assert set(promised.split()) <= DEFAULT_REDACT_KEYS


def test_what_is_known_of_keys_is_bounded() -> None:
    """Keys made up at run time (a mistake, but a common one) cost no memory for ever, and are still judged right."""
    from nemo_lens.api._redaction import DEFAULT_RULES

    for number in range(20_000):
        clean_attributes({f"step.{number}": "x", f"n{number}_token": "x"})
    assert len(DEFAULT_RULES.ordinary) < 5000
    assert clean_attributes({"step.1": "x", "n1_token": "x"}) == {"step.1": "x", "n1_token": REDACTED}


@pytest.mark.parametrize(
    "row",
    [
        Row("name", "name"),
        Row("a\ud800", "a\ufffd"),
        Row(None, ""),
        Row(b"name", "name"),
        Row(Text("name"), "name"),
        Row(Mode.FAST, "fast"),
        Row(7, "7"),
        Row(object(), "<object>"),
        Row(Hostile(), "<Hostile>"),
        Row(OfHostileType(), "<OfHostileType>"),
        Row(RECURSIVE, "<list>"),
    ],
)
def test_a_name_is_always_text(row: Row) -> None:
    """Whatever is passed for a span name or a description, encodable text comes out."""
    assert clean_text(row.value) == row.sent
    assert clean_text(row.value, 1) == row.sent[:1]


class RecordingSpan:
    def __init__(self, recording: bool = True, fault: type[Exception] | None = None) -> None:
        self.recording, self.fault, self.attributes = recording, fault, dict[str, object]()

    def is_recording(self) -> bool:
        return self.recording

    def set_attributes(self, attributes: dict[str, object]) -> None:
        if self.fault is not None:
            raise self.fault("set_attributes")
        self.attributes.update(attributes)


def test_setting_attributes_on_a_span_cleans_and_redacts() -> None:
    """A recording span gets what ``clean_attributes`` leaves."""
    span = RecordingSpan()
    safe_set_span_attributes(span, {"a": np.int64(1), "token": "x", "bad": {}})
    safe_set_span_attributes(span, {"mine": "x"}, redact_keys={"mine"})
    assert span.attributes == {"a": 1, "token": REDACTED, "mine": REDACTED}


@pytest.mark.parametrize("row", [Row(span) for span in (None, object(), Hostile(), 5, RecordingSpan(fault=ValueError))])
def test_setting_attributes_never_raises(row: Row) -> None:
    """No span, something else or a failing one: the caller goes on."""
    safe_set_span_attributes(row.value, {"a": 1})
    safe_set_span_attributes(row.value, None)


def test_a_span_that_does_not_record_costs_no_cleaning() -> None:
    """A sampled-out span's attributes are not even read."""
    span = RecordingSpan(recording=False)
    safe_set_span_attributes(span, RaisingItems(a=1))
    assert span.attributes == {}


def is_sendable(value: object) -> bool:
    """Say whether OTLP can carry a value: one type, 64 bits, valid UTF-8."""
    if type(value) is tuple:
        return len({type(item) for item in value}) <= 1 and all(type(i) is not tuple and is_sendable(i) for i in value)
    if type(value) is str:
        return value.encode() is not None and len(value) <= 8192
    return type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)


ODD = [*UNUSABLE.values(), *Color, *Number, *Mode, *Ids, np.float32(1), np.array(2), Text("t"), Whole(1), Items([1])]
_texts = st.text(st.characters(codec=None), max_size=20)
_scalars: st.SearchStrategy[object] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**80)
    | st.floats()
    | _texts
    | st.binary(max_size=8)
    | st.uuids()
    | st.datetimes()
    | st.complex_numbers()
    | st.decimals()
    | st.sampled_from([Row(value) for value in ODD])
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.lists(inner, max_size=5).map(deque)
        | st.dictionaries(_texts, inner, max_size=3)
    ),
    max_leaves=8,
)
_keys: st.SearchStrategy[Any] = _texts | st.integers() | st.none() | st.sampled_from([Mode.FAST, "token", "k"])


def unpacked(value: Any) -> Any:
    """Return a generated value with its rows replaced by what they hold."""
    if type(value) is Row:
        return value.value
    if type(value) is dict:
        return {key: unpacked(item) for key, item in value.items()}
    return type(value)([unpacked(item) for item in value]) if type(value) in (list, tuple, deque) else value


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(_keys, _values, max_size=6))
def test_whatever_comes_in_only_sendable_attributes_come_out(attrs: dict[Any, object]) -> None:
    """No input raises; every key and value is encodable and homogeneous; cleaning twice changes nothing."""
    result = clean_attributes(unpacked(attrs))
    for key, value in result.items():
        assert type(key) is str
        assert key.encode()
        assert is_sendable(value), value
    assert repr(clean_attributes(result)) == repr(result)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(_texts, _values, max_size=4))
def test_keywords_are_cleaned_like_any_attributes(attrs: dict[str, Any]) -> None:
    """The short cut for keyword attributes, which may return what it was given, leaves the same."""
    attrs = unpacked(attrs)
    for name in attrs:
        clean_attributes({name: 0})
    expected = repr(clean_attributes(attrs))
    assert repr(cleaned_keywords(attrs)) == expected


@settings(deadline=None, max_examples=150)
@given(_values, _texts)
def test_whatever_comes_in_text_comes_out(value: object, key: str) -> None:
    """Names and redaction take any value; redaction leaves no text under a secret key."""
    value = unpacked(value)
    assert type(clean_text(value)) is str
    assert clean_text(value).encode() is not None
    redact_value(key, value)
    left: Any = redact_value("token", value)
    for item in left if type(left) in (list, tuple) else [left]:
        assert not issubclass(type(item), str) or item == REDACTED
