"""The carrier that travels with a remote call, and the keyword it travels under."""

from __future__ import annotations

import sys
from typing import Any

from nemo_lens.api import extract_context, inject_context

# Reserved in the signature of everything that traced_remote_call decorates.
KEYWORD = "_lens_carrier"


def inject_ray_context() -> dict[str, str]:
    """Return a carrier of the current trace context.

    Calls of what ``traced_remote_call`` decorates take it along by themselves; this is for handing it on by other ways,
    or later: ``actor.step.remote(batch, _lens_carrier=carrier)``.

    Returns:
        The propagation headers; empty when there is no span or telemetry is off.
    """
    return dict(inject_context())


def extract_ray_context(carrier: Any) -> Any:
    """Read the trace context from a carrier, for the ``context`` of a span.

    Args:
        carrier: what ``inject_ray_context`` returned.

    Returns:
        The context; an empty one for a carrier that is malformed, of another type or larger than 8 KiB.
    """
    return extract_context(carrier)


def ray_traces_itself() -> bool:
    """Return whether Ray's own tracing is on in this process, as ``ray.init(_tracing_startup_hook=...)`` switches it.

    It opens a span for each remote call on both sides, so ours are left out. Ray has no public question for it.
    """
    tracing = sys.modules.get("ray.util.tracing.tracing_helper")
    is_on = getattr(tracing, "_is_tracing_enabled", None)
    return is_on is not None and bool(is_on())
