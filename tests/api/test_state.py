"""The gate: what a spec and a pinned set open, also when libraries register later, and what is said about it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from nemo_lens.api import _diagnostics, state
from nemo_lens.api.groups import SpanRegistry, register_provisional

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    def forget() -> None:
        state.reset_state()
        SpanRegistry.clear()
        _diagnostics.forget_reported()

    forget()
    yield
    forget()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_every_group_is_off_until_somebody_asks() -> None:
    """Registering opens nothing before a spec or a pinned set is given."""
    SpanRegistry.register("ns", ["a"], {"default": ["a"]})
    assert state.enabled == frozenset()
    assert not state.is_span_group_enabled("a")
    assert state.pending_span_groups() == ()


@pytest.mark.parametrize("spec_first", [True, False])
def test_import_order_does_not_matter(spec_first: bool) -> None:
    """The gate is the same whether libraries register before the spec is set or after."""
    if spec_first:
        state.set_span_group_spec("default,io,zz")
    SpanRegistry.register("one", ["a", "x"], {"default": ["a"]})
    SpanRegistry.register("two", ["b", "IO"], {"default": ["b"]})
    if not spec_first:
        state.set_span_group_spec("default,io,zz")
    assert state.enabled_span_groups() == {"a", "b", "io", "IO"}
    assert state.pending_span_groups() == ("zz",)
    assert state.is_span_group_enabled("IO")
    assert not state.is_span_group_enabled("x")


def test_a_group_closes_when_its_library_unregisters() -> None:
    """Unregistering closes the library's groups, and the names of the spec are pending again."""
    SpanRegistry.register("one", ["a"])
    SpanRegistry.register("two", ["b"])
    state.set_span_group_spec("a,b")
    SpanRegistry.unregister("one")
    assert state.enabled_span_groups() == {"b"}
    assert state.pending_span_groups() == ("a",)


