"""The official FastAPI instrumentation around one application's middleware. Importing this imports FastAPI and it.

The official ``instrument_app`` is given a stand-in for the application, which nobody but the gate holds.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach

from nemo_lens.api import backend as _cell
from nemo_lens.api import extract_context
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.propagation import MAX_CARRIER_BYTES
from nemo_lens.contrib._following import FollowingMeterProvider, FollowingTracer, FollowingTracerProvider
from nemo_lens.contrib._requirement import require

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nemo_lens.contrib._asgi import ASGIApp, Instrumentation, Scope

_official = require("opentelemetry.instrumentation.fastapi", "fastapi")
_ServerErrorMiddleware: Any = require("starlette.middleware.errors", "fastapi").ServerErrorMiddleware
_BackgroundTask: Any = require("starlette.background", "fastapi").BackgroundTask

# What the official instrumentation keeps BackgroundTask.__call__ under, once it has wrapped that for some application.
_KEPT_CALL = "_otel_original_call"

# Whose requests have been traced, and what BackgroundTask.__call__ is for them and was before.
_tracing: WeakSet[Instrumentation] = WeakSet()
_background_call: tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]] | None = None


class _Request:
    """How far a request has come."""

    __slots__ = ("entered", "failed", "headers", "instrumentation", "outer", "scope")

    def __init__(self, scope: Scope, instrumentation: Instrumentation) -> None:
        self.scope = scope
        self.instrumentation = instrumentation
        # The headers as they came, while the official middleware is shown others.
        self.headers: Any = None
        # The span set aside, which is the parent when the caller names none.
        self.outer: trace.Span | None = None
        self.entered = self.failed = False


# The request that the official middleware is around, in this context and in the scope.
_KEY = "nemo_lens.request"
_current: ContextVar[_Request | None] = ContextVar("nemo_lens_request", default=None)


class TracedStack:
    """Middleware with the official instrumentation around it, which cannot make a request fail.

    Args:
        bare: the application's middleware, whose instances are shared: a request meets them once, traced or not.
        instrumentation: its options go to the official ``instrument_app``.
    """

    def __init__(self, bare: ASGIApp, instrumentation: Instrumentation) -> None:
        self._bare = bare
        self._instrumentation = instrumentation
        stand_in = _StandIn(bare)
        run_background_task = _BackgroundTask.__call__
        _official.FastAPIInstrumentor.instrument_app(
            stand_in,
            tracer_provider=FollowingTracerProvider(_RequestTracer),
            meter_provider=FollowingMeterProvider(),
            **instrumentation.options,
        )
        if _BackgroundTask.__call__ is not run_background_task:
            _keep_background_tasks(run_background_task)
        _tracing.add(instrumentation)
        stack = stand_in.build_middleware_stack()
        # Without its outer safety net, which answers 500 where the request can go on untraced.
        self.official: ASGIApp = stack.app if isinstance(stack, _ServerErrorMiddleware) else stack

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        # Nested is an application mounted on another, and not one that another's endpoint sends a request to.
        around = _current.get()
        nested = around is not None and scope.get(_KEY) is around
        if around is not None and nested and around.instrumentation is self._instrumentation:
            # All applications are instrumented at once: one span a request.
            await self._bare(scope, receive, send)
            return
        request = scope[_KEY] = _Request(scope, self._instrumentation)
        try:
            with _as_current(request), _prepared(request, nested):
                await self.official(scope, receive, send)
        except Exception as fault:
            if request.failed:
                raise
            # The instrumentation failed, before the application or after it.
            debug_once(("fastapi", type(fault)), "could not trace a request: %r", fault, exc_info=True)
        if not request.entered:
            await self._bare(scope, receive, send)


class _StandIn:
    """What the official instrumentation takes for the application."""

    def __init__(self, bare: Any) -> None:
        self._bare = bare

    def build_middleware_stack(self) -> Any:
        """Return the middleware in the shape that Starlette gives it, with a note of who enters."""
        bare = self._bare
        if isinstance(bare, _ServerErrorMiddleware):
            return _ServerErrorMiddleware(app=_Entry(bare.app), handler=bare.handler, debug=bare.debug)
        return _ServerErrorMiddleware(app=_Entry(bare))


class _Entry:
    """Stands between the official middleware and the application's."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        request = _current.get()
        if request is None:
            await self.app(scope, receive, send)
            return
        request.entered = True
        if request.headers is not None:
            scope["headers"] = request.headers
        try:
            await self.app(scope, receive, send)
        except BaseException:
            request.failed = True
            raise


