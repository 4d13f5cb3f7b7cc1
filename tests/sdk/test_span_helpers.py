"""``managed_span``, ``span_cm`` and ``span_attributes`` on the real OpenTelemetry SDK: what is exported."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from nemo_lens.api import (
    bind_context,
    extract_context,
    get_tracer,
    inject_context,
    managed_span,
    mark,
    safe_set_span_attributes,
    set_enabled_span_groups,
    span_attributes,
    span_cm,
    trace_fn,
)
from nemo_lens.api.scopes import current_scope
from nemo_lens.sdk.handle import OtelHandle
from support.recorded import Recorded, recording

REMOTE = SpanContext(0x1234, 0x56, is_remote=True, trace_flags=TraceFlags(1))
CARRIER = {"traceparent": f"00-{REMOTE.trace_id:032x}-{REMOTE.span_id:016x}-01"}

# Both context managers, called alike: name first, then options and attributes.
Open = Callable[..., Any]
HELPERS: dict[str, Open] = {
    "managed_span": lambda name, **options: managed_span("g", name, **options),
    "span_cm": lambda name, **options: span_cm(name, **options),
}


@pytest.fixture
def recorded(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with recording(caplog) as into:
        yield into


@pytest.fixture(params=HELPERS, ids=str)
def open_span(request: pytest.FixtureRequest) -> Open:
    return HELPERS[request.param]


def test_a_span_is_started_made_current_and_ended(recorded: Recorded, open_span: Open) -> None:
    """On, a block is a span with its attributes, current inside, whose parent is the enclosing one."""
    before = trace.get_current_span()
    with open_span("outer", step=3) as outer:
        assert trace.get_current_span() is outer
        with open_span("inner"):
            pass
        assert trace.get_current_span() is outer
    assert trace.get_current_span() is before
    assert recorded.parents() == {"inner": "outer", "outer": None}
    span = recorded.named("outer")
    assert dict(span.attributes or {}) == {"step": 3}
    assert span.status.status_code is StatusCode.UNSET
    assert span.kind is SpanKind.INTERNAL
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.start_time <= recorded.named("inner").start_time <= recorded.named("inner").end_time <= span.end_time


def test_a_group_that_is_off_leaves_no_trace(recorded: Recorded) -> None:
    """Off, the block runs and yields None; the same group opens and closes at run time."""
    with managed_span("other", "off", x=1) as span:
        assert span is None
    set_enabled_span_groups({"other"})
    with managed_span("other", "on"), managed_span("g", "off"):
        pass
    assert recorded.names() == ["on"]


def test_async_with_is_the_same(recorded: Recorded, open_span: Open) -> None:
    """``async with`` opens the same span, and its exception comes out of it."""
    error = ValueError("no")

    async def main() -> None:
        async with open_span("outer", step=1) as span:
            await asyncio.sleep(0)
            assert trace.get_current_span() is span
            async with open_span("inner"):
                raise error

    with pytest.raises(ValueError, match="no") as caught:
        asyncio.run(main())
    assert caught.value is error
    assert recorded.parents() == {"inner": "outer", "outer": None}
    assert recorded.named("outer").status.status_code is StatusCode.ERROR


def test_a_context_manager_may_be_entered_again_and_inside_itself(recorded: Recorded, open_span: Open) -> None:
    """One object opens a new span each time, as the shared one that is off may be entered anywhere."""
    manager = open_span("again")
    with manager as first, manager as second:
        assert first is not second
        assert trace.get_current_span() is second
    with manager:
        pass
    inner, outer, last = recorded.spans()
    assert inner.parent == outer.context
    assert outer.parent is None
    assert last.parent is None


@pytest.mark.parametrize("group", ["g", "off"])
def test_it_is_no_decorator(recorded: Recorded, group: str) -> None:
    """Used as a decorator, ``managed_span`` raises TypeError at once, whether it is on or off."""
    with pytest.raises(TypeError, match="not callable"):

        @managed_span(group, "wrong")  # type: ignore[operator]
        def function() -> None: ...


def test_group_and_name_are_free_for_attributes(recorded: Recorded) -> None:
    """Group and name are positional only, so that attributes may be called so."""
    with managed_span("g", "a", group="training", name="step"):
        pass
    with span_cm("b", group="training", name="step"):
        pass
    for name in ("a", "b"):
        assert recorded.attributes(name) == {"group": "training", "name": "step"}


def test_attributes_that_are_no_identifiers(recorded: Recorded, open_span: Open) -> None:
    """``attributes`` takes any key, and a keyword wins over it; both are cleaned and redacted."""
    with open_span("a", attributes={"dl.iteration": 3, "x": 1, "auth.token": "t"}, x=2, password="p", none=None):
        pass
    assert recorded.attributes("a") == {
        "dl.iteration": 3,
        "x": 2,
        "auth.token": "[REDACTED]",
        "password": "[REDACTED]",
    }


def test_the_sampler_sees_the_attributes(recorded: Recorded, open_span: Open) -> None:
    """Attributes are given at the start of the span, where samplers and processors look, not set afterwards."""
    seen: list[Any] = []

    class Tracer:
        def start_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
            seen.append(inspect.signature(real.start_span).bind(name, *args, **kwargs).arguments["attributes"])
            return real.start_span(name, *args, **kwargs)

    real = get_tracer("mine")
    with open_span("a", tracer=Tracer(), x=1):
        pass
    assert [dict(attributes) for attributes in seen] == [{"x": 1}]


@pytest.mark.parametrize("kind", [*SpanKind, *(kind.name.lower() for kind in SpanKind), "SERVER"], ids=str)
def test_span_kinds(recorded: Recorded, open_span: Open, kind: Any) -> None:
    """``span_kind`` is a name in any case or an OpenTelemetry SpanKind."""
    with open_span("a", span_kind=kind):
        pass
    assert recorded.named("a").kind is (kind if isinstance(kind, SpanKind) else SpanKind[kind.upper()])


def test_a_wrong_span_kind_is_said_once(recorded: Recorded, open_span: Open) -> None:
    """A kind that is none gives an internal span and one WARNING with the nearest name."""
    for _ in range(2):
        with open_span("a", span_kind="sever"):
            pass
    assert [span.kind for span in recorded.spans()] == [SpanKind.INTERNAL] * 2
    (message,) = recorded.logged(30)
    assert "'sever'" in message
    assert "'server'?" in message


class _Mute:
    def __repr__(self) -> str:
        raise ValueError("a method of the user's")


@pytest.mark.parametrize("kind", [_Mute(), [], 7], ids=lambda kind: type(kind).__name__)
def test_what_is_no_span_kind_at_all_costs_no_span(recorded: Recorded, open_span: Open, kind: Any) -> None:
    """Any object given as a kind gives an internal span and a WARNING; no method of it is called."""
    with open_span("a", span_kind=kind):
        pass
    assert recorded.named("a").kind is SpanKind.INTERNAL
    assert len(recorded.logged(30)) == 1


def _links_that_fail() -> Iterator[Any]:
    yield REMOTE
    raise RuntimeError("the next one")


@pytest.mark.parametrize(("links", "kept"), [(5, 0), (_links_that_fail, 1)], ids=["number", "generator"])
def test_links_that_cannot_be_read_cost_no_span(recorded: Recorded, open_span: Open, links: Any, kept: int) -> None:
    """What is no iterable links nothing, and one that fails halfway what came before; the span is there."""
    with open_span("a", links=links() if callable(links) else links):
        pass
    assert [link.context for link in recorded.named("a").links] == [REMOTE] * kept


def test_links_of_every_kind(recorded: Recorded, open_span: Open) -> None:
    """Spans, span contexts, Links with attributes and carriers become links; what holds no span is left out."""
    with span_cm("linked") as linked:
        pass
    links = [
        linked,
        REMOTE,
        Link(REMOTE, {"why": "x", "token": "t"}),
        CARRIER,
        extract_context(CARRIER),
        {},
        None,
        "nonsense",
        NonRecordingSpan(trace.INVALID_SPAN_CONTEXT),
        Link(None),  # type: ignore[arg-type]
    ]
    with open_span("a", links=links):
        pass
    found = recorded.named("a").links
    assert [link.context for link in found] == [linked.get_span_context(), *[REMOTE] * 4]
    assert dict(found[2].attributes or {}) == {"why": "x", "token": "[REDACTED]"}


@pytest.mark.parametrize(
    "link", [REMOTE, Link(REMOTE), NonRecordingSpan(REMOTE), CARRIER], ids=lambda it: type(it).__name__
)
def test_one_link_needs_no_list(recorded: Recorded, open_span: Open, link: Any) -> None:
    """A single span, context, Link or carrier is taken as the one link."""
    with open_span("a", links=link):
        pass
    assert [found.context for found in recorded.named("a").links] == [REMOTE]


@pytest.mark.parametrize(
    "context", [CARRIER, {"Traceparent": CARRIER["traceparent"]}, None], ids=["carrier", "case", "given"]
)
def test_the_parent_can_be_given(recorded: Recorded, open_span: Open, context: Any) -> None:
    """``context`` is what ``extract_context`` returned or a carrier, and beats the current span."""
    with open_span("outer"), open_span("a", context=extract_context(CARRIER) if context is None else context):
        pass
    span = recorded.named("a")
    assert span.parent == REMOTE
    assert span.context.trace_id == REMOTE.trace_id


@pytest.mark.parametrize("bad", [{}, {"traceparent": "x"}, {"traceparent": 3}, 3, "text", [1], object()])
def test_a_bad_carrier_is_no_parent(recorded: Recorded, open_span: Open, bad: Any) -> None:
    """A carrier that is malformed or no carrier makes a root span."""
    with open_span("outer"), open_span("a", context=bad):
        pass
    assert recorded.named("a").parent is None


def test_carriers_are_bounded(recorded: Recorded) -> None:
    """What the propagation fields hold beyond 8 KiB is an empty context; other fields of a carrier do not count."""
    large = {"traceparent": CARRIER["traceparent"], "baggage": "k=" + "v" * 8192}
    ordinary = {"traceparent": CARRIER["traceparent"], "x-large": "v" * 100_000, "baggage": "k=v"}
    assert dict(extract_context(large)) == {}
    context = extract_context(ordinary)
    assert trace.get_current_span(context).get_span_context() == REMOTE
    assert baggage.get_all(context) == {"k": "v"}


def test_a_carrier_goes_there_and_back(recorded: Recorded) -> None:
    """What ``inject_context`` wrote, also to a carrier of the caller's, is the parent on the other side."""
    carrier: dict[str, str] = {"other": "kept"}
    with span_cm("here") as span:
        assert inject_context(carrier) is carrier
        assert inject_context()["traceparent"] == carrier["traceparent"]
    assert carrier["other"] == "kept"
    with span_cm("there", context=carrier):
        pass
    assert recorded.parents()["there"] == "here"
    assert inject_context({}, context=extract_context(carrier))["traceparent"] == carrier["traceparent"]
    assert span.get_span_context().trace_id == recorded.named("there").context.trace_id


