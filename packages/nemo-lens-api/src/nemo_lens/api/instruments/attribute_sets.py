"""The cap on the attribute sets of one instrument: what is beyond it is counted in one overflow series.

An SDK keeps every attribute set it was ever given, so that an attribute with ever new values (a step, a request's id)
fills the memory. OpenTelemetry's SDK for Python has a limit of its own only in later versions.
"""

from __future__ import annotations

import os
from _thread import RLock

from nemo_lens.api._diagnostics import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nemo_lens.api.attributes import AttributeValue

    AttributeKey = frozenset[tuple[str, AttributeValue]]

# https://opentelemetry.io/docs/specs/otel/metrics/sdk/#cardinality-limits
MAX_ATTRIBUTE_SETS = 2000
OVERFLOW: dict[str, AttributeValue] = {"otel.metric.overflow": True}

# Reentrant: a signal handler may interrupt the thread that holds it, and record too.
_lock = RLock()


class AttributeSets:
    """The attribute sets that one instrument was given in this process."""

    __slots__ = ("_is_told", "_metric", "seen")

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._is_told = False
        # The empty set has its place from the start.
        self.seen: set[AttributeKey] = {frozenset()}

    def admit(self, key: AttributeKey, attributes: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
        """Return the attributes, those of the overflow series when they are new and there are too many.

        Args:
            key: the items of ``attributes``.
            attributes: attributes as they are sent.
        """
        if key in self.seen:  # almost always, and without the lock: one that is there stays
            return attributes
        with _lock:
            if key in self.seen or len(self.seen) < MAX_ATTRIBUTE_SETS:
                self.seen.add(key)
                return attributes
        if not self._is_told:
            self._is_told = True
            warn_once(
                ("attribute sets", self._metric),
                "metric %r has been given more than %d sets of attributes; what comes with a new one is counted under "
                "otel.metric.overflow=true. Which of them changes all the time: %s? Such a value belongs on a span",
                self._metric,
                MAX_ATTRIBUTE_SETS,
                ", ".join(sorted(attributes)),
            )
        return OVERFLOW

    def forget(self) -> None:
        """Start anew, as a forked child's sums do."""
        self.seen = {frozenset()}
        self._is_told = False


def _renew_lock_in_child() -> None:
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)
