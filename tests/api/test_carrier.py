"""``OTEL_RESOURCE_ATTRIBUTES``: what is written is read back, by us and by others, and what is wrong is said."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_lens.api import _diagnostics, _text
from nemo_lens.api.carrier import (
    check_resource_attributes,
    extend_otel_resource_attributes,
    format_otel_resource_attributes,
    get_otel_resource_attributes,
    parse_otel_resource_attributes,
    publish_otel_resource_attributes,
    set_otel_resource_attributes,
)
from nemo_lens.api.semconv import RESOURCE_FIELDS

NAME = "OTEL_RESOURCE_ATTRIBUTES"


class Role(Enum):
    TRAINER = "trainer"


class NoItems(dict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("no items")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(NAME, raising=False)
    _diagnostics.forget_reported()
    yield
    _diagnostics.forget_reported()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("", {}),
        (None, {}),
        (" , ,", {}),
        ("a=b", {"a": "b"}),
        (" a = b , c = d ", {"a": "b", "c": "d"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=b%2Cc%3Dd%25", {"a": "b,c=d%"}),
        ("a%2Cb=c", {"a,b": "c"}),
        ("a=%20b%20", {"a": " b "}),
        ("a=b c", {"a": "b c"}),
        ("a=b+c", {"a": "b+c"}),
        ("a=b;c", {"a": "b;c"}),
        ("a=größe", {"a": "größe"}),
        ("a=gr%C3%B6%C3%9fe", {"a": "größe"}),
        ("a=%FF", {"a": "\ufffd"}),
        ("a=\udcff", {"a": "\ufffd"}),
        ("a=1,a=2", {"a": "2"}),
        ("k8s.pod.labels.app/name=x", {"k8s.pod.labels.app/name": "x"}),
    ],
)
def test_the_text_is_read_as_the_specification_says(
    text: str, attributes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Pairs are split, trimmed and percent-decoded; a plus stays one; bytes that are no UTF-8 become U+FFFD."""
    assert parse_otel_resource_attributes(text) == attributes
    assert not warnings_of(caplog)


