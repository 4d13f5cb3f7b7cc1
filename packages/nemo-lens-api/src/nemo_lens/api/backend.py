"""The contract a backend fulfils, the no-op backend, and the one cell that holds the current backend.

A backend turns the API's calls into spans and metrics that leave the process. The SDK wheel registers ``otel`` under
the entry-point group ``nemo_lens.backend``. Everything above this module calls the cell's backend and nothing else.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from nemo_lens.api.fallbacks import NULL_HANDLE, NULL_METER, NULL_SPAN, NULL_TRACER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from nemo_lens.api.config import NemoLensConfig

# Instrumentation scopes of the default tracers: the context managers', and trace_fn's and the handle's.
HELPERS_SCOPE = "nemo.lens.helpers"
LENS_SCOPE = "nemo.lens"


@runtime_checkable
class TelemetryHandle(Protocol):
    """What ``setup_telemetry`` returns. A context manager: leaving it shuts telemetry down."""

    @property
    def tracer(self) -> Any:
        """The backend's own tracer of scope ``nemo.lens``."""

    @property
    def meter(self) -> Any:
        """The backend's own meter of scope ``nemo.lens``."""

    @property
    def tracer_provider(self) -> Any:
        """The provider that ``tracer`` comes from."""

    @property
    def meter_provider(self) -> Any:
        """The provider that ``meter`` comes from."""

    @property
    def logger_provider(self) -> Any:
        """The provider that log records go through."""

    @property
    def resource_attributes(self) -> Mapping[str, Any]:
        """The attributes of the resource that is exported."""

    @property
    def is_exporting(self) -> bool:
        """Whether data leaves this process."""

    @property
    def is_shutdown(self) -> bool:
        """Whether ``shutdown`` has been called."""

    def force_flush(self, timeout_ms: int | None = None) -> bool:
        """Export what is waiting, for ``timeout_ms`` milliseconds in total; return whether all of it was confirmed."""

    def shutdown(self, timeout_ms: int | None = None) -> None:
        """Close open spans, flush all signals and stop, within ``timeout_ms`` in total. Idempotent, never raises."""

    def install_sigterm_handler(self, timeout_ms: int = 2000) -> None:
        """Flush on SIGTERM, then do what SIGTERM did before."""

    def __enter__(self) -> TelemetryHandle: ...

    def __exit__(self, *exc_info: object) -> None: ...


class Backend(Protocol):
    """What the API needs from whoever exports. Only :meth:`build` may raise, and only for configuration errors."""

    name: str

    def build(
        self,
        config: NemoLensConfig,
        *,
        resource_attributes: Mapping[str, Any] | None,
        span_exporter: Any,
        metric_reader: Any,
        log_exporter: Any,
    ) -> TelemetryHandle:
        """Build and validate everything, then install it; leave nothing behind when that fails.

        Raises:
            ValueError: for a configuration that cannot work.
        """

    def get_tracer(self, name: str, version: str | None = None) -> Any:
        """Return the backend's tracer of this scope."""

    def get_meter(self, name: str, version: str | None = None) -> Any:
        """Return the backend's meter of this scope."""

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
        """Start a span with clean attributes; ``tracer`` beats the cached tracer of ``scope``."""

    def set_error(self, span: Any, description: str) -> None:
        """Set the status ERROR with this description."""

    def activate(self, span: Any) -> Any:
        """Make the span current and return the token that undoes it."""

    def deactivate(self, token: Any) -> None:
        """Restore what was current before; silent when the token belongs to another context."""

    def suspend(self, token: Any) -> Any:
        """Restore like ``deactivate``; return what was current until now, with spans opened since."""

    def resume(self, held: Any) -> Any:
        """Make current what ``suspend`` returned, and return the token that undoes it."""

    def inject(self, carrier: MutableMapping[str, str], context: Any = None) -> None:
        """Write the context (default: the current one) into the carrier."""

    def extract(self, carrier: Mapping[str, str]) -> Any:
        """Return the context the carrier holds."""

    def propagation_fields(self) -> frozenset[str]:
        """Return the carrier keys the propagators read, in lower case."""

    def flush(self, timeout_ms: int) -> bool:
        """Export what is waiting; return whether it was confirmed in time."""


class NoopBackend:
    """The backend of a process whose telemetry is off."""

    name = "noop"

    def build(
        self,
        config: NemoLensConfig,
        *,
        resource_attributes: Mapping[str, Any] | None,
        span_exporter: Any,
        metric_reader: Any,
        log_exporter: Any,
    ) -> TelemetryHandle:
        """Return the no-op handle."""
        return NULL_HANDLE

    def get_tracer(self, name: str, version: str | None = None) -> Any:
        """Return the null tracer."""
        return NULL_TRACER

    def get_meter(self, name: str, version: str | None = None) -> Any:
        """Return the null meter."""
        return NULL_METER

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
        """Return the null span, whatever the tracer."""
        return NULL_SPAN

    def set_error(self, span: Any, description: str) -> None:
        """Do nothing."""

    def activate(self, span: Any) -> Any:
        """Return no token."""
        return None

    def deactivate(self, token: Any) -> None:
        """Do nothing."""

    def suspend(self, token: Any) -> Any:
        """Return nothing to resume."""
        return None

    def resume(self, held: Any) -> Any:
        """Return no token."""
        return None

    def inject(self, carrier: MutableMapping[str, str], context: Any = None) -> None:
        """Write nothing."""

    def extract(self, carrier: Mapping[str, str]) -> Any:
        """Return None, the context of no span."""
        return None

    def propagation_fields(self) -> frozenset[str]:
        """Return nothing: no carrier is read."""
        return frozenset()

    def flush(self, timeout_ms: int) -> bool:
        """Return True: nothing is waiting."""
        return True


NOOP_BACKEND: Backend = NoopBackend()

# The cell: read as ``backend.current`` on every span, written by install_backend alone.
current: Backend = NOOP_BACKEND

# Grows with each installation: what was made on the backend before belongs to an earlier run.
generation = 0

# Called with the backend after each installation, for what was asked for before there was one.
_listeners: list[Any] = []


def install_backend(backend: Backend) -> None:
    """Make ``backend`` the one that every helper calls from now on."""
    global current, generation
    current = backend
    generation += 1
    for listener in tuple(_listeners):
        listener(backend)


def on_install(listener: Any) -> None:
    """Call ``listener(backend)`` after each later installation."""
    _listeners.append(listener)


def snapshot_backend() -> tuple[Backend, tuple[Any, ...]]:
    """Return what ``restore_backend`` takes, for tests."""
    return current, tuple(_listeners)


def restore_backend(saved: tuple[Backend, tuple[Any, ...]]) -> None:
    """Put the backend back, and the listeners there were, for tests."""
    global current, generation
    current = saved[0]
    generation += 1
    _listeners[:] = saved[1]
