"""What became of what a pipe was given: counted where it happens, read by anyone without a lock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from operator import length_hint

# Why an export failed, where no exception says it; https://opentelemetry.io/docs/specs/semconv/registry/attributes/error
OTHER = "_OTHER"
# A receiver took it and did not keep it; https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/
REJECTED = "rejected"
# Reasons that are told apart: each is a time series of its own.
_MAX_REASONS = 16


class ExportCounts:
    """Counts of what an exporter was given. Written by the one thread that exports, read by any."""

    def __init__(self) -> None:
        self.taken = 0
        self.confirmed = 0
        # From the beginning, so that the first failure is an increase.
        self._failed = {OTHER: 0}

    def confirm(self, number: int, rejected: int = 0) -> None:
        """Count what the exporter delivered, ``rejected`` of which the receiver did not keep."""
        rejected = min(rejected, number)
        self.confirmed += number - rejected
        self.fail(rejected, REJECTED)

    def fail(self, number: int, reason: str) -> None:
        """Count what the exporter did not confirm, by what it raised; a blank reason is none."""
        reason = reason or OTHER
        if number > 0:
            if reason not in self._failed and len(self._failed) >= _MAX_REASONS:
                reason = OTHER
            self._failed[reason] = self._failed.get(reason, 0) + number

    @property
    def failed(self) -> dict[str, int]:
        """What was not confirmed, by reason."""
        return dict(self._failed)

    @property
    def inflight(self) -> int:
        """What was given to the exporter and has not come back."""
        # In this order: what is counted meanwhile was taken before.
        done = sum(self.failed.values()) + self.confirmed
        return self.taken - done


class AtomicCount:
    """A count to which any thread, and a signal's handler, may add one: in one step, without a lock."""

    def __init__(self) -> None:
        # An iterator that knows how many steps it has left: stepping is atomic, where += loses counts between threads,
        # and asking takes no step.
        self._left = repeat(None, sys.maxsize)
        self.add: Callable[[], None] = self._left.__next__

    @property
    def value(self) -> int:
        """How often ``add`` was called."""
        return sys.maxsize - length_hint(self._left)
