"""One fixture, ``lens``: the public names over each backend, which must behave alike towards the caller."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nemo_lens.api
from nemo_lens.api import SpanRegistry, fallbacks
from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.api.state import reset_state

GROUP = "contract"


@dataclass(frozen=True)
class Case:
    """One way in which a library may meet the API.

    Args:
        vendored: the vendored file stands for the API.
        exports: the OpenTelemetry backend is installed, else the no-op one.
        opened: the span group of the tests is on.
    """

    vendored: bool = False
    exports: bool = False
    opened: bool = False


CASES = {
    "vendored": Case(vendored=True),
    "noop": Case(),
    "noop-opened": Case(opened=True),
    "otel": Case(exports=True),
    "otel-opened": Case(exports=True, opened=True),
}


class Lens:
    """The public names as attributes, and what was obtained from them before telemetry was set up."""

    def __init__(self, names: Any, case: Case) -> None:
        self._names = names
        self.case = case
        self.early_tracer = names.get_tracer("early", "1")
        self.early_meter = names.get_meter("early", "1")
        self.handle: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)


@pytest.fixture(params=CASES, ids=str)
def lens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lens]:
    """Install the backend and open the group, as the case says."""
    case = CASES[request.param]
    if case.exports:
        pytest.importorskip("opentelemetry.sdk", reason="the API wheel is tested alone here")
    forget_reported()
    names = vendored_copy(tmp_path) if case.vendored else nemo_lens.api
    lens = Lens(names, case)
    options: dict[str, Any] = {}
    if case.exports:
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        options = {"span_exporter": InMemorySpanExporter(), "resource_attributes": {"nv.dl.rank": 0}}
    config = names.NemoLensConfig(
        enabled=case.exports, run_id="r", exporter="file", file_path=str(tmp_path / "{signal}.jsonl"), span_groups=""
    )
    lens.handle = names.setup_telemetry(config, **options)
    names.set_enabled_span_groups({GROUP} if case.opened else ())
    try:
        yield lens
    finally:
        lens.handle.shutdown()
        reset_state()
        SpanRegistry.clear()


def vendored_copy(folder: Path) -> ModuleType:
    """Copy the one file to ``folder`` under another name, and import it from there."""
    copy = folder / "_lens_vendored.py"
    shutil.copyfile(fallbacks.__file__, copy)
    spec = importlib.util.spec_from_file_location("_lens_vendored", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
