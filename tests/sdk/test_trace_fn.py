"""``trace_fn``: every kind of callable keeps its kind, and its calls are spans while the group is on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from nemo_lens.api import enabled_span_groups, get_tracer, set_enabled_span_groups, trace_fn
from support.recorded import Recorded, recording


@pytest.fixture(params=[("g",), ()], ids=["on", "off"])
def recorded(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Iterator[Recorded]:
    with recording(caplog, groups=request.param) as into:
        yield into


@pytest.fixture
def recorded_on(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    with recording(caplog) as into:
        yield into


def _current() -> str | None:
    return getattr(trace.get_current_span(), "name", None)


def function(a: int, *, b: int = 2) -> tuple[int, str | None]:
    """Return what it was given."""
    return a + b, _current()


async def coroutine_function(a: int, *, b: int = 2) -> tuple[int, str | None]:
    """Return what it was given."""
    await asyncio.sleep(0)
    return a + b, _current()


def generator_function(a: int, *, b: int = 2) -> Iterator[tuple[int, str | None]]:
    """Yield what it was given."""
    yield a + b, _current()


async def async_generator_function(a: int, *, b: int = 2) -> AsyncIterator[tuple[int, str | None]]:
    """Yield what it was given."""
    await asyncio.sleep(0)
    yield a + b, _current()


@types.coroutine
def generator_coroutine(a: int, *, b: int = 2) -> Any:
    """Return what it was given, as asyncio's own coroutines once did."""
    yield
    return a + b, _current()


class Callables:
    """One callable object of each kind."""

    class Plain:
        def __call__(self, a: int, *, b: int = 2) -> Any:
            return function(a, b=b)

    class Coroutine:
        async def __call__(self, a: int, *, b: int = 2) -> Any:
            return await coroutine_function(a, b=b)

    class Generator:
        def __call__(self, a: int, *, b: int = 2) -> Any:
            yield from generator_function(a, b=b)

    class AsyncGenerator:
        async def __call__(self, a: int, *, b: int = 2) -> Any:
            async for item in async_generator_function(a, b=b):
                yield item


class Holder:
    """Methods of every kind, decorated where they are defined, above and below classmethod and staticmethod."""

    @trace_fn("g")
    def method(self, a: int, *, b: int = 2) -> Any:
        return function(a, b=b)

    @trace_fn("g")
    async def coroutine(self, a: int, *, b: int = 2) -> Any:
        return await coroutine_function(a, b=b)

    @trace_fn("g")
    @classmethod
    def class_above(cls, a: int, *, b: int = 2) -> Any:
        assert cls is Holder
        return function(a, b=b)

    @classmethod
    @trace_fn("g")
    def class_below(cls, a: int, *, b: int = 2) -> Any:
        assert cls is Holder
        return function(a, b=b)

    @trace_fn("g")
    @staticmethod
    def static_above(a: int, *, b: int = 2) -> Any:
        return function(a, b=b)

    @staticmethod
    @trace_fn("g")
    async def static_below(a: int, *, b: int = 2) -> Any:
        return await coroutine_function(a, b=b)


async def _first(iterable: Any) -> Any:
    (item,) = [item async for item in iterable]
    return item


