"""What is tried: every subset of the wheels, on each Python, with the lowest and the newest OpenTelemetry."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .built_wheels import SIBLINGS
from .problems import Problem
from .source_tree import NAMES

OPENTELEMETRY = ("floor", "newest")
WEB_EXTRAS = ("fastapi", "aiohttp")


@dataclass(frozen=True)
class Combination:
    """One environment.

    Args:
        wheels: the short names of the wheels that are asked for; what they depend on comes by itself.
        python: such as ``3.10``.
        opentelemetry: ``floor`` or ``newest``.
        extras: the extras of the contrib wheel that are asked for.
    """

    wheels: tuple[str, ...]
    python: str
    opentelemetry: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.subset} on Python {self.python}, {self.opentelemetry} OpenTelemetry"

    @property
    def subset(self) -> str:
        """How the request reads."""
        return " + ".join(self.wheels) + (f"[{','.join(self.extras)}]" if self.extras else "")

    @property
    def installed(self) -> list[str]:
        """The wheels that are there afterwards."""
        needed = {*self.wheels, *(sibling for name in self.wheels for sibling in SIBLINGS[name])}
        return [name for name in NAMES if name in needed]

    @property
    def exports(self) -> bool:
        """Whether the SDK, and so OpenTelemetry, is there."""
        return "sdk" in self.installed

    @property
    def content(self) -> tuple[object, ...]:
        """What is in the environment, so far as the request tells."""
        return self.python, *self.installed, self.extras, self.opentelemetry if self.exports else ""


@dataclass(frozen=True)
class Outcome:
    """What became of a combination.

    Args:
        seconds: how long it took.
        passed: the tests of the contract suite that passed.
        shared: the suite ran in an environment of the same content, and not in this one.
        problem: what went wrong.
    """

    seconds: float
    passed: int = 0
    shared: bool = False
    problem: Problem | None = None


def combinations(pythons: Sequence[str]) -> list[list[Combination]]:
    """Return all seven subsets, and one with extras, per Python and OpenTelemetry.

    Those of equal content stand in one list; the lists that take longest come first.
    """
    subsets = [subset for size in (1, 2, 3) for subset in itertools.combinations(NAMES, size)]
    requests = [*((subset, ()) for subset in subsets), (NAMES, WEB_EXTRAS)]
    equal: dict[object, list[Combination]] = defaultdict(list)
    for (subset, extras), python, opentelemetry in itertools.product(requests, pythons, OPENTELEMETRY):
        combination = Combination(subset, python, opentelemetry, extras)
        equal[combination.content].append(combination)
    return sorted(equal.values(), key=lambda group: (not group[0].exports, bool(group[0].extras)))
