"""The detectors as OpenTelemetry detectors, for any application to name in ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS``."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource, ResourceDetector

from nemo_lens.api.carrier import get_otel_resource_attributes
from nemo_lens.sdk.resources.gpu import detect_gpu
from nemo_lens.sdk.resources.kubernetes import detect_kubernetes
from nemo_lens.sdk.resources.local import detect_local
from nemo_lens.sdk.resources.slurm import detect_slurm


class LocalResourceDetector(ResourceDetector):
    """``detect_local``, named ``nemo_lens_local``."""

    def detect(self) -> Resource:
        """Return the resource of this machine and process."""
        return _resource(detect_local())


class SlurmResourceDetector(ResourceDetector):
    """``detect_slurm``, named ``nemo_lens_slurm``."""

    def detect(self) -> Resource:
        """Return the resource of this SLURM job; empty outside one."""
        return _resource(detect_slurm())


class KubernetesResourceDetector(ResourceDetector):
    """``detect_kubernetes``, named ``nemo_lens_kubernetes``."""

    def detect(self) -> Resource:
        """Return the resource of this pod; empty outside one."""
        return _resource(detect_kubernetes())


class GpuResourceDetector(ResourceDetector):
    """``detect_gpu``, named ``nemo_lens_gpu``: it starts NVML, so it runs only where it is named."""

    def detect(self) -> Resource:
        """Return the resource of this process's GPU; empty without one."""
        return _resource(detect_gpu())


def _resource(found: Mapping[str, str | int]) -> Resource:
    # What OTEL_RESOURCE_ATTRIBUTES says wins in an OpenTelemetry application. OpenTelemetry's own detector, which reads
    # it, is the last in newer versions only: 1.38 merges detectors in the order of a set.
    given = get_otel_resource_attributes()
    return Resource({key: given.get(key, value) for key, value in found.items()})
