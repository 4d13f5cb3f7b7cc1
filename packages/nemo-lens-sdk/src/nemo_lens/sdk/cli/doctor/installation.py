"""What is installed: the wheels and OpenTelemetry's packages, and whether their versions fit together."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path

import nemo_lens.api
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.requirements import normalised, unmet

WHEELS = ("nemo-lens-api", "nemo-lens-sdk", "nemo-lens-contrib")
# Without these nothing leaves the process.
_NEEDED = ("nemo-lens-api", "nemo-lens-sdk")
_OPENTELEMETRY = "opentelemetry-"
# What decides whether the exporters work, beside OpenTelemetry's own packages.
_CARRIERS = ("grpcio", "protobuf", "requests")

_TOGETHER = (
    "install everything in one command, so that versions are resolved together: pip install --upgrade nemo-lens-sdk "
    "opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc opentelemetry-exporter-otlp-proto-http"
)


@dataclass(frozen=True)
class Package:
    """An installed distribution."""

    name: str
    version: str
    location: str
    requires: tuple[str, ...] = ()

    def as_object(self) -> dict[str, object]:
        """Return the package as it stands in the JSON."""
        return {"name": self.name, "version": self.version, "location": self.location}


@dataclass
class Installation:
    """What is installed, by what finds it first on the path."""

    packages: list[Package]
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return the section as it stands in the JSON."""
        return {
            "python": platform.python_version(),
            "executable": sys.executable,
            "packages": [package.as_object() for package in self.packages],
        }


def look() -> Installation:
    """Find the wheels, OpenTelemetry's packages and what carries their data, and compare versions."""
    everything = list(_everything())
    versions: dict[str, str] = {}
    packages: dict[str, Package] = {}
    shadowed: list[tuple[Package, Package]] = []
    for package in everything:
        first = packages.setdefault(package.name, package)
        versions.setdefault(package.name, package.version)
        if _matters(package.name) and first.version != package.version:
            shadowed.append((first, package))
    found = [packages[name] for name in sorted(packages, key=_order) if _matters(name)]
    installation = Installation(found)
    installation.findings += _missing(packages)
    installation.findings += [_shadowed(*pair) for pair in shadowed]
    installation.findings += [finding for package in found for finding in _unfit(package, versions)]
    if found and not installation.findings:
        wheels = ", ".join(f"{each.name} {each.version}" for each in found if each.name in WHEELS)
        installation.findings.append(Finding(OK, "versions", f"{wheels} and what they need fit together"))
    return installation


def _everything() -> Iterator[Package]:
    for each in distributions():
        # A folder half removed leaves metadata without a name.
        name = each.metadata["Name"] if each.metadata is not None else None
        if name:
            yield Package(normalised(name), each.version or "", _location(each), tuple(each.requires or ()))


def _location(distribution: Distribution) -> str:
    return str(Path(str(distribution.locate_file(""))))


def _matters(name: str) -> bool:
    return name in WHEELS or name.startswith(_OPENTELEMETRY) or name in _CARRIERS


def _order(name: str) -> tuple[int, str]:
    if name in WHEELS:
        return WHEELS.index(name), name
    return (len(WHEELS) if name.startswith(_OPENTELEMETRY) else len(WHEELS) + 1), name


def _missing(packages: dict[str, Package]) -> Iterator[Finding]:
    absent = [name for name in _NEEDED if name not in packages]
    if absent:
        where = Path(nemo_lens.api.__file__ or "").parent
        yield Finding(
            PROBLEM,
            "no_metadata",
            f"{' and '.join(absent)}: the code is on the path ({where}) and its metadata is not, "
            "so entry points are not found",
            f"install it rather than put its folder on PYTHONPATH: pip install {' '.join(absent)}",
        )


def _shadowed(first: Package, second: Package) -> Finding:
    return Finding(
        WARNING,
        "installed_twice",
        f"{first.name} is installed twice: {first.version} in {first.location}, which is used, and {second.version} "
        f"in {second.location}",
        "remove one of them, or the folder it is in from PYTHONPATH",
    )


def _unfit(package: Package, versions: dict[str, str]) -> Iterator[Finding]:
    if package.name not in WHEELS and not package.name.startswith(_OPENTELEMETRY):
        return
    start = f"{package.name} {package.version} needs"
    lacking = unmet(package.requires, versions)
    absent = ", ".join(f"{name}{specifiers}" for name, specifiers, version in lacking if version is None)
    if absent:
        yield Finding(PROBLEM, "package_missing", f"{start} what is not installed: {absent}", _TOGETHER)
    for name, specifiers, version in lacking:
        if version is not None:
            text = f"{start} {name}{specifiers}, and {version} is installed"
            yield Finding(WARNING, "versions_mixed", text, _TOGETHER)
