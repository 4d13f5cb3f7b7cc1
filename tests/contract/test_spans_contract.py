"""Span helpers towards the caller: the same over every backend, on and off."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest

GROUP = "contract"


def _managed(lens: Any, name: Any, /, **options: Any) -> Any:
    return lens.managed_span(GROUP, name, **options)


def _cm(lens: Any, name: Any, /, **options: Any) -> Any:
    return lens.span_cm(name, **options)


def _scope(lens: Any, name: Any, /, **options: Any) -> Any:
    return lens.span_attributes({"name": name, **options})


managers = pytest.mark.parametrize("manager", [_managed, _cm, _scope])
openers = pytest.mark.parametrize("manager", [_managed, _cm])

OUTCOMES = [
    ValueError("x"),
    KeyboardInterrupt(),
    SystemExit(1),
    SystemExit(0),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(1),
    StopAsyncIteration(),
]
outcomes = pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)

BAD_VALUES = [object(), None, 3, "text", ["x"], {"k": object()}, {3: 4}, b"\xff", float("nan"), 2**70, "\ud800"]


@managers
def test_the_body_runs_once(lens: Any, manager: Any) -> None:
    """A block runs once, to its end, and what it binds and returns is the caller's."""
    ran = []

    def function() -> str:
        with manager(lens, "a", x=1):
            ran.append(1)
            return "value"

    assert function() == "value"
    assert ran == [1]


@managers
@outcomes
def test_an_exception_is_the_same_object(lens: Any, manager: Any, outcome: BaseException) -> None:
    """Whatever leaves the block is not swallowed, replaced or changed."""
    with pytest.raises(type(outcome)) as caught, manager(lens, "outer"), manager(lens, "inner"):
        raise outcome
    assert caught.value is outcome
    assert outcome.__context__ is outcome.__cause__ is None
    assert vars(outcome) == {}


@managers
def test_async_with(lens: Any, manager: Any) -> None:
    """``async with`` works wherever ``with`` does, and yields the same."""
    error = ValueError("x")

    async def main() -> Any:
        async with manager(lens, "a") as got:
            await asyncio.sleep(0)
        async with manager(lens, "b"):
            raise error
        return got

    with pytest.raises(ValueError, match="x") as caught:
        asyncio.run(main())
    assert caught.value is error


@managers
def test_no_context_manager_is_a_decorator(lens: Any, manager: Any) -> None:
    """As a decorator each gives a TypeError at once, rather than something else on than off."""
    with pytest.raises(TypeError):
        manager(lens, "a")(lambda: None)


@managers
def test_one_object_may_be_entered_again_and_inside_itself(lens: Any, manager: Any) -> None:
    """A context manager that was made once may be entered in sequence and in itself."""
    one = manager(lens, "a")
    depth = 0
    with one, one:
        depth += 1
        with one:
            depth += 1
    with one:
        depth += 1
    assert depth == 3


def test_what_is_yielded(lens: Any) -> None:
    """``managed_span`` yields None exactly when its group is off, ``span_cm`` a span always, a scope nothing."""
    with lens.managed_span(GROUP, "a") as span:
        assert (span is None) == (not lens.case.opened)
    with lens.managed_span("never on", "a") as span:
        assert span is None
    with lens.span_cm("a") as span:
        assert span is not None
        assert span.is_recording() == lens.case.exports
    with lens.span_attributes({"x": 1}) as nothing:
        assert nothing is None


def test_the_span_surface(lens: Any) -> None:
    """Every method of an OpenTelemetry span can be called on what ``span_cm`` yields, and returns alike."""
    with lens.span_cm("a") as span:
        returned = [
            span.set_attribute("k", 1),
            span.set_attributes({"k": 2}),
            span.add_event("e", {"k": 1}, 1),
            span.add_event("e"),
            span.add_link(span.get_span_context(), {"k": 1}),
            span.update_name("b"),
            span.record_exception(ValueError("x")),
            span.record_exception(ValueError("x"), attributes={"k": 1}, escaped=True),
        ]
        context = span.get_span_context()
        assert isinstance(context.trace_id, int)
        assert isinstance(context.span_id, int)
        assert context.is_valid is lens.case.exports
        assert context.is_remote is False
        assert int(context.trace_flags) in (0, 1, 2, 3)
        assert len(context.trace_state) == 0
        assert isinstance(span.is_recording(), bool)
    assert returned == [None] * len(returned)


@openers
def test_every_option_is_taken(lens: Any, manager: Any) -> None:
    """Each option and any attribute may be given, in any sensible form, on and off."""
    carrier = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}
    with lens.span_cm("linked") as linked:
        pass
    for kind in (None, "internal", "server", "client", "producer", "consumer"):
        for links in (None, [], [linked, linked.get_span_context(), carrier, {}], carrier):
            for context in (None, carrier, lens.extract_context(carrier), {}):
                with manager(
                    lens, "a", attributes={"x.y": 1}, span_kind=kind, links=links, context=context, name="n", group="g"
                ):
                    pass
    with manager(lens, "a", tracer=lens.get_tracer("mine")), manager(lens, "b", tracer=lens.early_tracer):
        pass


