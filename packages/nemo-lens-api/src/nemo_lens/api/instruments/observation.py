"""The callbacks of observable instruments: run beside the collection, so that a slow one holds nothing up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextvars import copy_context
from functools import partial
from itertools import islice

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api._numbers import number, why_unusable
from nemo_lens.api._values import type_name
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.instruments import registry
from nemo_lens.api.instruments.attribute_sets import OVERFLOW, AttributeSets
from nemo_lens.api.instruments.spec import KINDS, MetricSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nemo_lens.api.attributes import AttributeValue

# How long one collection waits for one callback, in seconds.
OBSERVATION_TIMEOUT_S = 1.0

# A generator may have no end.
_MAX_OBSERVATIONS = 1_000_000
_END = object()


class Observation:
    """What OpenTelemetry's meters take from a callback, without OpenTelemetry."""

    __slots__ = ("attributes", "context", "value")

    def __init__(self, value: float, attributes: dict[str, AttributeValue]) -> None:
        self.value = value
        self.attributes = attributes
        self.context = None


class Observer:
    """The callback that a meter is given for one observable metric; never raises, and waits a second at most.

    A callback that takes longer goes on in its thread, gives nothing this time, and what it found is delivered at the
    next collection; from then on nothing waits for it until it is fast again.

    Args:
        instrument: the instrument; which callbacks it has, the registry says each time, so that one which is no longer
            registered is not held here.
        sets: the attribute sets of its instrument.
    """

    def __init__(self, instrument: tuple[str, ...], sets: AttributeSets) -> None:
        self._instrument = instrument
        self._sets = sets
        # The groups that this instrument is a metric of, each with a callback of its own, and the last call of that.
        self._runs: dict[str, _Run | None] = {}

    def add(self, group: str) -> None:
        """Ask the callback of this group, too."""
        self._runs.setdefault(group, None)

    def __call__(self, options: object = None) -> list[Observation]:
        """Return the observations of one collection."""
        return [found for group in tuple(self._runs) for found in self._observe(group)]

    def _observe(self, group: str) -> list[Observation]:
        spec = registry.as_registered(group, self._instrument)
        if spec is None:
            return []
        last = self._runs[group]
        if last is not None and last.pid != os.getpid():
            last = None  # the thread stayed in the parent
        if last is not None and not last.done.is_set():
            return []
        late = [] if last is None or last.delivered else last.found
        run = self._runs[group] = _Run(partial(self._look, spec))
        run.start()
        was_slow = last is not None and last.took_s > OBSERVATION_TIMEOUT_S
        if run.done.wait(0 if was_slow else OBSERVATION_TIMEOUT_S):
            run.delivered = True
            return run.found
        if not was_slow:
            warn_once(
                ("slow callback", spec.name),
                "the callback of metric %r takes more than %.0f s: what it returns is sent one collection later",
                spec.name,
                OBSERVATION_TIMEOUT_S,
            )
        return late

    def _look(self, spec: MetricSpec) -> list[Observation]:
        try:
            callback = spec.callback
            given = callback() if callback is not None else None
            return self._observations(spec, given)
        except BaseException as fault:  # noqa: BLE001 - the callback is the user's, may exit, and collecting goes on
            kind = type_name(fault)
            warn_once(("callback", spec.name, kind), "the callback of metric %r failed with %s", spec.name, kind)
            debug_once(("callback trace", spec.name, kind), "the callback failed", exc_info=True)
            return []

    def _observations(self, spec: MetricSpec, given: Any) -> list[Observation]:
        if given is None:
            return []
        if _is_pair(given) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
            given = (given,)  # one pair, or a number in whatever holds one
        found: dict[frozenset[tuple[str, AttributeValue]], Observation] = {}
        items = iter(given)
        for item in islice(items, _MAX_OBSERVATIONS):
            attributes: Mapping[str, object] | None = None
            if _is_pair(item):
                item, attributes = item
            value = self._value(spec, item)
            if value is None:
                continue
            cleaned = clean_attributes(attributes)
            key = frozenset(cleaned.items())
            admitted = self._sets.admit(key, cleaned)
            if admitted is OVERFLOW:
                key = frozenset(OVERFLOW.items())
                if key in found and spec.kind != "observable_gauge":
                    value += found[key].value
            found[key] = Observation(value, dict(admitted))
        if next(items, _END) is not _END:
            warn_once(
                ("endless callback", spec.name),
                "the callback of metric %r gives more than %d observations; those past them are left out",
                spec.name,
                _MAX_OBSERVATIONS,
            )
        return list(found.values())

    def _value(self, spec: MetricSpec, item: Any) -> int | float | None:
        if item is None:
            return None
        try:
            value = number(item)
        except Exception as fault:  # noqa: BLE001 - the item() of a value may raise anything
            warn_once(
                ("observed value", spec.name, type_name(item)),
                "the callback of metric %r gives a %s, which is not recorded: %s",
                spec.name,
                type_name(item),
                why_unusable(fault),
            )
            return None
        if value - value != 0:  # NaN and infinity
            debug_once(("not finite", spec.name), "%r was observed as %r: skipped", spec.name, value)
            return None
        if value < 0 and not KINDS[spec.kind].takes_negative:
            warn_once(("negative", spec.name), "the callback of counter %r gives negative values", spec.name)
            return None
        return value


def _is_pair(given: Any) -> bool:
    return type(given) is tuple and len(given) == 2 and (given[1] is None or isinstance(given[1], Mapping))


class _Run:
    """One call of a callback in a daemon thread of its own."""

    def __init__(self, look: Any) -> None:
        self.pid = os.getpid()
        self.done = threading.Event()
        self.found: list[Observation] = []
        self.delivered = False
        self.took_s = 0.0
        self._look = look

    def start(self) -> None:
        """Start the thread; run here where Python starts no more threads, as at its exit from 3.12 on."""
        thread = threading.Thread(
            target=copy_context().run, args=(self._work,), name="nemo-lens-observation", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as fault:
            debug_once("observation thread", "a callback runs in the collection itself: %s", fault)
            self._work()

    def _work(self) -> None:
        began = time.monotonic()
        try:
            self.found = self._look()
        finally:
            self.took_s = time.monotonic() - began
            self._look = None  # the callback may be gone before the next run
            self.done.set()
