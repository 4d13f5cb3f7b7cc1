"""Tracer and meter providers for the official instrumentations: they follow the handle of this process.

What is instrumented before telemetry is set up, or between two set-ups, reaches the handle there is when a span starts
or a number is recorded. Spans start through the backend, as those of Lens' own helpers do. This module imports
OpenTelemetry: import it once that is known to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from nemo_lens.api import backend as _cell
from nemo_lens.api import get_telemetry
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.backend import NOOP_BACKEND

# Its spans pass their parent on, so that a trace goes through a process that records none of it.
_PASSING_ON = trace.NoOpTracer()


def _holds_a_span(context: Context | None) -> bool:
    return trace.get_current_span(context).get_span_context().is_valid


class FollowingTracer(Tracer):
    """A tracer of one instrumentation scope.

    Args:
        scope: name, version, schema URL and attributes, as ``TracerProvider.get_tracer`` takes them.
    """

    def __init__(self, *scope: Any) -> None:
        self._scope = scope
        self._provider: Any = None
        self._tracer: Tracer = _PASSING_ON

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        """Start a span on the present handle's provider."""
        backend = _cell.current
        tracer = self._present()
        if backend is NOOP_BACKEND or tracer is _PASSING_ON:
            return _PASSING_ON.start_span(name, context)
        # A root is left to the backend, which knows the parent that the process was given.
        if not (_holds_a_span(context) or _holds_a_span(None)):
            context = None
        try:
            span: Span = backend.start_span(
                name,
                clean_attributes(attributes),
                tracer=tracer,
                kind=kind,
                links=links,
                context=context,
                start_time_ns=start_time,
            )
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not reach the request
            debug_once(("span", "start", type(fault)), "could not start a span: %r", fault, exc_info=True)
            return _PASSING_ON.start_span(name, context)
        return span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # OpenTelemetry's also decorates coroutines
        self, name: str, *args: Any, end_on_exit: bool = True, **options: Any
    ) -> Iterator[Span]:
        """Start a span and make it current."""
        with trace.use_span(self.start_span(name, *args, **options), end_on_exit=end_on_exit) as span:
            yield span

    def _present(self) -> Tracer:
        provider = get_telemetry().tracer_provider
        if provider is not self._provider:
            # Lens' null provider, with traces switched off, is none of OpenTelemetry's.
            known = isinstance(provider, trace.TracerProvider)
            self._tracer = provider.get_tracer(*self._scope) if known else _PASSING_ON
            self._provider = provider
        return self._tracer


class FollowingTracerProvider:
    """Hands out following tracers.

    Args:
        tracer: what to make of an instrumentation scope.
    """

    def __init__(self, tracer: Callable[..., FollowingTracer] = FollowingTracer) -> None:
        self._make = tracer

    def get_tracer(self, *scope: Any) -> FollowingTracer:
        """Return a tracer of this scope."""
        return self._make(*scope)


class FollowingInstrument:
    """A synchronous instrument, made on the present handle's meter when it is used."""

    def __init__(self, scope: tuple[Any, ...], create: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._scope = scope
        self._create = create
        self._args = args
        self._options = options
        self._provider: Any = None
        self._instrument: Any = None

    def add(self, *args: Any, **options: Any) -> None:
        """Add to a counter."""
        self._present().add(*args, **options)

    def record(self, *args: Any, **options: Any) -> None:
        """Record into a histogram."""
        self._present().record(*args, **options)

    def _present(self) -> Any:
        provider = get_telemetry().meter_provider
        if provider is not self._provider:
            meter = provider.get_meter(*self._scope)
            self._instrument = getattr(meter, self._create)(*self._args, **self._options)
            self._provider = provider
        return self._instrument


class FollowingMeter:
    """A meter of one instrumentation scope, with the instruments that HTTP instrumentations make."""

    def __init__(self, *scope: Any) -> None:
        self._scope = scope

    def create_counter(self, *args: Any, **options: Any) -> FollowingInstrument:
        """Return an instrument with ``add``."""
        return FollowingInstrument(self._scope, "create_counter", args, options)

    def create_up_down_counter(self, *args: Any, **options: Any) -> FollowingInstrument:
        """Return an instrument with ``add``."""
        return FollowingInstrument(self._scope, "create_up_down_counter", args, options)

    def create_histogram(self, *args: Any, **options: Any) -> FollowingInstrument:
        """Return an instrument with ``record``."""
        return FollowingInstrument(self._scope, "create_histogram", args, options)


class FollowingMeterProvider:
    """Hands out following meters."""

    def get_meter(self, *scope: Any) -> FollowingMeter:
        """Return a meter of this scope."""
        return FollowingMeter(*scope)
