"""FastAPI: a server span for each request, by OpenTelemetry's own instrumentation over the handle's providers."""

from __future__ import annotations

import functools
import inspect

from nemo_lens.api._diagnostics import nearest, warn
from nemo_lens.contrib._asgi import Gate, Instrumentation, StackBuilder, gated
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_MESSAGES = frozenset(("receive", "send"))
# What the official instrument_app takes and this module fills in.
_TAKEN = frozenset(("app", "tracer_provider", "meter_provider"))
# Where the official instrumentation notes that an application is instrumented, by whomever.
_MARK = "_is_instrumented_by_opentelemetry"

# The instrumentation of every application, and what FastAPI.build_middleware_stack was before.
_everywhere: tuple[Instrumentation, Callable[[Any], Any]] | None = None


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
        instrumentation, build = _everywhere
        if getattr(fastapi_class.build_middleware_stack, "_instrumentation", None) is instrumentation:
            fastapi_class.build_middleware_stack = build
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
        app: the application; None for every application of this process that begins to serve from now on.
        group: span group that switches spans and metrics of requests on; None for whenever telemetry is set up.
        excluded_urls: regular expressions, a comma list or several, of URLs to leave alone, such as health checks;
            default ``OTEL_PYTHON_FASTAPI_EXCLUDED_URLS``, else ``OTEL_PYTHON_EXCLUDED_URLS``, else none.
        exclude_spans: which of ``receive`` and ``send`` get no spans: one for each message makes hundreds on a
            websocket.
        **options: other options of ``FastAPIInstrumentor.instrument_app``, such as ``server_request_hook``.

    Raises:
        ImportError: when FastAPI or its OpenTelemetry instrumentation cannot be imported.
        TypeError: when ``app`` is no FastAPI application, or an option is unknown.
        ValueError: when ``exclude_spans`` or ``excluded_urls`` cannot be used.
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
        bare = app.middleware_stack.bare
        app.middleware_stack = bare if _everywhere is None else gated(bare, _everywhere[0])
    _switch_off(builder.instrumentation)


def _instrument_every(fastapi_class: Any, instrumentation: Instrumentation) -> None:
    global _everywhere
    if _everywhere is not None:
        _warn_if_other(_everywhere[0], instrumentation, "every application")
        return
    build = fastapi_class.build_middleware_stack

    @functools.wraps(build)
    def build_gated(app: Any) -> Any:
        ours = isinstance(vars(app).get("build_middleware_stack"), StackBuilder)
        if not instrumentation.active or (getattr(app, _MARK, False) and not ours):
            return build(app)
        return gated(build(app), instrumentation)

    build_gated._instrumentation = instrumentation  # type: ignore[attr-defined]
    fastapi_class.build_middleware_stack = build_gated
    _everywhere = (instrumentation, build)


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
    messages = [exclude_spans] if isinstance(exclude_spans, str) else list(exclude_spans or ())
    unknown = sorted({*messages} - _MESSAGES)
    if unknown:
        raise ValueError(f"exclude_spans={messages!r}: {unknown[0]!r} is neither 'receive' nor 'send'")
    urls = excluded_urls if excluded_urls is None or isinstance(excluded_urls, str) else ",".join(excluded_urls)
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
