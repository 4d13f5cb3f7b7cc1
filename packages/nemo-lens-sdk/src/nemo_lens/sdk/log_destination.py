"""Where bridged log records go: to the provider of the present run, else to the application's own global one."""

from __future__ import annotations

from typing import Any

from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider

from nemo_lens.sdk.sendable import sound_name


class Destination:
    """A logger provider with its loggers by name: the SDK's ``get_logger`` takes locks."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self._loggers: dict[str, Any] = {}

    def logger(self, name: str) -> Any:
        """Return the OpenTelemetry logger of this name."""
        logger = self._loggers.get(name)
        if logger is None:
            logger = self._loggers[name] = self.provider.get_logger(sound_name(name))
        return logger


class _Run:
    def __init__(self, key: object, destination: Destination | None) -> None:
        self.key = key
        self.destination = destination


# All of these are replaced as a whole: no lock that a fork could leave held.
_run: _Run | None = None
# A provider of ours whose run is over: global for ever, and nobody behind it.
_retired: Any = None
# The application's own global provider, when it was last used.
_application: Destination | None = None


def begin(run: object, provider: Any) -> None:
    """Send records to this run's provider from now on.

    Args:
        run: The run, for ``end``.
        provider: Its logger provider; None when it exports no logs.
    """
    global _run, _retired
    if provider is not None:
        _retired = None
    _run = _Run(run, None if provider is None else Destination(provider))


def end(run: object, *, owned: bool) -> bool:
    """Send records to this run's provider no more.

    Args:
        run: The run that has begun.
        owned: Whether its provider is of no use without it.

    Returns:
        Whether it was the present run until now.
    """
    global _run, _retired
    present = _run
    if present is None or present.key is not run:
        return False
    _run = None
    if owned and present.destination is not None:
        _retired = present.destination.provider
    return True


def current() -> Destination | None:
    """Return where records go now; None for nowhere."""
    global _application
    run = _run
    if run is not None and run.destination is not None:
        return run.destination
    provider = _logs.get_logger_provider()
    if not isinstance(provider, LoggerProvider) or provider is _retired:
        return None
    known = _application
    if known is None or known.provider is not provider:
        known = _application = Destination(provider)
    return known


def is_missing() -> bool:
    """Return whether telemetry is on and records go nowhere all the same."""
    return _run is not None and current() is None
