"""Entry points: how the wheels, integrations and consumer libraries find each other."""

from __future__ import annotations

import os

from nemo_lens.api._diagnostics import nearest, warn, warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any

    from nemo_lens.api.backend import Backend

BACKENDS = "nemo_lens.backend"
INSTRUMENTATIONS = "nemo_lens.instrumentation"
SPAN_GROUPS = "nemo_lens.span_groups"
PREFERRED_BACKEND = "otel"


def points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of one name, the first that the path finds."""
    from importlib.metadata import entry_points  # import budget: a disabled set-up looks for nothing

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, point)
    return found


def distribution_of(point: EntryPoint) -> str:
    """Return ``name version`` of the distribution an entry point comes from, for messages."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"


def load(point: EntryPoint) -> Any:
    """Load an entry point; log once at WARNING and return None when it fails.

    Raises:
        ValueError: when it fails for the value of a variable: OpenTelemetry reads one as it is imported.
    """
    try:
        return point.load()
    except (Exception, SystemExit) as fault:  # a broken plug-in must not break the application
        for word in str(fault).split() if type(fault) is ValueError else ():
            if word.startswith("OTEL_") and word in os.environ:
                raise ValueError(f"{word}={os.environ[word]!r} cannot be used: {fault}") from fault
        warn_once(
            ("entry point", point.group, point.name),
            "entry point %r of group %r (%s) could not be loaded and is skipped: %r",
            point.name,
            point.group,
            distribution_of(point),
            fault,
        )
        return None


def find_backend() -> Backend | None:
    """Return the installed backend, None when there is none that loads.

    Raises:
        ValueError: when ``NEMO_LENS_BACKEND`` names one that is not installed, or a variable of OpenTelemetry's keeps
            it from being loaded.
    """
    found = points(BACKENDS)
    wanted = os.environ.get("NEMO_LENS_BACKEND", "").strip()
    if wanted:
        if wanted not in found:
            raise ValueError(
                f"NEMO_LENS_BACKEND={wanted!r} names no installed backend; "
                f"installed: {', '.join(sorted(found)) or 'none'}{nearest(wanted, found)}"
            )
        backend: Backend | None = load(found[wanted])
        return backend
    if len(found) > 1:
        chosen = PREFERRED_BACKEND if PREFERRED_BACKEND in found else min(found)
        warn(
            "several telemetry backends are installed: %s; using %r, set NEMO_LENS_BACKEND to choose",
            ", ".join(f"{name!r} ({distribution_of(point)})" for name, point in sorted(found.items())),
            chosen,
        )
        found = {chosen: found[chosen], **found}
    for point in found.values():
        backend = load(point)
        if backend is not None:
            return backend
    return None