def _result(called: Any) -> Any:
    """Return what a call of any kind gives in the end."""
    if inspect.isgenerator(called) and not called.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return next(iter(list(called)))
    if inspect.isasyncgen(called):
        return asyncio.run(_first(called))
    if inspect.isawaitable(called):

        async def main() -> Any:
            return await called

        return asyncio.run(main())
    return called


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "function": (function, "function"),
    "coroutine": (coroutine_function, "coroutine_function"),
    "generator": (generator_function, "generator_function"),
    "async generator": (async_generator_function, "async_generator_function"),
    "generator coroutine": (generator_coroutine, "generator_coroutine"),
    "object": (Callables.Plain(), "Callables.Plain"),
    "coroutine object": (Callables.Coroutine(), "Callables.Coroutine"),
    "generator object": (Callables.Generator(), "Callables.Generator"),
    "async generator object": (Callables.AsyncGenerator(), "Callables.AsyncGenerator"),
    "partial": (functools.partial(function, b=2), "function"),
    "partial of a partial": (functools.partial(functools.partial(function), b=2), "function"),
    "partial of a coroutine": (functools.partial(coroutine_function, b=2), "coroutine_function"),
    "partial of a generator": (functools.partial(generator_function, b=2), "generator_function"),
    "partial of a coroutine object": (functools.partial(Callables.Coroutine(), b=2), "Callables.Coroutine"),
    "bound method": (Callables.Plain().__call__, "Callables.Plain.__call__"),
    "bound coroutine method": (Callables.Coroutine().__call__, "Callables.Coroutine.__call__"),
    "cached": (functools.lru_cache(maxsize=0)(function), "function"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kind_of_callable(recorded: Recorded, name: str) -> None:
    """Called with any arguments it gives what it gave, with the span current while its body runs."""
    fn, span_name = FUNCTIONS[name]
    on = "g" in enabled_span_groups()
    traced = trace_fn("g")(fn)
    expected = span_name if on else None
    for value in (5, 6):
        assert _result(traced(value)) == (value + 2, expected)
        if "partial" not in name:
            assert _result(traced(value, b=10)) == (value + 10, expected)
    assert set(recorded.names()) == ({span_name} if on else set())
    assert _current() is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_kind_is_unchanged(name: str) -> None:
    """``inspect`` says the same of the traced function, or of what calling the object says, as of the plain one."""
    fn, _ = FUNCTIONS[name]
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    asked = inner if inspect.isroutine(inner) else type(inner).__call__
    traced = trace_fn("g")(fn)
    for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert question(traced) == question(asked), question
    called, plain = traced(1), fn(1)
    assert inspect.isawaitable(called) == inspect.isawaitable(plain)
    _result(called)
    _result(plain)


def test_metadata_is_kept() -> None:
    """Name, module, documentation, signature, attributes and ``__wrapped__`` are the function's."""
    function.marker = "kept"  # type: ignore[attr-defined]
    traced = trace_fn("g")(function)
    assert traced.__name__ == "function"
    assert traced.__qualname__ == function.__qualname__
    assert traced.__module__ == function.__module__
    assert traced.__doc__ == function.__doc__
    assert inspect.signature(traced) == inspect.signature(function)
    assert traced.__wrapped__ is function  # type: ignore[attr-defined]
    assert traced.marker == "kept"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["method", "coroutine", "class_above", "class_below", "static_above", "static_below"])
def test_methods(recorded: Recorded, name: str) -> None:
    """Methods, class methods and static methods work, decorated on either side, through instance and class."""
    expected = f"Holder.{name}" if "g" in enabled_span_groups() else None
    assert _result(getattr(Holder(), name)(1)) == (3, expected)
    if name not in ("method", "coroutine"):
        assert _result(getattr(Holder, name)(1, b=5)) == (6, expected)
    assert set(recorded.names()) == ({expected} if expected else set())


@pytest.mark.parametrize("bad", [Holder, int, 3, None, "name", property(lambda self: 1)])
def test_what_is_no_function_is_refused(bad: Any) -> None:
    """A class, a property and other things that are no functions give a TypeError that says what to decorate."""
    with pytest.raises(TypeError, match="functions, methods and callable objects"):
        trace_fn("g")(bad)


def test_the_group_is_needed() -> None:
    """``@trace_fn`` without its group is a TypeError at the definition, not a broken function."""
    with pytest.raises(TypeError, match="span group first"):

        @trace_fn  # type: ignore[arg-type]
        def wrong() -> None: ...


def test_the_gate_is_asked_at_each_call(recorded_on: Recorded) -> None:
    """A function decorated while its group was off is traced once it opens, and no longer when it closes."""
    calls = []

    @trace_fn("late")
    def work() -> None:
        calls.append(_current())

    @trace_fn("late")
    async def coroutine() -> None:
        calls.append(_current())

    def all_of_them() -> None:
        work()
        asyncio.run(coroutine())

    all_of_them()
    set_enabled_span_groups({"late"})
    all_of_them()
    set_enabled_span_groups(())
    all_of_them()
    assert [name is not None for name in calls] == [False, False, True, True, False, False]
    assert len(recorded_on.names()) == 2


def test_names(recorded_on: Recorded) -> None:
    """The span is named as given, else by the qualified name."""

    @trace_fn("g", "given")
    def one() -> None: ...

    @trace_fn("g")
    def two() -> None: ...

    one()
    two()
    assert recorded_on.names() == ["given", "test_names.<locals>.two"]