# ---- one run after another


def test_the_end_of_an_earlier_run_leaves_the_later_one(caplog: pytest.LogCaptureFixture) -> None:
    """A shutdown that another thread's set-up overtakes closes neither the later run's gate nor its open spans."""
    begun, go_on = threading.Event(), threading.Event()

    def stop_at_close(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code is OtelHandle._close.__code__:
            begun.set()
            go_on.wait(10)

    def shut_down() -> None:
        sys.settrace(stop_at_close)
        try:
            earlier.handle.shutdown()
        finally:
            sys.settrace(None)

    with recording(caplog) as earlier:
        thread = threading.Thread(target=shut_down)
        thread.start()
        assert begun.wait(10)
        with recording(caplog) as later:
            with managed_span("g", "open"):
                go_on.set()
                thread.join()
                with managed_span("g", "after") as span:
                    assert span is not None
            assert later.names() == ["after", "open"]
            assert later.attributes("open") == {}


# ---- scopes


def test_scopes_reach_every_span_inside(recorded: Recorded, open_span: Open) -> None:
    """Explicit attributes win over the scope, the inner scope wins over the outer, and leaving ends each."""
    with span_attributes({"phase": "train", "epoch": 1}):
        with open_span("a", epoch=9):
            pass
        with span_attributes({"epoch": 2, "token": "t"}), open_span("b"):
            mark("m")
        with open_span("c"):
            pass
    with open_span("d"):
        pass
    assert recorded.attributes("a") == {"phase": "train", "epoch": 9}
    assert recorded.attributes("b") == {"phase": "train", "epoch": 2, "token": "[REDACTED]"}
    assert recorded.attributes("m") == recorded.attributes("b")
    assert recorded.attributes("c") == {"phase": "train", "epoch": 1}
    assert recorded.attributes("d") == {}


def test_scopes_take_no_room_from_a_spans_own_attributes(recorded: Recorded) -> None:
    """At the limit of 128 attributes the scope's are left out, and the thread's, and count as dropped; not the span's.

    Where there is room for a part of them, a part is there.
    """
    own = {f"own{number}": number for number in range(128)}
    some = dict(list(own.items())[:127])
    tracer = trace.get_tracer("another_library")
    dropped = []

    def work() -> None:
        with span_attributes({"phase": "train", "epoch": 1}):
            for name, attributes in (("full", own), ("nearly", some)):
                span = tracer.start_span(name, attributes=attributes)
                dropped.append(getattr(span, "dropped_attributes", 0))
                span.end()

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for name, expected in (("full", own), ("nearly", {**some, "phase": "train"})):
        found = [dict(span.attributes or {}) for span in recorded.spans() if span.name == name]
        assert found == [expected] * 2
    assert dropped == [2, 1, 2, 2]


def test_scopes_reach_spans_that_are_not_ours(recorded: Recorded) -> None:
    """A span from any OpenTelemetry tracer started inside carries the scope too, under its own attributes."""
    tracer = trace.get_tracer("another_library")
    with span_attributes({"phase": "train", "x": 1}), tracer.start_as_current_span("a", attributes={"x": 2}):
        pass
    assert recorded.attributes("a") == {"phase": "train", "x": 2}


def test_scopes_follow_tasks_and_bound_threads(recorded: Recorded) -> None:
    """A task and a bound function have the scope they were made in, and set none in their maker."""

    async def child(name: str) -> None:
        with span_attributes({"own": name}), span_cm(name):
            await asyncio.sleep(0)

    async def main() -> None:
        with span_attributes({"phase": "train"}):
            await asyncio.gather(child("a"), child("b"))
            with span_cm("after"):
                pass

    asyncio.run(main())
    with span_attributes({"phase": "pool"}), ThreadPoolExecutor(1) as pool:
        pool.submit(bind_context(lambda: mark("bound"))).result()
        pool.submit(lambda: mark("free")).result()
    assert recorded.attributes("a") == {"phase": "train", "own": "a"}
    assert recorded.attributes("b") == {"phase": "train", "own": "b"}
    assert recorded.attributes("after") == {"phase": "train"}
    assert recorded.attributes("bound")["phase"] == "pool"
    assert "phase" not in recorded.attributes("free")


def test_spans_beside_the_main_thread_name_their_thread(recorded: Recorded) -> None:
    """A span says on which thread it started where that is not the main one; what the caller says counts."""
    ids: list[int] = []

    def work() -> None:
        ids.append(threading.get_native_id())
        mark("beside")
        mark("told", attributes={"thread.id": 7})

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join()
    mark("main")
    assert recorded.attributes("beside") == {"thread.id": ids[0], "thread.name": "loader"}
    assert recorded.attributes("told") == {"thread.id": 7}
    assert recorded.attributes("main") == {}


def test_one_scope_object_may_be_shared(recorded: Recorded) -> None:
    """Tasks and threads that are inside of one ``span_attributes`` at the same time each leave their own."""
    scope = span_attributes({"phase": "warm"})

    async def task(name: str, turns: int) -> None:
        with scope, scope:
            for _ in range(turns):
                await asyncio.sleep(0)
            mark(f"in {name}")
        mark(f"after {name}")

    async def main() -> None:
        await asyncio.gather(task("first", 1), task("second", 3), task("third", 2))

    inside = threading.Barrier(2)

    def work(name: str) -> None:
        with scope:
            inside.wait(10)
        mark(f"after {name}")

    asyncio.run(main())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ("thread 1", "thread 2")))
    for span in recorded.spans():
        assert ((span.attributes or {}).get("phase") == "warm") == span.name.startswith("in "), span.name
    assert len(recorded.spans()) == 8


