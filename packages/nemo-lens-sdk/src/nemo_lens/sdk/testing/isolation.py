"""One test's telemetry, kept apart from that of every other test of the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, get_current
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nemo_lens.api import _diagnostics, backend, lifecycle, state
from nemo_lens.api.instruments import recorders
from nemo_lens.api.scopes import current_scope
from nemo_lens.sdk import _compat, logging_bridge, providers
from nemo_lens.sdk.testing import registrations, surroundings

if TYPE_CHECKING:
    import pytest

# How long a run that the code under test left on may take to end, in milliseconds: its collector may be unreachable.
_SHUTDOWN_MS = 1000


class TelemetryIsOnError(Exception):
    """Telemetry is on already, set up outside of the test."""

    def __init__(self) -> None:
        super().__init__(
            "telemetry is on already, so that it cannot be set up for this test alone. It was set up outside of the "
            "test: by a fixture of a wider scope, while a module was imported, or by an earlier test that does not use "
            "nemo_lens_telemetry or nemo_lens_reset. Shut it down there with get_telemetry().shutdown(), "
            "or let those tests use nemo_lens_reset."
        )


@contextmanager
def isolated(shell: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with telemetry off and nothing left of earlier tests; at the end undo all that was done meanwhile.

    Args:
        shell: the environment variables that the session started with.
        monkeypatch: pytest's fixture of this test.

    Raises:
        TelemetryIsOnError: telemetry was set up outside of the test.
    """
    if lifecycle.live_config() is not None:
        raise TelemetryIsOnError
    with ExitStack() as ended:
        # What is entered last is undone first, and the rest is undone also when one fails.
        ended.enter_context(surroundings.hidden(shell, monkeypatch))
        ended.callback(_diagnostics.forget_reported)
        ended.enter_context(_contexts())
        ended.enter_context(_gate_and_registries())
        ended.enter_context(_providers(shell))
        ended.callback(logging_bridge.restore_bridges, logging_bridge.snapshot_bridges())
        ended.callback(_shut_down)
        _diagnostics.forget_reported()
        yield


def _shut_down() -> None:
    lifecycle.get_telemetry().shutdown(_SHUTDOWN_MS)


@contextmanager
def _contexts() -> Iterator[None]:
    context, scope = get_current(), current_scope.get()
    attach(Context())
    current_scope.set(None)
    try:
        yield
    finally:
        # Not by their tokens: whatever the test left attached goes, too.
        attach(context)
        current_scope.set(scope)


@contextmanager
def _gate_and_registries() -> Iterator[None]:
    gate, registered = state.snapshot_state(), registrations.keep()
    state.reset_state()
    try:
        yield
    finally:
        # Closed first: what is registered meanwhile opens nothing then, and nothing is said about it.
        state.reset_state()
        registrations.restore(registered)
        state.restore_state(gate)


@contextmanager
def _providers(shell: Mapping[str, str]) -> Iterator[None]:
    with surroundings.bare(shell):
        from opentelemetry import propagate  # reads OTEL_PROPAGATORS when it is imported

        metrics = _installed_providers()
    propagator = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()]))
    installed = backend.snapshot_backend()
    provider = metrics.provider
    about_telemetry = metrics.self_metrics
    made, recording = _compat.known_observables(provider), recorders.known_observables()
    recorders.forget_attribute_sets()
    try:
        yield
    finally:
        backend.restore_backend(installed)
        recorders.forget_observables(recording)
        _compat.forget_observables(provider, made)
        metrics.self_metrics = about_telemetry
        propagate.set_global_textmap(propagator)


def _installed_providers() -> providers.Metrics:
    """Install the providers before any test does, because they stay for all later ones.

    A test whose code under test sets telemetry up with a sampler or a metric reader of its own would otherwise decide
    what later tests can record.
    """
    resource = Resource.get_empty()
    metrics = providers.prepare_metrics(resource, None)
    providers.install(providers.prepare_traces(resource), metrics, providers.prepare_logs(resource))
    # What a test records while telemetry is off is not the next one's.
    metrics.had_run = True
    return metrics
