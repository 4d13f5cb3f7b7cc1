"""The standard OpenTelemetry variables that the SDK wheel reads itself, validated before anything is built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from nemo_lens.api._diagnostics import nearest

# What the OpenTelemetry specification calls the batch processors' settings, with its defaults.
_QUEUE_DEFAULTS = {
    "BSP": {"SCHEDULE_DELAY": 5000, "MAX_QUEUE_SIZE": 2048, "MAX_EXPORT_BATCH_SIZE": 512, "EXPORT_TIMEOUT": 30000},
    "BLRP": {"SCHEDULE_DELAY": 1000, "MAX_QUEUE_SIZE": 2048, "MAX_EXPORT_BATCH_SIZE": 512, "EXPORT_TIMEOUT": 30000},
}
DEFAULT_METRIC_INTERVAL_MS = 10_000
DEFAULT_METRIC_TIMEOUT_MS = 30_000

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)

EXEMPLAR_FILTERS = ("trace_based", "always_on", "always_off")

SELF_METRICS_VARIABLE = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"

# What OpenTelemetry loads under these names when a provider is first asked for.
_PROVIDERS = {
    f"OTEL_PYTHON_{kind}_PROVIDER": f"opentelemetry_{kind.lower()}_provider" for kind in ("TRACER", "METER", "LOGGER")
}

# What a second set-up in the process cannot change, because providers are installed once.
FIRST_SETUP_VARIABLES = (
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
)
_LIMITS = FIRST_SETUP_VARIABLES[2:]
# The same of the meter provider and its reader.
METRIC_FIRST_SETUP_VARIABLES = (
    "OTEL_METRICS_EXEMPLAR_FILTER",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
)


@dataclass(frozen=True)
class QueueSettings:
    """Settings of one queue, from ``OTEL_BSP_*`` or ``OTEL_BLRP_*``."""

    schedule_delay_s: float
    max_queue_size: int
    max_export_batch_size: int
    export_timeout_s: float


def queue_settings(prefix: str) -> QueueSettings:
    """Read the settings of the queue of spans (``BSP``) or of log records (``BLRP``).

    Raises:
        ValueError: naming the variable that is no positive integer, or a batch larger than its queue.
    """
    values = {
        key: _positive(f"OTEL_{prefix}_{key}", default, "milliseconds" if "SIZE" not in key else "items")
        for key, default in _QUEUE_DEFAULTS[prefix].items()
    }
    batch, queue = values["MAX_EXPORT_BATCH_SIZE"], values["MAX_QUEUE_SIZE"]
    if batch > queue:
        if f"OTEL_{prefix}_MAX_EXPORT_BATCH_SIZE" in os.environ:
            raise ValueError(
                f"OTEL_{prefix}_MAX_EXPORT_BATCH_SIZE={batch} is larger than OTEL_{prefix}_MAX_QUEUE_SIZE={queue}; "
                "a batch must fit into the queue"
            )
        batch = queue
    return QueueSettings(values["SCHEDULE_DELAY"] / 1000, queue, batch, values["EXPORT_TIMEOUT"] / 1000)


def metric_interval_s() -> float:
    """Return ``OTEL_METRIC_EXPORT_INTERVAL`` in seconds, default 10.

    Raises:
        ValueError: when it is no positive integer of milliseconds.
    """
    return _positive("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_METRIC_INTERVAL_MS, "milliseconds") / 1000


def metric_timeout_s() -> float:
    """Return ``OTEL_METRIC_EXPORT_TIMEOUT`` in seconds, default 30.

    Raises:
        ValueError: when it is no positive integer of milliseconds.
    """
    return _positive("OTEL_METRIC_EXPORT_TIMEOUT", DEFAULT_METRIC_TIMEOUT_MS, "milliseconds") / 1000


def exemplar_filter() -> str:
    """Return ``OTEL_METRICS_EXEMPLAR_FILTER``, default ``trace_based``.

    Raises:
        ValueError: naming the value and the filters that there are.
    """
    text = os.environ.get("OTEL_METRICS_EXEMPLAR_FILTER", "").strip()
    name = text.lower() or EXEMPLAR_FILTERS[0]
    if name not in EXEMPLAR_FILTERS:
        raise ValueError(
            f"OTEL_METRICS_EXEMPLAR_FILTER={text!r} is no exemplar filter; accepted: {', '.join(EXEMPLAR_FILTERS)}"
            f"{nearest(name, EXEMPLAR_FILTERS)}"
        )
    return name


def reports_itself(transport: str) -> bool:
    """Return whether metrics about the telemetry itself are exported: ``OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED``.

    Args:
        transport: where metrics go. Who reads them on a console wants their own, and these only when asked for.

    Raises:
        ValueError: when it is neither true nor false.
    """
    text = os.environ.get(SELF_METRICS_VARIABLE, "").strip()
    if text.lower() not in ("", "true", "false"):
        raise ValueError(f"{SELF_METRICS_VARIABLE}={text!r} must be true or false")
    return text.lower() == "true" or (not text and transport != "console")


def grpc_fork_support(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether ``GRPC_ENABLE_FORK_SUPPORT`` is on, with which gRPC can hang forked processes."""
    variables = os.environ if environ is None else environ
    return variables.get("GRPC_ENABLE_FORK_SUPPORT", "").strip().lower() in {"1", "true", "yes"}