def test_a_shared_scope_is_left_whatever_thread_runs_in_between() -> None:
    """Threads that enter and leave one ``span_attributes`` without pause see its attributes inside and none after."""
    scope = span_attributes({"phase": "warm"})
    seen: set[tuple[str, bool]] = set()

    def work(_: int) -> None:
        for _ in range(3000):
            with scope:
                seen.add(("inside", bool(current_scope.get())))
            seen.add(("after", bool(current_scope.get())))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(interval)
    assert seen == {("inside", True), ("after", False)}


def test_a_scope_left_in_another_task(recorded: Recorded) -> None:
    """A scope held over ``yield`` and left by another task raises nothing and reaches no span of that task."""

    async def held() -> AsyncIterator[None]:
        with span_attributes({"scope": 1}), span_cm("inside"):
            yield

    async def main() -> None:
        generator = held()
        await asyncio.ensure_future(generator.__anext__())
        await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
        mark("after")

    asyncio.run(main())
    assert recorded.attributes("inside") == {"scope": 1}
    assert recorded.attributes("after") == {}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=4),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
)
def test_nested_scopes_merge_like_dicts(recorded: Recorded, scopes: list[dict[str, int]], own: dict[str, int]) -> None:
    """Whatever the nesting, a span carries the scopes merged from the outside in, and its own on top."""
    expected: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(span_attributes(scope))
            expected |= scope
        with span_cm("merged", attributes=own) as span:
            assert dict(span.attributes) == expected | own


