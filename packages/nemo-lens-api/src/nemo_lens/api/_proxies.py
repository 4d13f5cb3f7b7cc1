"""Tracers and meters asked for before telemetry is set up: they reach the backend once there is one."""

from __future__ import annotations

import os
from _thread import RLock
from contextlib import contextmanager

from nemo_lens.api import backend as _cell
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.fallbacks import NULL_INSTRUMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from nemo_lens.api.backend import Backend


# Held while an instrument is made, since OpenTelemetry 1.38 fails when two threads make the same one. Reentrant: a
# signal handler may interrupt the thread that holds it, and record too.
making = RLock()

# One for each scope, as a provider has: each observable instrument of one is told of every later backend, for good.
_meters: dict[tuple[str, str | None], ProxyMeter] = {}


def get_tracer(name: str, version: str | None = None) -> Any:
    """Return a tracer of instrumentation scope ``name``.

    Args:
        name: usually ``__name__`` of the calling module.
        version: version of the library that ``name`` belongs to.

    Returns:
        The backend's own tracer; before ``setup_telemetry``, one that passes on to it from then on.
    """
    if _cell.current is _cell.NOOP_BACKEND:
        return ProxyTracer(name, version)
    return _cell.current.get_tracer(name, version)


def get_meter(name: str, version: str | None = None) -> Any:
    """Return a meter of instrumentation scope ``name``.

    Args:
        name: usually ``__name__`` of the calling module.
        version: version of the library that ``name`` belongs to.

    Returns:
        The backend's own meter; before ``setup_telemetry``, one whose instruments pass on to it from then on.
    """
    if _cell.current is _cell.NOOP_BACKEND:
        return _meters.setdefault((name, version), ProxyMeter(name, version))
    return _cell.current.get_meter(name, version)


class ProxyTracer:
    """Passes each call to the present backend's tracer of the same scope."""

    __slots__ = ("_name", "_version")

    def __init__(self, name: str, version: str | None) -> None:
        self._name = name
        self._version = version

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Start a span, as the backend's tracer does."""
        return _cell.current.get_tracer(self._name, self._version).start_span(name, *args, **kwargs)

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Start a span and make it current, as the backend's tracer does."""
        tracer = _cell.current.get_tracer(self._name, self._version)
        with tracer.start_as_current_span(name, *args, **kwargs) as span:
            yield span


class ProxyMeter:
    """Creates instruments that are made on the present backend's meter when they are first used."""

    def __init__(self, name: str, version: str | None) -> None:
        self._scope = (name, version)

    def create_counter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return an instrument with ``add``."""
        return ProxyInstrument(self._scope, "create_counter", (name, *args), kwargs)

    def create_up_down_counter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return an instrument with ``add``."""
        return ProxyInstrument(self._scope, "create_up_down_counter", (name, *args), kwargs)

    def create_histogram(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return an instrument with ``record``."""
        return ProxyInstrument(self._scope, "create_histogram", (name, *args), kwargs)

    def create_gauge(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return an instrument with ``set``."""
        return ProxyInstrument(self._scope, "create_gauge", (name, *args), kwargs)

    def create_observable_counter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Register the callbacks, as soon as there is a backend."""
        return self._observable("create_observable_counter", (name, *args), kwargs)

    def create_observable_up_down_counter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Register the callbacks, as soon as there is a backend."""
        return self._observable("create_observable_up_down_counter", (name, *args), kwargs)

    def create_observable_gauge(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Register the callbacks, as soon as there is a backend."""
        return self._observable("create_observable_gauge", (name, *args), kwargs)

    def _observable(self, create: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        proxy = ProxyInstrument(self._scope, create, args, kwargs)
        _cell.on_install(proxy.resolve)
        # The meter may have been asked for before there was a backend, and the instrument after.
        proxy.resolve(_cell.current)
        return proxy


class ProxyInstrument:
    """One instrument, made on the backend's meter of each run when that run is first seen."""

    __slots__ = ("_args", "_create", "_generation", "_kwargs", "_real", "_scope")

    def __init__(
        self, scope: tuple[str, str | None], create: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._scope = scope
        self._create = create
        self._args = args
        self._kwargs = kwargs
        self._generation = 0
        self._real: Any = NULL_INSTRUMENT

    def resolve(self, backend: Backend) -> Any:
        """Return the instrument on ``backend``, making it the first time."""
        # A later run may have another meter provider; on the same one, the meter returns the same instrument.
        if self._generation != _cell.generation and backend is not _cell.NOOP_BACKEND:
            with making:
                if self._generation != _cell.generation:
                    self._make(backend)
        return self._real

    def _make(self, backend: Backend) -> None:
        generation = _cell.generation
        try:
            meter = backend.get_meter(*self._scope)
            self._real = getattr(meter, self._create)(*self._args, **self._kwargs)
        except Exception as fault:  # noqa: BLE001 - recording a number must not raise
            debug_once(
                ("instrument", self._args[0]),
                "could not create instrument %r: %r",
                self._args[0],
                fault,
                exc_info=True,
            )
        self._generation = generation

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add to a counter."""
        self.resolve(_cell.current).add(*args, **kwargs)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Record into a histogram."""
        self.resolve(_cell.current).record(*args, **kwargs)

    def set(self, *args: Any, **kwargs: Any) -> None:
        """Set a gauge."""
        self.resolve(_cell.current).set(*args, **kwargs)


def _renew_lock_in_child() -> None:
    global making
    making = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)