def validate_sampler_and_limits() -> None:
    """Check what the OpenTelemetry SDK itself reads, and would only log about.

    Raises:
        ValueError: naming the variable, its value and what is accepted.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name and name not in SAMPLERS:
        plugged = {point.name for point in entry_points(group="opentelemetry_traces_sampler")}
        if name not in {plug.lower() for plug in plugged}:
            known = [*SAMPLERS, *sorted(plugged - {*SAMPLERS})]
            raise ValueError(
                f"OTEL_TRACES_SAMPLER={name!r} is no sampler; accepted: {', '.join(known)}{nearest(name, known)}"
            )
    argument = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    if name.endswith("traceidratio") and argument:
        try:
            ratio = float(argument)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise ValueError(f"OTEL_TRACES_SAMPLER_ARG={argument!r} must be a ratio from 0 to 1")
    for variable in _LIMITS:
        text = os.environ.get(variable, "").strip()
        if text and text.lower() != "none" and not (text.isascii() and text.isdigit()):
            raise ValueError(f"{variable}={text!r} must be an integer of 0 or more, or empty for no limit")


def validate_propagators() -> None:
    """Check ``OTEL_PROPAGATORS``, which OpenTelemetry reads once, when it is first imported.

    Raises:
        ValueError: naming the propagator that is not installed, and those that are.
    """
    given = os.environ.get("OTEL_PROPAGATORS", "")
    if not given.strip():
        return
    installed = sorted({point.name for point in entry_points(group="opentelemetry_propagator")})
    for name in (part.strip() for part in given.split(",")):
        if name.lower() != "none" and name not in installed:
            raise ValueError(
                f"OTEL_PROPAGATORS={given!r}: no propagator {name!r} is installed; accepted: a comma list of "
                f"{', '.join([*installed, 'none'])}{nearest(name, installed)}"
            )


def propagator() -> Any:
    """Return OpenTelemetry's propagator: that of the application, else of ``OTEL_PROPAGATORS``.

    Raises:
        ValueError: for a propagator that is not installed or does not load.
    """
    validate_propagators()
    # Importing it reads the variable, W3C TraceContext and Baggage when that is not set. Some versions fail on a blank.
    given = os.environ.get("OTEL_PROPAGATORS")
    blank = given is not None and not given.strip()
    if blank:
        del os.environ["OTEL_PROPAGATORS"]
    try:
        from opentelemetry import propagate
    except Exception as fault:
        raise ValueError(f"OTEL_PROPAGATORS={given!r} cannot be used: {fault}") from fault
    finally:
        if blank and given is not None:
            os.environ["OTEL_PROPAGATORS"] = given
    return propagate.get_global_textmap()


def validate_providers() -> None:
    """Check the variables that name a provider, which OpenTelemetry loads when it is first asked for one.

    Raises:
        ValueError: naming the provider that is not installed, and those that are.
    """
    for variable, group in _PROVIDERS.items():
        name = os.environ.get(variable)
        if name is None:
            continue
        installed = sorted({point.name for point in entry_points(group=group)})
        if name not in installed:
            raise ValueError(
                f"{variable}={name!r} is no provider that is installed; accepted: {', '.join(installed)}, or the "
                f"variable unset{nearest(name, installed)}"
            )


def first_setup_values(environ: Mapping[str, str], names: Iterable[str] = FIRST_SETUP_VARIABLES) -> dict[str, str]:
    """Return the set ones of the variables that only the first set-up of a process can choose."""
    return {name: environ[name].strip() for name in names if environ.get(name, "").strip()}


def _positive(variable: str, default: int, unit: str) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise ValueError(f"{variable}={text!r} must be a positive integer of {unit}; default {default}")
    return value
