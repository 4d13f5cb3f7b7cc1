"""Who wins when several say what a resource attribute is.

Highest first: the caller; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``; the configuration; detection; the
OpenTelemetry SDK's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from importlib.metadata import entry_points, version
from typing import Any

from opentelemetry.sdk.environment_variables import OTEL_EXPERIMENTAL_RESOURCE_DETECTORS
from opentelemetry.sdk.resources import (
    TELEMETRY_SDK_LANGUAGE,
    TELEMETRY_SDK_NAME,
    TELEMETRY_SDK_VERSION,
    OTELResourceDetector,
    Resource,
)

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.carrier import VARIABLE as CARRIER_VARIABLE
from nemo_lens.api.carrier import get_otel_resource_attributes, parse_integer
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.semconv import (
    DEPLOYMENT_ENVIRONMENT,
    DEPLOYMENT_ENVIRONMENT_NAME,
    HOST_GPU_COUNT,
    NEMO_RUN_ID,
    NEMO_USER_ID,
    NV_DL_LOCAL_RANK,
    NV_DL_RANK,
    NV_DL_WORLD_SIZE,
    PROCESS_PID,
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    WANDB_ENTITY,
    WANDB_PROJECT,
)
from nemo_lens.sdk.resources.caller import caller_attributes
from nemo_lens.sdk.resources.detection import detect_each

DEFAULT_SERVICE_NAME = "nemo"

# Two names of one thing: who sets one of them means both.
_DEPLOYMENT = (DEPLOYMENT_ENVIRONMENT, DEPLOYMENT_ENVIRONMENT_NAME)
# Configuration field -> attributes it sets.
_CONFIG_ATTRIBUTES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("user", (NEMO_USER_ID,)),
    ("wandb_entity", (WANDB_ENTITY,)),
    ("wandb_project", (WANDB_PROJECT,)),
    ("deployment_environment", _DEPLOYMENT),
)
# torchelastic's variable -> attribute, read when TORCHELASTIC_RUN_ID says that it set them.
_TORCHELASTIC = (("RANK", NV_DL_RANK), ("WORLD_SIZE", NV_DL_WORLD_SIZE), ("LOCAL_RANK", NV_DL_LOCAL_RANK))


def build_resource(config: NemoLensConfig, run_id: str, caller: Mapping[str, Any] | None) -> Resource:
    """Return the resource of this process.

    Args:
        config: the settings; a ``service_name`` given in code counts as the caller's.
        run_id: identity of the run.
        caller: attributes the application gave.

    Returns:
        The merged resource. ``service.instance.id`` is ``{run_id}-rank{rank}`` when a rank is known and nobody set it.
    """
    layers = resource_layers(config, run_id, caller)
    attributes = {key: value for _, layer in layers for key, value in layer.items()}
    if rank_of(attributes) is None and not any(SERVICE_INSTANCE_ID in layer for _, layer in layers[1:]):
        warn_once(
            "no rank",
            "no rank is known, so %s does not tell this process by it: "
            "give resource_attributes={'%s': rank} to setup_telemetry",
            SERVICE_INSTANCE_ID,
            NV_DL_RANK,
        )
    return Resource(attributes)


def resource_layers(
    config: NemoLensConfig, run_id: str, caller: Mapping[str, Any] | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what ``build_resource`` merges: where attributes come from, and the attributes; later ones win.

    The first layer is the OpenTelemetry SDK's.
    """
    explicit = _both_names(caller_attributes(caller))
    inherited = _both_names(
        {
            key: value
            for key, value in get_otel_resource_attributes().items()
            # A blank one is an unset variable of the launcher's, as in nv.dl.rank=$RANK.
            if not _of_the_launcher(key) and str(value).strip()
        }
    )
    service, service_source = _service_name(config, inherited)
    # The SDK's own detector reads OTEL_RESOURCE_ATTRIBUTES too, by other rules: the launcher's values, what we dropped.
    also_inherited = OTELResourceDetector().detect().attributes
    defaults = {key: value for key, value in _opentelemetry(service).items() if key not in also_inherited}
    defaults.update(_hidden(also_inherited.keys() - inherited.keys() - {SERVICE_NAME}))
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("OpenTelemetry", defaults),
        ("torchelastic", _torchelastic(os.environ)),
        *((f"{name} detection", found) for name, found in detect_each()),
        *(
            (config.sources[field], clean_attributes(dict.fromkeys(keys, getattr(config, field)), ()))
            for field, keys in _CONFIG_ATTRIBUTES
            if getattr(config, field)
        ),
        (CARRIER_VARIABLE, inherited),
        (service_source, clean_attributes({SERVICE_NAME: service}, ())),
        ("caller", explicit),
        ("run id", {NEMO_RUN_ID: run_id}),
    ]
    rank = rank_of({key: value for _, layer in layers for key, value in layer.items()})
    if rank is not None and SERVICE_INSTANCE_ID not in explicit and SERVICE_INSTANCE_ID not in inherited:
        layers.append(("run id and rank", {SERVICE_INSTANCE_ID: f"{run_id}-rank{rank}"}))
    return layers


