"""aiohttp: a client span for each request, by OpenTelemetry's own instrumentation over the handle's providers."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from nemo_lens.api._diagnostics import debug_once, nearest, warn, warn_once
from nemo_lens.contrib._options import check_hook
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by
from nemo_lens.contrib._switch import Switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What the official instrumentation marks its trace configurations with.
_MARK = "_is_instrumented_by_opentelemetry"
_HOOKS = ("request_hook", "response_hook", "url_filter")
_OPTIONS = ("request_hook", "response_hook", "trace_configs", "url_filter")


class _Instrumentation(Switch):
    """One call of ``instrument_aiohttp_client``, and what it has replaced."""

    def __init__(self, group: str | None, options: dict[str, Any]) -> None:
        super().__init__(group)
        self.options = options
        # ClientSession.__init__ as it was, behind our gate, and behind the official wrapper.
        self.replaced_init: Any = None
        self.init: Any = None
        self.official_init: Any = None


_present: _Instrumentation | None = None


def _uninstrument_aiohttp_client() -> None:
    """Undo :func:`instrument_aiohttp_client`, for sessions that are open too; do nothing when it is not in effect.

    Raises:
        ImportError: when aiohttp or its OpenTelemetry instrumentation cannot be imported.
    """
    global _present
    if _present is None:
        return
    instrumentor = _instrumentor()
    instrumentation, _present = _present, None
    instrumentation.active = False
    if _is_in_effect(instrumentation, instrumentor):
        instrumentor.uninstrument()
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
        TypeError: when an option is unknown or of another type.
    """
    global _present
    instrumentor = _instrumentor()
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(
                f"instrument_aiohttp_client takes no option {name!r}{nearest(name, _OPTIONS)}; accepted: "
                f"group, {', '.join(_OPTIONS)}"
            )
    options = _checked(options)
    instrumentation = _Instrumentation(group, options)
    if _present is not None and not _is_in_effect(_present, instrumentor):
        _uninstrument_aiohttp_client()  # what is left of it
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
        instrumentation.official_init = vars(require("aiohttp", "aiohttp").ClientSession)["__init__"]
    except Exception as fault:
        _restore_init(instrumentation)
        raise ImportError(
            f"aiohttp's OpenTelemetry instrumentation cannot be switched on: {fault}; "
            "pip install 'nemo-lens-contrib[aiohttp]'"
        ) from fault
    _present = instrumentation


def _instrumentor() -> Any:
    return require("opentelemetry.instrumentation.aiohttp_client", "aiohttp").AioHttpClientInstrumentor()


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    for name in _HOOKS:
        check_hook(name, options.get(name))
    if options.get("trace_configs") is None:
        return options
    trace_config = require("aiohttp", "aiohttp").TraceConfig
    configs = options["trace_configs"]
    found = list(configs) if isinstance(configs, Iterable) else [None]
    if not all(isinstance(config, trace_config) for config in found):
        raise TypeError(f"trace_configs={configs!r} must be a list of aiohttp.TraceConfig, or None")
    return {**options, "trace_configs": found}


def _is_in_effect(instrumentation: _Instrumentation, instrumentor: Any) -> bool:
    """Return whether the official instrumentation is still there as this call has left it.

    Anybody may call its ``uninstrument``, which knows nothing of us, and instrument for themselves then.
    """
    if not instrumentor.is_instrumented_by_opentelemetry:
        return False
    step = vars(require("aiohttp", "aiohttp").ClientSession)["__init__"]
    while step is not None:
        # Looked up on its class, a wrapper is a new object each time, which knows the first, and equals what it wraps.
        if any(known is instrumentation.official_init for known in (step, getattr(step, "_self_parent", None))):
            return True
        if step is instrumentation.init:
            return False
        step = getattr(step, "__wrapped__", None)
    return True  # behind somebody's wrapper, which shows nothing of it


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
                _gated(config, instrumentation) if _is_ours(config) else config for config in configs
            ]
        replaced(self, *args, **kwargs)

    instrumentation.init, instrumentation.replaced_init = init, replaced
    session_class.__init__ = init


def _restore_init(instrumentation: _Instrumentation) -> None:
    session_class = require("aiohttp", "aiohttp").ClientSession
    if session_class.__init__ is instrumentation.init:
        session_class.__init__ = instrumentation.replaced_init


def _is_ours(config: Any) -> bool:
    """Return whether the official instrumentation has made a trace configuration for us, and not for somebody else."""
    from nemo_lens.contrib._following import FollowingTracer  # imports OpenTelemetry

    return getattr(config, _MARK, False) and isinstance(
        getattr(config.trace_config_ctx(), "tracer", None), FollowingTracer
    )


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
    """Return a hook whose fault is known of, and leaves no span open and current, as the official one would."""
    if option is None or name not in _HOOKS:
        return option

    @functools.wraps(option)
    def hook(*args: Any) -> None:
        try:
            option(*args)
        except Exception as fault:  # noqa: BLE001 - as above
            warn_once(("aiohttp", name), "aiohttp's %s failed: %r", name, fault)

    @functools.wraps(option)
    def url_filter(url: Any) -> str:
        try:
            shown = option(url)
            if not isinstance(shown, str):
                raise TypeError(f"it must return a str, and not {type(shown).__name__}")
        except Exception as fault:
            # The URL that was to be filtered may not be shown.
            warn_once(("aiohttp", name), "aiohttp's url_filter failed, and its request is not traced: %r", fault)
            raise
        return shown

    return url_filter if name == "url_filter" else hook
