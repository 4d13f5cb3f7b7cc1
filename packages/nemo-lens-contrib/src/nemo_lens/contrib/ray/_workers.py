"""What runs in a worker process to set telemetry up."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from nemo_lens.api import ensure_run_id, get_telemetry, setup_telemetry
from nemo_lens.api._diagnostics import warn
from nemo_lens.api.carrier import get_otel_resource_attributes
from nemo_lens.api.fallbacks import NULL_HANDLE
from nemo_lens.api.groups import register_provisional
from nemo_lens.api.semconv import NV_DL_RANK, SERVICE_INSTANCE_ID
from nemo_lens.contrib._requirement import require


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


def adopt_span_groups(declared: Mapping[str, tuple[Iterable[str], Mapping[str, Iterable[str]]]]) -> None:
    """Register what the driver has registered, until the libraries do so here: groups and presets by namespace."""
    for namespace, (groups, presets) in declared.items():
        register_provisional(namespace, groups, presets)
