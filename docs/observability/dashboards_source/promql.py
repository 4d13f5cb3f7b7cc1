"""PromQL, put together from names of semconv: a name that is not there is an error when the dashboards are made."""

from __future__ import annotations

from dataclasses import dataclass

from .prometheus_names import LE, label, series_name

# Grafana's windows: long enough for a rate at the present zoom, and all of the time that is shown.
RATE = "$__rate_interval"
RANGE = "$__range"


def equals(attribute: str, value: str) -> str:
    """Return a matcher: the attribute has this value; an empty one is that of series without the attribute."""
    return f'{label(attribute)}="{value}"'


def differs(attribute: str, value: str) -> str:
    """Return a matcher: the attribute has another value; with an empty one, the attribute is there."""
    return f'{label(attribute)}!="{value}"'


def matches(attribute: str, pattern: str) -> str:
    """Return a matcher: the attribute's value is all of this regular expression."""
    return f'{label(attribute)}=~"{pattern}"'


def aggregate(operator: str, expression: str, *by: str, parameter: float | None = None) -> str:
    """Return an aggregation over what ``expression`` finds, by attributes."""
    given = "" if parameter is None else f"{parameter:g}, "
    grouped = f" by ({', '.join(map(label, by))}) " if by else ""
    return f"{operator}{grouped}({given}{expression})"


def zero_if_none(expression: str) -> str:
    """Return 0 where ``expression`` finds nothing: what never happened has no series."""
    return f"{expression} or vector(0)"


def share(part: str, whole: str) -> str:
    """Return the ratio of two expressions; nothing where the second is 0: a NaN would be first in ``quantile``."""
    return f"{part} / ({whole} > 0)"


def fewer(less: str, expression: str) -> str:
    """Return by how much ``less`` is below ``expression``: not less than 0, where nothing counts as 0."""
    return f"clamp_min({expression} - ({zero_if_none(less)}), 0)"


@dataclass(frozen=True)
class Scope:
    """Which series a dashboard is about: what its variables choose."""

    matchers: tuple[str, ...]

    def select(self, metric: str, *more: str, part: str = "") -> str:
        """Return the selector of a metric's series, with ``more`` matchers."""
        matchers = ",".join((*self.matchers, *more))
        return f"{series_name(metric, part)}{{{matchers}}}" if matchers else series_name(metric, part)

    def over(
        self,
        function: str,
        metric: str,
        *more: str,
        part: str = "",
        window: str = RATE,
        at_end: bool = False,
        offset: str = "",
    ) -> str:
        """Return a function of a metric's values in a window, of each point in time or only of the last one shown."""
        moved = f"{' @ end()' if at_end else ''}{f' offset {offset}' if offset else ''}"
        return f"{function}({self.select(metric, *more, part=part)}[{window}]{moved})"

    def latest(self, metric: str) -> str:
        """Return the last value of a gauge or an up-down counter of each process that reports.

        What a database finds without a window is up to five minutes old: a process that is gone would still count, and
        one that was started again count twice.
        """
        return self.over("last_over_time", metric)

    def rate(self, metric: str, *by: str, part: str = "", more: tuple[str, ...] = ()) -> str:
        """Return the growth a second of a counter, or of a part of a histogram, added up by attributes."""
        return aggregate("sum", self.over("rate", metric, *more, part=part), *by)

    def growth(self, metric: str, *by: str, more: tuple[str, ...] = ()) -> str:
        """Return what a counter grew by in all the time shown, added up by attributes.

        A counter of failures begins with the first one. ``increase`` takes what it begins with for its zero, and would
        find nothing where something failed once: of a series that is younger than the time shown all of it counts.
        """
        latest = self.over("last_over_time", metric, *more, window=RANGE)
        before = self.over("present_over_time", metric, *more, window="5m", offset=RANGE)
        increase = self.over("increase", metric, *more, window=RANGE)
        return aggregate("sum", f"({latest} unless {before}) or {increase}", *by)

    def mean(self, metric: str, *by: str, window: str = RATE, at_end: bool = False) -> str:
        """Return the mean of what a histogram recorded in a window, by attributes: fewer series than buckets."""
        total, count = (
            aggregate("sum", self.over("rate", metric, part=part, window=window, at_end=at_end), *by)
            for part in ("sum", "count")
        )
        return share(total, count)

    def percentile(self, quantile: float, metric: str, *by: str) -> str:
        """Return a quantile of what a histogram recorded, from its buckets, by attributes."""
        return f"histogram_quantile({quantile:g}, {self.rate(metric, LE, *by, part='bucket')})"
