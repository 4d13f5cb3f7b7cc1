"""The gate in front of every span: ``managed_span``, ``trace_fn`` and ``span_cm``.

Nothing here runs past one frozenset lookup while a group is off; what runs when it is on is in ``_live``.
"""

from __future__ import annotations

import functools

from nemo_lens.api import state as _state
from nemo_lens.api.fallbacks import NULL_CONTEXT, check_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Any, Protocol, TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

    class SpanContextManager(AbstractContextManager[Any], AbstractAsyncContextManager[Any], Protocol):
        """What ``managed_span`` and ``span_cm`` return: ``with`` and ``async with`` both work."""


def _open_span(group: str | None, name: str, tracer: Any, attrs: dict[str, Any], record: bool = True) -> Any:
    # Stands in until the first span that is on, which loads the recording side: the import budget, and an import
    # statement inside the call would cost every later span 300 ns.
    global _open_span
    from nemo_lens.api._live import open_span

    _open_span = open_span
    return open_span(group, name, tracer, attrs, record)


def trace_fn(
    group: str,
    name: str | None = None,
    tracer: Any = None,
    *,
    attributes: Mapping[str, Any] | Callable[..., Mapping[str, Any] | None] | None = None,
    span_kind: Any = None,
) -> Callable[[_F], _F]:
    """Trace every call of a function while ``group`` is on.

    Functions, coroutine functions, generators, asynchronous generators and callable objects keep their kind. A
    generator's span covers it from the first ``next`` to its end and is current only while the generator runs. The
    gate is asked at each call (a generator's: at its first step).

    Args:
        group: span group that switches the span on.
        name: span name; default the function's ``__qualname__``.
        tracer: tracer to use instead of the default one of scope ``nemo.lens``.
        attributes: span attributes, or a callable of the call's arguments that returns them, run only when on.
        span_kind: 'internal', 'server', 'client', 'producer', 'consumer' or an OpenTelemetry ``SpanKind``.

    Returns:
        A decorator; ``classmethod`` and ``staticmethod`` objects are taken too.

    Raises:
        TypeError: when it is applied to a class or to something that cannot be called, or used without its group.
    """
    check_group(group)
    from nemo_lens.api._tracing import decorate  # import budget: inspect

    def decorator(fn: Any) -> Any:
        return decorate(fn, group, name, tracer, attributes, span_kind)

    return decorator


# The typed signatures. The runtime ones below are narrower, because a keyword-only list costs 100 ns when off;
# inspect.signature and type checkers see these (through __wrapped__, which needs no inspect import).
def _managed_span_signature(
    group: str,
    name: str,
    /,
    tracer: Any = None,
    *,
    attributes: Mapping[str, Any] | None = None,
    span_kind: Any = None,
    links: Iterable[Any] | None = None,
    context: Any = None,
    **attrs: Any,
) -> SpanContextManager:
    """Open a span around a block while ``group`` is on; while it is off, do nothing and yield None.

    Args:
        group: span group that switches the span on.
        name: span name.
        tracer: tracer to use instead of the default one of scope ``nemo.lens.helpers``.
        attributes: span attributes, needed for keys that are no identifiers; keyword attributes win.
        span_kind: 'internal', 'server', 'client', 'producer', 'consumer' or an OpenTelemetry ``SpanKind``.
        links: spans, span contexts, OpenTelemetry ``Link`` objects or carriers.
        context: what ``extract_context`` returned, or a carrier; default the current context.
        **attrs: span attributes.

    Returns:
        A context manager, for ``with`` and ``async with``, that yields the span or None. It is no decorator, and no two
        tasks or threads may be inside of the same one: each makes its own.

    Raises:
        TypeError: when ``group`` cannot be hashed, such as a list.
    """
    raise NotImplementedError


def _span_cm_signature(
    name: str,
    /,
    tracer: Any = None,
    record_exception: bool = True,
    *,
    attributes: Mapping[str, Any] | None = None,
    span_kind: Any = None,
    links: Iterable[Any] | None = None,
    context: Any = None,
    **attrs: Any,
) -> SpanContextManager:
    """Open a span around a block whatever the groups; before telemetry is set up, yield a span that does nothing.

    Args:
        name: span name.
        tracer: tracer to use instead of the default one of scope ``nemo.lens.helpers``.
        record_exception: whether an exception is recorded as an event; the status is ERROR either way.
        attributes: span attributes, needed for keys that are no identifiers; keyword attributes win.
        span_kind: 'internal', 'server', 'client', 'producer', 'consumer' or an OpenTelemetry ``SpanKind``.
        links: spans, span contexts, OpenTelemetry ``Link`` objects or carriers.
        context: what ``extract_context`` returned, or a carrier; default the current context.
        **attrs: span attributes.

    Returns:
        A context manager, for ``with`` and ``async with``, that yields a span, never None. No two tasks or threads may
        be inside of the same one: each makes its own.
    """
    raise NotImplementedError


if TYPE_CHECKING:
    managed_span = _managed_span_signature
    span_cm = _span_cm_signature
else:

    def managed_span(group, name, /, tracer=None, **attrs):  # noqa: D103 - documented by its typed signature
        if group not in _state.enabled:
            return NULL_CONTEXT
        return _open_span(group, name, tracer, attrs)

    def span_cm(name, /, tracer=None, record_exception=True, **attrs):  # noqa: D103 - as above
        return _open_span(None, name, tracer, attrs, record_exception)

    for _function, _typed in ((managed_span, _managed_span_signature), (span_cm, _span_cm_signature)):
        functools.update_wrapper(_function, _typed, assigned=("__doc__", "__annotations__"))
    del _function, _typed