@openers
@pytest.mark.parametrize("bad", BAD_VALUES)
def test_nothing_a_caller_passes_stops_the_body(lens: Any, manager: Any, bad: Any) -> None:
    """Attributes, kinds, links, contexts and names of any type leave the body and its value alone."""
    ran = []
    for options in (
        {"attributes": bad},
        {"span_kind": bad},
        {"links": bad},
        {"links": [bad]},
        {"context": bad},
        {"tracer": bad},
        {"value": bad},
    ):
        with manager(lens, "a", **options):
            ran.append(1)
    with manager(lens, bad):
        ran.append(1)
    assert len(ran) == 8


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_scopes_take_anything(lens: Any, bad: Any) -> None:
    """A scope of anything runs its body."""
    with lens.span_attributes(bad), lens.span_cm("a"):
        pass


# ---- trace_fn


def function(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


async def coroutine(a: int, b: int = 2) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


def generator(a: int, b: int = 2) -> Iterator[int]:
    """Yield, take, return."""
    received = yield a
    try:
        yield received
    finally:
        CLOSED.append(b)


async def async_generator(a: int, b: int = 2) -> AsyncIterator[int]:
    """Yield and take."""
    received = yield a
    try:
        yield received
    finally:
        CLOSED.append(b)


CLOSED: list[int] = []


@pytest.mark.parametrize("fn", [function, coroutine, generator, async_generator], ids=lambda fn: fn.__name__)
def test_decorated_functions_keep_their_kind(lens: Any, fn: Any) -> None:
    """Kind, name, documentation and signature are those of the function."""
    traced = lens.trace_fn(GROUP, "name", attributes={"x": 1}, span_kind="client")(fn)
    for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert question(traced) == question(fn)
    assert (traced.__name__, traced.__doc__) == (fn.__name__, fn.__doc__)
    assert inspect.signature(traced) == inspect.signature(fn)


def test_decorated_functions_do_what_they_did(lens: Any) -> None:
    """Values, exceptions, ``send`` and ``close`` pass through."""
    CLOSED.clear()
    decorate = lens.trace_fn(GROUP, attributes=lambda *args, **kwargs: {"n": len(args)})
    assert decorate(function)(1, b=5) == 6
    assert asyncio.run(decorate(coroutine)(1)) == 3
    error = ValueError("x")
    with pytest.raises(ValueError, match="x") as caught:
        decorate(_raise)(error)
    assert caught.value is error
    made = decorate(generator)(1, 7)
    assert (next(made), made.send("sent")) == (1, "sent")
    made.close()
    assert CLOSED == [7]

    async def main() -> None:
        made = decorate(async_generator)(1, 8)
        assert (await made.__anext__(), await made.asend("sent")) == (1, "sent")
        await made.aclose()

    asyncio.run(main())
    assert CLOSED == [7, 8]


def _raise(error: BaseException) -> None:
    raise error


def test_decorated_methods(lens: Any) -> None:
    """Methods, class methods, static methods and callable objects work on either side of the decorator."""
    trace_fn = lens.trace_fn

    class Model:
        @trace_fn(GROUP)
        def method(self) -> Any:
            return self

        @trace_fn(GROUP)
        @classmethod
        def above(cls) -> Any:
            return cls

        @classmethod
        @trace_fn(GROUP)
        def below(cls) -> Any:
            return cls

        @trace_fn(GROUP)
        @staticmethod
        def static(value: int) -> int:
            return value

        def __call__(self, value: int) -> int:
            return value

    model = Model()
    assert model.method() is model
    assert Model.above() is model.above() is Model.below() is Model
    assert model.static(3) == Model.static(4) - 1 == 3
    assert trace_fn(GROUP)(model)(5) == 5


@pytest.mark.parametrize("bad", [int, 3, None, "text", property(len)])
def test_what_is_no_function_is_refused(lens: Any, bad: Any) -> None:
    """A class and other things that are no functions are a TypeError at the definition, also while off."""
    with pytest.raises(TypeError, match="functions, methods and callable objects"):
        lens.trace_fn(GROUP)(bad)
    with pytest.raises(TypeError, match="span group first"):
        lens.trace_fn(function)


# ---- emission


@pytest.mark.parametrize("times", [(1, 2), (1.5, "2.5"), (Decimal(2), "1"), (5, 5)], ids=str)
def test_emit_span_returns_a_span_or_none(lens: Any, times: Any) -> None:
    """It returns the ended span when one was emitted, which can be a parent, and None otherwise."""
    for tracer in (None, lens.get_tracer("mine"), lens.early_tracer):
        span = lens.emit_span(tracer, "a", *times, attributes={"x": 1})
        assert (span is not None) == lens.case.exports
        assert lens.emit_span(tracer, "a", *times, group="never on") is None
        gated = lens.emit_span(tracer, "a", *times, group=GROUP, context={})
        assert (gated is not None) == (lens.case.exports and lens.case.opened)
        with lens.span_cm("b", links=[span]):
            pass


@pytest.mark.parametrize("bad", [*BAD_VALUES, "soon", -1, "1e999999999", 10**400])
def test_emission_takes_anything(lens: Any, bad: Any) -> None:
    """Times, names and attributes of any type never raise."""
    lens.emit_span(None, "a", bad, bad)
    lens.emit_span(None, bad, 1, 2)
    lens.emit_span(None, "a", 1, 2, attributes=bad, context=bad)
    lens.emit_span(bad, "a", 1, 2)
    assert lens.mark(bad) is None
    assert lens.mark("a", attributes=bad) is None
    assert lens.mark("a", group=GROUP) is None
    lens.safe_set_span_attributes(bad, {"x": 1})
    with lens.span_cm("a") as span:
        assert lens.safe_set_span_attributes(span, bad) is None
        assert lens.safe_set_span_attributes(span, {"x": bad}, redact_keys={"x"}) is None
    assert lens.safe_set_span_attributes(None, {"x": 1}) is None
