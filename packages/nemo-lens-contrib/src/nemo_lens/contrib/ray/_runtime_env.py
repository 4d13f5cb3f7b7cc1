"""The runtime environment that has every worker process of a job set up, and the configuration in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from nemo_lens.api import NemoLensConfig, inject_context
from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api.lifecycle import live_config
from nemo_lens.contrib.ray._hook import WorkerHook

_HOOK = "worker_process_setup_hook"
# Set by Ray in the driver of a job that was submitted with a runtime environment of its own.
_SUBMITTED_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# What a node says of itself, and what should not stand in a dashboard: secrets of the exporters of all signals.
_NOT_HANDED_ON = re.compile(r"OTEL_RESOURCE_ATTRIBUTES|OTEL_EXPORTER_\w*(HEADERS|CLIENT_KEY)")
_URL_WITH_CREDENTIALS = re.compile(r"://[^/?#\s]*@")
# Ray ends the workers of a job without a chance to flush, so they wait for less than the usual 5 s.
_WORKER_DEFAULTS = {"OTEL_BSP_SCHEDULE_DELAY": "500", "OTEL_BLRP_SCHEDULE_DELAY": "500"}


def ray_runtime_env(
    config: NemoLensConfig | None = None, runtime_env: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a runtime environment for ``ray.init`` that sets telemetry up in every worker process of the job.

    It carries the configuration with the run id, this process's ``OTEL_*`` variables, the current span as the parent of
    the workers' root spans, and the span groups registered so far. The exporters' headers and keys, a URL with
    credentials in it (one WARNING names its variable) and ``OTEL_RESOURCE_ATTRIBUTES`` are left out: Ray shows a
    runtime environment to everybody, and a node knows its own attributes. Workers export every 500 ms unless
    ``OTEL_BSP_SCHEDULE_DELAY`` says otherwise. A worker whose Python has no ``nemo-lens-contrib`` does without
    telemetry. Ray Client (``ray://``) has no set-up hooks: there one WARNING says so, and workers get the variables.

    Args:
        config: settings; default what telemetry is set up with here, else ``NemoLensConfig.from_env()``.
        runtime_env: environment to add to. Its variables win, and a set-up hook of its own runs after ours.

    Returns:
        A new runtime environment. In a job that was submitted with one, what that says is left to it.

    Raises:
        TypeError: when ``config`` is something else than a ``NemoLensConfig``.
    """
    config = worker_config(config)
    given = dict(runtime_env or {})
    submitted = _submitted_runtime_env()
    said = given.get("env_vars") or {}
    decided = submitted.get("env_vars") or {}
    variables = {**_variables(config, {*said, *decided}), **said}
    given["env_vars"] = {name: value for name, value in variables.items() if name not in decided}
    if not submitted.get(_HOOK):
        given[_HOOK] = WorkerHook(given.get(_HOOK))
    return given


def worker_config(config: NemoLensConfig | None) -> NemoLensConfig:
    """Return the settings of the workers: those given, else this process's own, else the environment's."""
    if config is None:
        return live_config() or NemoLensConfig.from_env()
    check_config(config)
    return config


def check_config(config: NemoLensConfig | None) -> None:
    """Raise TypeError for what is no configuration."""
    if config is not None and not isinstance(config, NemoLensConfig):
        raise TypeError(f"the Ray integration takes a NemoLensConfig, or None for this process's own; got {config!r}")


def _variables(config: NemoLensConfig, decided: set[str]) -> dict[str, str]:
    handed_on = {
        name: value
        for name, value in os.environ.items()
        if name in ("NEMO_LENS_BACKEND", "NEMO_LENS_INSTRUMENT")
        or (name.startswith("OTEL_") and not _NOT_HANDED_ON.fullmatch(name))
    }
    secret = sorted(name for name, value in handed_on.items() if _URL_WITH_CREDENTIALS.search(value))
    for name in secret:
        del handed_on[name]
    if left_out := [name for name in secret if name not in decided]:
        warn_once(
            ("ray credentials", *left_out),
            "not handed on to Ray's workers, since its URL holds credentials and Ray shows a runtime environment to "
            "everybody: %s. Set it where `ray start` runs",
            ", ".join(left_out),
        )
    parent = {name.upper(): value for name, value in inject_context().items()}
    return {**_WORKER_DEFAULTS, **handed_on, **parent, **config.to_env()}


def _submitted_runtime_env() -> dict[str, Any]:
    try:
        return dict(json.loads(os.environ.get(_SUBMITTED_JOB, "{}")).get("runtime_env") or {})
    except (ValueError, AttributeError, TypeError) as fault:
        debug_once("submitted job", "%s could not be read: %r", _SUBMITTED_JOB, fault)
        return {}
