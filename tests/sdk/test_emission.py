"""``emit_span`` and ``mark``: spans of given times, to the nanosecond, and what happens to times that are none."""

from __future__ import annotations

import decimal
import logging
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags

from nemo_lens.api import (
    emit_span,
    extract_context,
    get_tracer,
    mark,
    set_enabled_span_groups,
    span_attributes,
    span_cm,
)
from support.recorded import Recorded, recording

SECOND = 10**9
T = 1_750_000_000
REMOTE = SpanContext(0x1234, 0x56, is_remote=True, trace_flags=TraceFlags(1))
CARRIER = {"traceparent": f"00-{REMOTE.trace_id:032x}-{REMOTE.span_id:016x}-01"}
MAX_NS = 2**64 - 1


@pytest.fixture
def recorded(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with recording(caplog) as into:
        yield into


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (T, T + 1, (T * SECOND, (T + 1) * SECOND)),
        (float(T), T + 0.5, (T * SECOND, T * SECOND + SECOND // 2)),
        (f"{T}.123456789", f" {T}.987654321\n", (T * SECOND + 123456789, T * SECOND + 987654321)),
        (Decimal(f"{T}.000000001"), Decimal(f"{T}.000000002"), (T * SECOND + 1, T * SECOND + 2)),
        ("1.75e9", "1750000000.0000000019", (T * SECOND, T * SECOND + 1)),
        (0, 0, (0, 0)),
        ("0", Decimal(MAX_NS) / SECOND, (0, MAX_NS)),
    ],
    ids=str,
)
def test_times(recorded: Recorded, start: Any, end: Any, expected: tuple[int, int]) -> None:
    """Seconds since the epoch as int, float, str and Decimal; text and Decimal keep their nanoseconds."""
    span = emit_span(None, "a", start, end)
    exported = recorded.named("a")
    assert (exported.start_time, exported.end_time) == expected
    assert exported.context == span.get_span_context()
    assert dict(exported.attributes or {}) == {}
    assert recorded.logged(logging.WARNING) == []


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, MAX_NS), min_size=2, max_size=2).map(sorted), st.booleans())
def test_every_nanosecond_survives(recorded: Recorded, times: list[int], as_text: bool) -> None:
    """Any two ordered times in nanoseconds, written as decimal seconds, come out as they were."""
    start, end = (f"{ns // SECOND}.{ns % SECOND:09}" for ns in times)
    emit_span(None, "a", *((start, end) if as_text else (Decimal(start), Decimal(end))))
    exported = recorded.spans()[-1]
    assert [exported.start_time, exported.end_time] == times


@pytest.mark.parametrize(
    "context",
    [
        decimal.Context(prec=4),
        decimal.Context(traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation]),
        decimal.Context(traps=[]),
    ],
    ids=["precision", "traps", "no traps"],
)
def test_the_applications_decimal_context_has_no_say(recorded: Recorded, context: decimal.Context) -> None:
    """Neither a low precision nor traps of the application's own decimal context change times or raise."""
    with decimal.localcontext(context):
        emit_span(None, "a", f"{T}.123456789", T + 0.75)
        emit_span(None, "b", f"{T}.987654321", Decimal(f"{T}.123456789"))
        assert emit_span(None, "c", "no", "number") is None
    assert recorded.named("a").start_time == T * SECOND + 123456789
    assert recorded.named("a").end_time == T * SECOND + 750000000
    assert recorded.attributes("b")["inverted.delta_seconds"] == "-0.864197532"
    assert len(recorded.logged(logging.WARNING)) == 2


def test_an_end_before_its_start_is_evidenced(recorded: Recorded) -> None:
    """The end is moved to the start, the given times are kept as text, and one WARNING names the span."""
    emit_span(None, "a", f"{T}.5", f"{T}.25", attributes={"n": 1, "inverted.skew": "mine"})
    exported = recorded.named("a")
    assert exported.start_time == exported.end_time == T * SECOND + SECOND // 2
    assert recorded.attributes("a") == {
        "n": 1,
        "inverted.skew": True,
        "inverted.start_epoch_seconds": f"{T}.5",
        "inverted.end_epoch_seconds": f"{T}.25",
        "inverted.delta_seconds": "-0.25",
    }
    (message,) = recorded.logged(logging.WARNING)
    assert "'a'" in message
    assert "0.25 s" in message


def test_an_end_before_its_start_is_said_once_a_name(recorded: Recorded) -> None:
    """Each such span is evidenced and one WARNING a name is logged, whatever the name is; no method of it is called."""

    class Mute:
        def __repr__(self) -> str:
            raise ValueError("a method of the user's")

    for name in ("a", "a", "b", Mute(), Mute()):
        emit_span(None, name, 2, 1)  # type: ignore[arg-type]
    assert recorded.names() == ["a", "a", "b", "<Mute>", "<Mute>"]
    assert [message.partition(" ends")[0] for message in recorded.logged(logging.WARNING)] == [
        "span 'a'", "span 'b'", "span '<Mute>'"
    ]  # fmt: skip


