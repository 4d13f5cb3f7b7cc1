"""Switching telemetry on and off, and the integrations that are switched on with it."""

from __future__ import annotations

import copy
import os
from _thread import RLock
from collections.abc import Mapping

from nemo_lens.api import _discovery, state
from nemo_lens.api import backend as _cell
from nemo_lens.api._diagnostics import debug_once, logger, nearest, warn
from nemo_lens.api.config import NemoLensConfig, sdk_disabled
from nemo_lens.api.fallbacks import NULL_HANDLE
from nemo_lens.api.groups import SpanRegistry, register_provisional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any

    from nemo_lens.api.backend import TelemetryHandle

# Which extra of nemo-lens-contrib brings which integration, for the message that one is missing.
_EXTRAS = ("aiohttp", "fastapi", "nccl", "ray")

_handle: TelemetryHandle = NULL_HANDLE
_config: NemoLensConfig | None = None
_owner_pid = 0

# Held by whoever sets up. Reentrant: a signal handler that sets up may interrupt the thread that holds it, and is told.
_lock = RLock()
_setting_up = False
# How long one thread waits for another's set-up, in seconds: that one may be importing what this one imports, too.
_PATIENCE_S = 60.0


def setup_telemetry(
    config: NemoLensConfig | None = None,
    *,
    resource_attributes: Mapping[str, Any] | None = None,
    span_exporter: Any = None,
    metric_reader: Any = None,
    log_exporter: Any = None,
    _allow_reinit: bool = False,
) -> TelemetryHandle:
    """Set telemetry up for this process; of several threads that do so at once, the first sets up.

    Disabled, nothing is imported, nothing global is touched and every span group is off. Enabled without a backend
    installed, one WARNING says what to install and the job runs on with a handle that does nothing.

    Args:
        config: settings; default ``NemoLensConfig.from_env()``.
        resource_attributes: attributes of this process, above those of the environment and of detection; a rank goes
            here as ``nv.dl.rank``. A ``nemo.run.id`` among them is the same as the configuration's ``run_id``.
        span_exporter: OpenTelemetry span exporter to use instead of the configured one.
        metric_reader: OpenTelemetry metric reader to use instead of the configured exporter.
        log_exporter: OpenTelemetry log exporter to use instead of the configured one.

    Returns:
        The handle. ``is_exporting`` says whether data leaves the process.

    Raises:
        ValueError: for a setting that cannot work; nothing has been installed then.
        TypeError: when ``config`` is no ``NemoLensConfig``, or ``resource_attributes`` no mapping.
        RuntimeError: when telemetry is set up in this process already and has not been shut down, or another thread
            has been setting it up for a minute.
    """
    global _setting_up
    if config is None:
        config = NemoLensConfig.from_env()
    elif not isinstance(config, NemoLensConfig):
        raise TypeError(
            f"config must be a NemoLensConfig or None, which reads the environment, not a {type(config).__name__}"
        )
    if resource_attributes is not None and not isinstance(resource_attributes, Mapping):
        raise TypeError(
            "resource_attributes must be a mapping such as {'nv.dl.rank': 0} or None, "
            f"not a {type(resource_attributes).__name__}"
        )
    config.validate()
    if not config.enabled or sdk_disabled():
        if _is_live() or _setting_up:
            logger().info("telemetry is on in this process; a disabled set-up leaves it as it is")
        else:
            state.set_enabled_span_groups(())
        return NULL_HANDLE
    lock = _lock  # released below also in a child forked meanwhile, which has another
    if not lock.acquire(timeout=_PATIENCE_S):
        raise RuntimeError(f"another thread has been setting telemetry up for {_PATIENCE_S:g} s")
    try:
        if _setting_up:
            raise RuntimeError("telemetry is being set up already, by the code that this one interrupts")
        _setting_up = True
        try:
            handle = _set_up(
                config,
                _allow_reinit,
                resource_attributes,
                span_exporter=span_exporter,
                metric_reader=metric_reader,
                log_exporter=log_exporter,
            )
        finally:
            _setting_up = False
    finally:
        lock.release()
    if handle is not NULL_HANDLE:
        _instrument_from_environment()
    return handle


def _set_up(
    config: NemoLensConfig, allow_reinit: bool, resource_attributes: Mapping[str, Any] | None, **given: Any
) -> TelemetryHandle:
    global _handle, _config, _owner_pid
    if _is_live():
        if not allow_reinit:
            raise RuntimeError(
                "telemetry is set up in this process already: use get_telemetry() for its handle, "
                "or call shutdown() on that before setting up again"
            )
        _handle.shutdown()
    backend = _discovery.find_backend()
    if backend is None:
        if _discovery.points(_discovery.BACKENDS):
            warn("telemetry is enabled but no installed backend could be loaded, so nothing is exported")
        else:
            warn("telemetry is enabled but no backend is installed, so nothing is exported: pip install nemo-lens-sdk")
        state.set_enabled_span_groups(())
        return NULL_HANDLE
    try:
        config, resource_attributes = _with_run_id(config, resource_attributes)
        handle = backend.build(config, resource_attributes=resource_attributes, **given)
    except (TypeError, ValueError):  # a setting, or what the caller gave
        raise
    except Exception:  # noqa: BLE001 - no fault of the job's: it runs on without telemetry
        logger().warning("telemetry could not be set up, so nothing is exported", exc_info=True)
        state.set_enabled_span_groups(())
        return NULL_HANDLE
    _handle, _config, _owner_pid = handle, config, os.getpid()
    _cell.install_backend(backend)
    if SpanRegistry.resolve(config.span_groups)[1]:
        load_span_group_entry_points()
    state.set_span_group_spec(config.span_groups)
    return handle


