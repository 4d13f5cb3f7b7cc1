"""The logging bridge: records of the standard library's ``logging`` become OpenTelemetry log records.

Here is which logger has one, and which one a record goes through. A bridge is no member of ``Logger.handlers``, where
``dictConfig`` would remove it and ``basicConfig`` take its presence for a configuration: it is called after the
application's own handlers, from ``logging_hook``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

from nemo_lens.api._diagnostics import nearest, warn_once
from nemo_lens.sdk import _compat, log_destination, logging_hook
from nemo_lens.sdk.bridge_handler import NEVER_EXPORTED, LoggingBridge, report

__all__ = ["remove_logging_bridge", "setup_logging_bridge"]

_LEVEL_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def setup_logging_bridge(logger_name: str = "", level: int | str = logging.INFO) -> logging.Handler:
    """Export the records of a logger and of its children. Idempotent.

    It works before ``setup_telemetry``, with which records start to arrive, and on an application's own OpenTelemetry
    logger provider. No level, handler or formatter of the application's changes: what a logger's level hides stays
    hidden.

    Args:
        logger_name: Name of the logger; default the root logger.
        level: The lowest level that is exported, a number or a name; that of the latest call counts.

    Returns:
        The bridge, the same one at every call for a logger. Take its ``addFilter`` to drop or redact records; it need
        not be added to a logger.

    Raises:
        TypeError: for a name that is no str, or a level that is no int or str.
        ValueError: for a level name that is not known, or a logger whose records are never exported.
    """
    bridge = _attach(_checked_name(logger_name), _checked_level(level))
    bridge.attached_by = None
    _warn_if_logs_are_off()
    return bridge


def remove_logging_bridge(logger_name: str = "") -> None:
    """Export the records of a logger no more. Does nothing when there is no bridge.

    Args:
        logger_name: As for :func:`setup_logging_bridge`; also takes the one off that ``setup_telemetry`` attached.

    Raises:
        TypeError: for a name that is no str.
        ValueError: for a logger whose records are never exported.
    """
    _detach(_checked_name(logger_name))


def connect(run: object, provider: Any, *, attach: bool) -> None:
    """Send records to this run's provider from now on.

    Args:
        run: The run; its ``disconnect`` undoes this.
        provider: Its logger provider; None when it exports no logs.
        attach: Whether to attach a bridge to the root logger at INFO, unless the application has done so.
    """
    log_destination.begin(run, provider)
    root = _bridges.get(_ROOT)
    if attach and (root is None or root.attached_by is not None):
        _attach(_ROOT, logging.INFO).attached_by = run
    if _bridges:
        _warn_if_logs_are_off()


def disconnect(run: object, *, owned: bool) -> None:
    """Undo ``connect``; do nothing when another run has connected since.

    Args:
        run: The run.
        owned: Whether the provider is of no use without the run.
    """
    if log_destination.end(run, owned=owned):
        root = _bridges.get(_ROOT)
        if root is not None and root.attached_by is run:
            _detach(_ROOT)


def snapshot_bridges() -> list[tuple[str, LoggingBridge, int, object | None, list[Any]]]:
    """Return what ``restore_bridges`` takes, for tests."""
    return [(name, bridge, bridge.level, bridge.attached_by, list(bridge.filters)) for name, bridge in _bridges.items()]


def restore_bridges(saved: list[tuple[str, LoggingBridge, int, object | None, list[Any]]]) -> None:
    """Put the bridges back that there were, as they were, for tests."""
    kept = {name: bridge for name, bridge, *_ in saved}
    for name in [name for name, bridge in _bridges.items() if kept.get(name) is not bridge]:
        _detach(name)
    for name, bridge, level, attached_by, filters in saved:
        _bridges.setdefault(name, bridge)
        _attach(name, level).attached_by = attached_by
        bridge.filters[:] = filters


_ROOT = logging.root.name
# By the logger's name; changed under the lock, read without it.
_bridges: dict[str, LoggingBridge] = {}
_lock = threading.RLock()
_PATIENCE_S = 0.5


def _pass_on(logger: logging.Logger, record: logging.LogRecord) -> None:
    try:
        bridge = _responsible(logger, record.levelno) if _bridges else None
        if bridge is not None:
            bridge.handle(record)
    except Exception as fault:  # noqa: BLE001 - as in handle
        report(fault)


def _responsible(logger: logging.Logger, level: int) -> LoggingBridge | None:
    """Return the bridge that a record goes through: the first on its way up that admits its level, if any."""
    found: LoggingBridge | None = None
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            if level >= handler.level and _exports_too(handler):
                return None
        if found is None:
            found = _bridge_at(at, level)
        at = at.parent if at.propagate else None
    return found


def _bridge_at(logger: logging.Logger, level: int) -> LoggingBridge | None:
    """Return the bridge of a logger, or of a name between it and its parent's of which there is no logger (yet)."""
    name = logger.name
    bridge = _bridges.get(name)
    if bridge is not None and level >= bridge.level:
        return bridge
    parent = logger.parent
    if parent is None or not logger.propagate or (len(_bridges) == 1 and _ROOT in _bridges):
        return None
    while (name := name.rpartition(".")[0]) and name != parent.name:
        bridge = _bridges.get(name)
        if bridge is not None and level >= bridge.level:
            return bridge
    return None


def _exports_too(handler: logging.Handler) -> bool:
    """Return whether a handler of the application's brings a record to where a bridge would."""
    if isinstance(handler, LoggingBridge):
        return True
    kind: Any = type(handler)
    if not _compat.is_logging_handler(kind):
        return False
    destination = log_destination.current()
    return destination is not None and _compat.feeds(handler, destination.provider)


def _warn_if_logs_are_off() -> None:
    if log_destination.is_missing():
        warn_once(
            "bridge without logs",
            "there is a logging bridge and telemetry is on, but logs are not exported: set NEMO_LENS_LOGS_ENABLED=1",
        )


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"logger_name={name!r}: expected the name of a logger as a str, '' for the root logger")
    if name.partition(".")[0] in NEVER_EXPORTED:
        never = ", ".join(sorted(NEVER_EXPORTED))
        raise ValueError(f"logger_name={name!r}: records of {never} and their children are never exported")
    # The logger is not made here: dictConfig would disable it, and it might not have been there without this call.
    return name or _ROOT


def _checked_level(level: object) -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    if not isinstance(level, str):
        raise TypeError(f"level={level!r}: expected a number or one of {', '.join(_LEVEL_NAMES)}")
    number: object = logging.getLevelName(level.strip().upper())
    if not isinstance(number, int):
        near = nearest(level.strip().upper(), _LEVEL_NAMES)
        raise ValueError(f"level={level!r}: expected a number or one of {', '.join(_LEVEL_NAMES)}{near}")
    return number


def _attach(name: str, level: int) -> LoggingBridge:
    with _changing():
        bridge = _bridges.get(name)
        if bridge is None:
            bridge = _bridges[name] = LoggingBridge(level)
        bridge.setLevel(level)
        logging_hook.install(_pass_on)
    return bridge


def _detach(name: str) -> None:
    with _changing():
        _bridges.pop(name, None)
        if not _bridges:
            logging_hook.uninstall()


@contextlib.contextmanager
def _changing() -> Iterator[None]:
    """Attach or take off one bridge at a time; logging calls do not wait for that."""
    lock = _lock
    # Not for ever: a shutdown on SIGTERM, in a thread of its own, may come while the interrupted code is in here.
    held = lock.acquire(timeout=_PATIENCE_S)
    try:
        yield
    finally:
        if held:
            lock.release()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