def test_nothing_is_looked_at_while_telemetry_is_off(recorded: Recorded) -> None:
    """After the shutdown nothing is emitted, and nothing is said to have been or about times that are none."""
    recorded.handle.shutdown()
    for times in ((2, 1), ("soon", 1)):
        assert emit_span(None, "a", *times) is None  # type: ignore[arg-type]
    assert recorded.logged(logging.WARNING) == []


class _Text(str):
    __slots__ = ()

    def strip(self, chars: str | None = None) -> str:
        raise RuntimeError("a method of the user's")


@pytest.mark.parametrize(
    "bad",
    [
        "soon",
        "",
        None,
        "nan",
        float("nan"),
        float("inf"),
        "-inf",
        Decimal("sNaN"),
        -1,
        "-0.5",
        True,
        b"1",
        [1],
        1j,
        object(),
        "1e999999999",
        Decimal("1e999999"),
        10**400,
        10**5000,
        "9" * 6000,
        1.75e18,
        MAX_NS // SECOND + 1,
        _Text("1"),
    ],
    ids=lambda value: f"{type(value).__name__} {str((type(value) is int and value.bit_length()) or value)[:12]}",
)
def test_what_is_no_time_emits_nothing(recorded: Recorded, bad: Any) -> None:
    """One WARNING per name says what is wrong, nothing is emitted or raised, and None is returned."""
    for _ in range(2):
        assert emit_span(None, "a", bad, T) is None
        assert emit_span(None, "a", T, bad) is None
    assert emit_span(None, ["b"], bad, T) is None  # type: ignore[arg-type]
    assert recorded.spans() == []
    messages = recorded.logged(logging.WARNING)
    assert len(messages) == 2
    assert all(len(message) < 400 for message in messages)


def test_a_time_below_the_nanosecond_is_the_epoch(recorded: Recorded) -> None:
    """A tiny number is a time, and its evidence stays short."""
    emit_span(None, "a", 1, "1e-999999")
    assert recorded.named("a").start_time == SECOND
    assert all(len(str(value)) < 200 for value in recorded.attributes("a").values())


@pytest.mark.parametrize("context", [CARRIER, None], ids=["carrier", "extracted"])
def test_parents(recorded: Recorded, context: Any) -> None:
    """The parent is the current span, or the given context; an emitted span can be the parent of others."""
    with span_cm("outer") as outer:
        parent = emit_span(None, "parent", 1, 4)
        emit_span(None, "given", 1, 2, context=context or extract_context(CARRIER))
    emit_span(None, "child", 2, 3, context=trace.set_span_in_context(parent))
    emit_span(None, "root", 2, 3)
    assert recorded.named("parent").parent == outer.get_span_context()
    assert recorded.named("child").parent == parent.get_span_context()
    assert recorded.named("given").parent == REMOTE
    assert recorded.named("root").parent is None
    assert not trace.get_current_span().get_span_context().is_valid


def test_groups_scopes_and_tracers(recorded: Recorded) -> None:
    """Both are gated by their group when it is given, carry scopes, clean attributes and take a tracer."""
    set_enabled_span_groups({"on"})
    with span_attributes({"phase": "train", "n": 0}):
        for group in ("on", "off", None):
            emit_span(get_tracer("mine"), f"emit {group}", 1, 2, group=group, attributes={"n": 1, "token": "t"})
            assert mark(f"mark {group}", group=group, attributes={"n": 1, "bad": object()}) is None  # type: ignore[func-returns-value]
    assert recorded.names() == ["emit on", "mark on", "emit None", "mark None"]
    assert recorded.attributes("emit on") == {"phase": "train", "n": 1, "token": "[REDACTED]"}
    assert recorded.attributes("mark on") == {"phase": "train", "n": 1}
    scopes = [span.instrumentation_scope.name for span in recorded.spans() if span.instrumentation_scope]
    assert scopes == ["mine", "nemo.lens.helpers"] * 2


def test_a_group_that_is_off_looks_at_nothing(recorded: Recorded) -> None:
    """Off, times are not even parsed: no warning about them."""
    assert emit_span(None, "a", "soon", "later", group="off") is None
    assert recorded.logged(logging.WARNING) == []


def test_a_mark_has_no_length(recorded: Recorded) -> None:
    """A mark is a span of zero length, now, below the current one, and not current itself."""
    before = time.time_ns()
    with span_cm("outer") as outer:
        mark("m")
        assert trace.get_current_span() is outer
    after = time.time_ns()
    span = recorded.named("m")
    assert span.start_time == span.end_time
    assert span.start_time is not None
    assert before <= span.start_time <= after
    assert span.parent == outer.get_span_context()


def test_names_are_cleaned(recorded: Recorded) -> None:
    """A name that cannot be sent is replaced by one that can."""
    emit_span(None, "\ud800", 1, 2)
    mark("x" * 10_000)
    assert recorded.names() == ["�", "x" * 8192]
