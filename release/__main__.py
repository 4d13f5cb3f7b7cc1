"""``python -m release``: build, verify, install everywhere, say what would be published. Nothing is uploaded."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from .built_wheels import check_distributions, supported_pythons
from .combinations import combinations
from .distributions import Distribution
from .environments import Environments, StepError
from .problems import Problem, ReleaseRefusedError
from .report import outcome_table, problem_list, publication_list
from .reproducible import build_reproducibly
from .source_tree import SourceTree, check_final, check_source, source_date_epoch

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ENVIRONMENTS = ROOT / ".cache" / "release"


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps in order; return 0, or 1 when the release is refused."""
    options = _parser().parse_args(words)
    tree = SourceTree(ROOT)
    try:
        _empty_dist()
        with tempfile.TemporaryDirectory(prefix="nemo-lens-release-") as work:
            built = _build(tree, Path(work), final=options.final)
            if not options.build_only:
                _install(built, quick=options.quick, final=options.final)
            for path in (path for one in built for path in one.archives):
                shutil.copyfile(path, DIST / path.name)
            print(f"\n{publication_list(built)}")
    except ReleaseRefusedError as refused:
        print(f"\nThe release of {tree.version} is refused:\n{problem_list(refused.problems)}", file=sys.stderr)
        return 1
    print(
        "\nThe files are in dist/. Nothing was uploaded: 'Cut a release' in CONTRIBUTING.md says how a person does it."
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m release", description="Check a release. Nothing is uploaded.")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="install on the newest Python only")
    extent.add_argument("--build-only", action="store_true", help="build and verify, install nothing")
    extent.add_argument(
        "--final",
        action="store_true",
        help="for a version that will be published: refuse it without a date, a clean tree, a tag and every Python",
    )
    return parser


def _build(tree: SourceTree, work: Path, *, final: bool) -> list[Distribution]:
    started = time.monotonic()
    _refuse(check_source(tree))
    unready = list(check_final(tree))
    if final:
        _refuse(unready)
    epoch = source_date_epoch(tree)
    when = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).isoformat()
    backend = f"hatchling {importlib.metadata.version('hatchling')}"
    print(f"Release {tree.version}, SOURCE_DATE_EPOCH {epoch} ({when}), {backend}", flush=True)
    if unready:
        print(f"Not ready to be published; with --final this would be refused:\n{problem_list(unready)}")
    built = build_reproducibly(tree, epoch, work)
    _refuse(check_distributions(tree, built))
    _say(
        "Built again elsewhere and from the source distributions: byte for byte the same. Contents and metadata",
        started,
    )
    return built


def _install(built: Sequence[Distribution], *, quick: bool, final: bool) -> None:
    started = time.monotonic()
    shutil.rmtree(ENVIRONMENTS, ignore_errors=True)
    ENVIRONMENTS.mkdir(parents=True)
    environments = Environments(ROOT, built, ENVIRONMENTS)
    supported = supported_pythons(built[0])
    wanted = supported[-1:] if quick else supported
    interpreters = environments.interpreters(wanted)
    absent = ", ".join(version for version in wanted if version not in interpreters)
    if absent and (final or not interpreters):
        remedy = "install it so that `uv python list` shows it"
        raise ReleaseRefusedError([Problem(f"not on this machine: Python {absent}", remedy)])
    try:
        environments.put_tools(interpreters)
        problems = environments.check_lone_wheels(list(interpreters.values())[-1])
    except StepError as error:
        raise ReleaseRefusedError([Problem(str(error), "make that command work: uv needs an index")]) from error
    outcomes = environments.try_all(combinations(list(interpreters)), interpreters, share=not final)
    print(f"\n{outcome_table(outcomes)}")
    if absent:
        print(f"Not tried, because it is not on this machine: Python {absent}")
    _refuse([*problems, *(outcome.problem for outcome in outcomes.values() if outcome.problem)])
    shutil.rmtree(ENVIRONMENTS)
    _say(
        f"{len(outcomes)} environments, {os.cpu_count()} at a time: install, uv pip check, import, contract suite",
        started,
    )


def _empty_dist() -> None:
    """Remove what an earlier release left, so that nothing stale is uploaded; leave what is not ours."""
    DIST.mkdir(exist_ok=True)
    for path in DIST.glob("nemo_lens_*"):
        path.unlink()
    left = ", ".join(sorted(path.name for path in DIST.iterdir() if not path.name.startswith(".")))
    if left:
        raise ReleaseRefusedError([Problem(f"dist/ holds something else: {left}", "move it out of dist/")])


def _refuse(problems: Iterable[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise ReleaseRefusedError(found)


def _say(what: str, started: float) -> None:
    print(f"{what}: ok in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
