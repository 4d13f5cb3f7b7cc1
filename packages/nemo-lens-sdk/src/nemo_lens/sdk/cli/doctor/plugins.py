"""Entry points: which there are, which load, and which backend telemetry would go through."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from nemo_lens.api import _discovery
from nemo_lens.api._diagnostics import nearest
from nemo_lens.sdk import settings
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.overheard import Overheard
from nemo_lens.sdk.cli.doctor.redaction import Secrets

GROUPS = (
    _discovery.BACKENDS,
    _discovery.INSTRUMENTATIONS,
    _discovery.SPAN_GROUPS,
    "opentelemetry_resource_detector",
    "opentelemetry_traces_exporter",
    "opentelemetry_metrics_exporter",
    "opentelemetry_logs_exporter",
)
_SDK = "nemo-lens-sdk"


@dataclass(frozen=True)
class Plugin:
    """An entry point, and what came of loading it."""

    group: str
    name: str
    value: str
    distribution: str
    error: str = ""

    def as_object(self) -> dict[str, object]:
        """Return the entry point as it stands in the JSON."""
        return {
            "group": self.group,
            "name": self.name,
            "value": self.value,
            "distribution": self.distribution,
            "loads": not self.error,
            "error": self.error or None,
        }


@dataclass
class Plugins:
    """The entry points, and the backend that set-up would choose."""

    found: list[Plugin]
    backend: str = ""
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return the section as it stands in the JSON."""
        return {"backend": self.backend or None, "entry_points": [plugin.as_object() for plugin in self.found]}


def look(environ: Mapping[str, str], overheard: Overheard, secrets: Secrets) -> Plugins:
    """Load every entry point that belongs to telemetry and choose the backend as set-up does."""
    with suppress(ValueError):  # reported among the settings
        settings.propagator()  # before plug-ins that import it, as in set-up
    found = [_loaded(point, secrets) for group in GROUPS for point in sorted(_points(group), key=_name)]
    plugins = Plugins(found)
    plugins.findings += overheard.take("plugin_warns")
    plugins.findings += _backend(plugins, environ)
    overheard.take("")  # the same, as set-up says it
    plugins.findings += _broken(plugins, environ)
    plugins.findings += _instrument(environ, found)
    return plugins


def _points(group: str) -> list[EntryPoint]:
    # An installation that is on the path twice lists its entry points twice.
    return list({(each.name, each.value): each for each in entry_points(group=group)}.values())


def _name(point: EntryPoint) -> str:
    return point.name


def _loaded(point: EntryPoint, secrets: Secrets) -> Plugin:
    error = ""
    try:
        point.load()
    except (Exception, SystemExit) as fault:  # noqa: BLE001 - a broken plug-in is what is looked for
        error = secrets.scrub(_last_words(fault))
    return Plugin(point.group, point.name, point.value, _discovery.distribution_of(point), error)


def _last_words(fault: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(type(fault), fault)).split())


def _backend(plugins: Plugins, environ: Mapping[str, str]) -> list[Finding]:
    found = [plugin for plugin in plugins.found if plugin.group == _discovery.BACKENDS]
    wanted = environ.get("NEMO_LENS_BACKEND", "").strip()
    try:
        backend: Any = _discovery.find_backend()
    except ValueError as fault:
        if wanted and all(plugin.name != wanted for plugin in found):
            remedy = "unset NEMO_LENS_BACKEND, or set it to an installed one"
            return [Finding(PROBLEM, "backend_unknown", str(fault), remedy)]
        backend = None  # a variable keeps it from being loaded
    if backend is None:
        return [_no_backend([plugin for plugin in found if wanted in ("", plugin.name)], environ)]
    # What find_backend takes: the one that is named or preferred, else the first that loads.
    good = [plugin for plugin in found if not plugin.error]
    first = wanted or _discovery.PREFERRED_BACKEND
    chosen = next((plugin for plugin in good if plugin.name == first), good[0])
    plugins.backend = chosen.name
    findings = [Finding(OK, "backend", f"backend {chosen.name} of {chosen.distribution} loads")]
    if len(found) > 1 and not wanted:
        listed = ", ".join(f"{plugin.name} of {plugin.distribution}" for plugin in found)
        text = f"several backends are installed: {listed}; {chosen.name} is used"
        findings.append(Finding(WARNING, "several_backends", text, "set NEMO_LENS_BACKEND to the one that is wanted"))
    return findings


def _no_backend(broken: list[Plugin], environ: Mapping[str, str]) -> Finding:
    if not broken:
        return Finding(
            PROBLEM,
            "no_backend",
            "no telemetry backend is installed: nothing is registered under the entry-point group nemo_lens.backend",
            f"pip install {_SDK}",
        )
    first = broken[0]
    text = f"backend {first.name} of {first.distribution} does not load: {first.error}"
    if variable := variable_in(first.error, environ):
        remedy = f"correct {variable}, or unset it"
    elif first.distribution.startswith(_SDK):
        remedy = f"pip install --force-reinstall {_SDK}, which brings the OpenTelemetry packages it needs"
    else:
        remedy = f"repair or remove {first.distribution}"
    return Finding(PROBLEM, "no_backend", text, remedy)


def variable_in(error: str, environ: Mapping[str, str]) -> str:
    """Return the variable that an error is about, empty when it is not: OpenTelemetry reads some as it is imported."""
    return next((name for name in re.findall(r"\bOTEL_\w+", error) if name in environ), "")


def _broken(plugins: Plugins, environ: Mapping[str, str]) -> list[Finding]:
    """Return what does not load, in one finding for each distribution."""
    by_distribution: dict[str, list[Plugin]] = {}
    for plugin in plugins.found:
        if plugin.error:
            by_distribution.setdefault(plugin.distribution, []).append(plugin)
    findings = []
    for distribution, broken in by_distribution.items():
        variable = next(filter(None, (variable_in(plugin.error, environ) for plugin in broken)), "")
        # That there is no backend is said already, and why.
        if not plugins.backend and (variable or any(plugin.group == _discovery.BACKENDS for plugin in broken)):
            continue
        reasons = "; ".join(f"{plugin.name} ({plugin.group}): {plugin.error}" for plugin in broken)
        text = f"what {distribution} registers does not load and would be skipped: {reasons}"
        package = distribution.partition(" ")[0]
        remedy = f"correct {variable}, or unset it" if variable else f"repair, upgrade or remove {package}"
        findings.append(Finding(WARNING, "plugin_broken", text, remedy))
    return findings


def _instrument(environ: Mapping[str, str], found: list[Plugin]) -> list[Finding]:
    """Return what is wrong with the names in ``NEMO_LENS_INSTRUMENT``; those that do not load are found already."""
    known = {plugin.name for plugin in found if plugin.group == _discovery.INSTRUMENTATIONS}
    wanted = [name.strip() for name in environ.get("NEMO_LENS_INSTRUMENT", "").split(",") if name.strip()]
    return [
        Finding(
            WARNING,
            "integration_missing",
            f"NEMO_LENS_INSTRUMENT names {name!r}, which no installed distribution provides; "
            f"installed: {', '.join(sorted(known)) or 'none'}{nearest(name, known)}",
            "pip install nemo-lens-contrib, or correct the name",
        )
        for name in wanted
        if name not in known
    ]
