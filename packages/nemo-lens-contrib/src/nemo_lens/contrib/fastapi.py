"""FastAPI: a server span for each request, by OpenTelemetry's own instrumentation over the handle's providers."""

from __future__ import annotations

import functools
import inspect

from nemo_lens.api._diagnostics import nearest, warn
from nemo_lens.contrib._asgi import TRACED, Gate, Instrumentation, StackBuilder, gated
from nemo_lens.contrib._options import check_hook, patterns, texts
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from nemo_lens.contrib._asgi import Scope

_MESSAGES = frozenset(("receive", "send"))
# What the official instrument_app takes and this module fills in.
_TAKEN = frozenset(("app", "tracer_provider", "meter_provider"))
# Where the official instrumentation notes that an application is instrumented, by whomever.
_MARK = "_is_instrumented_by_opentelemetry"

# The instrumentation of every application, and what FastAPI.__call__ was before.
_everywhere: tuple[Instrumentation, Callable[..., Any]] | None = None


def _uninstrument_fastapi(app: Any = None) -> None:
    """Undo :func:`instrument_fastapi`; do nothing when it has not been called.

    Args:
        app: what it was called with.

    Raises:
        ImportError: when FastAPI or its OpenTelemetry instrumentation cannot be imported.
    """
    global _everywhere
    fastapi_class = _fastapi_class()
    if app is not None:
        _undo_one(app)
    elif _everywhere is not None:
        instrumentation, call = _everywhere
        if getattr(fastapi_class.__call__, "_instrumentation", None) is instrumentation:
            fastapi_class.__call__ = call
        _everywhere = None
        _switch_off(instrumentation)


@undone_by(_uninstrument_fastapi)
def instrument_fastapi(
    app: Any = None,
    *,
    group: str | None = None,
    excluded_urls: str | Iterable[str] | None = None,
    exclude_spans: Iterable[str] = ("receive", "send"),
    **options: Any,
) -> None:
    """Trace the requests of a FastAPI application; a second call changes nothing.

    The application may be instrumented before telemetry is set up, and after it has begun to serve. Its span group, and
    whether telemetry is on, are asked at each request.

    Args:
        app: the application; None for every application of this process, also those that serve already.
        group: span group that switches spans and metrics of requests on; None for whenever telemetry is set up.
        excluded_urls: regular expressions, a comma list or several, of URLs to leave alone, such as health checks;
            default ``OTEL_PYTHON_FASTAPI_EXCLUDED_URLS``, else ``OTEL_PYTHON_EXCLUDED_URLS``, else none.
        exclude_spans: which of ``receive`` and ``send`` get no spans: one for each message makes hundreds on a
            websocket.
        **options: other options of ``FastAPIInstrumentor.instrument_app``, such as ``server_request_hook``.

    Raises:
        ImportError: when FastAPI or its OpenTelemetry instrumentation cannot be imported.
        TypeError: when ``app`` is no FastAPI application, or an option is unknown or of another type.
        ValueError: when the value of an option cannot be used.
    """
    fastapi_class = _fastapi_class()
    if app is not None:
        _check_application(app, fastapi_class)
    instrumentation = Instrumentation(group, _checked(options, excluded_urls, exclude_spans))
    if app is None:
        _instrument_every(fastapi_class, instrumentation)
    else:
        _instrument_one(app, instrumentation)


def _instrument_one(app: Any, instrumentation: Instrumentation) -> None:
    builder = vars(app).get("build_middleware_stack")
    if isinstance(builder, StackBuilder):
        _warn_if_other(builder.instrumentation, instrumentation, "this application")
        return
    if getattr(app, _MARK, False):
        warn(
            "this FastAPI application is instrumented by OpenTelemetry's own FastAPIInstrumentor and stays as it is: "
            "call FastAPIInstrumentor.uninstrument_app(app) first"
        )
        return
    app.build_middleware_stack = StackBuilder(app, instrumentation, builder)
    setattr(app, _MARK, True)
    if app.middleware_stack is not None:  # it serves already
        app.middleware_stack = gated(app.middleware_stack, instrumentation)


def _undo_one(app: Any) -> None:
    builder = getattr(app, "build_middleware_stack", None)
    if not isinstance(builder, StackBuilder):
        return
    if builder.replaced is None:
        del app.build_middleware_stack
    else:
        app.build_middleware_stack = builder.replaced
    setattr(app, _MARK, False)
    if isinstance(app.middleware_stack, Gate):
        app.middleware_stack = app.middleware_stack.bare
    _switch_off(builder.instrumentation)


