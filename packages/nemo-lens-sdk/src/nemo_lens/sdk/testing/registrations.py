"""The registries of span groups and of metric groups, put back after a test as they were before it.

But for what a module registered while it was imported: it stays imported, and would not register again.
"""

from __future__ import annotations

import sys
from typing import Any

from nemo_lens.api import groups
from nemo_lens.api.instruments import registry


class Registrations:
    """What is registered now, and what imported modules add from now on."""

    def __init__(self) -> None:
        self._spans, self._metrics = dict(groups.snapshot()), dict(registry.groups)
        self._last_spans, self._last_metrics = self._spans, self._metrics

    def look(self) -> None:
        """Keep what has been registered since the last look, when a module is being imported that did it."""
        spans, metrics = dict(groups.snapshot()), dict(registry.groups)
        if _is_importing():
            self._spans = {**self._spans, **_added(self._last_spans, spans)}
            self._metrics = {**self._metrics, **_added(self._last_metrics, metrics)}
        self._last_spans, self._last_metrics = spans, metrics

    def restore(self) -> None:
        """Put both registries back."""
        groups.restore(self._spans)
        registry.replace_groups(self._metrics)


# The one of the present test, which the registries' subscribers tell; they stay for good.
_present: Registrations | None = None
_subscribed = False


def keep() -> Registrations:
    """Return what is registered now, to be restored, and watch what is registered from now on."""
    global _present, _subscribed
    _present = Registrations()
    if not _subscribed:
        _subscribed = True
        groups.subscribe(lambda namespace: _look())
        registry.subscribe(_look)
    return _present


def restore(kept: Registrations) -> None:
    """Put the registries back."""
    global _present
    _present = None
    kept.restore()


def _look() -> None:
    present = _present
    if present is not None:
        present.look()


def _added(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: content for name, content in after.items() if before.get(name) is not content}


def _is_importing() -> bool:
    """Return whether this runs inside the import of a module, in this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        # The import system's own mark, on the spec of a module whose code is being run.
        if frame.f_code.co_name == "<module>" and getattr(frame.f_globals.get("__spec__"), "_initializing", False):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
