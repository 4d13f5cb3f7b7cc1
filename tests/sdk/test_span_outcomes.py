"""What an exception, an interruption or a fault of the backend leaves on a span, and what it never does to the body."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from nemo_lens.api import bind_context, emit_span, managed_span, mark, span_cm, trace_fn
from support.recorded import Recorded, exceptions, recording

Run = Callable[[str, Callable[[], Any]], Any]


def _with_trace_fn(name: str, body: Callable[[], Any]) -> Any:
    @trace_fn("g", name)
    def function() -> Any:
        return body()

    return function()


def _with_coroutine(name: str, body: Callable[[], Any]) -> Any:
    @trace_fn("g", name)
    async def function() -> Any:
        return body()

    # Driven by hand: asyncio.run treats KeyboardInterrupt and SystemExit in ways of its own.
    coroutine = function()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()


def _with_generator(name: str, body: Callable[[], Any]) -> Any:
    @trace_fn("g", name)
    def function() -> Iterator[Any]:
        yield
        yield body()

    *_, last = function()
    return last


def _with_managed_span(name: str, body: Callable[[], Any]) -> Any:
    with managed_span("g", name):
        return body()


def _with_span_cm(name: str, body: Callable[[], Any]) -> Any:
    with span_cm(name):
        return body()


HELPERS: dict[str, Run] = {
    "managed_span": _with_managed_span,
    "span_cm": _with_span_cm,
    "trace_fn": _with_trace_fn,
    "coroutine": _with_coroutine,
    "generator": _with_generator,
}


@pytest.fixture
def recorded(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with recording(caplog) as into:
        yield into


@pytest.fixture(params=HELPERS, ids=str)
def run(request: pytest.FixtureRequest) -> Run:
    return HELPERS[request.param]


def _raise(error: BaseException) -> Any:
    raise error


def _raising(error: BaseException) -> Callable[[], Any]:
    return lambda: _raise(error)


class _OwnError(Exception):
    pass


def test_an_exception_is_recorded_and_comes_out_itself(recorded: Recorded, run: Run) -> None:
    """The same object comes out, unchanged; the span has one event and ERROR, ``Type: message``, from every helper."""
    error = _OwnError("no data")
    with pytest.raises(_OwnError) as caught:
        run("a", _raising(error))
    assert caught.value is error
    assert vars(error) == {}
    assert error.__cause__ is error.__context__ is None
    span = recorded.named("a")
    assert exceptions(span) == [(f"{__name__}._OwnError", "no data")]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "_OwnError: no data"
    (event,) = span.events
    stack = str((event.attributes or {})["exception.stacktrace"])
    assert "in _raise" in stack
    assert stack.rstrip().endswith("_OwnError: no data")


def test_nested_spans_record_it_once(recorded: Recorded, run: Run) -> None:
    """The innermost span has the event; each enclosing one has ERROR and none."""
    with pytest.raises(KeyError):
        run("outer", lambda: run("middle", lambda: run("inner", _raising(KeyError("k")))))
    counts = {span.name: len(exceptions(span)) for span in recorded.spans()}
    assert counts == {"inner": 1, "middle": 0, "outer": 0}
    assert {span.status.description for span in recorded.spans()} == {"KeyError: 'k'"}


def test_an_exception_raised_from_another_is_one_of_its_own(recorded: Recorded) -> None:
    """``raise B from A`` records A where A passed and B where B passed."""

    @trace_fn("g", "outer")
    def outer() -> None:
        try:
            with span_cm("inner"):
                raise KeyError("a")
        except KeyError as error:
            raise RuntimeError("b") from error

    with pytest.raises(RuntimeError):
        outer()
    assert exceptions(recorded.named("inner")) == [("KeyError", "'a'")]
    assert exceptions(recorded.named("outer")) == [("RuntimeError", "b")]
    (event,) = recorded.named("outer").events
    assert "direct cause" in str((event.attributes or {})["exception.stacktrace"])


def test_an_exception_kept_and_raised_again_is_not_recorded_again_outside(recorded: Recorded) -> None:
    """Caught and raised later in the enclosing span, it is still the exception that was recorded inside."""

    @trace_fn("g", "outer")
    def outer() -> None:
        kept = None
        try:
            with span_cm("inner"):
                raise KeyError("a")
        except KeyError as error:
            kept = error
        with span_cm("between"):
            pass
        raise kept

    with pytest.raises(KeyError):
        outer()
    assert [(span.name, len(exceptions(span))) for span in recorded.spans()] == [
        ("inner", 1),
        ("between", 0),
        ("outer", 0),
    ]
    assert recorded.named("between").status.status_code is StatusCode.UNSET


def test_each_exception_of_a_loop_is_recorded(recorded: Recorded, run: Run) -> None:
    """The same type from the same line, often at the same address, is recorded each time, also inside one trace."""
    for outer in (contextlib.nullcontext(), span_cm("outer")):
        with outer:
            for number in range(20):
                with contextlib.suppress(ValueError):
                    run("a", lambda number=number: _raise(ValueError(str(number))))  # type: ignore[misc]
    expected = [[("ValueError", str(number))] for number in range(20)]
    assert [exceptions(span) for span in recorded.spans()] == [*expected, *expected, []]


def test_a_new_exception_at_the_address_of_a_recorded_one_is_recorded(recorded: Recorded) -> None:
    """One is recorded inside and gone; the next, at the same address and of the same type, is recorded outside."""

    def once(name: str) -> int:
        error = None
        with contextlib.suppress(ValueError), span_cm(f"{name}.outer"):
            try:
                with span_cm(f"{name}.inner"):
                    raise ValueError("first")
            except ValueError as caught:
                first = id(caught)
            error = ValueError("second")
            same = id(error) == first
            raise error
        return same

    same = [once(str(number)) for number in range(20)]
    assert any(same)
    for number in range(20):
        assert exceptions(recorded.named(f"{number}.inner")) == [("ValueError", "first")]
        assert exceptions(recorded.named(f"{number}.outer")) == [("ValueError", "second")]


def test_tasks_record_their_own_exceptions(recorded: Recorded) -> None:
    """Tasks that fail interleaved record each exception once, on the innermost span of its own task."""

    @trace_fn("g", "inner")
    async def inner(number: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(str(number))

    async def outer(number: int) -> None:
        with managed_span("g", "outer", number=number):
            await asyncio.sleep(0)
            await inner(number)

    async def main() -> list[Any]:
        return await asyncio.gather(*(outer(number) for number in range(5)), return_exceptions=True)

    assert [str(error) for error in asyncio.run(main())] == list("01234")
    events = [exceptions(span) for span in recorded.spans() if span.name == "inner"]
    assert sorted(events) == [[("ValueError", str(number))] for number in range(5)]
    assert [exceptions(span) for span in recorded.spans() if span.name == "outer"] == [[]] * 5


@pytest.mark.parametrize("how", ["task", "wait_for", "thread"])
def test_an_exception_out_of_a_task_or_thread_is_recorded_once(recorded: Recorded, how: str) -> None:
    """What a task or a pool's thread recorded is not recorded again by the span that waits for it."""
    error = ValueError("inside")

    @trace_fn("g", "inner")
    async def child() -> None:
        raise error

    async def parent() -> None:
        with managed_span("g", "outer"):
            await (asyncio.create_task(child()) if how == "task" else asyncio.wait_for(child(), 10))

    def in_threads() -> None:
        with ThreadPoolExecutor(1) as pool, managed_span("g", "outer"):
            pool.submit(bind_context(trace_fn("g", "inner")(_raising(error)))).result()

    with pytest.raises(ValueError, match="inside") as caught:
        in_threads() if how == "thread" else asyncio.run(parent())
    assert caught.value is error
    assert recorded.parents() == {"inner": "outer", "outer": None}
    assert len(exceptions(recorded.named("inner"))) == 1
    assert exceptions(recorded.named("outer")) == []
    assert recorded.named("outer").status.description == "ValueError: inside"


