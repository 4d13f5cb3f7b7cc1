"""Whether installed distributions fit together: what each requires against what is there.

Only as much of https://packaging.python.org/en/latest/specifications/version-specifiers/ as the requirements of the
wheels and of OpenTelemetry need; what cannot be decided is taken to fit.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_SPECIFIER = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*([\w.*+!-]+)\s*")
_PYTHON = re.compile(r"\s*python_version\s*(==|!=|<=|>=|<|>)\s*['\"]([\d.]+)['\"]\s*")
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")

_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def normalised(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unmet(requires: Iterable[str], installed: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
    """Return what is required and not there, extras left out.

    Args:
        requires: Requirements as in a distribution's metadata.
        installed: Version by normalised name.

    Returns:
        Name, specifiers, and the version that is installed or None.
    """
    found = []
    for requirement in requires:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None or not _applies(match[3] or ""):
            continue
        name, specifiers = normalised(match[1]), match[2].strip()
        version = installed.get(name)
        if version is None or not all(_meets(version, *each.groups()) for each in _SPECIFIER.finditer(specifiers)):
            found.append((name, specifiers, version))
    return found


def _applies(marker: str) -> bool:
    if not marker.strip():
        return True
    python = _PYTHON.fullmatch(marker)
    return python is not None and _COMPARE[python[1]](sys.version_info[:2], _parts(python[2])[0])


def _meets(version: str, comparison: str, wanted: str) -> bool:
    have, have_suffix = _parts(version)
    want, want_suffix = _parts(wanted.removesuffix(".*"))
    width = max(len(have), len(want))
    have, padded = have + (0,) * (width - len(have)), want + (0,) * (width - len(want))
    if wanted.endswith(".*"):
        return (have[: len(want)] == want) is (comparison == "==")
    if comparison == "~=":
        return have >= padded and have[: len(want) - 1] == want[:-1]
    if comparison in ("==", "!="):
        return (have == padded and have_suffix == want_suffix) is (comparison == "==")
    return _COMPARE[comparison](have, padded)


def _parts(version: str) -> tuple[tuple[int, ...], str]:
    """Return the numbers of a version, and what follows them but for a local part such as ``+cu118``."""
    match = _RELEASE.match(version)
    if match is None:
        return (0,), version
    return tuple(int(part) for part in match[1].split(".")), version[match.end() :].partition("+")[0]
