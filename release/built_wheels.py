"""What the built distributions must hold and say of themselves, before anybody installs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from packaging.utils import canonicalize_name

from .distributions import Distribution, record_digest
from .problems import Problem
from .source_tree import SourceTree

# contrib -> api <- sdk: what each wheel requires of its siblings.
SIBLINGS: dict[str, frozenset[str]] = {"api": frozenset(), "sdk": frozenset({"api"}), "contrib": frozenset({"api"})}
LICENCE = "Apache-2.0"

_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
_ELSEWHERE = ("https://", "http://", "mailto:", "#")


def check_distributions(tree: SourceTree, built: Sequence[Distribution]) -> Iterator[Problem]:
    """Check every distribution for itself, all of them together, and their long descriptions with twine."""
    for one in built:
        for check in (_versions, _pins, _pythons, _licence, _entry_points, _record, _links):
            yield from check(tree, one)
    yield from _no_file_twice(built)
    yield from _twine(built)


def supported_pythons(one: Distribution) -> list[str]:
    """Return the Pythons that the wheel's classifiers name, oldest first."""
    classifiers = "\n".join(one.metadata.get_all("Classifier", []))
    found: list[str] = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def _versions(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    said = {
        one.wheel.name: one.wheel.name.split("-")[1],
        f"METADATA of {one.wheel.name}": one.metadata["Version"],
        f"PKG-INFO of {one.sdist.name}": one.sdist_metadata["Version"],
    }
    for where, version in said.items():
        if version != tree.version:
            yield Problem(
                f"{where} says version {version}, VERSION says {tree.version}",
                f'let packages/nemo-lens-{one.name}/pyproject.toml say `dynamic = ["version"]` and use the shared hook',
            )
    for where, metadata in (("METADATA", one.metadata), ("PKG-INFO", one.sdist_metadata)):
        if metadata["Name"] != f"nemo-lens-{one.name}":
            yield Problem(f"{where} of nemo-lens-{one.name} names it {metadata['Name']}", "the three names are fixed")


def _pins(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    required: set[str] = set()
    for requirement in one.requirements:
        sibling = canonicalize_name(requirement.name).removeprefix("nemo-lens-")
        if sibling not in SIBLINGS:
            continue
        required.add(sibling)
        if str(requirement.specifier) != f"=={tree.version}":
            yield Problem(
                f"nemo-lens-{one.name} requires {requirement}, which is no exact pin to {tree.version}",
                f"require 'nemo-lens-{sibling}=={{version}}' in the hook's table of its pyproject.toml",
            )
    if required != SIBLINGS[one.name]:
        wanted, found = (", ".join(sorted(names)) or "none" for names in (SIBLINGS[one.name], required))
        what = f"nemo-lens-{one.name} requires of its siblings {found}; the design says {wanted}"
        yield Problem(what, "arrows between the wheels are contrib -> api <- sdk")


def _pythons(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    pythons = supported_pythons(one)
    wanted = f">={pythons[0]}" if pythons else None
    if one.metadata["Requires-Python"] != wanted:
        yield Problem(
            f"nemo-lens-{one.name} has Requires-Python {one.metadata['Requires-Python']} and classifiers for "
            f"{', '.join(pythons) or 'no Python'}",
            "let requires-python be the oldest Python of the classifiers, which are the Pythons it is tested on",
        )


def _licence(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    if one.metadata["License-Expression"] != LICENCE:
        what = f"nemo-lens-{one.name} names the licence {one.metadata['License-Expression']}"
        yield Problem(what, f'set license = "{LICENCE}" in its pyproject.toml')
    if one.info("licenses/LICENSE").encode() != (tree.root / "LICENSE").read_bytes():
        what = f"{one.wheel.name} does not carry the text of LICENSE"
        yield Problem(what, 'set license-files = ["LICENSE"] in its pyproject.toml')


def _entry_points(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    for group, points in one.entry_points.items():
        for name, value in points.items():
            module = value.partition(":")[0].strip().replace(".", "/")
            if not {f"{module}.py", f"{module}/__init__.py"} & one.files.keys():
                yield Problem(
                    f"the entry point {name} of {group} leads to {value}, which {one.wheel.name} does not hold",
                    f"correct packages/nemo-lens-{one.name}/pyproject.toml or add the module",
                )


def _record(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    unlisted = sorted(one.files.keys() ^ one.record.keys())
    altered = [path for path, digest in one.record.items() if digest and record_digest(one.files[path]) != digest]
    if unlisted or altered:
        what = f"RECORD of {one.wheel.name} is wrong about {', '.join([*unlisted, *altered][:5])}"
        yield Problem(what, "change nothing in a wheel after it is built")
    info = one.wheel.name.split("-py3-")[0] + ".dist-info/"
    homeless = [path for path in one.files if not path.startswith((f"nemo_lens/{one.name}/", info))]
    if homeless:
        what = f"{one.wheel.name} installs {', '.join(homeless[:5])} outside nemo_lens/{one.name}"
        yield Problem(what, "each wheel keeps to its own sub-package of the namespace nemo_lens")


def _links(tree: SourceTree, one: Distribution) -> Iterator[Problem]:
    for target in _LINK.findall(str(one.metadata.get_payload())):
        if not target.startswith(_ELSEWHERE):
            what = f"the long description of nemo-lens-{one.name} links to {target}, which an index does not have"
            yield Problem(what, f"link to a full address, or not at all, in packages/nemo-lens-{one.name}/README.md")


def _no_file_twice(built: Sequence[Distribution]) -> Iterator[Problem]:
    owners: dict[str, list[str]] = defaultdict(list)
    for one in built:
        for path in one.record:
            owners[path].append(f"nemo-lens-{one.name}")
    for path, wheels in owners.items():
        if len(wheels) > 1:
            what = f"{path} is in {' and '.join(wheels)}: uninstalling one would break the other"
            yield Problem(what, "a file belongs to one wheel; nemo_lens has no __init__.py")


def _twine(built: Sequence[Distribution]) -> Iterator[Problem]:
    run = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *(str(path) for one in built for path in one.archives)],
        env={**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if run.returncode != 0:
        what = f"twine check --strict refuses them:\n{(run.stdout + run.stderr).strip()}"
        yield Problem(what, "correct readme, description and classifiers in the pyproject.toml of the package named")
