"""Every setting and where it came from, the variables that matter, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_lens.api._variables import DEFAULT_PREFIX, VARIABLES, checked_prefix
from nemo_lens.api.config import NemoLensConfig, sdk_disabled
from nemo_lens.sdk.cli.doctor import standard_variables
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.overheard import Overheard
from nemo_lens.sdk.cli.doctor.redaction import Secrets, shown, shown_value

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

    def variable(self, name: str) -> str:
        """Return the variable that an application with this prefix sets a field by."""
        return _variable(self.settings, name)

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
        error = next((secrets.scrub(errors[name]) for name in names if name in errors), "")
        value = getattr(config, row.field)
        safe = shown_value(value) if isinstance(value, str) else value
        rows.append(Setting(row.field, safe, config.sources[row.field], names, error))
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
    found.findings += [_bad(error) for error in (*errors.values(), *standard_variables.refused())]
    found.findings += unknown
    found.findings += [*standard_variables.look(config, environ), *_ignored(config, rows, environ)]
    found.findings += _hidden_logs(config)
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


def _switched_off(config: NemoLensConfig, rows: list[Setting], environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    if not config.enabled:
        setting = next(row for row in rows if row.name == "enabled")
        switch = _variable(rows, "enabled")
        found = "is not set" if setting.origin == "default" else f"is off ({setting.origin})"
        text = f"telemetry is off: {switch} {found}"
        findings.append(
            Finding(PROBLEM, "telemetry_off", text, f"set {switch}=1, unless the application switches it on in code")
        )
    if sdk_disabled(environ):
        text = f"telemetry is off: OTEL_SDK_DISABLED={environ['OTEL_SDK_DISABLED'].strip()}"
        findings.append(Finding(PROBLEM, "telemetry_off", text, "unset OTEL_SDK_DISABLED"))
    if not any(getattr(config, f"{signal}_enabled") for signal in _SIGNALS):
        names = ", ".join(_variable(rows, f"{signal}_enabled") for signal in _SIGNALS)
        text = "traces, metrics and logs are all switched off"
        findings.append(Finding(PROBLEM, "nothing_exported", text, f"switch one on: {names}"))
    return findings


def _variable(rows: list[Setting], name: str) -> str:
    return next(row.variables[0] for row in rows if row.name == name)


def _ignored(config: NemoLensConfig, rows: list[Setting], environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for signal in _SIGNALS:
        name = f"OTEL_{signal.upper()}_EXPORTER"
        value = environ.get(name, "").strip()
        if value and value.lower() != config.exporter.lower():
            text = f"{name}={value} has no effect on NeMo Lens, whose exporter is {config.exporter}"
            remedy = f"set {_variable(rows, 'exporter')}, or {_variable(rows, f'{signal}_enabled')}=0 to send none"
            findings.append(Finding(WARNING, "ignored_variable", text, remedy, (signal,)))
    return findings


def _hidden_logs(config: NemoLensConfig) -> list[Finding]:
    if not config.logs_enabled:
        return []
    # The application's level is not to be seen from here, hence no warning.
    text = (
        "records of the root logger are exported from INFO up, but its own level, WARNING unless the application "
        "sets it, hides INFO records before any handler sees them"
    )
    remedy = "to see those, put logging.getLogger().setLevel(logging.INFO) into the application"
    return [Finding(OK, "log_level", text, remedy, ("logs",))]
