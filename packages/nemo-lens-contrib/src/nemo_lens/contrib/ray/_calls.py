"""The decorators of remote functions and actor methods: a span for each call, under the caller's span.

What they make is pickled with the function, by value where Ray does so: closures over plain data and this module's
own names, no tracer, no lock.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nemo_lens.api import is_span_group_enabled
from nemo_lens.api._live import LiveSpan
from nemo_lens.api._tracing import computed_attributes, qualified_name, wrapper_of_kind
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.backend import LENS_SCOPE
from nemo_lens.contrib.ray._carrier import KEYWORD, extract_ray_context, ray_traces_itself
from nemo_lens.contrib.ray._dispatch import with_carrier

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)
_Attributes = Mapping[str, Any] | Callable[..., Mapping[str, Any] | None] | None


def traced_remote_call(
    group: str, name: str | None = None, *, attributes: _Attributes = None, span_kind: Any = None
) -> Callable[[_F], _F]:
    """Trace every call of a remote function or actor method while ``group`` is on where it runs.

    It goes below ``@ray.remote``, and on either side of ``@ray.method``. Functions, coroutine functions, generators
    and asynchronous generators keep their kind. A call by ``.remote(...)`` takes the caller's trace context along under
    the keyword ``_lens_carrier``, which Ray's signature check sees and the function does not; the span is then a child
    of the caller's. A retry, and a call after a restart of the actor, is another span with the same parent. A call
    without the keyword, such as a direct one, is a child of the current span. While Ray's own tracing is on, nothing
    is added and no span is opened.

    Args:
        group: span group that switches the span on.
        name: span name; default the function's ``__qualname__``.
        attributes: span attributes, or a callable of the call's arguments that returns them, run only when on.
        span_kind: as in ``nemo_lens.api.trace_fn``; default 'consumer' under a caller's span, else 'internal'.

    Returns:
        A decorator; ``classmethod`` and ``staticmethod`` objects are taken too.

    Raises:
        TypeError: when it is applied above ``@ray.remote``, to a class or to something else than a function, to a
            function with a parameter named ``_lens_carrier``, or used without its group.
    """
    _check_group("traced_remote_call", group)

    def decorator(fn: Any) -> Any:
        return _decorate(fn, group, name, attributes, span_kind)

    return decorator


def trace_actor(group: str) -> Callable[[_C], _C]:
    """Trace every public method that a class defines, as ``traced_remote_call`` does. It goes below ``@ray.remote``.

    Inherited methods stay as they are, and so do those that begin with an underscore or are decorated already.

    Args:
        group: span group that switches the spans on.

    Returns:
        A class decorator; the class is changed in place.

    Raises:
        TypeError: when it is applied above ``@ray.remote``, to something else than a class, or used without its group.
    """
    _check_group("trace_actor", group)

    def decorator(cls: Any) -> Any:
        if not isinstance(cls, type):
            raise TypeError(f"trace_actor decorates a class, below @ray.remote; got {cls!r}")
        for name, member in list(vars(cls).items()):
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if inspect.isfunction(function) and not name.startswith("_") and not takes_carrier(function):
                setattr(cls, name, _decorate(member, group, None, None, None))
        return cls

    return decorator


def takes_carrier(function: Any) -> bool:
    """Return whether ``traced_remote_call`` has decorated a function."""
    return KEYWORD in inspect.signature(function).parameters


def _check_group(decorator: str, group: Any) -> None:
    if not isinstance(group, str):
        raise TypeError(f"{decorator} takes the span group first, as in @{decorator}('group'); got {group!r}")


def _decorate(fn: Any, group: str, name: str | None, attributes: _Attributes, span_kind: Any) -> Any:
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(_decorate(fn.__func__, group, name, attributes, span_kind))
    if hasattr(fn, "remote"):
        raise TypeError(f"traced_remote_call goes below @ray.remote, next to the function; got {fn!r}")
    if not inspect.isfunction(fn):
        raise TypeError(f"traced_remote_call decorates functions and methods; got {fn!r}. trace_actor takes a class")
    signature = _with_keyword(fn)
    open_live = _Opening(group, qualified_name(fn) if name is None else name, attributes, span_kind)
    wrapper: Any = functools.wraps(fn)(wrapper_of_kind(fn)(_without_keyword(fn), group, open_live))
    # Ray asks inspect.unwrap for the function whose signature it checks: the one that shows the keyword.
    del wrapper.__wrapped__
    wrapper.__signature__ = signature
    # Ray calls it with whatever sends the call; set by Ray's users for the like since 0.8.
    wrapper.__ray_invocation_decorator__ = with_carrier(getattr(fn, "__ray_invocation_decorator__", None))
    return wrapper


def _without_keyword(fn: Any) -> Any:
    def call(*args: Any, _lens_carrier: Any = None, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def _with_keyword(fn: Any) -> inspect.Signature:
    signature = inspect.signature(fn)
    if KEYWORD in signature.parameters:
        raise TypeError(
            f"{fn.__qualname__} takes {KEYWORD!r} already, which traced_remote_call adds: is it decorated twice?"
        )
    parameters = list(signature.parameters.values())
    at = next((i for i, each in enumerate(parameters) if each.kind is each.VAR_KEYWORD), len(parameters))
    parameters.insert(at, inspect.Parameter(KEYWORD, inspect.Parameter.KEYWORD_ONLY, default=None))
    return signature.replace(parameters=parameters)


class _Opening:
    """Opens the span of a call: what a wrapper is pickled with."""

    def __init__(self, group: str, name: str, attributes: _Attributes, span_kind: Any) -> None:
        self._group = group
        self._name = name
        self._attributes = attributes
        self._kind = span_kind

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LiveSpan | None:
        if not is_span_group_enabled(self._group) or ray_traces_itself():
            return None
        own = {key: value for key, value in kwargs.items() if key != KEYWORD}
        carrier = kwargs.get(KEYWORD)
        given = self._attributes
        attributes = computed_attributes(given, self._name, args, own) if callable(given) else given
        kind = self._kind or ("internal" if carrier is None else "consumer")
        options = {"scope": LENS_SCOPE, "kind": kind}
        if carrier is not None:
            options["context"] = extract_ray_context(carrier)
        return LiveSpan(self._name, clean_attributes(attributes), options)