# ---- threads, processes, runs


def test_threads_of_a_pool_see_the_context_they_were_given(recorded: Recorded) -> None:
    """A bound function runs under the span it was bound in, several at once; an unbound one starts a trace."""
    local: ContextVar[str] = ContextVar("local", default="unset")
    barrier = threading.Barrier(2)

    def work(name: str) -> str:
        barrier.wait(10)
        with managed_span("g", name):
            pass
        value = local.get()
        local.set(name)
        return value

    with ThreadPoolExecutor(2) as pool, managed_span("g", "outer"):
        local.set("outer")
        bound = bind_context(work)
        assert list(pool.map(bound, ["a", "b"])) == ["outer", "outer"]
        assert list(pool.map(work, ["c", "d"])) == ["unset", "unset"]
        assert local.get() == "outer"
    assert recorded.parents() == {"a": "outer", "b": "outer", "c": None, "d": None, "outer": None}


def test_a_bound_function_looks_like_the_function(recorded: Recorded) -> None:
    """``bind_context`` keeps name, documentation and signature, and passes arguments and exceptions through."""

    def work(a: int, *, b: int = 2) -> int:
        """Divide."""
        return a // b

    bound = bind_context(work)
    assert (bound.__name__, bound.__doc__, bound(9, b=3)) == ("work", "Divide.", 3)
    assert inspect.signature(bound) == inspect.signature(work)
    with pytest.raises(ZeroDivisionError):
        bound(1, b=0)


