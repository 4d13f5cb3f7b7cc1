"""Where this process runs: detectors, and the resource that telemetry carries."""

from __future__ import annotations

from nemo_lens.api.carrier import (
    check_resource_attributes,
    extend_otel_resource_attributes,
    format_otel_resource_attributes,
    get_otel_resource_attributes,
    parse_otel_resource_attributes,
    publish_otel_resource_attributes,
    set_otel_resource_attributes,
)
from nemo_lens.api.identity import derive_job_uuid, derive_run_uuid
from nemo_lens.sdk.resources.detection import detect_resource
from nemo_lens.sdk.resources.gpu import detect_gpu
from nemo_lens.sdk.resources.kubernetes import detect_kubernetes
from nemo_lens.sdk.resources.local import detect_local
from nemo_lens.sdk.resources.slurm import detect_slurm

__all__ = [
    "check_resource_attributes",
    "derive_job_uuid",
    "derive_run_uuid",
    "detect_gpu",
    "detect_kubernetes",
    "detect_local",
    "detect_resource",
    "detect_slurm",
    "extend_otel_resource_attributes",
    "format_otel_resource_attributes",
    "get_otel_resource_attributes",
    "parse_otel_resource_attributes",
    "publish_otel_resource_attributes",
    "set_otel_resource_attributes",
]
