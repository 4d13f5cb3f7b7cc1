"""The instruments of each meter, made once and held for as long as the meter lives."""

from __future__ import annotations

import os
import weakref

from nemo_lens.api import _proxies
from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api._values import type_module, type_name
from nemo_lens.api.fallbacks import NULL_INSTRUMENT
from nemo_lens.api.instruments.attribute_sets import AttributeSets
from nemo_lens.api.instruments.observation import Observer
from nemo_lens.api.instruments.spec import KINDS, MetricSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# OpenTelemetry's meter without an SDK, or with OTEL_SDK_DISABLED.
_NO_OP = ("opentelemetry.metrics", "NoOpMeter")


class Recorder:
    """One instrument, and what recording into it needs to know."""

    __slots__ = ("instrument", "observer", "put", "sets", "takes_negative")

    def __init__(
        self, instrument: Any, put: Any, takes_negative: bool, sets: AttributeSets, observer: Observer | None = None
    ) -> None:
        self.instrument = instrument
        # Takes a number and attributes.
        self.put = put
        self.takes_negative = takes_negative
        self.sets = sets
        # What asks the callbacks of an observable instrument, into which nothing is recorded.
        self.observer = observer


class MeterRecorders(dict[MetricSpec, Recorder]):
    """The recorders of one meter by metric, but for the observable ones, which nothing is recorded into."""

    __slots__ = ("_sets", "does_nothing", "meter", "observable")

    def __init__(self, meter: weakref.ref[Any], does_nothing: bool) -> None:
        super().__init__()
        self.meter = meter
        self.does_nothing = does_nothing
        # By instrument, as the meter has them: a metric registered again, with another callback, is the same one, and
        # nobody holds the callback of one that is gone.
        self.observable: dict[tuple[str, ...], Recorder] = {}
        # By name: two metrics of one name are one instrument, however they are described.
        self._sets: dict[str, AttributeSets] = {}

    def make(self, meter: Any, group: str, spec: MetricSpec) -> Recorder:
        """Return the recorder of a group's metric, made the first time."""
        with _proxies.making:
            recorder = self.observable.get(spec.instrument) if spec.is_observable else self.get(spec)
            if recorder is None:
                sets = self._sets.setdefault(spec.name.lower(), AttributeSets(spec.name))
                recorder = _made(meter, spec, sets)
                if spec.is_observable:
                    self.observable[spec.instrument] = recorder
                else:
                    self[spec] = recorder
            if recorder.observer is not None:
                recorder.observer.add(group)
            return recorder

    def forget_attribute_sets(self) -> None:
        """Count attribute sets anew."""
        for sets in list(self._sets.values()):
            sets.forget()


# By id, which a reference confirms: a meter need not be hashable, and comparing two may cost anything.
_by_meter: dict[int, MeterRecorders] = {}


def recorders_of(meter: Any) -> MeterRecorders | None:
    """Return what has been made on a meter; None, and one WARNING, for what cannot be a meter."""
    known = _by_meter.get(id(meter))
    if known is not None and known.meter() is meter:
        return known
    if not _can_create(meter):
        warn_once(
            ("meter", type_name(meter)),
            "a %s is no meter, and nothing is recorded into it: pass handle.meter, or what get_meter() returns",
            type_name(meter),
        )
        return None
    return _first_seen(meter)


def forget_attribute_sets() -> None:
    """Count the attribute sets of all instruments anew, when their sums start anew."""
    for recorders in list(_by_meter.values()):
        recorders.forget_attribute_sets()


def known_observables() -> list[Recorder]:
    """Return the recorders of observable instruments, for tests."""
    return [recorder for _, _, recorder in _observables()]


def forget_observables(kept: list[Recorder]) -> None:
    """Let all observable instruments but these be made anew when they are asked for, for tests."""
    with _proxies.making:
        for recorders, instrument, recorder in _observables():
            if recorder not in kept:
                recorders.observable.pop(instrument, None)


def _observables() -> list[tuple[MeterRecorders, tuple[str, ...], Recorder]]:
    return [
        (recorders, instrument, recorder)
        for recorders in list(_by_meter.values())
        for instrument, recorder in list(recorders.observable.items())
    ]


def _first_seen(meter: Any) -> MeterRecorders | None:
    key = id(meter)

    def forget(gone: weakref.ref[Any]) -> None:
        # Another meter may have the id by now.
        known = _by_meter.get(key)
        if known is not None and known.meter is gone:
            _by_meter.pop(key, None)

    with _proxies.making:
        known = _by_meter.get(key)
        if known is None or known.meter() is not meter:
            try:
                does_nothing = (type_module(meter), type_name(meter)) == _NO_OP
                known = _by_meter[key] = MeterRecorders(weakref.ref(meter, forget), does_nothing)
            except TypeError:
                warn_once(
                    ("meter", type_name(meter)),
                    "a %s cannot be referenced weakly, so its instruments cannot be kept: nothing is recorded into it",
                    type_name(meter),
                )
                return None
        return known


def _can_create(meter: Any) -> bool:
    try:
        return hasattr(meter, "create_counter")
    except Exception:  # noqa: BLE001 - a property may raise anything
        return False


def _made(meter: Any, spec: MetricSpec, sets: AttributeSets) -> Recorder:
    facts = KINDS[spec.kind]
    try:
        create = getattr(meter, facts.create)
        if facts.record is None:
            observer = Observer(spec.instrument, sets)
            instrument = create(spec.name, [observer], spec.unit, spec.description)
            return Recorder(instrument, _nowhere, facts.takes_negative, sets, observer)
        if spec.buckets is None:
            instrument = create(spec.name, spec.unit, spec.description)
        else:
            instrument = create(
                spec.name, spec.unit, spec.description, explicit_bucket_boundaries_advisory=spec.buckets
            )
        return Recorder(instrument, getattr(instrument, facts.record), facts.takes_negative, sets)
    except Exception as fault:  # noqa: BLE001 - a meter that fails must not end the job
        warn_once(
            ("instrument", type_name(meter), spec.name),
            "metric %r cannot be recorded: making its instrument on a %s failed with %s",
            spec.name,
            type_name(meter),
            type_name(fault),
        )
        debug_once(("instrument trace", spec.name), "making an instrument failed", exc_info=True)
        # Kept, so that it is not tried again with each value.
        return Recorder(NULL_INSTRUMENT, _nowhere, True, sets)


def _nowhere(value: float, attributes: object = None) -> None:
    """Take a number for an instrument that is observed, or could not be made."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_attribute_sets)