def test_single_trace(caplog: pytest.LogCaptureFixture) -> None:
    """With ``single_trace`` every root has the trace id made of the run, with the random flag off."""
    with recording(caplog, fields={"single_trace": True, "run_id": "run-7"}) as recorded:
        with span_cm("a"), span_cm("b"):
            pass
        with span_cm("c"):
            pass
        spans = recorded.spans()
        run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        assert len({span.context.trace_id for span in spans}) == 1
        assert len({span.context.span_id for span in spans}) == 3
        assert not any(span.context.trace_flags & 2 for span in spans)
        uuid = _uuid5_of_url(f"nemo.lens.run/local/run-7/te{run}")
        assert spans[0].context.trace_id == int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:16], "big")
    with recording(caplog) as recorded:
        with span_cm("a"):
            pass
        with span_cm("b"):
            pass
        assert len({span.context.trace_id for span in recorded.spans()}) == 2


def test_single_trace_of_an_inherited_run_uuid(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run UUID that a launcher hands on makes the trace id, so that launcher and job share it."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "nv.dl.run.uuid=from-the-launcher")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with recording(caplog, fields={"single_trace": True}) as recorded:
        with span_cm("a"):
            pass
        trace_id = recorded.named("a").context.trace_id
        assert trace_id == int.from_bytes(hashlib.sha256(b"from-the-launcher").digest()[:16], "big")


def _uuid5_of_url(name: str) -> str:
    # Spelt out from RFC 9562, so that it agrees with the derivation by more than sharing it.
    digest = bytearray(hashlib.sha1(bytes.fromhex("6ba7b8119dad11d180b400c04fd430c8") + name.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def test_traceparent_of_the_environment_is_the_parent_of_roots(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roots of every helper, thread and task, and what is injected, continue the trace of the launching process."""
    monkeypatch.setenv("TRACEPARENT", CARRIER["traceparent"])

    @trace_fn("g", "fn")
    def function() -> None: ...

    with recording(caplog) as recorded:
        with managed_span("g", "a"), managed_span("g", "child"):
            pass
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
        mark("mark")
        with trace.get_tracer("other").start_as_current_span("plain"):
            pass
        assert inject_context({})["traceparent"] == CARRIER["traceparent"]
        for name in ("a", "fn", "mark", "plain"):
            assert recorded.named(name).parent == REMOTE, name
        assert recorded.named("child").parent == recorded.named("a").context
    assert not trace.get_current_span().get_span_context().is_valid
    monkeypatch.delenv("TRACEPARENT")
    with recording(caplog) as recorded:
        with span_cm("later"):
            pass
        assert recorded.named("later").parent is None


def test_the_environment_carries_the_context_to_children(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """``inject_context(os.environ)`` writes ``TRACEPARENT`` in upper case."""
    monkeypatch.setenv("TRACEPARENT", "")
    with span_cm("a") as span:
        inject_context(os.environ)
    context = span.get_span_context()
    assert os.environ["TRACEPARENT"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert "traceparent" not in os.environ


def test_a_copy_of_the_environment_holds_one_context(recorded: Recorded) -> None:
    """In a copy of an environment the new context replaces an outer launcher's, its trace state too."""
    outer = {"TRACEPARENT": f"00-{'1' * 32}-{'2' * 16}-01", "TRACESTATE": "vendor=1", "PATH": "/bin"}
    with span_cm("inner launcher") as span:
        environment = inject_context(dict(outer))
        outermost = inject_context({"PATH": "/bin"})
        headers = inject_context({"tracestate": "vendor=1"})
    context = span.get_span_context()
    written = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert environment.keys() == {"TRACEPARENT", "PATH"}
    assert environment["TRACEPARENT"].startswith(written)
    assert headers.keys() == {"traceparent"}
    assert outermost.keys() == {"TRACEPARENT", "PATH"}, "as a shell wants it"
    assert inject_context(dict(outer)) == outer, "no span, nothing to replace it with"


def test_baggage_that_cannot_be_encoded_leaves_the_trace(recorded: Recorded) -> None:
    """What one propagator fails at does not cost what another has written."""
    with span_cm("a") as span:
        token = attach(baggage.set_baggage("user", "caf\udce9"))
        try:
            carrier = inject_context()
        finally:
            detach(token)
    assert carrier.keys() == {"traceparent"}
    assert f"{span.get_span_context().span_id:016x}" in carrier["traceparent"]


def test_a_carrier_that_can_only_be_written_is_written(recorded: Recorded) -> None:
    """What offers item assignment alone, as adapters of other libraries do, is filled."""

    class Headers:
        def __init__(self) -> None:
            self.written: dict[str, str] = {}

        def __setitem__(self, key: str, value: str) -> None:
            self.written[key] = value

    headers = Headers()
    with span_cm("a"):
        inject_context(headers)  # type: ignore[arg-type]
    assert headers.written.keys() == {"traceparent"}


def test_baggage_of_the_caller_is_kept(recorded: Recorded, open_span: Open) -> None:
    """Opening a span changes the current span and nothing else of the OpenTelemetry context."""
    token = attach(baggage.set_baggage("tenant", "a"))
    try:
        with open_span("a"):
            assert baggage.get_baggage("tenant") == "a"
            assert "tenant=a" in inject_context({})["baggage"]
    finally:
        detach(token)


# ---- surface


def test_signatures_show_every_option() -> None:
    """``inspect.signature`` and ``help`` show the full signatures, with group and name positional only."""
    options = ["attributes", "span_kind", "links", "context"]
    managed, cm = inspect.signature(managed_span).parameters, inspect.signature(span_cm).parameters
    assert list(managed) == ["group", "name", "tracer", *options, "attrs"]
    assert list(cm) == ["name", "tracer", "record_exception", *options, "attrs"]
    for parameters, positional in ((managed, ["group", "name"]), (cm, ["name"])):
        for name, parameter in parameters.items():
            assert (parameter.kind is parameter.POSITIONAL_ONLY) == (name in positional)
            assert (parameter.kind is parameter.KEYWORD_ONLY) == (name in options)
    assert managed_span.__doc__
    assert span_cm.__doc__
    assert "span_kind" in managed_span.__doc__
    assert managed_span.__name__ == "managed_span"


def test_default_scopes(recorded: Recorded) -> None:
    """Context managers use the scope ``nemo.lens.helpers``, ``trace_fn`` uses ``nemo.lens``, both with a version."""

    @trace_fn("g", "fn")
    def function() -> None: ...

    function()
    with managed_span("g", "managed"), span_cm("cm"):
        mark("mark")
    with span_cm("own", get_tracer("own.scope", "3")):
        pass
    found = {span.name: span.instrumentation_scope for span in recorded.spans()}
    assert {name: scope.name for name, scope in found.items() if scope} == {
        "fn": "nemo.lens",
        "managed": "nemo.lens.helpers",
        "cm": "nemo.lens.helpers",
        "mark": "nemo.lens.helpers",
        "own": "own.scope",
    }
    assert all(scope is not None and scope.version for scope in found.values())


def test_span_names_are_cleaned(recorded: Recorded, open_span: Open) -> None:
    """A name of any type and length makes a span whose name can be sent."""
    for name in ("x" * 10_000, "\ud800", 3, None, object()):
        with open_span(name):
            pass
    names = recorded.names()
    assert names[:3] == ["x" * 8192, "�", "3"]
    assert all(isinstance(name, str) for name in names)
    assert len(names) == 5


def test_safe_set_span_attributes(recorded: Recorded) -> None:
    """Attributes are set cleaned and redacted; None and an ended span are left alone."""
    with span_cm("a") as span:
        safe_set_span_attributes(span, {"n": 1, "token": "t", "bad": object()})
        safe_set_span_attributes(span, {"plain": "p", "mine": "m"}, redact_keys={"mine"})
        safe_set_span_attributes(span, None)
    safe_set_span_attributes(span, {"late": 1})
    safe_set_span_attributes(None, {"n": 1})
    assert recorded.attributes("a") == {"n": 1, "token": "[REDACTED]", "plain": "p", "mine": "[REDACTED]"}


def test_spans_that_are_not_sampled_run_the_body(
    caplog: pytest.LogCaptureFixture, recorded: Recorded, open_span: Open
) -> None:
    """Under a parent that was not sampled the body runs with a span that records nothing, and nothing is exported."""
    off = {"traceparent": CARRIER["traceparent"][:-2] + "00"}
    with open_span("a", context=off) as span:
        assert not span.is_recording()
        span.set_attribute("x", 1)
        with open_span("b"):
            pass
    assert _names(recorded.spans()) == []


def _names(spans: list[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]
