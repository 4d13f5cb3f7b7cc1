"""The ``file`` exporter against the official OTLP JSON file exporter."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk.exporters import Signal, plan_exporter
from support.telemetry_samples import samples

_PACKAGE = "opentelemetry.exporter.otlp.json.file"
_PEERS = {
    "traces": ("trace_exporter", "FileSpanExporter"),
    "metrics": ("metric_exporter", "FileMetricExporter"),
    "logs": ("_log_exporter", "FileLogExporter"),
}


def _peer(signal: Signal, path: Path) -> Any:
    pytest.importorskip(_PACKAGE, reason="opentelemetry-exporter-otlp-json-file is not installed (needs SDK 1.45.1)")
    module, name = _PEERS[signal]
    return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)(path)


@pytest.mark.parametrize("signal", get_args(Signal))
def test_content_equals_the_official_file(signal: Signal, tmp_path: Path) -> None:
    """A line holds exactly what the official exporter writes for the same batch, nested attributes included."""
    peer = _peer(signal, tmp_path / "peer.jsonl")
    config = NemoLensConfig(exporter="file", file_path=str(tmp_path / "ours.jsonl"))
    ours = plan_exporter(signal, config, run_id="run", rank=0).make()
    for batch in (samples(nested=True).of(signal), samples().of(signal)):
        assert peer.export(batch).name == ours.export(batch).name == "SUCCESS"
    peer.shutdown()
    ours.shutdown()

    written, expected = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("ours.jsonl", "peer.jsonl")
    )

    assert len(written) == 2
    assert written == expected
