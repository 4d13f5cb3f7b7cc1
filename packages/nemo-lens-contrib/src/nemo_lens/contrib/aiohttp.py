"""aiohttp: a client span for each request, by OpenTelemetry's own instrumentation over the handle's providers."""

from __future__ import annotations

import functools

from nemo_lens.api._diagnostics import debug_once, nearest, warn, warn_once
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by
from nemo_lens.contrib._switch import Switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What the official instrumentation marks its trace configurations with.
_MARK = "_is_instrumented_by_opentelemetry"
_OPTIONS = ("request_hook", "response_hook", "trace_configs", "url_filter")


class _Instrumentation(Switch):
    """One call of ``instrument_aiohttp_client``, and what it has replaced."""

    def __init__(self, group: str | None, options: dict[str, Any]) -> None:
        super().__init__(group)
        self.options = options
        self.init: Any = None
        self.replaced_init: Any = None


_present: _Instrumentation | None = None


def _uninstrument_aiohttp_client() -> None:
    """Undo :func:`instrument_aiohttp_client`, for sessions that are open too; do nothing when it is not in effect.

    Raises:
        ImportError: when aiohttp or its OpenTelemetry instrumentation cannot be imported.
    """
    global _present
    if _present is None:
        return
    instrumentation, _present = _present, None
    instrumentation.active = False
    _instrumentor().uninstrument()
    _restore_init(instrumentation)


@undone_by(_uninstrument_aiohttp_client)
def instrument_aiohttp_client(*, group: str | None = None, **options: Any) -> None:
    """Trace the requests of every aiohttp client session that is made from now on; a second call changes nothing.

    It may be called before telemetry is set up. The span group, and whether telemetry is on, are asked at each request.

    Args:
        group: span group that switches spans and metrics of requests, and the headers that carry the trace, on; None
            for whenever telemetry is set up.
        **options: options of ``AioHttpClientInstrumentor.instrument``: ``url_filter``, ``request_hook``,
            ``response_hook`` and ``trace_configs``.

    Raises:
        ImportError: when aiohttp or its OpenTelemetry instrumentation cannot be imported, or do not fit together.
        TypeError: when an option is unknown.
    """
    global _present
    instrumentor = _instrumentor()
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(
                f"instrument_aiohttp_client takes no option {name!r}{nearest(name, _OPTIONS)}; accepted: "
                f"group, {', '.join(_OPTIONS)}"
            )
    instrumentation = _Instrumentation(group, options)
    if _present is not None:
        if (_present.group, _present.options) != (group, options):
            warn(
                "aiohttp's client is instrumented already, with span group %r; group and options of the second call "
                "are ignored: uninstrument first",
                _present.group,
            )
        return
    if instrumentor.is_instrumented_by_opentelemetry:
        warn(
            "aiohttp's client is instrumented by OpenTelemetry's own AioHttpClientInstrumentor and stays as it is: "
            "call AioHttpClientInstrumentor().uninstrument() first"
        )
        return
    from nemo_lens.contrib._following import FollowingMeterProvider, FollowingTracerProvider  # imports OpenTelemetry

    _gate_sessions(instrumentation)
    try:
        instrumentor.instrument(
            tracer_provider=FollowingTracerProvider(),
            meter_provider=FollowingMeterProvider(),
            raise_exception_on_conflict=True,
            **{name: _guarded(name, option) for name, option in options.items()},
        )
    except Exception as fault:
        _restore_init(instrumentation)
        raise ImportError(
            f"aiohttp's OpenTelemetry instrumentation cannot be switched on: {fault}; "
            "pip install 'nemo-lens-contrib[aiohttp]'"
        ) from fault
    _present = instrumentation


def _instrumentor() -> Any:
    return require("opentelemetry.instrumentation.aiohttp_client", "aiohttp").AioHttpClientInstrumentor()


def _gate_sessions(instrumentation: _Instrumentation) -> None:
    """Have each new session take the official trace configuration behind a gate.

    The official instrumentation adds it in a wrapper of ``ClientSession.__init__``, so the gate stands inside of that.
    """
    session_class = require("aiohttp", "aiohttp").ClientSession
    replaced = session_class.__init__

    @functools.wraps(replaced)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        configs = kwargs.get("trace_configs")
        if configs:
            kwargs["trace_configs"] = [
                _gated(config, instrumentation) if getattr(config, _MARK, False) else config for config in configs
            ]
        replaced(self, *args, **kwargs)

    instrumentation.init, instrumentation.replaced_init = init, replaced
    session_class.__init__ = init


def _restore_init(instrumentation: _Instrumentation) -> None:
    session_class = require("aiohttp", "aiohttp").ClientSession
    if session_class.__init__ is instrumentation.init:
        session_class.__init__ = instrumentation.replaced_init


class _RequestContext:
    """What belongs to one request."""

    __slots__ = ("official", "trace_request_ctx")

    def __init__(self, trace_request_ctx: Any = None) -> None:
        self.trace_request_ctx = trace_request_ctx
        # The official instrumentation's context of the request, None while it is not traced.
        self.official: Any = None


def _gated(official: Any, instrumentation: Switch) -> Any:
    """Return a trace configuration that passes on to the official one what belongs to a traced request."""

    async def start(session: Any, context: _RequestContext, params: Any) -> None:
        if instrumentation.is_on():
            context.official = official.trace_config_ctx(trace_request_ctx=context.trace_request_ctx)
            await _pass_on(official.on_request_start, session, context.official, params)

    async def end(session: Any, context: _RequestContext, params: Any) -> None:
        if context.official is not None:
            await _pass_on(official.on_request_end, session, context.official, params)

    async def fail(session: Any, context: _RequestContext, params: Any) -> None:
        if context.official is not None:
            await _pass_on(official.on_request_exception, session, context.official, params)

    gated = require("aiohttp", "aiohttp").TraceConfig(trace_config_ctx_factory=_RequestContext)
    gated.on_request_start.append(start)
    gated.on_request_end.append(end)
    gated.on_request_exception.append(fail)
    return gated


async def _pass_on(signal: Any, *args: Any) -> None:
    for receiver in signal:
        try:
            await receiver(*args)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not reach the request
            debug_once(("aiohttp", type(fault)), "could not trace a request: %r", fault, exc_info=True)


def _guarded(name: str, option: Any) -> Any:
    """Return a hook that cannot fail: the official instrumentation would leave the span open, and current."""
    if not callable(option) or name == "url_filter":
        return option

    @functools.wraps(option)
    def hook(*args: Any) -> None:
        try:
            option(*args)
        except Exception as fault:  # noqa: BLE001 - as above
            warn_once(("aiohttp", name), "aiohttp's %s failed: %r", name, fault)

    return hook
