"""Adds up what the nox sessions reported: a line a session, the reasons of skips, pytest's summary line last.

usage: summary.py SESSIONS (written by ``nox --report``) REPORTS (the folder of JUnit files)
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

_ORDER = ("failed", "passed", "skipped", "xfailed", "errors")


def _counted(report: Path) -> tuple[Counter[str], float, Counter[str]]:
    """Return the outcomes, the seconds and the reasons of skips in one JUnit file."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seconds = 0.0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        seconds += float(suite.get("time", 0))
        for case in suite.iter("testcase"):
            skipped = case.find("skipped")
            if case.find("error") is not None:
                outcomes["errors"] += 1
            elif case.find("failure") is not None:
                outcomes["failed"] += 1
            elif skipped is None:
                outcomes["passed"] += 1
            elif skipped.get("type") == "pytest.xfail":
                outcomes["xfailed"] += 1
            else:
                outcomes["skipped"] += 1
                reasons[skipped.get("message", "no reason given")] += 1
    return outcomes, seconds, reasons


def _in_words(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[name]} {name}" for name in _ORDER if outcomes[name]) or "no tests ran"


def main(sessions: str, folder: str) -> int:
    """Print the summary; return 0 only when tests ran and nothing failed."""
    reports = Path(folder)
    total: Counter[str] = Counter()
    seconds = 0.0
    print("\n==== sessions ====")
    for session in json.loads(Path(sessions).read_text(encoding="utf-8"))["sessions"]:
        name, result = (session["signatures"] or [session["name"]])[0], session["result"]
        report = reports / f"{name}.xml"
        outcomes, spent, reasons = _counted(report) if report.exists() else (Counter[str](), 0.0, Counter[str]())
        if result not in ("success", "skipped") and not outcomes["failed"] + outcomes["errors"]:
            outcomes["failed"] += 1  # a linter, or a session that did not come to its tests
        print(f"{name:<44} {result:<8} {_in_words(outcomes) if outcomes else session['reason'] or ''}")
        for reason, times in sorted(reasons.items()):
            print(f"    skipped {times}: {reason}")
        total += outcomes
        seconds += spent
    print(f"{f' {_in_words(total)} in {seconds:.2f}s ':=^100}")
    return 1 if not total["passed"] or total["failed"] + total["errors"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
