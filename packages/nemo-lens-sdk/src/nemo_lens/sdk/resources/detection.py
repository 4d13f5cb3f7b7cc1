"""All detectors in a row: a detector that fails is logged once and skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.sdk.resources.kubernetes import detect_kubernetes
from nemo_lens.sdk.resources.local import detect_local
from nemo_lens.sdk.resources.slurm import detect_slurm

Detector = Callable[[Mapping[str, str] | None], Mapping[str, str | int]]

# Later ones win.
_DETECTORS: tuple[tuple[str, Detector], ...] = (
    ("local", detect_local),
    ("slurm", detect_slurm),
    ("kubernetes", detect_kubernetes),
)


def detect_resource(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return what the detectors local, slurm and kubernetes found. Never raises and never runs a program.

    Args:
        environ: environment to read; default ``os.environ``.

    Returns:
        Resource attributes.
    """
    return {key: value for _, found in detect_each(environ) for key, value in found.items()}


def detect_each(environ: Mapping[str, str] | None = None) -> Iterator[tuple[str, Mapping[str, str | int]]]:
    """Yield the name of each detector of ``detect_resource`` and what it found; later ones win.

    Args:
        environ: environment to read; default ``os.environ``.
    """
    environ = os.environ if environ is None else environ
    for name, detect in _DETECTORS:
        try:
            found = detect(environ)
        except Exception as fault:  # noqa: BLE001 - what a machine looks like must not end a job
            warn_once(("detector", name), "resource detector %r failed and is skipped: %r", name, fault)
            continue
        yield name, found