@pytest.mark.parametrize(
    "pair",
    ["a", "=b", "%20=b", "a b=c", "größe=1", '"a"=b', "a=50%", "a=%4", "a=%zz", "%zz=a", "%FF=a", "a%2=b"],
)
def test_a_pair_that_cannot_be_read_is_dropped_with_one_warning(pair: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bad pair costs itself alone; one WARNING names the variable and the pair, however often it is read."""
    for _ in range(2):
        assert parse_otel_resource_attributes(f"before=1,{pair},after=2") == {"before": "1", "after": "2"}
    (warning,) = warnings_of(caplog)
    assert NAME in warning
    assert repr(pair) in warning


@pytest.mark.parametrize("text", [5, b"a=b", ["a=b"]])
def test_what_is_no_text_is_no_attributes(text: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A value of another type neither raises nor counts."""
    assert parse_otel_resource_attributes(text) == {}
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("0", 0),
        ("%20+007%20", 7),
        ("-3", -3),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers_of_known_keys_are_restored(text: str, number: int, caplog: pytest.LogCaptureFixture) -> None:
    """A rank that went through the environment is a number again."""
    assert parse_otel_resource_attributes(f"nv.dl.rank={text},mine={text}")["nv.dl.rank"] == number
    assert type(parse_otel_resource_attributes(f"mine={text}")["mine"]) is str
    assert not warnings_of(caplog)


@pytest.mark.parametrize("text", ["1_0", "3.5", "", "٣", "0x1", "--1", "9223372036854775808", "9" * 5000])
def test_other_text_of_known_integers_stays_text(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is no integer of 64 bits in ASCII digits is kept as it is, with one WARNING naming key and text."""
    for _ in range(2):
        assert parse_otel_resource_attributes(f"nv.dl.rank={text}") == {"nv.dl.rank": text}
    (warning,) = warnings_of(caplog)
    assert "'nv.dl.rank'" in warning
    assert repr(text[:80]) in warning


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({}, ""),
        (None, ""),
        ({"nv.dl.rank": 7, "a": "b"}, "nv.dl.rank=7,a=b"),
        ({"a": "b,c=d%;e f+g"}, "a=b%2Cc%3Dd%25%3Be%20f%2Bg"),
        ({"a": "größe", "b": ""}, "a=gr%C3%B6%C3%9Fe,b="),
        ({"a,b": "c", " k ": "v"}, "a%2Cb=c,%20k%20=v"),
        ({"t": True, "f": False, "x": 1.5, "big": 2**70}, "t=true,f=false,x=1.5,big=1180591620717411303424"),
        (
            {"n": np.int64(3), "role": Role.TRAINER, "p": PurePosixPath("/data"), "none": None},
            "n=3,role=trainer,p=/data",
        ),
        ({"image": "nvcr.io/nvidia/nemo:25.09@sha256"}, "image=nvcr.io/nvidia/nemo:25.09@sha256"),
        ({"a": "x'y`z$(w)"}, "a=x%27y%60z%24%28w%29"),
        ({"a\ud800": "b\ud800"}, "a%EF%BF%BD=b%EF%BF%BD"),
    ],
)
def test_attributes_are_written_percent_encoded(
    attrs: dict[str, object], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Text, numbers, booleans and what becomes one of them is carried; nothing a shell or another reader trips over."""
    assert format_otel_resource_attributes(attrs) == text
    assert not warnings_of(caplog)


@pytest.mark.parametrize("bad", [[1], {}, object(), b"\xff", 1j])
def test_a_value_that_cannot_be_carried_is_dropped_with_one_warning(
    bad: object, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs itself alone, and one WARNING names its key."""
    for _ in range(2):
        assert format_otel_resource_attributes({"a": 1, "bad": bad, "z": 2}) == "a=1,z=2"
    (warning,) = warnings_of(caplog)
    assert "'bad'" in warning


@pytest.mark.parametrize("attrs", [{5: "a"}, {None: "a"}, {"": "a"}, {" ": "a"}, NoItems(a=1), 5, [1]])
def test_a_key_or_a_mapping_that_is_none_is_dropped_with_one_warning(
    attrs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing never raises, whatever it is given."""
    assert format_otel_resource_attributes(attrs) == ""
    assert len(warnings_of(caplog)) == 1


def test_the_limit_of_attribute_values_does_not_cut_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry exempts resources from the limit: a container image is whole or worth nothing."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    _text.forget_text_limit()
    attrs = {"image": "x" * 10_000}
    assert parse_otel_resource_attributes(format_otel_resource_attributes(attrs)) == attrs
    _text.forget_text_limit()


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None)
@given(st.dictionaries(_texts.filter(lambda key: key.strip() and key not in RESOURCE_FIELDS), _texts))
def test_what_is_written_is_read_back(attrs: dict[str, str]) -> None:
    """Any text under any key survives the way through the environment, in its order."""
    text = format_otel_resource_attributes(attrs)
    assert text.isascii()
    assert list(parse_otel_resource_attributes(text).items()) == list(attrs.items())


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_reading_never_raises(text: str) -> None:
    """Whatever is in the environment, what comes out can be written again and stays the same."""
    attributes = parse_otel_resource_attributes(text)
    assert parse_otel_resource_attributes(format_otel_resource_attributes(attributes)) == attributes


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.]{0,20}", fullmatch=True), _texts))
def test_opentelemetry_reads_what_is_written(attrs: dict[str, str]) -> None:
    """The SDK's own detector finds the same attributes under ordinary keys."""
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    with publish_otel_resource_attributes(attrs):
        found = dict(resources.OTELResourceDetector().detect().attributes)
    assert found == attrs


def _read_by_opentelemetry(text: str) -> dict[str, Any]:
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OTEL_SERVICE_NAME", raising=False)
        patch.setenv(NAME, text)
        return dict(resources.OTELResourceDetector().detect().attributes)


_integer_keys = st.sampled_from([key for key, kind in RESOURCE_FIELDS.items() if kind is int])
_text_keys = st.sampled_from([key for key, kind in RESOURCE_FIELDS.items() if kind is str])
_int64 = st.integers(-(2**63), 2**63 - 1)
_by_key = st.one_of(
    st.tuples(_integer_keys, _int64),
    st.tuples(_text_keys, _texts),
    st.tuples(st.from_regex(r"mine\.[a-z0-9_./]{1,10}", fullmatch=True), st.one_of(_int64, st.booleans(), st.floats())),
)


@settings(deadline=None)
@given(st.lists(_by_key, unique_by=lambda item: item[0]))
def test_opentelemetry_reads_every_value_as_the_text_we_read(attrs: list[tuple[str, Any]]) -> None:
    """Whatever the type of a value, the SDK's detector has the same text for it, and we the integer where it is one."""
    text = format_otel_resource_attributes(dict(attrs))
    found = _read_by_opentelemetry(text)
    assert found == {key: str(value).lower() if type(value) is bool else str(value) for key, value in attrs}
    ours = parse_otel_resource_attributes(text)
    assert ours == {key: value if RESOURCE_FIELDS.get(key) is int else found[key] for key, value in attrs}


# What other launchers write: keys as they are, values more or less encoded, blanks here and there.
_written_values = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters=",%\0"), max_size=8),
        st.sampled_from(["%2C", "%25", "%20", "%C3%B6", "%c3%b6", "%FF", "%00", "%E2%82"]),
    ),
    max_size=4,
).map("".join)


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_./-]{0,12}", fullmatch=True), _written_values))
def test_what_others_write_is_read_as_opentelemetry_reads_it(pairs: dict[str, str]) -> None:
    """For well-formed pairs under keys we do not know, both readers agree to the letter, blanks and U+FFFD included."""
    text = " , ".join(f"{key} = {value} " for key, value in pairs.items())
    assert parse_otel_resource_attributes(text) == _read_by_opentelemetry(text)


