"""What a person reads: the table of combinations, the problems, and what would be published."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from .combinations import Combination, Outcome
from .distributions import Distribution
from .problems import Problem


def outcome_table(outcomes: Mapping[Combination, Outcome]) -> str:
    """Return a row a subset and a column per Python and OpenTelemetry: ok or FAILED, the seconds, = where shared."""
    columns = sorted({(item.python, item.opentelemetry) for item in outcomes}, key=_by_python)
    cells = {(item.subset, item.python, item.opentelemetry): outcome for item, outcome in outcomes.items()}
    subsets = sorted(
        {item.subset: item for item in outcomes}.values(), key=lambda item: (len(item.extras), len(item.wheels))
    )
    rows = [["installed", *(f"{python} {version}" for python, version in columns), "tests"]]
    for item in sorted(subsets, key=lambda item: (len(item.extras), len(item.wheels))):
        found = [cells[item.subset, python, version] for python, version in columns]
        passed = {outcome.passed for outcome in found}
        tests = "smoke" if item.extras else "-".join(str(number) for number in sorted({min(passed), max(passed)}))
        rows.append([item.subset, *(_cell(outcome) for outcome in found), tests])
    note = "=: the suite ran in an environment that holds the same files, by their digests"
    return "\n".join([_aligned(rows), *([note] if any(outcome.shared for outcome in outcomes.values()) else [])])


def problem_list(problems: Iterable[Problem]) -> str:
    """Return each problem and below it what to do."""
    return "\n".join(f"  {problem.what}\n    -> {problem.remedy}" for problem in problems)


def publication_list(built: Sequence[Distribution]) -> str:
    """Return the files that would be published, in the order of upload, with what an index would know them by."""
    rows = [["", "project", "version", "file", "bytes", "sha256"]]
    for one in built:
        for path, metadata in ((one.sdist, one.sdist_metadata), (one.wheel, one.metadata)):
            content = path.read_bytes()
            known_by = [metadata["Name"], metadata["Version"], path.name]
            rows.append([f"{len(rows)}.", *known_by, str(len(content)), hashlib.sha256(content).hexdigest()])
    return f"What would be published, in the order of upload:\n{_aligned(rows)}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cell(outcome: Outcome) -> str:
    return f"{'FAILED' if outcome.problem else 'ok'} {outcome.seconds:.1f}s{' =' if outcome.shared else ''}"


def _by_python(column: tuple[str, str]) -> tuple[int, str]:
    return int(column[0].partition(".")[2]), column[1]