def _instrument_every(fastapi_class: Any, instrumentation: Instrumentation) -> None:
    global _everywhere
    if _everywhere is not None:
        _warn_if_other(_everywhere[0], instrumentation, "every application")
        return
    call = fastapi_class.__call__

    @functools.wraps(call)
    async def call_gated(app: Any, scope: Scope, receive: Any, send: Any) -> None:
        if instrumentation.active and scope["type"] in TRACED:
            _put_gate(app, instrumentation)
        await call(app, scope, receive, send)

    call_gated._instrumentation = instrumentation  # type: ignore[attr-defined]
    fastapi_class.__call__ = call_gated
    _everywhere = (instrumentation, call)


def _put_gate(app: Any, instrumentation: Instrumentation) -> None:
    """Put the gate in front of an application that is not instrumented by itself.

    It is put at a request: when telemetry is set up in the lifespan, the application has begun to serve.
    """
    stack = app.middleware_stack
    if (isinstance(stack, Gate) and stack.instrumentation.active) or getattr(app, _MARK, False):
        return
    app.middleware_stack = gated(app.build_middleware_stack() if stack is None else stack, instrumentation)


def _switch_off(instrumentation: Instrumentation) -> None:
    from nemo_lens.contrib._fastapi_stack import release  # it imports what is integrated

    instrumentation.active = False
    release(instrumentation)


def _warn_if_other(present: Instrumentation, wanted: Instrumentation, what: str) -> None:
    if not present.is_alike(wanted):
        warn(
            "FastAPI: %s is instrumented already, with span group %r; group and options of the second call are "
            "ignored: uninstrument first",
            what,
            present.group,
        )


def _fastapi_class() -> Any:
    require("opentelemetry.instrumentation.fastapi", "fastapi")
    # fastapi.FastAPI may be a subclass that OpenTelemetry's auto-instrumentation has put there.
    return require("fastapi.applications", "fastapi").FastAPI


def _checked(
    options: dict[str, Any], excluded_urls: str | Iterable[str] | None, exclude_spans: Iterable[str]
) -> dict[str, Any]:
    """Return the options of the official ``instrument_app``, which would meet a wrong one at the first request."""
    official = require("opentelemetry.instrumentation.fastapi", "fastapi").FastAPIInstrumentor
    accepted = {*inspect.signature(official.instrument_app).parameters} - _TAKEN
    for name in options:
        if name not in accepted:
            raise TypeError(
                f"instrument_fastapi takes no option {name!r}{nearest(name, accepted)}; accepted: "
                f"{', '.join(sorted({'group', *accepted}))}"
            )
        if name.endswith("_hook"):
            check_hook(name, options[name])
        elif name.startswith("http_capture_headers_"):
            options[name] = patterns(name, options[name])
    wanted = (exclude_spans,) if isinstance(exclude_spans, str) else exclude_spans
    messages = texts("exclude_spans", () if wanted is None else wanted, "some of 'receive' and 'send'")
    unknown = sorted({*messages} - _MESSAGES)
    if unknown:
        raise ValueError(f"exclude_spans={messages!r}: {unknown[0]!r} is neither 'receive' nor 'send'")
    urls = excluded_urls
    if urls is not None and not isinstance(urls, str):
        urls = ",".join(texts("excluded_urls", urls, "regular expressions, a comma list or several, or None"))
    if urls is not None:
        try:
            require("opentelemetry.util.http", "fastapi").parse_excluded_urls(urls)
        except Exception as fault:
            raise ValueError(f"excluded_urls={urls!r} is no comma list of regular expressions: {fault}") from fault
    return {**options, "excluded_urls": urls, "exclude_spans": messages}


def _check_application(app: Any, fastapi_class: Any) -> None:
    if isinstance(app, fastapi_class):
        return
    kind = app.__name__ if isinstance(app, type) else type(app).__name__
    if isinstance(app, type) and issubclass(app, fastapi_class):
        raise TypeError(f"instrument_fastapi takes a FastAPI application, and {kind} is a class: pass an instance")
    inside = _wrapped_application(app, fastapi_class)
    raise TypeError(
        f"instrument_fastapi takes a fastapi.FastAPI application, not {kind!r}"
        + (f": pass the application that it wraps, its attribute {inside!r}" if inside else "")
    )


def _wrapped_application(wrapper: Any, fastapi_class: Any) -> str:
    """Return the attribute path from ASGI middleware to the application in it, empty when there is none."""
    path = ""
    for _ in range(32):  # middleware that wraps itself would have no end
        held = getattr(wrapper, "__dict__", {})
        for name, value in held.items():
            if isinstance(value, fastapi_class):
                return f"{path}.{name}".removeprefix(".")
        wrapper, path = held.get("app"), f"{path}.app"
        if wrapper is None:
            break
    return ""