def test_one_exception_object_in_two_traces_is_recorded_in_both(recorded: Recorded) -> None:
    """An exception kept as a constant is news in each trace."""
    error = ValueError("constant")
    for name in ("a", "b"):
        with pytest.raises(ValueError, match="constant"), span_cm(name):
            raise error
    assert [len(exceptions(span)) for span in recorded.spans()] == [1, 1]


def test_no_exception_is_kept_alive(recorded: Recorded, run: Run) -> None:
    """Once the caller lets go of the exception, it and the objects in its frames are freed at once."""

    class Tensor:
        pass

    def body() -> None:
        tensor = Tensor()
        tensors.append(weakref.ref(tensor))
        raise _OwnError

    tensors: list[Any] = []
    gc.disable()
    try:
        with contextlib.suppress(_OwnError):
            run("outer", lambda: run("inner", body))
        assert [tensor() for tensor in tensors] == [None]
    finally:
        gc.enable()


def test_record_exception_false(recorded: Recorded) -> None:
    """``span_cm(record_exception=False)`` sets ERROR without an event, and leaves the event to an enclosing span."""
    with pytest.raises(ValueError, match="x"), span_cm("outer"), span_cm("inner", record_exception=False):
        raise ValueError("x")
    assert exceptions(recorded.named("inner")) == []
    assert recorded.named("inner").status.description == "ValueError: x"
    assert exceptions(recorded.named("outer")) == [("ValueError", "x")]


