"""The OpenTelemetry backend: what the API wheel's calls become."""

from __future__ import annotations

# What the API loads at its first use is loaded here: a fork in the middle of that import, which another thread is at,
# would leave its lock held in the child for ever.
import difflib  # noqa: F401 - as said
import os
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, get_current
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanContext, SpanKind

from nemo_lens.api import __version__, _tracing  # noqa: F401 - as said
from nemo_lens.api._diagnostics import debug_once, nearest, warn_once
from nemo_lens.api.attributes import clean_attributes, clean_text
from nemo_lens.api.backend import HELPERS_SCOPE, TelemetryHandle
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.fallbacks import NULL_METER, NULL_TRACER
from nemo_lens.api.propagation import read_carrier
from nemo_lens.sdk.build import build_handle
from nemo_lens.sdk.context import restore_context
from nemo_lens.sdk.handle import OtelHandle
from nemo_lens.sdk.settings import propagator as configured_propagator

# The key under which OpenTelemetry keeps the current span. It has no public name, and the function that uses it copies
# the context twice.
(_SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())
_INTERNAL = SpanKind.INTERNAL
_KINDS = {kind.name.lower(): kind for kind in SpanKind}


class OtelBackend:
    """Implements ``nemo_lens.api.backend.Backend`` over the OpenTelemetry SDK."""

    name = "otel"

    def __init__(self) -> None:
        self._handle: OtelHandle | None = None
        # Default tracers by scope: no get_tracer per span.
        self._tracers: dict[str, Any] = {}
        # Context of TRACEPARENT in the environment: the parent of root spans.
        self._process_parent: Context | None = None
        # On a host application's provider: notes each span as ours.
        self._adopt: Any = None

    def build(
        self,
        config: NemoLensConfig,
        *,
        resource_attributes: Mapping[str, Any] | None = None,
        span_exporter: Any = None,
        metric_reader: Any = None,
        log_exporter: Any = None,
    ) -> TelemetryHandle:
        """Build and validate everything, then install it.

        Raises:
            ValueError: for a setting that cannot work; nothing has been installed then.
        """
        propagator = configured_propagator()
        handle = build_handle(config, resource_attributes, span_exporter, metric_reader, log_exporter, __version__)
        self._propagator = propagator
        self._fields = frozenset(field.lower() for field in propagator.fields)
        self._tracers = {}
        self._handle = handle
        parent = read_carrier(self, os.environ)
        self._process_parent = parent if trace.get_current_span(parent).get_span_context().is_valid else None
        self._adopt = handle.adopt
        try:
            handle.open(self._process_parent, bridge_root=config.logs_enabled)
        except BaseException as fault:
            handle.shutdown(0)
            if isinstance(fault, (TypeError, ValueError)):  # no setting's: those have been checked
                raise RuntimeError(f"telemetry could not be started: {fault}") from fault
            raise
        return handle

    def get_tracer(self, name: str, version: str | None = None) -> Any:
        """Return the SDK's tracer of this scope."""
        handle = self._handle
        if handle is None or handle.tracer is NULL_TRACER:
            return NULL_TRACER
        return handle.tracer_provider.get_tracer(name, version)

    def get_meter(self, name: str, version: str | None = None) -> Any:
        """Return the SDK's meter of this scope."""
        handle = self._handle
        if handle is None or handle.meter is NULL_METER:
            return NULL_METER
        return handle.meter_provider.get_meter(name, version)

    def start_span(
        self,
        name: str,
        attributes: Mapping[str, Any] | None,
        *,
        scope: str = HELPERS_SCOPE,
        tracer: Any = None,
        kind: Any = None,
        links: Iterable[Any] | None = None,
        context: Any = None,
        start_time_ns: int | None = None,
    ) -> Any:
        """Start a span; roots have the process's parent, when it was given one."""
        if tracer is None:
            tracer = self._tracers.get(scope) or self._cached_tracer(scope)
        if context is not None:
            context = self._context(context)
        elif self._process_parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = self._process_parent
        span = tracer.start_span(
            name,
            context,
            _INTERNAL if kind is None else _kind(kind),
            attributes,
            None if links is None else self._links(links),
            start_time_ns,
        )
        if self._adopt is not None:
            self._adopt(span)
        return span

    def set_error(self, span: Any, description: str) -> None:
        """Set the status ERROR with this description."""
        span.set_status(trace.StatusCode.ERROR, description)

    def activate(self, span: Any) -> Any:
        """Make the span current."""
        return attach(Context({**get_current(), _SPAN_KEY: span}))

    def deactivate(self, token: Any) -> None:
        """Restore what was current before; silent when the token belongs to another context."""
        try:
            token.var.reset(token)
        except (AttributeError, ValueError, RuntimeError):
            restore_context(token)  # which knows what to do about each

    def suspend(self, token: Any) -> Any:
        """Restore like ``deactivate``; return the context until now."""
        held = get_current()
        self.deactivate(token)
        return held

    def resume(self, held: Any) -> Any:
        """Make the context that ``suspend`` returned current."""
        return attach(held)

    def inject(self, carrier: MutableMapping[str, str], context: Any = None) -> None:
        """Write the context into the carrier with the configured propagators."""
        self._propagator.inject(carrier, self._context(context) if context is not None else None)

    def extract(self, carrier: Mapping[str, str]) -> Any:
        """Return the context the carrier holds, on top of an empty one."""
        return self._propagator.extract(carrier, Context(), _LOWER_CASE)

    def propagation_fields(self) -> frozenset[str]:
        """Return the carrier keys of the configured propagators."""
        return self._fields

    def flush(self, timeout_ms: int) -> bool:
        """Export what is waiting; return whether it was confirmed in time."""
        return self._handle is None or self._handle.force_flush(timeout_ms)

    def _cached_tracer(self, scope: str) -> Any:
        tracer = self._tracers[scope] = self.get_tracer(scope, __version__)
        return tracer

    def _context(self, given: Any) -> Context:
        return given if isinstance(given, Context) else read_carrier(self, given)

    def _links(self, given: Any) -> list[Link]:
        links: list[Link] = []
        try:
            # One of them alone: a span context is a tuple and a carrier a mapping, whose items are no links.
            if isinstance(given, (Link, SpanContext, Mapping)) or hasattr(given, "get_span_context"):
                given = (given,)
            for item in given:
                links += self._link_of(item)
        except Exception as fault:  # noqa: BLE001 - what is no iterable, or fails halfway, must not cost the span
            debug_once(("links", type(given), type(fault)), "links are left out: %r", fault, exc_info=True)
        return links

    def _link_of(self, item: Any) -> list[Link]:
        try:
            link = self._link(item)
        except Exception as fault:  # noqa: BLE001 - a bad link must not cost the span, nor the others
            debug_once(("link", type(item), type(fault)), "a link is left out: %r", fault, exc_info=True)
            return []
        if link is None:
            debug_once(("link", type(item)), "a link from %s is left out: it holds no span", type(item).__name__)
            return []
        return [link]

    def _link(self, item: Any) -> Link | None:
        if isinstance(item, Link):
            return Link(item.context, clean_attributes(item.attributes)) if item.context.is_valid else None
        if isinstance(item, SpanContext):
            context = item
        elif hasattr(item, "get_span_context"):
            context = item.get_span_context()
        else:
            context = trace.get_current_span(self._context(item)).get_span_context()
        return Link(context) if context.is_valid else None


class _LowerCaseGetter(Getter[Mapping[str, str]]):
    # read_carrier gives keys in lower case; propagators ask for some in mixed case (X-Amzn-Trace-Id).
    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_LOWER_CASE = _LowerCaseGetter()


def _kind(given: Any) -> SpanKind:
    if isinstance(given, SpanKind):
        return given
    kind = _KINDS.get(given.lower()) if isinstance(given, str) else None
    if kind is None:
        named = clean_text(given)
        warn_once(
            ("kind", named),
            "span_kind=%r is no span kind; accepted: %s or an OpenTelemetry SpanKind%s",
            named,
            ", ".join(_KINDS),
            nearest(named, _KINDS),
        )
        return SpanKind.INTERNAL
    return kind


BACKEND = OtelBackend()