def test_extending_ranks_defaults_inherited_and_given() -> None:
    """Defaults are beaten by what was inherited, that by what is given; the environment stays as it is."""
    environ = {NAME: "a=inherited,b=inherited,nv.dl.rank=+07"}
    text = extend_otel_resource_attributes({"a": "given"}, environ, {"a": "default", "b": "default", "c": "default"})
    assert parse_otel_resource_attributes(text) == {"a": "given", "b": "inherited", "c": "default", "nv.dl.rank": 7}
    assert environ == {NAME: "a=inherited,b=inherited,nv.dl.rank=+07"}


def test_extending_by_nothing_usable_keeps_what_was_inherited() -> None:
    """None, or a value that cannot be carried, does not take an inherited one away."""
    environ = {NAME: "a=inherited,b=inherited"}
    assert extend_otel_resource_attributes({"a": None, "b": object()}, environ) == "a=inherited,b=inherited"
    assert extend_otel_resource_attributes({}, {}) == ""


def test_setting_replaces_and_is_inherited() -> None:
    """What is set is what a process started from here reads; setting nothing removes the variable."""
    os.environ[NAME] = "old=1"
    assert set_otel_resource_attributes({"nv.dl.rank": 3, "note": "a,b"}) == "nv.dl.rank=3,note=a%2Cb"
    program = "from nemo_lens.api.carrier import get_otel_resource_attributes as get; print(get())"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "{'nv.dl.rank': 3, 'note': 'a,b'}"
    set_otel_resource_attributes({})
    assert NAME not in os.environ


@pytest.mark.parametrize("before", [None, "", " a = b ,, broken", "x=%zz"])
def test_publishing_restores_to_the_letter(before: str | None) -> None:
    """After the block the variable is what it was, odd spelling and absence included, also when the block raises."""
    environ = {} if before is None else {NAME: before}
    after = dict(environ)
    with publish_otel_resource_attributes({"a": 1}, environ) as text:
        assert environ == {NAME: "a=1"}
        assert text == "a=1"
    assert environ == after
    with contextlib.suppress(KeyError), publish_otel_resource_attributes({}, environ):
        assert NAME not in environ
        environ[NAME] = "changed in the block"
        raise KeyError
    assert environ == after


def test_publishing_is_seen_in_the_process_environment() -> None:
    """Without a mapping of its own it is ``os.environ`` that is set and restored."""
    with publish_otel_resource_attributes({"a": 1}):
        with publish_otel_resource_attributes({"b": 2}):
            assert get_otel_resource_attributes() == {"b": "2"}
        assert get_otel_resource_attributes() == {"a": "1"}
    assert NAME not in os.environ


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"nv.dl.rank": "3"}, ["'nv.dl.rank'", "an int"]),
        ({"nv.dl.rank": True}, ["'nv.dl.rank'", "an int", "bool"]),
        ({"slurm.job.id": 5}, ["'slurm.job.id'", "a str", "int"]),
        ({"nv.dl.rank": 4, "nv.dl.world_size": 4}, ["'nv.dl.rank'", "4"]),
        ({"nv.dl.rank": -1}, ["'nv.dl.rank'", "-1"]),
        ({"nv.dl.worldSize": 4}, ["'nv.dl.worldSize'", "'nv.dl.world_size'"]),
        ({"NV-DL-RANK": 4}, ["'NV-DL-RANK'", "'nv.dl.rank'"]),
        ({"mine": [1]}, ["'mine'", "sequence"]),
        ({"mine": object()}, ["'mine'", "object"]),
        ({"mine": 2**70}, ["'mine'", "64 bits"]),
        ({5: 1}, ["key"]),
        ({"": 1}, ["key"]),
        ([1], ["mapping", "list"]),
    ],
)
def test_a_check_says_what_is_wrong(attrs: Any, said: list[str]) -> None:
    """Each problem is one sentence that names the key, what is there and what belongs there."""
    (problem,) = check_resource_attributes(attrs)
    assert all(part in problem for part in said), problem


def test_a_check_finds_no_fault_with_good_attributes() -> None:
    """Known keys of their type, keys nobody knows, and None are fine."""
    assert check_resource_attributes({}) == []
    good = {"nv.dl.rank": np.int64(0), "nv.dl.world_size": 1, "nv.dl.role": Role.TRAINER, "nv.dl.topology.size.ep": 2}
    assert check_resource_attributes({**good, "team": "x", "nemo.user.id": None}) == []


def test_a_check_reports_every_problem() -> None:
    """One bad attribute does not hide another."""
    assert len(check_resource_attributes({"nv.dl.rank": "a", "nv.dl.local_rank": "b", "ok": 1})) == 2
