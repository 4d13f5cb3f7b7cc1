"""Traced generators: transparent to whoever drives them, their span current only while their body runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import StatusCode

from nemo_lens.api import (
    enabled_span_groups,
    managed_span,
    mark,
    set_enabled_span_groups,
    span_attributes,
    span_cm,
    trace_fn,
)
from support.recorded import Recorded, exceptions, recording


@pytest.fixture
def recorded(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with recording(caplog) as into:
        yield into


def _current() -> str | None:
    return getattr(trace.get_current_span(), "name", None)


# ---- transparency


class _Thrown(Exception):
    pass


# What the body of a scripted generator does at each step.
_BODY = ["yield", "yield", "catch", "swallow exit", "finally", "return", "raise", "stop"]
# GeneratorExit thrown by hand is left out for plain generators: ``yield from`` makes it a close (PEP 380).
_DRIVE = ["next", "send", "throw", "close"]
_ASYNC_DRIVE = [*_DRIVE, "throw exit"]


def _scripted(log: list[Any], script: list[str]) -> Generator[Any, Any, Any]:
    try:
        for number, step in enumerate(script):
            log.append(("at", number))
            if step == "yield":
                log.append(("got", (yield number)))
            elif step == "catch":
                try:
                    log.append(("got", (yield number)))
                except _Thrown as error:
                    log.append(("caught", str(error)))
            elif step == "swallow exit":
                try:
                    yield number
                except GeneratorExit:
                    log.append("exit")
                    return "left"
            elif step == "finally":
                try:
                    yield number
                finally:
                    log.append("finally")
            elif step == "return":
                return ("returned", number)
            elif step == "raise":
                raise KeyError(number)
            else:
                raise StopIteration(number)
        return "end"
    finally:
        log.append("closed")


async def _scripted_async(log: list[Any], script: list[str]) -> Any:
    try:
        for number, step in enumerate(script):
            log.append(("at", number))
            await asyncio.sleep(0)
            if step == "yield":
                log.append(("got", (yield number)))
            elif step == "catch":
                try:
                    log.append(("got", (yield number)))
                except _Thrown as error:
                    log.append(("caught", str(error)))
            elif step == "swallow exit":
                try:
                    yield number
                except GeneratorExit:
                    log.append("exit")
                    return
            elif step == "finally":
                try:
                    yield number
                finally:
                    log.append("finally")
            elif step == "return":
                return
            elif step == "raise":
                raise KeyError(number)
            else:
                raise StopAsyncIteration(number)
    finally:
        log.append("closed")


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return ("value", call())
    except BaseException as error:
        return (type(error), *_facts(error))


async def _awaited(awaitable: Any) -> Any:
    try:
        return ("value", await awaitable)
    except BaseException as error:
        return (type(error), *_facts(error))


def _facts(error: BaseException) -> tuple[Any, ...]:
    return (str(error), type(error.__cause__), getattr(error, "value", None))


def _drive(make: Any, body: list[str], drive: list[str]) -> list[Any]:
    log: list[Any] = []
    generator = make(log, body)
    for number, step in enumerate(drive):
        actions: dict[str, Callable[[], Any]] = {
            "next": lambda: next(generator),
            "send": lambda number=number: generator.send(f"sent {number}"),
            "throw": lambda number=number: generator.throw(_Thrown(f"thrown {number}")),
            "close": lambda: generator.close() and None,
        }
        log.append((step, _outcome(actions[step]), inspect.getgeneratorstate(generator)))
    log.append(_outcome(lambda: generator.close() and None))
    return log


async def _drive_async(make: Any, body: list[str], drive: list[str]) -> list[Any]:
    log: list[Any] = []
    generator = make(log, body)
    for number, step in enumerate(drive):
        actions: dict[str, Callable[[], Any]] = {
            "next": lambda: generator.__anext__(),
            "send": lambda number=number: generator.asend(f"sent {number}"),
            "throw": lambda number=number: generator.athrow(_Thrown(f"thrown {number}")),
            "throw exit": lambda: generator.athrow(GeneratorExit()),
            "close": lambda: generator.aclose(),
        }
        log.append((step, await _awaited(actions[step]())))
    log.append(await _awaited(generator.aclose()))
    return log


def _scripts(actions: list[str]) -> Any:
    return given(
        body=st.lists(st.sampled_from(_BODY), max_size=5),
        drive=st.lists(st.sampled_from(actions), max_size=8),
        on=st.booleans(),
    )


_patient = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_patient
@_scripts(_DRIVE)
def test_generators_are_transparent(recorded: Recorded, body: list[str], drive: list[str], on: bool) -> None:
    """However body and caller behave, the caller and the body see what they see without the span, on and off."""
    set_enabled_span_groups({"g"} if on else ())
    assert _drive(trace_fn("g")(_scripted), body, drive) == _drive(_scripted, body, drive)
    assert _current() is None


@_patient
@_scripts(_ASYNC_DRIVE)
def test_async_generators_are_transparent(recorded: Recorded, body: list[str], drive: list[str], on: bool) -> None:
    """As for generators, through ``__anext__``, ``asend``, ``athrow`` and ``aclose``."""
    set_enabled_span_groups({"g"} if on else ())
    traced = asyncio.run(_drive_async(trace_fn("g")(_scripted_async), body, drive))
    assert traced == asyncio.run(_drive_async(_scripted_async, body, drive))


@_patient
@_scripts(_DRIVE)
def test_every_started_span_ends(recorded: Recorded, body: list[str], drive: list[str], on: bool) -> None:
    """Whatever happened, a generator that ran while on has one span, any other none."""
    set_enabled_span_groups({"g"} if on else ())
    before = len(recorded.spans())
    log = _drive(trace_fn("g")(_scripted), body, drive)
    started = ("at", 0) in log or "closed" in log
    assert len(recorded.spans()) - before == (1 if started and on else 0)


@pytest.mark.parametrize("groups", [("g",), ()], ids=["on", "off"])
def test_yield_inside_finally(recorded: Recorded, groups: tuple[str, ...]) -> None:
    """What a ``finally`` yields reaches the caller, except on closing, a RuntimeError as ever."""
    set_enabled_span_groups(groups)

    @trace_fn("g", "generator")
    def body() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            yield 2

    @trace_fn("g", "async generator")
    async def async_body() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            yield 2

    async def main() -> None:
        generator = async_body()
        assert await generator.__anext__() == 1
        assert await generator.athrow(_Thrown) == 2
        with pytest.raises(_Thrown):
            await generator.__anext__()
        generator = async_body()
        await generator.__anext__()
        with pytest.raises(RuntimeError, match="async generator ignored GeneratorExit"):
            await generator.aclose()

    assert list(body()) == [1, 2]
    generator = body()
    assert next(generator) == 1
    assert generator.throw(_Thrown) == 2
    with pytest.raises(_Thrown):
        next(generator)
    generator = body()
    next(generator)
    with pytest.raises(RuntimeError, match="generator ignored GeneratorExit"):
        generator.close()
    asyncio.run(main())
    assert recorded.names() == (["generator"] * 3 + ["async generator"] * 2 if groups else [])


def test_return_values_and_delegation(recorded: Recorded) -> None:
    """The return value reaches ``yield from``, through several traced generators."""

    @trace_fn("g", "inner")
    def inner() -> Generator[int, int, str]:
        received = yield 1
        return f"received {received}"

    @trace_fn("g", "outer")
    def outer() -> Generator[int, int, str]:
        result = yield from inner()
        return result.upper()

    generator = outer()
    assert next(generator) == 1
    with pytest.raises(StopIteration) as stop:
        generator.send(5)
    assert stop.value.value == "RECEIVED 5"
    assert recorded.parents() == {"inner": "outer", "outer": None}
    assert {span.status.status_code for span in recorded.spans()} == {StatusCode.UNSET}


def test_the_thrown_exception_is_the_same_object(recorded: Recorded) -> None:
    """What is thrown in reaches the body and comes out as the same object, recorded once."""
    seen = []

    @trace_fn("g", "g")
    def body() -> Iterator[int]:
        try:
            yield 1
        except ValueError as caught:
            seen.append(caught)
            raise

    error = ValueError("thrown")
    generator = body()
    next(generator)
    with pytest.raises(ValueError, match="thrown") as caught:
        generator.throw(error)  # type: ignore[attr-defined]
    assert caught.value is error is seen[0]
    assert exceptions(recorded.named("g")) == [("ValueError", "thrown")]


def test_closing_is_no_error(recorded: Recorded) -> None:
    """A generator closed, or dropped, half way has a span without error, event or mark."""

    @trace_fn("g", "g")
    def body() -> Iterator[int]:
        yield 1
        yield 2

    generator = body()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    for _ in body():
        break
    gc.collect()
    spans = recorded.spans()
    assert len(spans) == 2
    for span in spans:
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()
        assert dict(span.attributes or {}) == {}


# ---- the span is current while the body runs, and not in between


def test_the_span_covers_the_first_step_to_the_last(recorded: Recorded) -> None:
    """The span starts at the first ``next``, not at the call, and ends with the generator."""

    @trace_fn("g", "generator")
    def body() -> Iterator[int]:
        yield 1

    generator = body()
    with span_cm("before"):
        pass
    assert next(generator) == 1
    assert recorded.names() == ["before"]
    assert list(generator) == []
    span = recorded.named("generator")
    assert span.start_time is not None
    assert recorded.named("before").end_time <= span.start_time  # type: ignore[operator]


def test_current_only_while_running(recorded: Recorded) -> None:
    """The body sees its span at every step, also in ``finally``; the caller never does."""
    seen: list[str | None] = []

    @trace_fn("g", "generator")
    def body() -> Iterator[int]:
        try:
            for number in range(3):
                seen.append(_current())
                yield number
        finally:
            seen.append(_current())

    with span_cm("caller"):
        generator = body()
        for _ in range(2):
            next(generator)
            assert _current() == "caller"
        generator.close()  # type: ignore[attr-defined]
        assert _current() == "caller"
    assert seen == ["generator"] * 3
    assert recorded.parents() == {"generator": "caller", "caller": None}


def test_interleaved_generators_keep_apart(recorded: Recorded) -> None:
    """Generators driven in turns, and left in any order, each have their own spans below themselves."""

    @trace_fn("g", attributes=lambda name, steps: {"which": name})
    def body(name: str, steps: int) -> Iterator[None]:
        for step in range(steps):
            with span_cm(f"{name}.{step}"):
                yield
                with span_cm(f"{name}.{step}.after"):
                    pass

    a, b, c = body("a", 2), body("b", 3), body("c", 1)
    for turn in (a, b, c, b, a, a, c, b, b):
        next(turn, None)
        assert _current() is None
    spans = {span.name: span for span in recorded.spans() if "which" not in (span.attributes or {})}
    roots = {(span.attributes or {})["which"]: span for span in recorded.spans() if "which" in (span.attributes or {})}
    assert sorted(roots) == ["a", "b", "c"]
    assert len(spans) == 2 * (2 + 3 + 1)
    for name, span in spans.items():
        if name.endswith(".after"):
            assert span.parent == spans[name.removesuffix(".after")].context, name
        else:
            assert span.parent == roots[name[0]].context, name
    assert all(root.parent is None for root in roots.values())


def test_a_span_open_over_yield_is_the_parent_again_afterwards(recorded: Recorded) -> None:
    """What the body has open at a ``yield`` is current again when it goes on, and not in the caller meanwhile."""

    @trace_fn("g", "generator")
    def body() -> Iterator[None]:
        with managed_span("g", "open"):
            token = attach(baggage.set_baggage("key", "body"))
            yield
            assert _current() == "open"
            assert baggage.get_baggage("key") == "body"
            with span_cm("child"):
                yield
            detach(token)
        assert _current() == "generator"
        with span_cm("sibling"):
            pass
        yield

    with span_cm("caller"):
        for _ in body():
            assert _current() == "caller"
            assert baggage.get_baggage("key") is None
    assert recorded.parents() == {
        "child": "open",
        "open": "generator",
        "sibling": "generator",
        "generator": "caller",
        "caller": None,
    }


@pytest.mark.parametrize("end", ["exhausted", "closed"])
def test_a_scope_open_over_yield_is_the_generators_alone(recorded: Recorded, end: str) -> None:
    """Between two steps the caller has its own ``span_attributes``, and the generator its own again at the next."""

    @trace_fn("g", "generator")
    def body() -> Iterator[int]:
        with span_attributes({"held": 1}), managed_span("g", "inside"):
            for number in range(3):
                mark(f"step {number}")
                yield number

    generator = body()
    with span_attributes({"caller": 1}):
        next(generator)
        mark("between")
    with span_attributes({"caller": 2}):
        next(generator)
        mark("between again")
        if end == "closed":
            generator.close()  # type: ignore[attr-defined]
        else:
            list(generator)
        mark("past")
    mark("end")
    for name in ("inside", "step 0", "step 1"):
        assert recorded.attributes(name) == {"caller": 1, "held": 1}
    assert recorded.attributes("generator") == recorded.attributes("between") == {"caller": 1}
    assert recorded.attributes("between again") == recorded.attributes("past") == {"caller": 2}
    assert recorded.attributes("end") == {}
    assert recorded.parents()["between"] is None


def test_a_generator_moved_between_threads(recorded: Recorded) -> None:
    """Started here, driven on and closed in other threads, it ends one span and leaves nothing current anywhere."""
    seen: list[str | None] = []
    after: list[str | None] = []

    @trace_fn("g", "generator")
    def body() -> Iterator[None]:
        try:
            with span_cm("open"):
                for _ in range(5):
                    seen.append(_current())
                    yield
        finally:
            seen.append("end")

    def elsewhere(call: Callable[[], Any]) -> None:
        def run() -> None:
            call()
            after.append(_current())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    generator = body()
    next(generator)
    elsewhere(lambda: next(generator))
    elsewhere(generator.close)  # type: ignore[attr-defined]
    assert seen == ["open", "open", "end"]
    assert after == [None, None]
    assert _current() is None
    assert recorded.names() == ["open", "generator"]


def test_a_generator_whose_group_closes_half_way(recorded: Recorded) -> None:
    """The gate is asked at the first step: a span that was started is ended, one that was not is not started later."""

    @trace_fn("g", "generator", attributes=lambda n: {"n": n})
    def body(n: int) -> Iterator[int]:
        yield 1
        yield 2

    first = body(1)
    next(first)
    set_enabled_span_groups(())
    second = body(2)
    next(second)
    set_enabled_span_groups({"g"})
    assert list(first) == list(second) == [2]
    assert recorded.attributes("generator") == {"n": 1}
    assert enabled_span_groups() == {"g"}


# ---- asynchronous generators


def test_async_generators_are_current_only_while_running(recorded: Recorded) -> None:
    """As for generators; what the body has open is its parent again after each ``yield``."""
    seen: list[str | None] = []

    @trace_fn("g", "generator")
    async def body() -> AsyncIterator[int]:
        async with managed_span("g", "open"):
            for number in range(3):
                await asyncio.sleep(0)
                seen.append(_current())
                with span_cm(f"child {number}"):
                    yield number

    async def main() -> None:
        with span_cm("caller"):
            async for _ in body():
                assert _current() == "caller"

    asyncio.run(main())
    assert seen == ["open"] * 3
    children = {f"child {number}": "open" for number in range(3)}
    assert recorded.parents() == {**children, "open": "generator", "generator": "caller", "caller": None}


def test_a_scope_of_an_async_generator_is_its_own(recorded: Recorded) -> None:
    """As for generators, also when tasks drive it in turns, and one of them closes it."""

    @trace_fn("g", "generator")
    async def body() -> AsyncIterator[int]:
        with span_attributes({"held": 1}):
            for number in range(3):
                mark(f"step {number}")
                yield number

    async def step(generator: Any, name: str) -> None:
        with span_attributes({"task": name}):
            await (generator.aclose() if name == "close" else generator.__anext__())
            mark(f"after {name}")
        mark(f"end {name}")

    async def main() -> None:
        generator = body()
        await step(generator, "here")
        for name in ("a", "close"):
            await asyncio.create_task(step(generator, name))
        mark("last")

    asyncio.run(main())
    assert recorded.attributes("step 1") == {"task": "here", "held": 1}
    for name in ("here", "a", "close"):
        assert recorded.attributes(f"after {name}") == {"task": name}
        assert recorded.attributes(f"end {name}") == {}
    assert recorded.attributes("last") == {}


def test_async_generators_driven_at_once_keep_apart(recorded: Recorded) -> None:
    """Tasks that drive a generator each, and one task that drives two in turns, see their own spans."""

    @trace_fn("g", "generator", attributes=lambda name: {"which": name})
    async def body(name: str) -> AsyncIterator[str]:
        for number in range(3):
            await asyncio.sleep(0)
            with span_cm(f"{name} {number}"):
                yield name

    async def drain(name: str) -> None:
        async for _ in body(name):
            await asyncio.sleep(0)
            assert _current() is None

    async def main() -> None:
        await asyncio.gather(drain("a"), drain("b"))
        c, d = body("c"), body("d")
        for turn in (c, d, d, c, c, d):
            await turn.__anext__()
            assert _current() is None
        await c.aclose()  # type: ignore[attr-defined]
        await d.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    roots = {(span.attributes or {})["which"]: span for span in recorded.spans() if span.name == "generator"}
    assert sorted(roots) == list("abcd")
    children = [span for span in recorded.spans() if span.name != "generator"]
    assert len(children) == 12
    for span in children:
        assert span.parent == roots[span.name[0]].context


@pytest.mark.parametrize("how", ["aclose in another task", "dropped", "cancelled"])
def test_async_generators_that_end_elsewhere(recorded: Recorded, how: str) -> None:
    """Closed by another task, by the event loop or by a cancellation, it ends its span and upsets nobody."""
    ended = []

    @trace_fn("g", "generator")
    async def body() -> AsyncIterator[int]:
        try:
            with span_cm("open"):
                yield 1
                await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def main() -> None:
        generator = body()
        await generator.__anext__()
        if how == "dropped":
            del generator
            gc.collect()
            for _ in range(10):
                await asyncio.sleep(0)
        elif how == "cancelled":
            task = asyncio.ensure_future(generator.__anext__())
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        else:
            await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
        assert _current() is None

    asyncio.run(main())
    assert ended == [True]
    assert recorded.names() == ["open", "generator"]
    mark = {"nemo.span.interrupted": "CancelledError"} if how == "cancelled" else {}
    for span in recorded.spans():
        assert span.status.status_code is StatusCode.UNSET
        assert dict(span.attributes or {}) == mark


def test_errors_of_async_generators(recorded: Recorded) -> None:
    """An exception comes out of the step it was raised in, as the same object, recorded once."""
    error = ValueError("third")

    @trace_fn("g", "outer")
    async def outer() -> AsyncIterator[int]:
        async for item in inner():
            yield item

    @trace_fn("g", "inner")
    async def inner() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise error

    async def main() -> None:
        async for item in outer():
            items.append(item)

    items: list[int] = []
    with pytest.raises(ValueError, match="third") as caught:
        asyncio.run(main())
    assert caught.value is error
    assert items == [1, 2]
    assert exceptions(recorded.named("inner")) == [("ValueError", "third")]
    assert exceptions(recorded.named("outer")) == []
    assert recorded.named("outer").status.status_code is StatusCode.ERROR
