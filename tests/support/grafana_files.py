"""The committed dashboards, read from their JSON: panels, queries, variables, and what Grafana asks a database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "observability"
FILES = tuple(sorted((FOLDER / "dashboards").glob("*.json")))
BOARDS = ("inference", "rl", "telemetry-health", "training")

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)", flags=re.S)


@dataclass(frozen=True)
class Asked:
    """An expression of a panel."""

    board: str
    panel: str
    ref: str
    expression: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.board}: {self.panel} {self.ref}"


def board(name: str) -> dict[str, Any]:
    """Return a dashboard's JSON."""
    found: dict[str, Any] = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def all_panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel, the rows and what is in closed rows included."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels that show something: all but the rows."""
    return [panel for panel in all_panels(dashboard) if panel["type"] != "row"]


def asked(name: str) -> list[Asked]:
    """Return every expression of a dashboard's panels."""
    return [
        Asked(name, panel["title"], target["refId"], target["expr"], target.get("instant", False))
        for panel in panels(board(name))
        for target in panel["targets"]
    ]


def variables(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variables."""
    found: list[dict[str, Any]] = dashboard["templating"]["list"]
    return found


def queried(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variables whose values come from the database."""
    return [variable for variable in variables(dashboard) if variable["type"] == "query"]


def label_values(variable: Mapping[str, Any]) -> tuple[str, str]:
    """Return the selector and the label of a ``label_values`` query."""
    found = _LABEL_VALUES.fullmatch(variable["query"]["query"])
    assert found, variable["query"]
    return found["selector"], found["label"]


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Return the text with Grafana's variables replaced.

    Raises:
        KeyError: There is no value for one.
    """
    return _VARIABLE.sub(lambda found: values[found["braced"] or found["plain"]], text)
