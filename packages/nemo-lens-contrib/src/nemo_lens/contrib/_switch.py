"""Whether an integration is on at this moment: asked at every request, in one frozenset lookup when it is off."""

from __future__ import annotations

from nemo_lens.api import backend as _cell
from nemo_lens.api import state as _state
from nemo_lens.api.backend import NOOP_BACKEND


class Switch:
    """The span group of an integration, and whether the integration is still there.

    Args:
        group: span group; None for whenever telemetry is set up.

    Raises:
        TypeError: when the group is not a str.
    """

    def __init__(self, group: str | None) -> None:
        if group is not None and not isinstance(group, str):
            raise TypeError(f"group must be the name of a span group or None, not {type(group).__name__}")
        self.group = group
        # False once it has been undone, for what still holds it.
        self.active = True

    def is_on(self) -> bool:
        """Return whether to record now."""
        group = self.group
        return (group is None or group in _state.enabled) and self.is_in_effect()

    def is_in_effect(self) -> bool:
        """Return whether the integration is there and telemetry set up, whatever the group."""
        return self.active and _cell.current is not NOOP_BACKEND