def _with_run_id(
    config: NemoLensConfig, attributes: Mapping[str, Any] | None
) -> tuple[NemoLensConfig, Mapping[str, Any] | None]:
    """Move a run id from the attributes to the configuration, which hands it on to other processes; forget a blank."""
    from nemo_lens.api.attributes import clean_attributes  # a disabled set-up needs neither
    from nemo_lens.api.semconv import NEMO_RUN_ID

    given = None if attributes is None else attributes.get(NEMO_RUN_ID)
    value = clean_attributes({NEMO_RUN_ID: given}, ()).get(NEMO_RUN_ID)
    if attributes is None or not isinstance(value, (str, int, float)):
        return config, attributes
    run_id = str(value).strip()
    if run_id:
        config = copy.copy(config)  # the caller's own stays as it is
        config.run_id = run_id
        config.validate()  # it is handed on in environments, which take no NUL
    return config, {key: value for key, value in attributes.items() if key != NEMO_RUN_ID}


def get_telemetry() -> TelemetryHandle:
    """Return the handle of this process, so that a second library can share it.

    Returns:
        The handle; one that does nothing when telemetry is not set up here.
    """
    if _handle is NULL_HANDLE or _handle.is_shutdown:
        debug_once("no telemetry", "telemetry is not set up in process %d: spans and metrics go nowhere", os.getpid())
        return NULL_HANDLE
    return _handle


def live_config() -> NemoLensConfig | None:
    """Return what telemetry of this process was set up with, for integrations; None while it is off."""
    return _config if _is_live() else None


def instrument(name: str, *args: Any, **options: Any) -> Any:
    """Switch an integration on.

    Args:
        name: its name in the entry-point group ``nemo_lens.instrumentation``, such as ``fastapi``.
        *args: what it instruments, an application for example.
        **options: its options.

    Returns:
        What the integration returns.

    Raises:
        TypeError: when ``name`` is not a str.
        ValueError: when no installed distribution provides ``name``.
        ImportError: when the integration, or the package it instruments, cannot be imported.
    """
    return _loaded(_point(name))(*args, **options)


def uninstrument(name: str, *args: Any) -> Any:
    """Undo :func:`instrument`.

    Args:
        name: the name that was given to ``instrument``.
        *args: what was instrumented, where the integration needs it.

    Returns:
        What the integration returns.

    Raises:
        TypeError: when ``name`` is not a str.
        ValueError: when no installed distribution provides ``name``, or the integration cannot be undone.
        ImportError: as :func:`instrument`.
    """
    undo = getattr(_loaded(_point(name)), "uninstrument", None)
    if undo is None:
        raise ValueError(f"integration {name!r} cannot be undone: it has no 'uninstrument'")
    return undo(*args)


def load_span_group_entry_points() -> list[tuple[str, str, str | None]]:
    """Register, provisionally, the span groups that installed libraries declare as entry points.

    Returns:
        For each entry point its namespace, its distribution, and what was wrong with it or None.
    """
    report: list[tuple[str, str, str | None]] = []
    for name, point in sorted(_discovery.points(_discovery.SPAN_GROUPS).items()):
        problem: str | None = None
        try:
            declared = point.load()
            if callable(declared):
                declared = declared()
            register_provisional(name, declared["groups"], declared.get("presets"))
        except (Exception, SystemExit) as fault:  # noqa: BLE001 - a broken plug-in must not break the application
            problem = _described(fault)
            warn("span groups of %r (%s) are skipped: %s", name, _discovery.distribution_of(point), problem)
        report.append((name, _discovery.distribution_of(point), problem))
    return report


def _is_live() -> bool:
    # A forked child inherits its parent's handle but may set up for itself.
    return _handle is not NULL_HANDLE and not _handle.is_shutdown and _owner_pid == os.getpid()


def _point(name: str) -> EntryPoint:
    if not isinstance(name, str):
        raise TypeError(f"name must be that of an integration, such as 'fastapi', and not {type(name).__name__}")
    found = _discovery.points(_discovery.INSTRUMENTATIONS)
    point = found.get(name)
    if point is None:
        extra = f"; pip install 'nemo-lens-contrib[{name}]' brings it" if name in _EXTRAS else ""
        raise ValueError(
            f"no installed integration is named {name!r}; installed: {', '.join(sorted(found)) or 'none'}"
            f"{extra or nearest(name, [*found, *_EXTRAS])}"
        )
    return point


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (Exception, SystemExit) as fault:
        source = _discovery.distribution_of(point)
        raise ImportError(f"integration {point.name!r} of {source} could not be loaded: {_described(fault)}") from fault


def _instrument_from_environment() -> None:
    for name in map(str.strip, os.environ.get("NEMO_LENS_INSTRUMENT", "").split(",")):
        if name:
            source = ""
            try:
                point = _point(name)
                switch_on = _loaded(point)
                source = f" of {_discovery.distribution_of(point)}"
                switch_on()
            except (Exception, SystemExit) as fault:  # noqa: BLE001 - telemetry is up; a plug-in must not end the job
                text = _described(fault) if source else fault  # before it is called, the fault is ours and says it all
                warn("NEMO_LENS_INSTRUMENT: %r%s could not be switched on: %s", name, source, text)


def _described(fault: BaseException) -> str:
    from nemo_lens.api._outcome import describe  # a set-up without faults needs none

    return describe(fault)


def _renew_in_child() -> None:
    global _lock, _setting_up
    _lock = RLock()
    _setting_up = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
