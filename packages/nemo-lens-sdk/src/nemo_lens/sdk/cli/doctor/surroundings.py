"""Where this process runs, and what its telemetry would say about it: every attribute and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.identity import RUN_ID_VARIABLE, find_run_id
from nemo_lens.api.semconv import HOST_NAME, NV_DL_RANK
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, Finding
from nemo_lens.sdk.cli.doctor.overheard import Overheard
from nemo_lens.sdk.cli.doctor.redaction import shown_attribute
from nemo_lens.sdk.resources.detection import detect_each
from nemo_lens.sdk.resources.gpu_count import count_and_origin

_Layers = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Attribute:
    """An attribute of the resource."""

    name: str
    value: Any
    origin: str

    def as_object(self) -> dict[str, object]:
        """Return the attribute as it stands in the JSON."""
        return {"name": self.name, "value": self.value, "origin": self.origin}


@dataclass
class Surroundings:
    """What was found out about machine, job, run and process."""

    host: str
    gpu_count: int | None
    gpu_origin: str
    run_id: str
    run_id_origin: str
    rank: int | None
    rank_origin: str
    slurm: dict[str, Any]
    kubernetes: dict[str, Any]
    attributes: list[Attribute]
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return the section as it stands in the JSON."""
        return {
            "host": self.host,
            "gpus": {"count": self.gpu_count, "origin": self.gpu_origin},
            "run_id": {"value": self.run_id, "origin": self.run_id_origin},
            "rank": {"value": self.rank, "origin": self.rank_origin or None},
            "slurm": self.slurm,
            "kubernetes": self.kubernetes,
            "resource": [attribute.as_object() for attribute in self.attributes],
        }


def look(config: NemoLensConfig, environ: Mapping[str, str], overheard: Overheard) -> Surroundings:
    """Detect what set-up would detect.

    Args:
        config: The settings.
        environ: The environment; the detectors read ``os.environ``.
        overheard: Where the library's log records arrive.
    """
    run_id, run_id_origin = find_run_id(config.run_id)
    if run_id_origin == "code":
        run_id_origin = config.sources["run_id"]
    findings: list[Finding] = []
    layers = _layers(config, run_id, findings) or [(f"{name} detection", found) for name, found in detect_each()]
    detected = dict(layers)
    rows = {
        key: Attribute(key, shown_attribute(key, value), name) for name, layer in layers for key, value in layer.items()
    }
    rank = rows.get(NV_DL_RANK)
    gpu_count, gpu_origin = count_and_origin(environ)
    host = rows.get(HOST_NAME)
    findings += overheard.take("surroundings")
    found = Surroundings(
        host=str(host.value) if host else "",
        gpu_count=gpu_count,
        gpu_origin=gpu_origin,
        run_id=run_id,
        run_id_origin=run_id_origin,
        rank=rank.value if rank and isinstance(rank.value, int) else None,
        rank_origin=rank.origin if rank else "",
        slurm=_shown(detected.get("slurm detection", {})),
        kubernetes=_shown(detected.get("kubernetes detection", {})),
        attributes=[rows[key] for key in sorted(rows)],
        findings=findings,
    )
    found.findings.append(_identity(found))
    return found


def _shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: shown_attribute(key, value) for key, value in attributes.items()}


def _layers(config: NemoLensConfig, run_id: str, findings: list[Finding]) -> _Layers:
    try:
        from nemo_lens.sdk.resources.precedence import resource_layers  # needs OpenTelemetry, which may be missing
    except Exception:  # noqa: BLE001 - why is said where the backend is loaded
        return []
    try:
        return resource_layers(config, run_id, None)
    except Exception as fault:  # noqa: BLE001 - of somebody's detector or of the SDK's: set-up would raise it
        text = f"the resource cannot be built: {type(fault).__name__}: {fault}"
        remedy = "look at OTEL_EXPERIMENTAL_RESOURCE_DETECTORS and OTEL_RESOURCE_ATTRIBUTES"
        findings.append(Finding(PROBLEM, "resource_failed", text, remedy))
        return []


def _identity(found: Surroundings) -> Finding:
    run = f"run id {found.run_id} ({_origin_of_run_id(found.run_id_origin)})"
    rank = f"rank {found.rank} ({found.rank_origin})" if found.rank is not None else "no rank"
    return Finding(OK, "identity", f"{run}, {rank}")


def _origin_of_run_id(origin: str) -> str:
    return f"made up here, set {RUN_ID_VARIABLE} to choose" if origin == "random" else origin
