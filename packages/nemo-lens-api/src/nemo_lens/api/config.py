"""The configuration: its fields, the environment variables behind them, and what each may hold."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import InitVar, dataclass

from nemo_lens.api import _diagnostics
from nemo_lens.api._variables import DEFAULT_PREFIX, KEYS, VARIABLES, checked_prefix, read_value, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    # Field name to the variable it was read from and the value found there.
    _Read = Mapping[str, tuple[str, object]]


@dataclass
class NemoLensConfig:
    """What telemetry does in this process.

    Text is stripped when it is checked, and a blank ``service_name`` counts as unset. No field holds a secret:
    endpoints and headers stay with the exporters' own variables.

    Args:
        enabled: Record and export at all.
        service_name: ``service.name`` of the resource; None leaves it to the environment.
        traces_enabled: Export spans.
        metrics_enabled: Export metrics.
        logs_enabled: Export the records of the root logger.
        span_groups: Comma list of presets and groups, or ``all``; ``default`` is whatever libraries register under
            that preset name.
        exporter: ``otlp``, ``console``, ``file`` or an installed exporter's name; resolved at setup.
        file_path: Pattern of the files of ``exporter="file"``; empty means the exporter's default.
        run_id: ``nemo.run.id`` of the resource; empty means that it is derived.
        user: ``nemo.user.id`` of the resource.
        wandb_entity: ``wandb.entity`` of the resource.
        wandb_project: ``wandb.project`` of the resource.
        deployment_environment: ``deployment.environment.name`` of the resource.
        shutdown_timeout_ms: Milliseconds that closing may take in total.
        single_trace: Give the root spans of all processes of a run one trace id.

    Raises:
        ValueError: A field holds what it may not; the message names it, or the variable it was read from.
    """

    enabled: bool = False
    service_name: str | None = None
    traces_enabled: bool = True
    metrics_enabled: bool = True
    logs_enabled: bool = False
    span_groups: str = "default"
    exporter: str = "otlp"
    file_path: str = ""
    run_id: str = ""
    user: str = ""
    wandb_entity: str = ""
    wandb_project: str = ""
    deployment_environment: str = ""
    shutdown_timeout_ms: int = 5000
    single_trace: bool = False
    # An InitVar, so that dataclasses.replace hands it on, and fields(), asdict(), == and repr() leave it out.
    _read: InitVar[_Read | None] = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self, _read: _Read | None) -> None:
        vars(self)["_read"] = dict(_read or {})
        self.validate()

    @property
    def sources(self) -> dict[str, str]:
        """Where each field's value came from: a variable's name, ``code`` or ``default``.

        A value given in code that equals the default is ``default``; one changed after it was read is ``code``.
        """
        return {row.field: self._source(row.field) for row in VARIABLES}

    @classmethod
    def from_env(
        cls,
        prefix: str = DEFAULT_PREFIX,
        fallback_prefix: str | None = None,
        known: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> NemoLensConfig:
        """Read the configuration from environment variables; a blank one counts as unset.

        Args:
            prefix: What the variables' names begin with, without the underscore.
            fallback_prefix: Read for each variable that is unset under ``prefix``.
            known: Further variables under the prefixes, with the prefix or without, that get no warning.
            environ: The variables; ``os.environ`` when None.

        Raises:
            ValueError: A bad value; the message names the variable and what is accepted.
        """
        variables = os.environ if environ is None else environ
        prefixes = tuple(checked_prefix(each) for each in (prefix, fallback_prefix) if each is not None)
        read: dict[str, tuple[str, object]] = {}
        for row in VARIABLES:
            names = [f"{each}_{row.key}" for each in prefixes] if row.key else []
            for name in (*names, *row.bare):
                text = text_of(name, variables)
                if text:
                    read[row.field] = (name, read_value(row.kind, name, text))
                    break
        _warn_of_unknown(variables, prefixes, (known,) if isinstance(known, str) else tuple(known))
        values = {field: value for field, (_, value) in read.items()}
        return cls(**values, _read=read)  # type: ignore[arg-type]

    def to_env(self, prefix: str = DEFAULT_PREFIX) -> dict[str, str]:
        """Return the variables from which ``from_env(prefix)`` sets up another process of this run alike.

        A blank ``run_id`` is written as what :func:`ensure_run_id` resolves it to here, since the other process may
        find another one or none. Variables that belong to other tools, and the service name, are there only when their
        field is set; any other variable with the prefix is also there when it is blank, to cover an inherited one.
        """
        from nemo_lens.api.identity import ensure_run_id  # a disabled set-up reads its settings and needs no run id

        start = checked_prefix(prefix)
        texts: dict[str, str] = {}
        for row in VARIABLES:
            value = getattr(self, row.field)
            if row.key and value is not None:
                texts[f"{start}_{row.key}"] = row.kind.write(value)
            elif value:
                texts[row.bare[0]] = row.kind.write(value)
        texts[f"{start}_RUN_ID"] = ensure_run_id(self.run_id)
        return texts

    def validate(self) -> None:
        """Strip and check every field; again at setup, since fields may be changed after construction.

        Raises:
            ValueError: A field holds what it may not, or an attribute looks like a misspelt field.
        """
        for row in VARIABLES:
            value = getattr(self, row.field)
            if isinstance(value, str):
                value = row.kind.tidy(value)
                setattr(self, row.field, value)
            if not row.kind.accepts(value):
                source = self._source(row.field)
                raise ValueError(
                    f"NemoLensConfig.{row.field}={value!r}: expected {row.kind.accepted}"
                    if source in ("code", "default")
                    else f"{source}={value!r}: expected {row.kind.accepted_text}"
                )
        fields = [field.name for field in dataclasses.fields(self)]
        for name in vars(self).keys() - {*fields, "_read"}:
            if hint := _diagnostics.nearest(name, fields):
                raise ValueError(f"NemoLensConfig has no field {name!r}{hint}")

    def _source(self, field: str) -> str:
        value = getattr(self, field)
        name, found = vars(self)["_read"].get(field, ("", None))
        if name and value == found:
            return str(name)
        return "default" if value == getattr(type(self), field) else "code"


def sdk_disabled(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` switches all telemetry off: ``true`` in any case, nothing else."""
    variables = os.environ if environ is None else environ
    return variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _warn_of_unknown(variables: Mapping[str, str], prefixes: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in sorted(variables):
        # NEMO_LENS_ENABLED is no misspelt variable of the prefix NEMO: the longest prefix owns the name.
        owners = [each for each in (*prefixes, DEFAULT_PREFIX) if name.startswith(f"{each}_")]
        owner = max(owners, key=len, default="")
        key = name[len(owner) + 1 :]
        keys = (*KEYS, *(each.removeprefix(f"{owner}_") for each in known))
        if owner not in prefixes or key in keys or not variables[name].strip():
            continue
        # The prefix alone would make any two names alike: the key decides whether there is a near one.
        near = _diagnostics.nearest(key.upper(), keys)
        hint = _diagnostics.nearest(name.upper(), [f"{owner}_{each}" for each in keys]) if near else ""
        _diagnostics.warn_once(
            ("unknown variable", name), "environment variable %s is not known and is ignored%s", name, hint
        )
