"""What a metric is: its name, kind, unit, buckets or callback, checked where it is declared."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import NamedTuple

from nemo_lens.api._diagnostics import nearest
from nemo_lens.api._numbers import number
from nemo_lens.api._values import UnusableValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Kind(NamedTuple):
    """How a meter makes an instrument of this kind, and what it takes."""

    create: str
    # Method that takes a number; None for what is observed.
    record: str | None
    takes_negative: bool


KINDS: dict[str, _Kind] = {
    "gauge": _Kind("create_gauge", "set", True),
    "histogram": _Kind("create_histogram", "record", False),
    "counter": _Kind("create_counter", "add", False),
    "up_down_counter": _Kind("create_up_down_counter", "add", True),
    "observable_gauge": _Kind("create_observable_gauge", None, True),
    "observable_counter": _Kind("create_observable_counter", None, False),
    "observable_up_down_counter": _Kind("create_observable_up_down_counter", None, True),
}

# https://opentelemetry.io/docs/specs/otel/metrics/api/#instrument-name-syntax
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,254}")
_MAX_UNIT = 63


@dataclass(frozen=True)
class MetricSpec:
    """One metric of a group.

    Follows https://opentelemetry.io/docs/specs/otel/metrics/api/#instrument.

    Args:
        key: what ``record_metrics`` calls it, a keyword there.
        name: its name on the wire, such as ``dl.training.loss``: up to 255 letters, digits and ``_.-/``, a letter
            first.
        kind: ``gauge`` (the last value), ``histogram`` (a distribution), ``counter`` (a sum that grows),
            ``up_down_counter`` (a sum that grows and shrinks); or one that is observed when metrics are collected:
            ``observable_gauge``, ``observable_counter``, ``observable_up_down_counter``.
        unit: unit in UCUM, such as ``s``, ``By``, ``{token}/s``; up to 63 ASCII characters.
        description: one sentence for people.
        buckets: boundaries that a histogram advises, in its unit, increasing. The application's views and
            ``OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION`` go before it.
        callback: of an observable kind: called without arguments at each collection, for at most a second. Returns a
            number, or an iterable of numbers and ``(number, attributes)`` pairs; None for no observation.

    Raises:
        TypeError: for a field of a wrong type.
        ValueError: for a name, kind, unit, buckets or callback that cannot work.
    """

    key: str
    name: str
    kind: str = "gauge"
    unit: str = ""
    description: str = ""
    buckets: tuple[float, ...] | None = None
    callback: Callable[[], Any] | None = None
    # Looked up by spec on each recording, where hashing seven fields would cost more than the rest.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("key", "name", "kind", "unit", "description"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} of a metric must be a str and not {type(getattr(self, name)).__name__}")
        if not self.key.strip():
            raise ValueError(f"key of metric {self.name!r} is empty")
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name {self.name!r} of metric {self.key!r} is no instrument name: up to 255 letters, digits and _.-/, "
                "a letter first"
            )
        if self.kind not in KINDS:
            raise ValueError(
                f"kind {self.kind!r} of metric {self.name!r} is none of {', '.join(KINDS)}{nearest(self.kind, KINDS)}"
            )
        if not self.unit.isascii() or len(self.unit) > _MAX_UNIT:
            raise ValueError(f"unit {self.unit!r} of metric {self.name!r} must be up to {_MAX_UNIT} ASCII characters")
        if self.buckets is not None:
            object.__setattr__(self, "buckets", self._checked_buckets(self.buckets))
        self._check_callback()
        object.__setattr__(self, "_hash", hash((self.key, self.name, self.kind)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash of a str is another one in each process.
        return MetricSpec, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    @property
    def instrument(self) -> tuple[str, str, str, str]:
        """What makes two metrics one instrument of a meter, which keeps the callback that it was first given."""
        return self.name.lower(), self.kind, self.unit, self.description

    @property
    def is_observable(self) -> bool:
        """Whether the callback gives its values, and ``record_metrics`` does not."""
        return KINDS[self.kind].record is None

    def _checked_buckets(self, given: Any) -> tuple[float, ...]:
        if self.kind != "histogram":
            raise ValueError(f"buckets are for histograms; metric {self.name!r} is of kind {self.kind!r}")
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TypeError(f"buckets of metric {self.name!r} must be numbers and not {type(given).__name__}")
        buckets = tuple([self._checked_bound(bound) for bound in given])
        if not buckets:
            raise ValueError(f"buckets of metric {self.name!r} are empty: leave them out for the default ones")
        if any(low >= high for low, high in pairwise(buckets)):
            raise ValueError(f"buckets of metric {self.name!r} must increase: {buckets}")
        return buckets

    def _checked_bound(self, given: Any) -> float:
        try:
            bound = number(given)  # a plain one: arrays hold others
            if not isinstance(given, bool) and math.isfinite(bound):
                return bound
        except UnusableValueError:
            pass
        raise ValueError(f"bucket boundary {given!r} of metric {self.name!r} is no finite number")

    def _check_callback(self) -> None:
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback of metric {self.name!r} must be callable, not {type(self.callback).__name__}")
        if self.is_observable and self.callback is None:
            raise ValueError(f"metric {self.name!r} of kind {self.kind!r} needs a callback")
        if not self.is_observable and self.callback is not None:
            raise ValueError(
                f"metric {self.name!r} has a callback, which kind {self.kind!r} does not call; "
                f"kinds that do: {', '.join(kind for kind, facts in KINDS.items() if facts.record is None)}"
            )
