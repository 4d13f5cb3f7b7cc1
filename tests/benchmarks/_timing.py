"""Paired timing: both sides in turn, many short rounds, the median of the ratios."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Loop = Callable[[int], None]


@dataclass(frozen=True)
class Budget:
    """A figure of the design: what it is measured against, what is aimed at and what must not be exceeded."""

    what: str
    against: str
    target: float
    limit: float


def ratio(
    ours: Loop, peer: Loop, calls: int, rounds: int = 41, between: Callable[[], object] = lambda: None
) -> tuple[float, float, float]:
    """Return the median ratio of ``ours`` to ``peer``, and the best time of each in ns per call.

    Each loop runs its own ``for`` over the calls, so that both pay for the loop alike. The two run in turn, in swapped
    order every other round, so that what else the machine does hits both. ``between`` runs untimed after each.
    """
    ours(calls)
    peer(calls)
    ratios, best_ours, best_peer = [], float("inf"), float("inf")
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            first, second = (ours, peer) if turn % 2 else (peer, ours)
            a = _time(first, calls)
            between()
            b = _time(second, calls)
            between()
            mine, theirs = (a, b) if turn % 2 else (b, a)
            ratios.append(mine / theirs)
            best_ours, best_peer = min(best_ours, mine), min(best_peer, theirs)
    finally:
        gc.enable()
    return statistics.median(ratios), best_ours / calls * 1e9, best_peer / calls * 1e9


def settled(budget: Budget, measure: Callable[[], tuple[float, str]]) -> tuple[float, str]:
    """Measure, and again up to twice while the figure is past the limit; return the last figure with its detail.

    A neighbour on the machine can spoil one measurement. What is really too slow is too slow three times.
    """
    figure, detail = measure()
    for _ in range(2):
        if figure > budget.limit:
            figure, detail = measure()
    return figure, detail


def _time(loop: Loop, calls: int) -> float:
    start = time.perf_counter()
    loop(calls)
    return time.perf_counter() - start
