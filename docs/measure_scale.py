"""Measure what the telemetry of a rank weighs, and print what a job of thousands of them sends.

    python docs/measure_scale.py                            # measure, then print the tables
    python docs/measure_scale.py --kept --step-time 1.2     # from the kept sizes, for a job of your own
    python docs/measure_scale.py --write                    # measure, keep the sizes, bring scale.md up to date
    python docs/measure_scale.py --check                    # do the page and the kept sizes still hold?

What is measured are sizes, and with ``--collector PROGRAM`` the processor time of a real OpenTelemetry Collector. All
that is said of a job is arithmetic on them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from scale import collector_load, sizes
from scale.tables import RANKS, tables
from scale.workload import Job

PAGE = Path(__file__).with_name("scale.md")
KEPT = Path(__file__).parent / "scale" / "sizes.json"
TOLERANCE = 0.1
COMMAND = "python docs/measure_scale.py --write"
Number = TypeVar("Number", int, float)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print, write or check; return the exit code."""
    options = _parser().parse_args(arguments)
    job = Job(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Job)})
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    if options.check:
        return _check(kept)
    found = kept if options.kept else _measured(kept, options.collector)
    if options.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables(Job(), RANKS, found)), encoding="utf-8")
    else:
        for name, table in tables(job, options.ranks, found).items():
            sys.stdout.write(f"{name}\n\n{table}\n\n")
    return 0


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return the page with its tables replaced.

    Raises:
        ValueError: The page has no place for a table.
    """
    for name, table in made.items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(f"{PAGE.name} has no '<!-- table {name} -->' and '<!-- end -->'")
        page = place.sub(partial(_filled_place, table), page)
    return page


def _filled_place(table: str, place: re.Match[str]) -> str:
    return f"{place[1]}\n{table}\n\n{place[2]}"


def _measured(kept: Mapping[str, Any], collector: Path | None) -> dict[str, Any]:
    load = collector_load.measure(collector, sizes.capture()) if collector else kept["collector"]
    return {"versions": sizes.provenance(), **sizes.measure(), "collector": load}


def _check(kept: Mapping[str, Any]) -> int:
    problems = []
    page = PAGE.read_text(encoding="utf-8")
    if filled(page, tables(Job(), RANKS, kept)) != page:
        problems.append(f"the tables of {PAGE.name} are not those of {KEPT.name}")
    now = sizes.measure()
    problems.extend(sizes.differences({name: kept[name] for name in now}, now, TOLERANCE))
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if problems:
        sys.stderr.write(f"bring it up to date with: {COMMAND}\n")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--kept", action="store_true", help="measure nothing, use the sizes that are kept")
    what.add_argument("--write", action="store_true", help="keep what is measured and write the tables of the page")
    what.add_argument("--check", action="store_true", help="exit with 1 when the page or the kept sizes are stale")
    parser.add_argument("--collector", type=Path, help="program of an OpenTelemetry Collector to measure, too")
    parser.add_argument("--ranks", type=_ranks, default=RANKS, help="comma list")
    for field, default in dataclasses.asdict(Job()).items():
        name = field.removesuffix("_s")
        unit = "" if name == field else "seconds; "
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=field,
            metavar="N",
            type=partial(_above_zero, type(default)),
            default=default,
            help=f"{unit}default {default:g}",
        )
    return parser


def _ranks(text: str) -> list[int]:
    return [_above_zero(int, part) for part in text.split(",")]


def _above_zero(kind: type[Number], text: str) -> Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind(0)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not {'a whole' if kind is int else 'a'} number above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
