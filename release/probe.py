"""Runs in a fresh environment: the wheels that belong there are there, whole, and do what they can without the rest.

usage: probe.py VERSION WHEEL... (the short names of the wheels that are installed). Standard library only.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
import tempfile
from pathlib import Path

NAMES = ("api", "sdk", "contrib")
NEEDS_PYTEST = "pytest11"  # pytest itself loads what is in this group, in the run of the contract suite


def main(version: str, *wheels: str) -> None:
    """Check each promise in turn; the first that is broken ends the program with what is wrong."""
    for name in NAMES:
        if name in wheels:
            _present(name, version)
        else:
            _require(not _can_be_found(f"nemo_lens.{name}"), f"nemo_lens.{name} is here without its wheel")
    if "sdk" not in wheels:
        _require(not _can_be_found("opentelemetry"), "OpenTelemetry came without the SDK wheel")
    _telemetry(exports="sdk" in wheels)
    _integration("contrib" in wheels)


def _present(name: str, version: str) -> None:
    module = importlib.import_module(f"nemo_lens.{name}")
    _require(Path(str(module.__file__)).is_relative_to(sys.prefix), f"nemo_lens.{name} comes from {module.__file__}")
    distribution = importlib.metadata.distribution(f"nemo-lens-{name}")
    _require(distribution.version == version, f"nemo-lens-{name} is installed as {distribution.version}")
    said = getattr(module, "__version__", version)
    _require(said == version, f"nemo_lens.{name}.__version__ is {said}")
    for point in distribution.entry_points:
        if point.group != NEEDS_PYTEST:
            point.load()


def _telemetry(exports: bool) -> None:
    from nemo_lens.api import NemoLensConfig, SpanRegistry, managed_span, setup_telemetry

    SpanRegistry.register("probe", {"step"})

    warnings: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(listener)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{{signal}}-{{pid}}.jsonl"
        config = NemoLensConfig(
            enabled=True, exporter="file", file_path=path, run_id="r", service_name="s", span_groups="all"
        )
        with setup_telemetry(config) as telemetry:
            with managed_span("step", "train_step"):
                ran = True
            _require(telemetry.is_exporting == exports, f"is_exporting is {telemetry.is_exporting}")
        written = sorted(Path(folder).glob("*.jsonl"))
    logging.getLogger().removeHandler(listener)
    _require(ran, "the body of a span did not run")
    _require(bool(written) == exports, f"written to files: {written}")
    advice = [line for line in warnings if "pip install nemo-lens-sdk" in line]
    if not exports:
        _require(len(advice) == 1 and len(warnings) == 1, f"without a backend there is one WARNING, not {warnings}")
    _require(not (exports and advice), f"the backend was not found: {advice}")


def _integration(provided: bool) -> None:
    from nemo_lens.api import instrument

    expected = ImportError if provided else ValueError
    if provided and _can_be_found("fastapi"):
        return  # then it works: web_smoke.py shows that
    try:
        instrument("fastapi")
    except expected as error:
        _require("nemo-lens-contrib[fastapi]" in str(error), f"the error does not say what to install: {error}")
    else:
        _require(False, "instrument('fastapi') found something to instrument")


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"probe: {otherwise}")


if __name__ == "__main__":
    main(*sys.argv[1:])
