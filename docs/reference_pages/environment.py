"""``environment.md``: every variable that the three wheels read, from the tables they read them by."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator

from nemo_lens.api import NemoLensConfig, _variables
from nemo_lens.api._variables import DEFAULT_PREFIX, VARIABLES
from nemo_lens.sdk import settings
from nemo_lens.sdk.cli.doctor import configuration
from nemo_lens.sdk.exporters import file_names, otlp
from nemo_lens.sdk.resources import cuda_devices, kubernetes, precedence, slurm

from .environment_tables import (
    ELSEWHERE,
    GENERAL,
    INTEGRATIONS,
    LIMITS,
    METRICS,
    NETWORK,
    OTLP,
    OTLP_ONLY_GENERAL,
    PROCESS_WIDE,
    QUEUES,
    SLURM,
    TERMINAL,
    TORCH,
    TRACE_CONTEXT,
)
from .markdown import code, from_docstring, listed, paragraph, section, table, title

_VALUES = {
    _variables._BOOLEAN: "boolean",
    _variables._TIMEOUT: "milliseconds",
    _variables._TEXT: "text",
    _variables._OPTIONAL_TEXT: "text",
    _variables._NAME: "name",
    _variables._SPEC: "comma list",
}
# What a blank field stands for.
_DERIVED = {
    "service_name": code(precedence.DEFAULT_SERVICE_NAME),
    "file_path": code(file_names.DEFAULT_PATTERN),
    "run_id": "the SLURM or torchelastic job's, else random",
}
_SIGNALS = ("TRACES", "METRICS", "LOGS")


def lines() -> Iterator[str]:
    """Return the lines of the page."""
    yield from title("Environment variables")
    yield from paragraph(
        "A blank variable counts as unset. A value that cannot work is a `ValueError` from `setup_telemetry` that "
        f"names the variable and what is accepted; a misspelt `{DEFAULT_PREFIX}_*` gets one WARNING with the nearest "
        "name that exists. `nemo-lens doctor` prints every setting and the variable it came from, and says the same of "
        "a misspelt `OTEL_*`."
    )
    yield from _own()
    yield from _opentelemetry()
    yield from _launchers()
    yield from section("Network")
    yield from paragraph("Read by the exporters' own libraries, gRPC and requests; `nemo-lens doctor` names them.")
    yield from table(("variable", "meaning"), _network())
    yield from section("Terminal")
    yield from paragraph("Read by the command `nemo-lens`.")
    yield from table(("variable", "meaning"), ((listed(names), text) for names, text in TERMINAL))


def _own() -> Iterator[str]:
    fields = {field.name: field.default for field in dataclasses.fields(NemoLensConfig)}
    meanings = _meanings()
    yield from section("NeMo Lens")
    yield from paragraph(
        "Each is a field of [`NemoLensConfig`](api.md#nemo_lens.api.NemoLensConfig), which has its name in lower case "
        "(`user` for `USER_ID`). An application that calls "
        "`NemoLensConfig.from_env` with a prefix of its own reads them under that one. "
        f"Booleans are {_variables._BOOLEAN.accepted_text}; milliseconds are "
        f"{_variables._MILLISECONDS}."
    )
    yield from table(
        ("variable", "value", "default", "meaning"),
        (
            (
                code(f"{DEFAULT_PREFIX}_{row.key}"),
                _VALUES[row.kind],
                _default(row.field, fields[row.field]),
                meanings[row.field] + (f" Else {listed(row.bare)} says." if row.bare else ""),
            )
            for row in VARIABLES
            if row.key
        ),
    )
    yield from paragraph("These belong to the process, whatever prefix the application has chosen:")
    yield from table(
        ("variable", "value", "default", "meaning"),
        ((code(name), *PROCESS_WIDE[name]) for name in configuration._PROCESS_WIDE),
    )
    yield from paragraph("These belong to other tools and are read as they are:")
    yield from table(
        ("variable", "meaning"),
        ((listed(row.bare), meanings[row.field]) for row in VARIABLES if not row.key),
    )


def _opentelemetry() -> Iterator[str]:
    yield from section("OpenTelemetry")
    yield from paragraph("The standard variables, with the meaning and the defaults of the specification unless said.")
    yield from table(
        ("variable", "default", "meaning"), ((code(name), default, text) for name, default, text in GENERAL)
    )
    yield from paragraph(f"Whoever starts a process hands the trace on to it in {listed(TRACE_CONTEXT)}:")
    yield from table(("variable", "meaning"), ((code(name), text) for name, text in TRACE_CONTEXT.items()))
    yield from section("Limits", 3)
    yield from paragraph("The first set-up of a process reads them, and an application's own provider keeps its own.")
    yield from table(("variable", "limits"), ((code(name), LIMITS[name]) for name in settings._LIMITS))
    yield from section("Queues", 3)
    yield from paragraph("`OTEL_BSP_*` are those of spans, `OTEL_BLRP_*` those of log records.")
    yield from table(
        ("variable", "default", "meaning"),
        (
            (code(name := f"OTEL_{prefix}_{key}"), str(default), QUEUES.get(name, QUEUES[key]))
            for prefix, defaults in settings._QUEUE_DEFAULTS.items()
            for key, default in defaults.items()
        ),
    )
    yield from section("Metrics", 3)
    yield from table(
        ("variable", "default", "meaning"), ((code(name), default, text) for name, default, text in METRICS)
    )
    yield from _otlp()
    yield from section("Integrations", 3)
    yield from table(("variable", "meaning"), ((code(name), text) for name, text in INTEGRATIONS))
    yield from section("Not heeded", 3)
    ignored = listed(f"OTEL_{signal}_EXPORTER" for signal in _SIGNALS)
    yield from paragraph(
        f"{ignored}: `{DEFAULT_PREFIX}_EXPORTER` chooses the exporter. `nemo-lens doctor` says when one of them is set."
    )


def _otlp() -> Iterator[str]:
    yield from section("OTLP exporter", 3)
    yield from paragraph(
        "Each has a form for one signal, which wins over the general one: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, "
        "`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`, and likewise the others."
    )
    endpoints = ", ".join(
        f"`{transport.default_endpoint}` for `{name}`" for name, transport in otlp._TRANSPORTS.items()
    )
    defaults = {"PROTOCOL": "`grpc`", "ENDPOINT": endpoints, "TIMEOUT": f"{otlp._DEFAULT_TIMEOUT_S:g}"}
    yield from table(
        ("variable", "default", "meaning"),
        ((code(f"{otlp._PREFIX}_{key}"), defaults.get(key, ""), text) for key, text in OTLP.items()),
    )
    yield from table(
        ("variable", "default", "meaning"), ((code(name), default, text) for name, default, text in OTLP_ONLY_GENERAL)
    )


def _launchers() -> Iterator[str]:
    yield from section("torchrun")
    yield from table(("variable", "meaning"), ((code(name), text) for name, text in TORCH))
    yield from section("SLURM")
    yield from paragraph(
        "Where an attribute has several, the first that is not blank. [Attributes](attributes.md#slurm) says what each "
        "holds."
    )
    yield from table(("variable", "attribute"), _by_variable((row[0], row[1]) for row in slurm._VARIABLES))
    yield from table(("variable", "meaning"), ((code(name), text) for name, text in SLURM))
    yield from section("Kubernetes")
    yield from paragraph(
        "Set by the downward API of the pod's own manifest: [Kubernetes](../kubernetes.md) has one. The first that is "
        "not blank."
    )
    yield from table(
        ("attribute", "variables", "inside a pod also"),
        (
            (code(attribute), listed(variables), listed(kubernetes.VARIABLES_OF_A_POD.get(attribute, ())))
            for attribute, variables in kubernetes.VARIABLES.items()
        ),
    )
    yield from paragraph(
        "`KUBERNETES_SERVICE_HOST` says that this is a pod; `JENKINS_URL` that it is a Jenkins agent, whose variables "
        "mean something else."
    )
    yield from section("GPUs")
    yield from table(
        ("variable", "meaning"),
        [
            (
                code(cuda_devices.VARIABLE),
                "which GPUs this process sees: `host.gpu.count`, and which one `nv.gpu.*` is",
            ),
            (
                "`LOCAL_RANK`, `SLURM_LOCALID`",
                "which of them `nv.gpu.*` describes; the second only in tasks of `srun`",
            ),
        ],
    )


def _meanings() -> dict[str, str]:
    """Return what the docstring of the configuration says of each field."""
    text = inspect.getdoc(NemoLensConfig) or ""
    arguments = text.partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, flags=re.M)
    return {name: from_docstring(" ".join(meaning.split())) for name, meaning in found}


def _default(field: str, value: object) -> str:
    if field in _DERIVED:
        return _DERIVED[field]
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def _network() -> Iterator[tuple[str, str]]:
    """Return the variables that doctor shows, in the spellings it knows; ``KeyError`` for one nobody has described."""
    for name in configuration._OTHERS:
        if name in ELSEWHERE or (name.isupper() and name.lower() in configuration._OTHERS):
            continue
        spellings = [name, name.upper()] if name.islower() else [name]
        yield listed(spellings), NETWORK[name]


def _by_variable(rows: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, str]]:
    """Return each variable once, with the attributes that it sets."""
    attributes: dict[str, list[str]] = {}
    for attribute, variables in rows:
        for variable in variables:
            attributes.setdefault(variable, []).append(attribute)
    return ((code(variable), listed(names)) for variable, names in attributes.items())
