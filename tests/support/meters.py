"""A meter that remembers what it is asked, for tests of the API wheel where there is no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Point = tuple[Any, Any]


class Instrument:
    """One instrument, and the points that were recorded into it."""

    def __init__(self, kind: str, name: str, unit: str, description: str) -> None:
        self.kind, self.name, self.unit, self.description = kind, name, unit, description
        self.buckets: Sequence[float] | None = None
        self.callbacks: Sequence[Callable[[Any], Any]] = ()
        self.points: list[Point] = []

    def _take(self, amount: float, attributes: dict[str, Any] | None = None, context: Any = None) -> None:
        self.points.append((amount, dict(attributes or {})))

    def collect(self) -> list[Point]:
        """Return what the callbacks observe now."""
        return [(seen.value, dict(seen.attributes or {})) for callback in self.callbacks for seen in callback(None)]


class Adding(Instrument):
    """A counter of either kind."""

    def add(self, amount: float, attributes: dict[str, Any] | None = None, context: Any = None) -> None:
        """Remember a point."""
        self._take(amount, attributes)


class Recording(Instrument):
    """A histogram."""

    def record(self, amount: float, attributes: dict[str, Any] | None = None, context: Any = None) -> None:
        """Remember a point."""
        self._take(amount, attributes)


class Setting(Instrument):
    """A gauge."""

    def set(self, amount: float, attributes: dict[str, Any] | None = None, context: Any = None) -> None:
        """Remember a point."""
        self._take(amount, attributes)


class Meter:
    """Signatures of OpenTelemetry's meter; each instrument that it made is in ``made``."""

    def __init__(self) -> None:
        self.made: list[Instrument] = []

    def __getitem__(self, name: str) -> Instrument:
        (found,) = [instrument for instrument in self.made if instrument.name == name]
        return found

    def points(self, name: str) -> list[Point]:
        """Return what was recorded under a name; empty where no instrument was made."""
        return [point for instrument in self.made if instrument.name == name for point in instrument.points]

    def values(self, name: str) -> list[Any]:
        """Return the numbers that were recorded under a name."""
        return [value for value, _ in self.points(name)]

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        """Make a counter."""
        return self._make(Adding("counter", name, unit, description))

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        """Make an up-down counter."""
        return self._make(Adding("up_down_counter", name, unit, description))

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> Any:
        """Make a histogram."""
        histogram = self._make(Recording("histogram", name, unit, description))
        histogram.buckets = explicit_bucket_boundaries_advisory
        return histogram

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        """Make a gauge."""
        return self._make(Setting("gauge", name, unit, description))

    def create_observable_gauge(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        """Make an observable gauge."""
        return self._observable("observable_gauge", name, callbacks, unit, description)

    def create_observable_counter(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        """Make an observable counter."""
        return self._observable("observable_counter", name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> Any:
        """Make an observable up-down counter."""
        return self._observable("observable_up_down_counter", name, callbacks, unit, description)

    def _observable(self, kind: str, name: str, callbacks: Any, unit: str, description: str) -> Any:
        made = self._make(Instrument(kind, name, unit, description))
        made.callbacks = callbacks or ()
        return made

    def _make(self, instrument: Any) -> Any:
        self.made.append(instrument)
        return instrument
