"""The documented Collector configurations, run by the real Collector as far as its components are in the build.

What is not in the build is taken out by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support.all_signals import clean_environ
from support.peer_programs import free_port, peer_binary, running_peer

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "observability" / "collector"
CONFIGS = {name: FOLDER / f"{name}.yaml" for name in ("single", "node", "gateway")}
KINDS = ("receivers", "processors", "exporters", "connectors", "extensions")

Config = dict[str, Any]


def component_type(name: str) -> str:
    """Return the type of a component: ``otlp`` of ``otlp/traces``."""
    return name.partition("/")[0]


def used_by(config: Config) -> set[tuple[str, str]]:
    """Return kind and type of every component that a configuration defines."""
    return {(kind, component_type(name)) for kind in KINDS for name in config.get(kind, {})}


@cache
def built_in() -> frozenset[tuple[str, str]]:
    """Return kind and type of every component of the real Collector, as it says itself.

    Raises:
        PeerUnavailableError: it has to be built and a package cannot be had.
    """
    answer = yaml.safe_load(_ask("components").stdout)
    return frozenset((kind, component["name"]) for kind in KINDS for component in answer[kind])


def runnable(config: Config, stand_ins: Mapping[str, Config] | None = None) -> Config:
    """Return a configuration without what is not in the build.

    Args:
        config: what an operator copies.
        stand_ins: exporters that take the place of others: the name in ``config`` to the settings of an ``otlphttp``.
    """
    missing = used_by(config) - built_in()
    reduced = {kind: dict(config[kind]) for kind in KINDS if kind in config}
    names = {name: f"otlphttp/{name.replace('/', '-')}" for name in stand_ins or {}}
    for name, settings in (stand_ins or {}).items():
        del reduced["exporters"][name]
        reduced["exporters"][names[name]] = settings
    for kind, components in reduced.items():
        reduced[kind] = {name: each for name, each in components.items() if (kind, component_type(name)) not in missing}
    service = config["service"]
    pipelines = {}
    for signal, pipeline in service["pipelines"].items():
        pipelines[signal] = {
            kind: [name for each in components if (name := names.get(each, each)) in reduced[kind]]
            for kind, components in pipeline.items()
        }
    extensions = [name for name in service["extensions"] if name in reduced["extensions"]]
    return {**reduced, "service": {**service, "extensions": extensions, "pipelines": pipelines}}


def load(name: str) -> Config:
    """Return a documented configuration as it stands, variables and all."""
    config: Config = yaml.safe_load(CONFIGS[name].read_text(encoding="utf-8"))
    return config


def resolved(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Return a whole configuration with its variables replaced, as the real Collector reads it."""
    command = ("print-config", "--mode=unredacted", "--validate=false", "--feature-gates=otelcol.printInitialConfig")
    config: Config = yaml.safe_load(_ask(*command, "--config", str(path), environ=environ).stdout)
    return config


def validate(config: Config, folder: Path) -> str:
    """Ask the real Collector about a configuration; return what it objects to, nothing when it is valid."""
    path = write(config, folder)
    return _ask("validate", "--config", str(path), check=False).stderr


def write(config: Config, folder: Path, name: str = "config") -> Path:
    """Write a configuration; return the file."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


class Ports:
    """Free ports for a Collector, and the variables that make a documented configuration listen on them."""

    def __init__(self) -> None:
        grpc, http, self.own_metrics = free_port(), free_port(), free_port()
        self.listening = (grpc, http)
        self.grpc_endpoint, self.http_endpoint = f"http://127.0.0.1:{grpc}", f"http://127.0.0.1:{http}"
        self.environ = {
            "COLLECTOR_GRPC_ENDPOINT": f"127.0.0.1:{grpc}",
            "COLLECTOR_HTTP_ENDPOINT": f"127.0.0.1:{http}",
            "COLLECTOR_OWN_METRICS_PORT": str(self.own_metrics),
            "COLLECTOR_OWN_METRICS_INTERVAL_MS": "500",
        }


@contextmanager
def running_config(config: Config, ports: Ports, environ: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run the real Collector with a configuration for the length of a ``with`` block.

    Args:
        config: what ``runnable`` returned.
        ports: where it listens.
        environ: the variables of the configuration but for the ports.
        folder: for its configuration and log, ``collector.log``.
    """
    folder.mkdir(exist_ok=True)
    path = write(config, folder)
    command = ("env", *(f"{name}={value}" for name, value in {**ports.environ, **environ}.items()))
    with running_peer((*command, peer_binary("otelcol"), "--config", path), ports.listening, folder / "collector.log"):
        yield


def _ask(
    *arguments: str, environ: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (str(peer_binary("otelcol")), *arguments),
        env=clean_environ(environ or {}),
        capture_output=True,
        text=True,
        timeout=30,
        check=check,
    )


def install_contrib(folder: Path) -> str:
    """Put a program ``otelcol-contrib``, the real Collector, into a folder; return a ``PATH`` that begins with it."""
    program = folder / "otelcol-contrib"
    tests = Path(__file__).parents[1]
    shim = tests / "support" / "programs" / "otelcol_contrib.py"
    program.write_text(
        f'#!/bin/sh\nTMPDIR={folder} PYTHONPATH={tests} exec {sys.executable} {shim} "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    return os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
