"""The detectors as OpenTelemetry detectors, for any application to name in ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS``."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource, ResourceDetector

from nemo_lens.sdk.resources.gpu import detect_gpu
from nemo_lens.sdk.resources.kubernetes import detect_kubernetes
from nemo_lens.sdk.resources.local import detect_local
from nemo_lens.sdk.resources.slurm import detect_slurm


class LocalResourceDetector(ResourceDetector):
    """``detect_local``, named ``nemo_lens_local``."""

    def detect(self) -> Resource:
        """Return the resource of this machine and process."""
        return Resource(dict(detect_local()))


class SlurmResourceDetector(ResourceDetector):
    """``detect_slurm``, named ``nemo_lens_slurm``."""

    def detect(self) -> Resource:
        """Return the resource of this SLURM job; empty outside one."""
        return Resource(dict(detect_slurm()))


class KubernetesResourceDetector(ResourceDetector):
    """``detect_kubernetes``, named ``nemo_lens_kubernetes``."""

    def detect(self) -> Resource:
        """Return the resource of this pod; empty outside one."""
        return Resource(dict(detect_kubernetes()))


class GpuResourceDetector(ResourceDetector):
    """``detect_gpu``, named ``nemo_lens_gpu``: it starts NVML, so it runs only where it is named."""

    def detect(self) -> Resource:
        """Return the resource of this process's GPU; empty without one."""
        return Resource(dict(detect_gpu()))
