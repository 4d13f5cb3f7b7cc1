"""Every setting and where it came from, the variables that matter, and what is wrong with either."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from nemo_lens.api._variables import DEFAULT_PREFIX, VARIABLES, checked_prefix
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk import settings
from nemo_lens.sdk.cli.doctor.findings import PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.overheard import Overheard
from nemo_lens.sdk.cli.doctor.redaction import Secrets, header_pairs, is_header_list, shown

_SIGNALS = ("traces", "metrics", "logs")

# Read by Lens but in no field: it belongs to the process, whatever prefix an application chose.
_PROCESS_WIDE = ("NEMO_LENS_BACKEND", "NEMO_LENS_INSTRUMENT")

# Variables without the prefix OTEL_ that decide where telemetry goes, or whether it is recorded.
_OTHERS = (
    "TRACEPARENT",
    "GRPC_ENABLE_FORK_SUPPORT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    *(
        name
        for each in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "no_proxy", "no_grpc_proxy")
        for name in (each, each.upper())
    ),
)

# How alike two names must be for one to be the other misspelt: all of these begin alike.
_ALIKE = 0.9

_CHECKS: tuple[Callable[[], object], ...] = (
    settings.validate_sampler_and_limits,
    settings.validate_propagators,
    partial(settings.queue_settings, "BSP"),
    partial(settings.queue_settings, "BLRP"),
    settings.metric_interval_s,
    settings.metric_timeout_s,
)


@dataclass(frozen=True)
class Setting:
    """A field of the configuration.

    Args:
        origin: The variable it was read from, or ``default``.
        variables: What would set it, the first one that is set wins.
        error: Why the variable that is set could not be read; the value is the default then.
    """

    name: str
    value: object
    origin: str
    variables: tuple[str, ...]
    error: str = ""

    def as_object(self) -> dict[str, object]:
        """Return the setting as it stands in the JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "origin": self.origin,
            "variables": list(self.variables),
            "error": self.error or None,
        }