def test_pending_names_are_reported_once_per_distinct_set(caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING names what matched nothing, what is available and the nearest name; the same set is not repeated."""
    SpanRegistry.register("one", ["train.step", "io"], {"default": ["io"]})
    state.set_span_group_spec("io,trian.step")
    (message,) = _warnings(caplog)
    assert "'io,trian.step'" in message
    assert "'trian.step', did you mean 'train.step'?" in message
    assert "presets: default" in message
    assert "groups: io, train.step" in message

    state.set_span_group_spec("trian.step")
    SpanRegistry.unregister("nobody")
    register_provisional("two", ["c"])
    assert len(_warnings(caplog)) == 1
    state.set_span_group_spec("trian.step,zz")
    assert len(_warnings(caplog)) == 2


def test_a_default_that_nobody_registered_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """``default`` is a preset like any other: with none registered it is pending, and the WARNING says what to use."""
    SpanRegistry.register("one", ["a"])
    state.set_span_group_spec("default")
    assert state.pending_span_groups() == ("default",)
    assert state.enabled_span_groups() == frozenset()
    (message,) = _warnings(caplog)
    assert "'default'" in message
    assert "presets: none; groups: a; 'all' opens every group" in message


def test_registering_after_setup_warns_and_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    """A library that registers while a spec is set opens its groups and is named in one WARNING."""
    state.set_span_group_spec("all")
    caplog.clear()
    SpanRegistry.register("late", ["a", "b"])
    assert state.enabled_span_groups() == {"a", "b"}
    (message,) = _warnings(caplog)
    assert "'late'" in message
    assert "opened now: a, b" in message
    SpanRegistry.register("late", ["a", "b"])
    assert len(_warnings(caplog)) == 1


def test_entry_points_and_their_libraries_are_not_late(caplog: pytest.LogCaptureFixture) -> None:
    """Provisional content, and the library that replaces it, take effect after setup without a word."""
    register_provisional("ns", ["a"])
    state.set_span_group_spec("all")
    register_provisional("other", ["b"])
    SpanRegistry.register("ns", ["c"])
    assert state.enabled_span_groups() == {"b", "c"}
    assert _warnings(caplog) == []


def test_a_pinned_set_forgets_the_spec(caplog: pytest.LogCaptureFixture) -> None:
    """A pinned set holds whatever is registered later, names of no library included; nothing is pending or late."""
    state.set_enabled_span_groups(["x"])
    SpanRegistry.register("one", ["a"])
    state.set_span_group_spec("a")
    state.set_enabled_span_groups({"X", "b"})
    SpanRegistry.register("two", ["c", "B"], {"default": ["c"]})
    assert state.enabled_span_groups() == {"x", "X", "b", "B"}
    state.set_enabled_span_groups(())
    SpanRegistry.register("three", ["x"])
    assert state.enabled_span_groups() == frozenset()
    assert state.pending_span_groups() == ()
    assert _warnings(caplog) == []


def test_one_string_pins_a_comma_list() -> None:
    """A str given for a set of groups is read as a comma list, not as single letters."""
    state.set_enabled_span_groups("io, train.step")
    assert state.is_span_group_enabled("io")
    assert state.is_span_group_enabled("train.step")
    assert not state.is_span_group_enabled("i")


def test_a_wrong_type_changes_nothing() -> None:
    """A spec or group that is no str raises TypeError and leaves the gate, and later registrations, as they were."""
    SpanRegistry.register("one", ["a"])
    state.set_span_group_spec("all")
    with pytest.raises(TypeError, match="not list"):
        state.set_span_group_spec(["a"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        state.set_enabled_span_groups(["a", 3])  # type: ignore[list-item]
    SpanRegistry.register("two", ["b"])
    assert state.enabled_span_groups() == {"a", "b"}


def test_the_set_is_rebound_only_when_its_content_changes() -> None:
    """The same object stays in place over every change of spec or registry that opens and closes nothing."""
    SpanRegistry.register("one", ["a", "b"], {"default": ["a", "b"]})
    state.set_span_group_spec("default")
    before = state.enabled
    state.set_span_group_spec("all")
    state.set_span_group_spec("a,b,zz")
    state.set_enabled_span_groups(["b", "a"])
    state.set_span_group_spec("b,a")
    SpanRegistry.register("two", ["c"])
    assert state.enabled is before
    state.set_span_group_spec("all")
    assert state.enabled == {"a", "b", "c"}


@pytest.mark.usefixtures("_eager_threads")
def test_threads_leave_the_gate_as_the_registry_has_it() -> None:
    """Whenever threads have changed registry and spec at once and paused, the gate is what the spec resolves to."""
    rounds, workers = 200, 4
    meet = threading.Barrier(workers + 1)

    def work(thread: int) -> None:
        for number in range(rounds):
            meet.wait()
            SpanRegistry.register(f"ns{thread}", [f"g{thread}.{number}"], allow_override=True)
            state.set_span_group_spec("all" if thread % 2 else "all,zz")
            SpanRegistry.register(f"ns{thread}", [f"h{thread}.{number}"], allow_override=True)
            meet.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    differing = []
    for number in range(rounds):
        meet.wait()
        meet.wait()
        if state.enabled != {f"h{thread}.{number}" for thread in range(workers)}:
            differing.append(number)
    for thread in threads:
        thread.join()
    assert differing == []


def test_the_pipeline_parallel_carrier_is_kept_apart() -> None:
    """The carrier comes back equal, and changing the dict given or received changes nothing kept."""
    assert state.get_pp_trace_carrier() is None
    given = {"traceparent": "00-1-2-01"}
    state.set_pp_trace_carrier(given)
    given["traceparent"] = "changed"
    received = state.get_pp_trace_carrier()
    assert received == {"traceparent": "00-1-2-01"}
    received.clear()
    assert state.get_pp_trace_carrier() == {"traceparent": "00-1-2-01"}
    state.set_pp_trace_carrier(None)
    assert state.get_pp_trace_carrier() is None


class Unreadable:
    def keys(self) -> list[str]:
        raise RuntimeError("no")


@pytest.mark.parametrize("bad", [3, "text", object(), [1], Unreadable()])
def test_a_carrier_of_the_wrong_type_is_none(bad: object) -> None:
    """What is no mapping never raises into the job: it counts as no carrier."""
    state.set_pp_trace_carrier({"traceparent": "old"})
    state.set_pp_trace_carrier(bad)  # type: ignore[arg-type]
    assert state.get_pp_trace_carrier() is None


def test_the_gate_imports_nothing_expensive() -> None:
    """Importing gate and registry loads none of the modules that the import budget keeps out."""
    code = (
        "import sys; bare = set(sys.modules); import nemo_lens.api.state, nemo_lens.api.groups\n"
        "print(*sorted(set(sys.modules) - bare))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = {name for name in done.stdout.split() if not name.startswith("nemo_lens")}
    assert loaded <= {"__future__"}
