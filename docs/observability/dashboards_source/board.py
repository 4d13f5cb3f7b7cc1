"""What a dashboard is made of, without a word of Grafana's: rows that answer a question each, and their panels."""

from __future__ import annotations

from dataclasses import dataclass

# Grafana's grid.
WIDTH = 24


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the short name of what it finds; ``{{label}}`` in it is a label's value."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Level:
    """From this value on a number has this color."""

    value: float
    color: str


BAD_FROM_ONE = (Level(1, "red"),)


@dataclass(frozen=True)
class Column:
    """A column of a table: the attribute that it shows, or ``Value``, and its heading."""

    source: str
    heading: str


@dataclass(frozen=True)
class Panel:
    """One panel.

    Args:
        title: What it shows.
        kind: ``timeseries``, or of the present only ``stat``, ``bars`` or ``table``.
        unit: Grafana's name of the unit.
        says: How to read it, and what a bad value looks like.
        next_step: What to do then.
        page: Page of the documentation that says more, without ``.md``.
        queries: What it asks.
        width: Columns of 24.
        levels: Colors of a stat, or bars.
        columns: Of a table.
        every: Least time between two points, also for rates' windows, where it is not the data source's.
        traces: Whether a click on a rank leads to its traces.
    """

    title: str
    kind: str
    unit: str
    says: str
    next_step: str
    page: str
    queries: tuple[Query, ...]
    width: int = 12
    levels: tuple[Level, ...] = ()
    columns: tuple[Column, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    decimals: int | None = None
    logarithmic: bool = False
    every: str = ""
    traces: bool = False

    @property
    def now(self) -> bool:
        """Tell whether it shows the present only."""
        return self.kind != "timeseries"


@dataclass(frozen=True)
class Row:
    """Panels that answer one question."""

    title: str
    question: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values that an attribute has on a metric's series.

    Args:
        name: ``$name`` in expressions.
        heading: What is written before it.
        selector: Series whose values are offered.
        attribute: The attribute.
        several: Whether several, and all, may be chosen.
    """

    name: str
    heading: str
    selector: str
    attribute: str
    several: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard.

    Args:
        uid: Its address in Grafana and the name of its file.
        title: Its name.
        about: What it is for.
        variables: What can be chosen.
        rows: From what is looked at first.
        silence: Whether it asks how long a rank may be silent.
    """

    uid: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    silence: bool = False