def test_attributes_may_be_computed_from_the_arguments(recorded: Recorded) -> None:
    """A callable gets the call's arguments, ``self`` too, and runs only when the group is on, once a call."""
    computed = []

    def attributes(*args: Any, **kwargs: Any) -> dict[str, Any]:
        computed.append((args, kwargs))
        return {"n": len(args), **kwargs}

    class Model:
        @trace_fn("g", "method", attributes=lambda self, batch: {"batch": batch, "size": self.size})
        def method(self, batch: int) -> int:
            return batch

        size = 7

    calls: dict[str, Callable[..., Any]] = {
        "sync": trace_fn("g", "sync", attributes=attributes)(lambda *args, **kwargs: None),
        "coroutine": trace_fn("g", "coroutine", attributes=attributes)(coroutine_function),
        "generator": trace_fn("g", "generator", attributes=attributes)(generator_function),
        "async generator": trace_fn("g", "async generator", attributes=attributes)(async_generator_function),
    }
    for call in calls.values():
        _result(call(1, b=4))
    assert Model().method(3) == 3
    if "g" not in enabled_span_groups():
        assert computed == []
        return
    assert computed == [((1,), {"b": 4})] * 4
    for name in calls:
        assert recorded.attributes(name) == {"n": 1, "b": 4}
    assert recorded.attributes("method") == {"batch": 3, "size": 7}


def test_attributes_may_be_given_and_kept(recorded_on: Recorded) -> None:
    """A mapping is used for each call, cleaned, and never changed."""
    given = {"n": 1, "token": "t", "bad": object()}
    traced = trace_fn("g", "f", attributes=given, span_kind="client")(function)
    traced(1)
    traced(1)
    assert [dict(span.attributes or {}) for span in recorded_on.spans()] == [{"n": 1, "token": "[REDACTED]"}] * 2
    assert {span.kind for span in recorded_on.spans()} == {SpanKind.CLIENT}
    assert list(given) == ["n", "token", "bad"]


@pytest.mark.parametrize("bad", [dict, lambda *a, **k: 1 / 0, lambda *a, **k: 3, lambda *a, **k: None])
def test_attributes_that_cannot_be_computed_do_not_stop_the_call(recorded_on: Recorded, bad: Any) -> None:
    """Wrong arguments, an exception and a result that is no mapping leave a span without attributes."""
    assert trace_fn("g", "f", attributes=bad)(function)(1)[0] == 3
    assert recorded_on.attributes("f") == {}
    assert recorded_on.logged(logging.WARNING) == []


def test_a_tracer_of_ones_own(recorded_on: Recorded) -> None:
    """``tracer`` is used instead of the default one."""
    trace_fn("g", "f", get_tracer("mine"))(function)(1)
    scope = recorded_on.named("f").instrumentation_scope
    assert scope is not None
    assert scope.name == "mine"


def test_recursion_and_concurrency(recorded_on: Recorded) -> None:
    """Recursive and concurrent calls have a span each, below their own caller."""

    @trace_fn("g", "fact", attributes=lambda n: {"n": n})
    def fact(n: int) -> int:
        return 1 if n == 0 else n * fact(n - 1)

    @trace_fn("g", "task", attributes=lambda n: {"n": n})
    async def task(n: int) -> str | None:
        await asyncio.sleep(0)
        await inner(n)
        return _current()

    @trace_fn("g", "inner", attributes=lambda n: {"n": n})
    async def inner(n: int) -> None:
        await asyncio.sleep(0)

    async def main() -> Any:
        return await asyncio.gather(*(task(n) for n in range(3)))

    assert fact(3) == 6
    assert asyncio.run(main()) == ["task"] * 3
    spans = {(span.name, (span.attributes or {})["n"]): span for span in recorded_on.spans()}
    for n in range(3):
        assert spans["fact", n].parent == spans["fact", n + 1].context
        assert spans["inner", n].parent == spans["task", n].context
    assert spans["fact", 3].parent is None


def test_a_coroutine_that_is_never_awaited_leaves_no_span(recorded_on: Recorded) -> None:
    """A coroutine or generator that is closed before it ran started no span."""
    called: Awaitable[Any] = trace_fn("g")(coroutine_function)(1)
    called.close()  # type: ignore[attr-defined]
    trace_fn("g")(generator_function)(1).close()  # type: ignore[attr-defined]
    assert recorded_on.names() == []


def test_a_coroutine_that_is_closed_half_way_ends_its_span(recorded_on: Recorded) -> None:
    """Closing a suspended coroutine runs its ``finally`` and ends its span without an error."""
    done = []

    @trace_fn("g", "c")
    async def coroutine() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            done.append(_current())

    called = coroutine()
    called.send(None)
    called.close()
    assert done == ["c"]
    span = recorded_on.named("c")
    assert span.status.is_unset
    assert dict(span.attributes or {}) == {}
    assert _current() is None
