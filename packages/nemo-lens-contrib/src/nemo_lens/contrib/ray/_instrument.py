"""Switching the integration on: from then on ``ray.init`` sets the worker processes up."""

from __future__ import annotations

import functools
from typing import Any

from nemo_lens.api import NemoLensConfig
from nemo_lens.api._diagnostics import warn
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by
from nemo_lens.contrib.ray._runtime_env import check_config, ray_runtime_env, worker_config

# Ray's own ray.init and ours in its place; None while the integration is off.
_patched: tuple[Any, Any] | None = None
_config: NemoLensConfig | None = None


def uninstrument_ray() -> None:
    """Put Ray's own ``ray.init`` back; workers that are set up stay so."""
    global _patched, _config
    if _patched is not None:
        ray: Any = require("ray", "ray")
        if ray.init is _patched[1]:
            ray.init = _patched[0]
    _patched = _config = None


@undone_by(uninstrument_ray)
def instrument_ray(config: NemoLensConfig | None = None) -> None:
    """Have every later ``ray.init`` add ``ray_runtime_env(config)``, so that all workers of the job are set up.

    Nothing is added while the configuration says that telemetry is off. Calling it again replaces the configuration.
    ``instrument_ray.uninstrument()`` undoes it.

    Args:
        config: settings of the workers; default, at ``ray.init``, what telemetry of this process is set up with, else
            ``NemoLensConfig.from_env()``.

    Raises:
        ImportError: when Ray is not installed.
        TypeError: when ``config`` is something else than a ``NemoLensConfig``.
    """
    global _patched, _config
    check_config(config)
    ray: Any = require("ray", "ray")
    _config = config
    if _patched is None or ray.init is not _patched[1]:
        original = ray.init

        @functools.wraps(original)
        def init(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **_with_runtime_env(kwargs))

        _patched = (original, init)
        ray.init = init
    if ray.is_initialized() and ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        warn("Ray is initialized already: its workers are not set up. Switch the integration on before ray.init")


def _with_runtime_env(kwargs: dict[str, Any]) -> dict[str, Any]:
    if _patched is None:  # called by the name that somebody imported before uninstrument
        return kwargs
    try:
        config = worker_config(_config)
        if not config.enabled:
            return kwargs
        given = kwargs.get("runtime_env") or getattr(kwargs.get("job_config"), "runtime_env", None)
        return {**kwargs, "runtime_env": ray_runtime_env(config, given)}
    except Exception as fault:  # noqa: BLE001 - a job without telemetry is better than none
        warn("Ray's workers are not set up: %s", fault)
        return kwargs
