"""The machine and the process: ``host.name``, ``process.pid`` and ``host.gpu.count``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from nemo_lens.api.semconv import HOST_GPU_COUNT, HOST_NAME, PROCESS_PID
from nemo_lens.sdk.resources.gpu_count import visible_gpu_count


def detect_local(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return what this process knows of its machine and itself.

    Args:
        environ: environment to read; default ``os.environ``.

    Returns:
        ``host.name`` (unless empty) and ``process.pid`` as in the OpenTelemetry resource conventions, and
        ``host.gpu.count``, the GPUs that this process can see, where something says how many.
    """
    attributes: dict[str, str | int] = {PROCESS_PID: os.getpid()}
    name = socket.gethostname()
    if name:
        attributes[HOST_NAME] = name
    count = visible_gpu_count(environ)
    if count is not None:
        attributes[HOST_GPU_COUNT] = count
    return attributes
