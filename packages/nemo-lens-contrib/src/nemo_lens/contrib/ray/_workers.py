"""Setting worker processes up: the runtime environment that says so, and what runs in each of them."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nemo_lens.api import NemoLensConfig, SpanRegistry, ensure_run_id, get_telemetry, inject_context, setup_telemetry
from nemo_lens.api._diagnostics import debug_once, warn
from nemo_lens.api.carrier import get_otel_resource_attributes
from nemo_lens.api.fallbacks import NULL_HANDLE
from nemo_lens.api.groups import register_provisional
from nemo_lens.api.semconv import NV_DL_RANK, SERVICE_INSTANCE_ID
from nemo_lens.contrib._requirement import require

_HOOK = "worker_process_setup_hook"
# Set by Ray in the driver of a job that was submitted with a runtime environment of its own.
_SUBMITTED_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# What a node says of itself, and what should not stand in a dashboard.
_NOT_HANDED_ON = ("OTEL_RESOURCE_ATTRIBUTES", "HEADERS", "CLIENT_KEY")
# Ray ends the workers of a job without a chance to flush, so they wait for less than the usual 5 s.
_WORKER_DEFAULTS = {"OTEL_BSP_SCHEDULE_DELAY": "500", "OTEL_BLRP_SCHEDULE_DELAY": "500"}


def ray_runtime_env(
    config: NemoLensConfig | None = None, runtime_env: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a runtime environment for ``ray.init`` that sets telemetry up in every worker process of the job.

    It carries the configuration with the run id, this process's ``OTEL_*`` variables, the current span as the parent of
    the workers' root spans, and the span groups registered so far. Headers, keys and ``OTEL_RESOURCE_ATTRIBUTES`` are
    left out: Ray shows a runtime environment to everybody, and a node knows its own attributes. Workers export every
    500 ms unless ``OTEL_BSP_SCHEDULE_DELAY`` says otherwise. A worker whose Python has no ``nemo-lens-contrib`` does
    without telemetry.

    Args:
        config: settings; default ``NemoLensConfig.from_env()``.
        runtime_env: environment to add to. Its variables win, and a set-up hook of its own runs after ours.

    Returns:
        A new runtime environment. In a job that was submitted with one, what that says is left to it.
    """
    config = NemoLensConfig.from_env() if config is None else config
    given = dict(runtime_env or {})
    submitted = _submitted_runtime_env()
    variables = {**_variables(config), **(given.get("env_vars") or {})}
    given["env_vars"] = {
        name: value for name, value in variables.items() if name not in (submitted.get("env_vars") or {})
    }
    if not submitted.get(_HOOK):
        given[_HOOK] = _hook(given.get(_HOOK))
    return given


def setup_worker() -> None:
    """Set telemetry up in this worker process from the environment, once; never raise.

    For ``worker_process_setup_hook="nemo_lens.contrib.ray.setup_worker"`` where a runtime environment is text, and for
    an actor's ``__init__`` where there is no hook.
    """
    if get_telemetry() is not NULL_HANDLE:
        return
    try:
        setup_telemetry(resource_attributes=_instance())
    except Exception as fault:  # noqa: BLE001 - Ray ends a worker whose set-up hook fails, and with it the job
        warn("telemetry is off in worker process %d: %s", os.getpid(), fault)


def _instance() -> dict[str, str]:
    """Return the instance id: Ray's own of this worker, where no rank gives one and nobody set it."""
    given = get_otel_resource_attributes()
    if SERVICE_INSTANCE_ID in given or NV_DL_RANK in given or os.environ.get("TORCHELASTIC_RUN_ID"):
        return {}
    worker_id = require("ray", "ray").get_runtime_context().get_worker_id()
    return {SERVICE_INSTANCE_ID: f"{ensure_run_id()}-{worker_id}"}


def _variables(config: NemoLensConfig) -> dict[str, str]:
    handed_on = {
        name: value
        for name, value in os.environ.items()
        if name in ("NEMO_LENS_BACKEND", "NEMO_LENS_INSTRUMENT")
        or (name.startswith("OTEL_") and not any(part in name for part in _NOT_HANDED_ON))
    }
    parent = {name.upper(): value for name, value in inject_context().items()}
    return {**_WORKER_DEFAULTS, **handed_on, **parent, **config.to_env()}


def _hook(own: Callable[[], Any] | str | None) -> Callable[[], None]:
    declared = {
        namespace: (sorted(SpanRegistry.groups(namespace)), SpanRegistry.presets(namespace))
        for namespace in SpanRegistry.namespaces()
    }

    # A function inside a function is pickled by value: a worker with a Python environment of its own may lack us.
    def set_up_worker() -> None:
        try:
            from nemo_lens.contrib.ray._workers import adopt_span_groups, setup_worker
        except ImportError as fault:
            import logging

            logging.getLogger("nemo_lens").warning("telemetry is off in a Ray worker: %s", fault)
        else:
            adopt_span_groups(declared)
            setup_worker()
        if isinstance(own, str):
            module, _, name = own.rpartition(".")
            getattr(importlib.import_module(module), name)()
        elif own is not None:
            own()

    return set_up_worker


def adopt_span_groups(declared: Mapping[str, tuple[Iterable[str], Mapping[str, Iterable[str]]]]) -> None:
    """Register what the driver has registered, until the libraries do so here: groups and presets by namespace."""
    for namespace, (groups, presets) in declared.items():
        register_provisional(namespace, groups, presets)


def _submitted_runtime_env() -> dict[str, Any]:
    try:
        return dict(json.loads(os.environ.get(_SUBMITTED_JOB, "{}")).get("runtime_env") or {})
    except (ValueError, AttributeError, TypeError) as fault:
        debug_once("submitted job", "%s could not be read: %r", _SUBMITTED_JOB, fault)
        return {}
