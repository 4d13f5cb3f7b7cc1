"""Span and trace ids that no seed of the user's can repeat, on no rank and in no forked child."""

from __future__ import annotations

import hashlib
import os
import random

from opentelemetry.sdk.trace.id_generator import IdGenerator

from nemo_lens.sdk import fork


class LensIdGenerator(IdGenerator):
    """Draw ids from a private generator seeded by the operating system and reseeded in a forked child.

    ``random.seed`` has no effect on it, and it leaves the user's random state alone (opentelemetry-python 4376).
    """

    def __init__(self) -> None:
        self._bits = random.Random(_entropy()).getrandbits
        self.fixed_trace_id: int | None = None
        fork.register(self)

    def generate_span_id(self) -> int:
        """Return 64 random bits, never 0."""
        return self._bits(64) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never 0, or the one trace id of the run."""
        return self.fixed_trace_id or self._bits(128) or self.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Declare the W3C random flag, except for a trace id derived from the run's."""
        return self.fixed_trace_id is None

    def before_fork(self, deadline: float) -> None:
        """Do nothing."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Seed anew: a copied generator would repeat its parent's ids."""
        self._bits = random.Random(_entropy()).getrandbits


def trace_id_of_run(run: str) -> int:
    """Return the trace id that all root spans of a run share: the first 16 bytes of the SHA-256 of its identity."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:16], "big")


def _entropy() -> int:
    return int.from_bytes(os.urandom(32), "big")