class _BadStrError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("in __str__")


class _NoStrError(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class _BadReprError(Exception):
    def __str__(self) -> str:
        return "\ud800"

    def __repr__(self) -> str:
        raise RuntimeError("in __repr__")


@pytest.mark.parametrize("kind", [_BadStrError, _NoStrError, _BadReprError])
def test_a_failing_str_replaces_nothing(recorded: Recorded, run: Run, kind: type[Exception]) -> None:
    """Whatever its ``__str__`` does, the exception comes out itself, is recorded and can be sent."""
    error = kind()
    with pytest.raises(kind) as caught:
        run("a", _raising(error))
    assert caught.value is error
    ((_, message),) = exceptions(recorded.named("a"))
    message.encode()
    status = recorded.named("a").status
    assert status.status_code is StatusCode.ERROR
    assert str(status.description).startswith(f"{kind.__name__}: ")
    str(status.description).encode()


def test_long_messages_are_cut(recorded: Recorded) -> None:
    """A message of megabytes and a very deep traceback leave an event that can be sent, with the traceback's end."""

    def deep(levels: int) -> None:
        if not levels:
            raise ValueError("x" * 5_000_000)
        deep(levels - 1)

    with pytest.raises(ValueError, match="xxx"), span_cm("a"):
        deep(300)
    (event,) = recorded.named("a").events
    attributes = event.attributes or {}
    assert {len(str(attributes[key])) for key in ("exception.message", "exception.stacktrace")} == {8192}
    assert len(str(recorded.named("a").status.description)) == 8192


def test_the_end_of_a_long_traceback_is_kept(recorded: Recorded) -> None:
    """Of a traceback that is too long, the end is sent: it names the exception and where it was raised."""
    error = ValueError("the last")
    link: BaseException = error
    for number in range(200):
        link.__cause__ = ValueError(f"cause {number}")
        link = link.__cause__
    with pytest.raises(ValueError, match="the last"), span_cm("a"):
        raise error
    (event,) = recorded.named("a").events
    stack = str((event.attributes or {})["exception.stacktrace"])
    assert len(stack) == 8192
    assert stack.endswith("ValueError: the last\n")


# ---- interruptions


class _Interruption(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "mark_left"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(1), "SystemExit"),
        (SystemExit("message"), "SystemExit"),
        (_Interruption(), "_Interruption"),
        (SystemExit(), None),
        (SystemExit(0), None),
        (GeneratorExit(), None),
    ],
    ids=repr,
)
def test_interruptions_are_no_errors(recorded: Recorded, run: Run, error: BaseException, mark_left: str | None) -> None:
    """An interruption leaves its type's name and no status; a clean exit and a closed generator leave nothing."""
    with pytest.raises(type(error)) as caught:
        run("outer", lambda: run("inner", _raising(error)))
    assert caught.value is error
    for span in recorded.spans():
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()
        assert dict(span.attributes or {}) == ({"nemo.span.interrupted": mark_left} if mark_left else {})
    assert recorded.names() == ["inner", "outer"]


def test_cancellation_of_a_task(recorded: Recorded) -> None:
    """A task that is cancelled, or runs into a timeout, closes its spans as interrupted; the timeout is the error."""

    @trace_fn("g", "inner")
    async def inner() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with managed_span("g", "outer"):
            await asyncio.wait_for(inner(), 0.01)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    assert recorded.attributes("inner") == {"nemo.span.interrupted": "CancelledError"}
    assert recorded.named("inner").status.status_code is StatusCode.UNSET
    assert [kind.rpartition(".")[2] for kind, _ in exceptions(recorded.named("outer"))] == ["TimeoutError"]


# ---- a span that is not closed where it was opened


async def _held() -> AsyncIterator[int]:
    with managed_span("g", "held"):
        yield 1


