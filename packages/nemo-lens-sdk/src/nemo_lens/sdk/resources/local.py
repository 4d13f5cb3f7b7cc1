"""The machine and the process: ``host.name`` and ``process.pid``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource, ResourceDetector

from nemo_lens.api.semconv import HOST_NAME, PROCESS_PID


def detect_local(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return ``host.name`` and ``process.pid`` of this process.

    Args:
        environ: environment to read; unused by this detector, which asks the operating system.

    Returns:
        Attributes as in the OpenTelemetry resource conventions; a host name that is empty is left out.
    """
    attributes: dict[str, str | int] = {PROCESS_PID: os.getpid()}
    name = socket.gethostname()
    if name:
        attributes[HOST_NAME] = name
    return attributes


class LocalResourceDetector(ResourceDetector):
    """``detect_local`` as an OpenTelemetry detector, named ``nemo_lens_local``."""

    def detect(self) -> Resource:
        """Return the resource of this machine and process."""
        return Resource(dict(detect_local()))
