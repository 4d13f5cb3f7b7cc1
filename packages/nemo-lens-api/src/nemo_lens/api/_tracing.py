"""The wrappers behind ``trace_fn``: one per kind of callable, each of the kind it wraps."""

from __future__ import annotations

import functools
import inspect
import types

from nemo_lens.api import state as _state
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api._generators import async_generator_wrapper, generator_wrapper
from nemo_lens.api._live import LiveSpan
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.backend import LENS_SCOPE
from nemo_lens.api.fallbacks import NULL_CONTEXT, check_traceable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nemo_lens.api._generators import OpenLive


def decorate(fn: Any, group: str, name: str | None, tracer: Any, attributes: Any, span_kind: Any) -> Any:
    """Wrap ``fn`` so that each call is a span while ``group`` is on.

    Raises:
        TypeError: for a class or something that cannot be called.
    """
    check_traceable(fn)
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(decorate(fn.__func__, group, name, tracer, attributes, span_kind))
    span_name = name if name is not None else qualified_name(fn)
    compute = attributes if callable(attributes) else None
    options = {"scope": LENS_SCOPE, "tracer": tracer, "kind": span_kind}

    def open_live(args: tuple[Any, ...], kwargs: dict[str, Any]) -> LiveSpan | None:
        if group not in _state.enabled:
            return None
        attrs = attributes if compute is None else computed_attributes(compute, span_name, args, kwargs)
        return LiveSpan(span_name, clean_attributes(attrs), options)

    return functools.wraps(fn)(wrapper_of_kind(fn)(fn, group, open_live))


def wrapper_of_kind(fn: Any) -> Callable[[Any, str, OpenLive], Any]:
    """Return what makes a wrapper of ``fn``'s kind of callable, from it, its group and what opens its span."""
    # A callable object is what its __call__ is; inspect looks through bound methods by itself.
    called = _called(fn)
    candidates = (called,) if inspect.isroutine(called) else (called, type(called).__call__)
    for is_kind, wrapper in _KINDS:
        if any(is_kind(candidate) for candidate in candidates):
            return wrapper
    return _function


def _function(fn: Any, group: str, open_live: OpenLive) -> Any:
    # The gate stands here too, before any call of ours: a plain function is what torch.compile inlines.
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if group not in _state.enabled:
            return fn(*args, **kwargs)
        with open_live(args, kwargs) or NULL_CONTEXT:
            return fn(*args, **kwargs)

    return wrapper


def _coroutine(fn: Any, group: str, open_live: OpenLive) -> Any:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with open_live(args, kwargs) or NULL_CONTEXT:
            return await fn(*args, **kwargs)

    return wrapper


def _generator(fn: Any, group: str, open_live: OpenLive) -> Any:
    wrapper = generator_wrapper(fn, open_live)
    code = getattr(_called(fn), "__code__", None)
    if code is not None and code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return types.coroutine(wrapper)  # awaitable, as what it wraps
    return wrapper


def _async_generator(fn: Any, group: str, open_live: OpenLive) -> Any:
    return async_generator_wrapper(fn, open_live)


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str, OpenLive], Any]], ...] = (
    (inspect.iscoroutinefunction, _coroutine),
    (inspect.isasyncgenfunction, _async_generator),
    (inspect.isgeneratorfunction, _generator),
)


def computed_attributes(compute: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what ``compute`` makes of a call's arguments; None when it fails."""
    try:
        return compute(*args, **kwargs)
    except Exception as fault:  # noqa: BLE001 - the attributes of a span must not stop the call
        debug_once(("attributes", name), "attributes of span %r could not be computed: %r", name, fault, exc_info=True)
        return None


def qualified_name(fn: Any) -> str:
    """Return the span name of a callable that was given none."""
    called = _called(fn)
    return getattr(called, "__qualname__", None) or type(called).__qualname__


def _called(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
