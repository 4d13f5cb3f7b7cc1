"""Queries that several dashboards ask alike."""

from __future__ import annotations

from .board import Query
from .promql import Scope, aggregate


def over_ranks(scope: Scope, metric: str, *operators: str) -> tuple[Query, ...]:
    """Return the mean, smallest or largest value, or the sum, of a gauge over the ranks: a query for each operator."""
    return tuple(Query(aggregate(operator, scope.latest(metric)), operator) for operator in operators)


def percentiles(scope: Scope, metric: str) -> tuple[Query, ...]:
    """Return the median, the 95th and the 99th percentile of what a histogram recorded."""
    return tuple(Query(scope.percentile(quantile, metric), f"p{quantile * 100:g}") for quantile in (0.5, 0.95, 0.99))
