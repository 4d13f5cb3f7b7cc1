"""The table of environment variables behind the configuration, and the kinds of values they hold."""

from __future__ import annotations

from typing import NamedTuple

from nemo_lens.api import _diagnostics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_PREFIX = "NEMO_LENS"

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000


class Kind(NamedTuple):
    """How the values of some fields are tidied, checked, read from a variable and written to one."""

    accepted: str
    accepts: Callable[[object], bool]
    accepted_text: str
    read: Callable[[str], object]
    write: Callable[[object], str] = str
    tidy: Callable[[str], str | None] = str.strip


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _is_timeout(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TIMEOUT_MS


def _read_timeout(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _tidy_spec(spec: str) -> str:
    return spec.strip() if spec.strip(", \t\r\n") else ""


_ANY_TEXT = "text without NUL characters and lone surrogates"
_MILLISECONDS = f"a whole number of milliseconds from 0 to {_MAX_TIMEOUT_MS}"

_BOOLEAN = Kind(
    accepted="True or False",
    accepts=lambda value: isinstance(value, bool),
    accepted_text="1/0, true/false, yes/no or on/off, in any case",
    read=lambda text: _BOOLEANS[text.lower()],
    write=lambda value: "true" if value else "false",
)
_TIMEOUT = Kind(
    accepted=f"an int, {_MILLISECONDS}", accepts=_is_timeout, accepted_text=_MILLISECONDS, read=_read_timeout
)
_TEXT = Kind(accepted=_ANY_TEXT, accepts=_is_text, accepted_text=_ANY_TEXT, read=str)
_OPTIONAL_TEXT = _TEXT._replace(
    accepted=f"None or {_ANY_TEXT}",
    accepts=lambda value: value is None or _is_text(value),
    tidy=lambda text: text.strip() or None,
)
_NAME = _TEXT._replace(
    accepted="the name of an exporter, such as otlp, console or file",
    accepts=lambda value: _is_text(value) and value != "",
)
# A spec that names nothing is written as a lone comma: a blank variable would count as unset and mean the default.
_SPEC = _TEXT._replace(
    accepted="a comma list of span groups and presets in one str",
    read=_tidy_spec,
    write=lambda value: str(value) or ",",
    tidy=_tidy_spec,
)


class Variable(NamedTuple):
    """Where a field is read from: its key after the prefix, if any, then variables without the prefix."""

    field: str
    kind: Kind
    key: str = ""
    bare: tuple[str, ...] = ()


VARIABLES = (
    Variable("enabled", _BOOLEAN, "ENABLED"),
    Variable("service_name", _OPTIONAL_TEXT, "SERVICE_NAME", ("OTEL_SERVICE_NAME",)),
    Variable("traces_enabled", _BOOLEAN, "TRACES_ENABLED"),
    Variable("metrics_enabled", _BOOLEAN, "METRICS_ENABLED"),
    Variable("logs_enabled", _BOOLEAN, "LOGS_ENABLED"),
    Variable("span_groups", _SPEC, "SPAN_GROUPS"),
    Variable("exporter", _NAME, "EXPORTER"),
    Variable("file_path", _TEXT, "FILE_PATH"),
    Variable("run_id", _TEXT, "RUN_ID"),
    Variable("user", _TEXT, "USER_ID"),
    Variable("wandb_entity", _TEXT, bare=("WANDB_ENTITY",)),
    Variable("wandb_project", _TEXT, bare=("WANDB_PROJECT",)),
    Variable("deployment_environment", _TEXT, bare=("DEPLOYMENT_ENV", "ENVIRONMENT")),
    Variable("shutdown_timeout_ms", _TIMEOUT, "SHUTDOWN_TIMEOUT_MS"),
    Variable("single_trace", _BOOLEAN, "SINGLE_TRACE"),
)

# Keys after the prefix that mean something, those that other parts of the library read among them.
KEYS = (*(row.key for row in VARIABLES if row.key), "INSTRUMENT", "BACKEND")


def text_of(name: str, variables: Mapping[str, str]) -> str:
    """Return what stands in a variable, without blanks around it; nothing when the job's launcher put it there."""
    text = variables.get(name, "").strip()
    # sbatch sets it in each job, where it says that this is a batch job and not where the service is deployed.
    if (name, text) == ("ENVIRONMENT", "BATCH") and variables.get("SLURM_JOB_ID", "").strip():
        return ""
    return text


def checked_prefix(prefix: str) -> str:
    """Return ``prefix`` without blanks and trailing underscores; ``ValueError`` when nothing is left."""
    checked = prefix.strip().rstrip("_")
    if not checked:
        raise ValueError(f"prefix={prefix!r}: expected the start of variable names, such as {DEFAULT_PREFIX!r}")
    return checked


def read_value(kind: Kind, name: str, text: str) -> object:
    """Return what ``text``, found in the variable ``name``, means; ``ValueError`` when it means nothing."""
    try:
        return kind.read(text)
    except (KeyError, ValueError):
        hint = _diagnostics.nearest(text.lower(), _BOOLEANS) if kind is _BOOLEAN else ""
        raise ValueError(f"{name}={text!r}: expected {kind.accepted_text}{hint}") from None
