"""Where this process runs: detectors, and the resource that telemetry carries.

Names are loaded when they are first touched (PEP 562): ``nemo-lens set-slurm-resource-attrs``, which every task of a
job runs, needs one detector and has a budget for its start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nemo_lens.api.carrier import check_resource_attributes as check_resource_attributes
    from nemo_lens.api.carrier import extend_otel_resource_attributes as extend_otel_resource_attributes
    from nemo_lens.api.carrier import format_otel_resource_attributes as format_otel_resource_attributes
    from nemo_lens.api.carrier import get_otel_resource_attributes as get_otel_resource_attributes
    from nemo_lens.api.carrier import parse_otel_resource_attributes as parse_otel_resource_attributes
    from nemo_lens.api.carrier import publish_otel_resource_attributes as publish_otel_resource_attributes
    from nemo_lens.api.carrier import set_otel_resource_attributes as set_otel_resource_attributes
    from nemo_lens.api.identity import derive_job_uuid as derive_job_uuid
    from nemo_lens.api.identity import derive_run_uuid as derive_run_uuid
    from nemo_lens.sdk.resources.detection import detect_resource as detect_resource
    from nemo_lens.sdk.resources.gpu import detect_gpu as detect_gpu
    from nemo_lens.sdk.resources.kubernetes import detect_kubernetes as detect_kubernetes
    from nemo_lens.sdk.resources.local import detect_local as detect_local
    from nemo_lens.sdk.resources.slurm import detect_slurm as detect_slurm

# Public name -> module that defines it.
_HOME = {
    "check_resource_attributes": "nemo_lens.api.carrier",
    "derive_job_uuid": "nemo_lens.api.identity",
    "derive_run_uuid": "nemo_lens.api.identity",
    "detect_gpu": "nemo_lens.sdk.resources.gpu",
    "detect_kubernetes": "nemo_lens.sdk.resources.kubernetes",
    "detect_local": "nemo_lens.sdk.resources.local",
    "detect_resource": "nemo_lens.sdk.resources.detection",
    "detect_slurm": "nemo_lens.sdk.resources.slurm",
    "extend_otel_resource_attributes": "nemo_lens.api.carrier",
    "format_otel_resource_attributes": "nemo_lens.api.carrier",
    "get_otel_resource_attributes": "nemo_lens.api.carrier",
    "parse_otel_resource_attributes": "nemo_lens.api.carrier",
    "publish_otel_resource_attributes": "nemo_lens.api.carrier",
    "set_otel_resource_attributes": "nemo_lens.api.carrier",
}

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


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(__import__(_HOME[name], fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