class _RequestTracer(FollowingTracer):
    """Gives a request without a caller the span that was set aside."""

    def start_span(self, name: str, context: Context | None = None, *args: Any, **options: Any) -> trace.Span:
        request = _current.get()
        outer = None if request is None else request.outer
        if outer is not None and not trace.get_current_span(context).get_span_context().is_valid:
            context = trace.set_span_in_context(outer, context)
        return super().start_span(name, context, *args, **options)


def _keep_background_tasks(run: Callable[..., Awaitable[None]]) -> None:
    """Take the wrapper that the official instrumentation has put around every background task, for our requests only.

    It wraps them once in a process, with the tracer of the first application, and any application that is undone takes
    the wrapper away. So it must find them as they were, to wrap them for an application that it instruments itself.

    Args:
        run: what ``BackgroundTask.__call__`` was.
    """
    global _background_call
    traced = _BackgroundTask.__call__
    _BackgroundTask.__call__ = run
    if hasattr(_BackgroundTask, _KEPT_CALL):
        delattr(_BackgroundTask, _KEPT_CALL)
    if _background_call is not None:
        return

    @functools.wraps(run)
    async def call(task: Any) -> None:
        present = _background_call is not None and _background_call[0] is call
        # Put around this one for another's application, the official wrapper makes the spans of our tasks too.
        covered = hasattr(_BackgroundTask, _KEPT_CALL)
        await (traced if present and not covered and _current.get() is not None else run)(task)

    _BackgroundTask.__call__ = call
    _background_call = (call, run)


@contextmanager
def _as_current(request: _Request) -> Iterator[None]:
    token = _current.set(request)
    try:
        yield
    finally:
        try:
            _current.reset(token)
        except ValueError as fault:
            debug_once("fastapi context", "a request ended in another context than it started in: %s", fault)


@contextmanager
def _prepared(request: _Request, nested: bool) -> Iterator[None]:
    """Have the official middleware read the caller's context, and no other than that.

    It reads the headers only where no span is current, and a server often runs inside one: its process's parent, which
    set-up makes current, or a span around the whole of it.
    """
    scope = request.scope
    headers = list(scope.get("headers") or ())
    fields = _cell.current.propagation_fields()
    others = [header for header in headers if header[0].decode("latin-1").lower() not in fields]
    carrier = [(name, value) for name, value in headers if name.decode("latin-1").lower() in fields]
    if not _is_readable(carrier):
        debug_once("fastapi carrier", "a request's trace context is ignored: it is not ASCII, or longer than 8 KiB")
        request.headers, scope["headers"], carrier = headers, others, []
    outer = trace.get_current_span().get_span_context()
    token = None
    if outer.is_valid and not nested and (outer.is_remote or _names_a_span(carrier)):
        request.outer = trace.get_current_span()
        token = attach(trace.set_span_in_context(trace.INVALID_SPAN))
    try:
        yield
    finally:
        if token is not None:
            detach(token)
        if request.headers is not None:
            scope["headers"] = request.headers


def _is_readable(carrier: list[tuple[bytes, bytes]]) -> bool:
    return all(value.isascii() for _, value in carrier) and (
        sum(len(name) + len(value) for name, value in carrier) <= MAX_CARRIER_BYTES
    )


def _names_a_span(carrier: list[tuple[bytes, bytes]]) -> bool:
    context = extract_context({name.decode(): value.decode() for name, value in reversed(carrier)})
    return trace.get_current_span(context).get_span_context().is_valid


def release(instrumentation: Instrumentation) -> None:
    """Leave Starlette's ``BackgroundTask`` as it was, when this was the last instrumentation that traced requests."""
    global _background_call
    _tracing.discard(instrumentation)
    if _background_call is not None and not _tracing:
        call, run = _background_call
        _background_call = None
        if _BackgroundTask.__call__ is call:
            _BackgroundTask.__call__ = run
