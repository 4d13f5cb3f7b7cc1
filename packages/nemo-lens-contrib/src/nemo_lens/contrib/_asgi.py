"""The gate in front of an application's middleware: it can be pickled with the application, and costs nothing when off.

The official instrumentation puts closures over tracers and locks into the application, which no longer pickles then, as
Ray Serve needs it to (opentelemetry-python-contrib 3467). Here the application holds what this module defines, and the
official middleware is made from it by whichever process serves the application, at the first request it traces.
"""

from __future__ import annotations

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.contrib._switch import Switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import Any

    Scope = MutableMapping[str, Any]
    ASGIApp = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

# The kinds of scope that are requests.
TRACED = frozenset(("http", "websocket"))


class Instrumentation(Switch):
    """One call of ``instrument_fastapi``: its switch and its options.

    Args:
        group: span group.
        options: keyword options of the official ``instrument_app``.
    """

    def __init__(self, group: str | None, options: Mapping[str, Any]) -> None:
        super().__init__(group)
        self.options = dict(options)

    def is_alike(self, other: Instrumentation) -> bool:
        """Return whether the other call asked for the same."""
        return self.group == other.group and self.options == other.options


class Gate:
    """An application's middleware, called with or without the official instrumentation around it.

    Args:
        bare: the middleware.
        instrumentation: what is asked at each request.
    """

    def __init__(self, bare: ASGIApp, instrumentation: Instrumentation) -> None:
        self.bare = bare
        self.instrumentation = instrumentation
        self._traced: ASGIApp | None = None
        # The official middleware in it, None when that could not be made.
        self._official: Any = None

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] not in TRACED or not self.instrumentation.is_in_effect():
            await self.bare(scope, receive, send)
            return
        # FastAPI's own telemetry takes a mounted application's requests as excluded then, as it does with its own.
        scope.setdefault("fastapi.telemetry", None)
        if self.instrumentation.is_on():
            await (self._traced or self._trace())(scope, receive, send)
        else:
            await self.bare(scope, receive, send)

    @property
    def app(self) -> Any:
        """The official middleware while telemetry is set up, whatever the group.

        FastAPI, since 0.142 or so, traces by itself whatever the application does, as soon as there is a global
        provider. It steps aside for the official middleware, which it looks for along the attributes ``app``.
        """
        if self.instrumentation.is_in_effect():
            if self._traced is None:
                self._trace()
            if self._official is not None:
                return self._official
        raise AttributeError("app")

    def _trace(self) -> ASGIApp:
        try:
            from nemo_lens.contrib._fastapi_stack import TracedStack  # it imports what is integrated

            traced = TracedStack(self.bare, self.instrumentation)
        except Exception as fault:  # noqa: BLE001 - unpickled where the instrumentation is not installed, say
            warn_once(("fastapi", type(fault)), "requests are not traced: %s", fault)
            self._traced = self.bare
        else:
            self._traced, self._official = traced, traced.official
        return self._traced

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_traced": None, "_official": None}


class StackBuilder:
    """Stands in for an application's ``build_middleware_stack``, which Starlette calls when it begins to serve.

    Args:
        app: the application.
        instrumentation: what the gate asks.
        replaced: a ``build_middleware_stack`` that the application, rather than its class, had before.
    """

    def __init__(self, app: Any, instrumentation: Instrumentation, replaced: Callable[[], ASGIApp] | None) -> None:
        self._app = app
        self.instrumentation = instrumentation
        self.replaced = replaced

    def __call__(self) -> ASGIApp:
        build = self.replaced or type(self._app).build_middleware_stack.__get__(self._app)
        return gated(build(), self.instrumentation)


def gated(stack: ASGIApp, instrumentation: Instrumentation) -> Gate:
    """Put one gate in front of a stack, in place of one that may be there."""
    return Gate(stack.bare if isinstance(stack, Gate) else stack, instrumentation)