@dataclass
class Configuration:
    """The configuration that ``NemoLensConfig.from_env`` makes of the environment, bad values replaced by defaults."""

    config: NemoLensConfig
    settings: list[Setting]
    variables: dict[str, str]
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return the section as it stands in the JSON."""
        return {
            "settings": [setting.as_object() for setting in self.settings],
            "variables": [{"name": name, "value": value} for name, value in self.variables.items()],
        }


def look(
    environ: Mapping[str, str], prefix: str, fallback_prefix: str | None, overheard: Overheard, secrets: Secrets
) -> Configuration:
    """Read the configuration as set-up does, going on where set-up would stop.

    Args:
        environ: The environment.
        prefix: What the variables' names begin with.
        fallback_prefix: Read for what is unset under ``prefix``.
        overheard: Where the library's log records arrive.
        secrets: What must not be shown.
    """
    config, errors = _read(dict(environ), prefix, fallback_prefix)
    unknown = overheard.take("unknown_variable", "correct its name, or unset it")
    prefixes = [checked_prefix(each) for each in (prefix, fallback_prefix) if each is not None]
    rows = []
    for row in VARIABLES:
        names = (*(f"{each}_{row.key}" for each in prefixes if row.key), *row.bare)
        error = next((errors[name] for name in names if name in errors), "")
        rows.append(Setting(row.field, getattr(config, row.field), config.sources[row.field], names, error))
    for name in _PROCESS_WIDE:
        text = environ.get(name, "").strip()
        short = name.removeprefix(f"{DEFAULT_PREFIX}_").lower()
        rows.append(Setting(short, text, name if text else "default", (name,)))
    variables = {
        name: secrets.scrub(shown(name, value))
        for name, value in sorted(environ.items())
        if value.strip() and (name.startswith("OTEL_") or name in _OTHERS)
    }
    found = Configuration(config, rows, variables)
    found.findings += _switched_off(config, rows, environ)
    found.findings += [_bad(error) for error in (*errors.values(), *_standard_errors())]
    found.findings += unknown
    found.findings += [*_misspelt(environ), *_ignored(config, environ), *_headers(environ), *_sampled_out(environ)]
    return found


def _read(variables: dict[str, str], prefix: str, fallback: str | None) -> tuple[NemoLensConfig, dict[str, str]]:
    errors: dict[str, str] = {}
    while True:
        try:
            return NemoLensConfig.from_env(prefix, fallback, environ=variables), errors
        except ValueError as fault:
            name = str(fault).partition("=")[0]
            if name not in variables:
                raise
            errors[name] = str(fault)
            del variables[name]


def _bad(error: str) -> Finding:
    return Finding(PROBLEM, "bad_setting", error, "correct the variable: set-up raises ValueError as it is")


def _standard_errors() -> list[str]:
    errors = []
    for check in _CHECKS:
        try:
            check()
        except ValueError as fault:
            errors.append(str(fault))
    return errors


def _switched_off(config: NemoLensConfig, rows: list[Setting], environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    if not config.enabled:
        setting = next(row for row in rows if row.name == "enabled")
        switch = setting.variables[0]
        found = "is not set" if setting.origin == "default" else f"is off ({setting.origin})"
        text = f"telemetry is off: {switch} {found}"
        findings.append(
            Finding(PROBLEM, "telemetry_off", text, f"set {switch}=1, unless the application switches it on in code")
        )
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        text = f"telemetry is off: OTEL_SDK_DISABLED={environ['OTEL_SDK_DISABLED'].strip()}"
        findings.append(Finding(PROBLEM, "telemetry_off", text, "unset OTEL_SDK_DISABLED"))
    if not any(getattr(config, f"{signal}_enabled") for signal in _SIGNALS):
        names = ", ".join(row.variables[0] for row in rows if row.name.removesuffix("_enabled") in _SIGNALS)
        text = "traces, metrics and logs are all switched off"
        findings.append(Finding(PROBLEM, "nothing_exported", text, f"switch one on: {names}"))
    return findings


def _misspelt(environ: Mapping[str, str]) -> list[Finding]:
    known = _standard_names()
    findings = []
    for name in sorted(environ):
        if name.startswith("OTEL_") and name not in known and environ[name].strip():
            near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
            if near:
                text = f"{name} is set, and OpenTelemetry knows no such variable: did you mean {near[0]}?"
                findings.append(Finding(WARNING, "unknown_variable", text, f"rename it to {near[0]}, or unset it"))
    return findings


def _standard_names() -> list[str]:
    try:
        from opentelemetry import environment_variables as of_api  # absent where doctor is needed most
        from opentelemetry.sdk import environment_variables as of_sdk
    except Exception:  # noqa: BLE001 - a broken installation is reported where the backend is loaded
        return []
    return sorted(
        {value for module in (of_api, of_sdk) for value in vars(module).values() if str(value).startswith("OTEL_")}
    )


def _ignored(config: NemoLensConfig, environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for signal in _SIGNALS:
        name = f"OTEL_{signal.upper()}_EXPORTER"
        value = environ.get(name, "").strip()
        if value and value.lower() != config.exporter.lower():
            text = f"{name}={value} has no effect on NeMo Lens, whose exporter is {config.exporter}"
            remedy = f"set NEMO_LENS_EXPORTER, or NEMO_LENS_{signal.upper()}_ENABLED=0 to send none"
            findings.append(Finding(WARNING, "ignored_variable", text, remedy, (signal,)))
    return findings


def _headers(environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for name in sorted(filter(is_header_list, environ)):
        pairs = header_pairs(environ[name])
        bad = [str(number) for number, (header, _) in enumerate(pairs, start=1) if not header]
        if bad:
            text = f"{name}: part {' and '.join(bad)} of {len(pairs)} is no NAME=VALUE, and is left out"
            remedy = "separate headers by commas and write them as authorization=Bearer%20TOKEN, a comma as %2C"
            findings.append(Finding(WARNING, "malformed_header", text, remedy))
    return findings


def _sampled_out(environ: Mapping[str, str]) -> list[Finding]:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratio = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    try:
        nothing = sampler.endswith("always_off") or (sampler.endswith("traceidratio") and float(ratio or 1) == 0)
    except ValueError:  # reported among the errors
        nothing = False
    findings = []
    if nothing:
        text = f"OTEL_TRACES_SAMPLER={sampler}{f' with {ratio}' if ratio else ''} drops every span that has no parent"
        findings.append(Finding(WARNING, "sampled_out", text, "unset it, or choose parentbased_always_on", ("traces",)))
    parts = environ.get("TRACEPARENT", "").strip().split("-")
    if len(parts) >= 4 and parts[3] in ("00", "02") and sampler in ("", *_PARENT_BASED):
        text = f"TRACEPARENT={'-'.join(parts)} says that the trace is not sampled, so spans of this process are dropped"
        findings.append(
            Finding(WARNING, "sampled_out", text, "unset TRACEPARENT, or sample in the launcher", ("traces",))
        )
    return findings


_PARENT_BASED = tuple(name for name in settings.SAMPLERS if name.startswith("parentbased_"))