def test_a_span_held_over_yield_and_closed_by_another_task(recorded: Recorded) -> None:
    """It ends, nothing is raised, and OpenTelemetry logs no error; it stays current in the task that drove it."""

    async def main() -> None:
        generator = _held()

        async def drive() -> Any:
            await generator.__anext__()
            return trace.get_current_span()

        held = await asyncio.create_task(drive())
        assert held.name == "held"
        await asyncio.create_task(generator.aclose())
        assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(main())
    assert recorded.names() == ["held"]
    assert recorded.complaints_of_opentelemetry() == []
    assert len([line for line in recorded.logged(logging.DEBUG) if "another context" in line]) == 1


def test_a_span_closed_in_another_thread(recorded: Recorded) -> None:
    """A context manager left in another thread ends its span and disturbs neither thread."""

    def enter() -> None:
        manager.__enter__()
        opened = trace.get_current_span()
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert trace.get_current_span() is opened

    def leave() -> None:
        manager.__exit__(None, None, None)
        seen.append(trace.get_current_span().get_span_context().is_valid)

    seen: list[bool] = []
    manager = managed_span("g", "a")
    copy_context().run(enter)
    assert seen == [False]
    assert recorded.names() == ["a"]


# ---- faults of the backend


class _Span:
    """A span of a tracer of somebody's own, of which one method fails."""

    def __init__(self, failing: str) -> None:
        self._failing = failing
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name == self._failing:
                raise RuntimeError(f"{name} failed")
            return {"get_span_context": trace.INVALID_SPAN_CONTEXT, "is_recording": True}.get(name)

        return call


class _Tracer:
    def __init__(self, failing: str) -> None:
        self._failing = failing
        self.span = _Span(failing)

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._failing == "start_span":
            raise RuntimeError("start_span failed")
        return self.span


_FAULTS = ["start_span", "end", "set_status", "add_event", "set_attribute", "get_span_context", "is_recording"]


@pytest.mark.parametrize("failing", _FAULTS)
@pytest.mark.parametrize("outcome", [None, ValueError("x"), KeyboardInterrupt()], ids=repr)
def test_a_fault_of_the_backend_stays_inside(recorded: Recorded, failing: str, outcome: BaseException | None) -> None:
    """The body runs once, its value or its exception comes out, the span ends; each kind of fault is said once."""
    ran = []

    def body() -> str:
        ran.append(1)
        if outcome is not None:
            raise outcome
        return "value"

    tracer = _Tracer(failing)

    @trace_fn("g", tracer=tracer)
    def function() -> str:
        return body()

    @trace_fn("g", tracer=tracer)
    def generator() -> Iterator[str]:
        yield body()

    def managed() -> str:
        with managed_span("g", "a", tracer):
            return body()

    def cm() -> str:
        with span_cm("a", tracer):
            return body()

    for call in (function, managed, cm, lambda: next(generator())):
        for _ in range(2):
            if outcome is None:
                assert call() == "value"
            else:
                with pytest.raises(type(outcome)) as caught:
                    call()
                assert caught.value is outcome
            if failing not in ("start_span", "is_recording"):
                assert tracer.span.calls[-1] == "end"
    assert len(ran) == 8
    said = [line for line in recorded.logged(logging.DEBUG) if f"{failing} failed" in line]
    assert len(said) == len(set(said)) <= (2 if failing == "is_recording" else 1)
    assert recorded.logged(logging.WARNING) == []


@pytest.mark.parametrize("failing", ["start_span", "end"])
def test_emission_survives_a_bad_tracer(recorded: Recorded, failing: str) -> None:
    """``emit_span`` returns None when the tracer fails."""
    assert emit_span(_Tracer(failing), "a", 1, 2) is None
    mark("after")
    assert recorded.names() == ["after"]


def test_what_interrupts_the_recording_still_ends_the_span(recorded: Recorded) -> None:
    """A signal handler's exception in the middle of the recording comes out, and the span is ended all the same."""

    class SlowError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), span_cm("a"):
        raise SlowError
    assert recorded.names() == ["a"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_an_exception_at_the_recursion_limit_comes_out(recorded: Recorded) -> None:
    """RecursionError through many spans comes out as itself, and every span that was opened is ended."""

    def deeper() -> None:
        with managed_span("g", "deep"):
            deeper()

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        with pytest.raises(RecursionError):
            deeper()
    finally:
        sys.setrecursionlimit(limit)
    assert not trace.get_current_span().get_span_context().is_valid