def rank_of(attributes: Mapping[str, Any]) -> int | None:
    """Return the rank for names of files and instances; None when it is unknown or no integer."""
    rank = attributes.get(NV_DL_RANK)
    return rank if type(rank) is int else None


def forked_resource(resource: Resource) -> Resource:
    """Return the resource of a child forked from a process that had ``resource``."""
    attributes: dict[str, Any] = {**resource.attributes, PROCESS_PID: os.getpid()}
    rank, run_id = rank_of(attributes), attributes.get(NEMO_RUN_ID)
    instance = attributes.get(SERVICE_INSTANCE_ID)
    if rank is not None:
        attributes[SERVICE_INSTANCE_ID] = f"{run_id}-rank{rank}-{os.getpid()}"
    elif instance is not None:
        attributes[SERVICE_INSTANCE_ID] = f"{instance}-{os.getpid()}"
    return Resource(attributes, resource.schema_url)


def _opentelemetry(service: str) -> Mapping[str, Any]:
    try:
        return Resource.create({SERVICE_NAME: service}).attributes
    except Exception as fault:  # noqa: BLE001 - its detectors run in threads, which a process at its limit cannot start
        warn_once("detectors", "resource attributes of OpenTelemetry's detectors are left out: %r", fault)
        return _sdk()


def _sdk() -> dict[str, Any]:
    return {
        TELEMETRY_SDK_LANGUAGE: "python",
        TELEMETRY_SDK_NAME: "opentelemetry",
        TELEMETRY_SDK_VERSION: version("opentelemetry-sdk"),
    }


def _hidden(keys: Set[str]) -> dict[str, Any]:
    """Return what OpenTelemetry says of attributes that a blank, or the launcher's value, has hidden."""
    if not keys:
        return {}
    found = _sdk()
    names = {name.strip() for name in os.environ.get(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS, "").split(",")}
    for point in entry_points(group="opentelemetry_resource_detector"):
        if (point.name in names or "*" in names or point.name == "service_instance") and not _known_here(point.name):
            try:
                found.update(point.load()().detect().attributes)
            except Exception as fault:  # noqa: BLE001 - of somebody's detector
                warn_once(("detector", point.name), "resource detector %r failed and is skipped: %r", point.name, fault)
    return {key: found[key] for key in keys if key in found}


def _known_here(detector: str) -> bool:
    # The one that reads OTEL_RESOURCE_ATTRIBUTES, and our own, which are layers of their own.
    return detector == "otel" or detector.startswith("nemo_lens_")


def _both_names(attributes: dict[str, Any]) -> dict[str, Any]:
    given = next((attributes[name] for name in _DEPLOYMENT if name in attributes), None)
    return attributes if given is None else {**dict.fromkeys(_DEPLOYMENT, given), **attributes}


def _service_name(config: NemoLensConfig, inherited: Mapping[str, Any]) -> tuple[str, str]:
    """Return the service's name and where it comes from."""
    if config.service_name:
        return config.service_name, config.sources["service_name"]
    if name := os.environ.get("OTEL_SERVICE_NAME", "").strip():
        return name, "OTEL_SERVICE_NAME"
    if name := str(inherited.get(SERVICE_NAME) or ""):
        return name, CARRIER_VARIABLE
    return DEFAULT_SERVICE_NAME, "default"


def _of_the_launcher(key: str) -> bool:
    return key.startswith("process.") or key == HOST_GPU_COUNT


def _torchelastic(environ: Mapping[str, str]) -> dict[str, int]:
    if not environ.get("TORCHELASTIC_RUN_ID", "").strip():
        return {}
    numbers = ((attribute, parse_integer(environ.get(variable, ""))) for variable, attribute in _TORCHELASTIC)
    return {attribute: number for attribute, number in numbers if number is not None and number >= 0}
