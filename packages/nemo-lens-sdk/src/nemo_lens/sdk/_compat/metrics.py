"""What the supported OpenTelemetry versions have no public way to do with meter providers and readers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import (
    Counter,
    Histogram,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    SimpleFixedSizeExemplarReservoir,
    UpDownCounter,
    _Gauge,
)
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import Aggregation, DefaultAggregation
from opentelemetry.sdk.resources import Resource

from nemo_lens.api._diagnostics import debug_once, warn_once


def restart_metrics(provider: Any, reader: Any, *, forked: bool) -> None:
    """Give a meter provider empty aggregations and locks nobody holds, for a forked child or for another run.

    There is no public way: a child would report its parent's sums again, and wait for locks of threads it does not
    have; a later run of the process the sums of the one before, and wait for its last export when that hangs. When the
    SDK's internals are not as they are in the supported versions, metrics stay off from here on.

    Args:
        provider: The SDK's meter provider.
        reader: Its reader.
        forked: Whether this is a child that has just been forked, so that there are no other threads.
    """
    try:
        consumer = provider._measurement_consumer
        consumer._lock = Lock()
        if hasattr(reader, "_export_lock"):
            reader._export_lock = Lock()
        # As a whole: another thread may be measuring.
        consumer._reader_storages = {
            known: type(storage)(*_storage_arguments(consumer, known))
            for known, storage in consumer._reader_storages.items()
        }
        if forked:
            _forget_half_made(provider, consumer)
    except AttributeError as fault:
        reader._set_collect_callback(lambda *args, **kwargs: None)
        of = "of this forked process" if forked else "of this later run"
        warn_once("restarted metrics", "metrics %s are not exported: %r", of, fault)


def known_observables(provider: Any) -> list[Any]:
    """Return the observable instruments of a meter provider, for tests."""
    consumer = getattr(provider, "_measurement_consumer", None)
    return list(getattr(consumer, "_async_instruments", ()))


def forget_observables(provider: Any, kept: Sequence[Any]) -> None:
    """Take all observable instruments but these off a meter provider, for tests.

    There is no public way: a later test would be given the instrument of an earlier one, with that one's callbacks.
    """
    surviving = {id(instrument) for instrument in kept}
    gone = {id(instrument) for instrument in known_observables(provider)} - surviving
    if not gone:
        return
    consumer = provider._measurement_consumer
    with consumer._lock:
        consumer._async_instruments = [known for known in consumer._async_instruments if id(known) in surviving]
    for meter in list(provider._meters.values()):
        for key, instrument in list(meter._instrument_id_instrument.items()):
            if id(instrument) in gone:
                del meter._instrument_id_instrument[key]
                meter._instrument_ids.pop(key, None)


def keep_resource(provider: Any) -> None:
    """Have a forked child's meter provider leave its resource to ``set_metric_resource``.

    Later versions put a ``service.instance.id`` of their own into it, over the one that says which rank this is.
    """
    provider._update_resource = lambda resource: None


def set_metric_resource(provider: Any, resource: Resource) -> None:
    """Put a resource on what a meter provider collects from now on, for which the SDK has no public way."""
    try:
        provider._sdk_config.resource = resource
    except AttributeError as fault:
        debug_once("metric resource", "metrics keep the resource of the first set-up: %r", fault)


def collects_at_shutdown(reader: Any) -> bool:
    """Return whether shutting the reader down exports a last collection: the SDK's does, in its thread, if it has one.

    It has none when its interval is infinite.
    """
    return isinstance(reader, PeriodicExportingMetricReader) and getattr(reader, "_daemon_thread", None) is not None


def without_own_metrics(component: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments with which a component of the SDK, or an exporter, makes no metrics about itself.

    Those of later versions do where ``OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED`` is true; what Lens counts itself would
    be counted twice.
    """
    parameters = inspect.signature(component).parameters
    return {"meter_provider": NoOpMeterProvider()} if "meter_provider" in parameters else {}


def _forget_half_made(provider: Any, consumer: Any) -> None:
    """Forget the instruments that another thread was making at the fork: their names would be taken for ever."""
    made: set[int] = set()
    for meter in list(provider._meters.values()):
        instruments = meter._instrument_id_instrument
        for name in [name for name in meter._instrument_ids if name not in instruments]:
            del meter._instrument_ids[name]
        made.update(map(id, instruments.values()))
    consumer._async_instruments = [known for known in consumer._async_instruments if id(known) in made]


def _storage_arguments(consumer: Any, reader: Any) -> tuple[Any, ...]:
    limits = getattr(reader, "_instrument_class_cardinality_limit", None)  # since 1.4x
    common = (consumer._sdk_config, reader._instrument_class_temporality, reader._instrument_class_aggregation)
    return common if limits is None else (*common, limits)


def safe_aggregations(preferred: Mapping[type, Aggregation]) -> dict[type, Aggregation]:
    """Return the aggregations whose exemplars can be collected while another thread measures.

    Those of OpenTelemetry 1.38 have no lock: a measurement, or the collection with all its deltas, can fail then.

    Args:
        preferred: aggregation by instrument; the SDK's default for those that are not there.
    """
    if hasattr(SimpleFixedSizeExemplarReservoir(), "_lock"):
        return dict(preferred)
    kinds = (Counter, UpDownCounter, Histogram, _Gauge, ObservableCounter, ObservableUpDownCounter, ObservableGauge)
    return {kind: _LockedExemplars(preferred.get(kind, DefaultAggregation())) for kind in kinds}


class _LockedExemplars(Aggregation):
    """Makes what another aggregation makes, with a lock around its exemplars."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation

    def _create_aggregation(
        self,
        instrument: Any,
        attributes: Any,
        reservoir_factory: Callable[[type], Callable[..., Any]],
        start_time_unix_nano: int,
    ) -> Any:
        def locked(kind: type) -> Callable[..., Any]:
            build = reservoir_factory(kind)
            return lambda **options: _LockedReservoir(build(**options))

        return self._aggregation._create_aggregation(instrument, attributes, locked, start_time_unix_nano)


class _LockedReservoir:
    """A reservoir of exemplars that one thread uses at a time."""

    def __init__(self, reservoir: Any) -> None:
        self._reservoir = reservoir
        self._lock = Lock()

    def offer(self, *measurement: Any) -> None:
        """Offer a measurement to be sampled."""
        with self._lock:
            self._reservoir.offer(*measurement)

    def collect(self, point_attributes: Any) -> Any:
        """Return the exemplars and start anew."""
        with self._lock:
            return self._reservoir.collect(point_attributes)
