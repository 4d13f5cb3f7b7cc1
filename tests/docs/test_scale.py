"""The page on scale: its tables follow from sizes as they are measured now, its advice does what it says."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")
FRAGMENTS = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.M | re.S)


@pytest.fixture(scope="module")
def scale() -> Any:
    """The modules beside the page."""
    sys.path.insert(0, str(DOCS))
    try:
        names = ("packing", "sizes", "tables", "volume", "workload")
        found = {name: importlib.import_module(f"scale.{name}") for name in names}
        return SimpleNamespace(page=importlib.import_module("measure_scale"), **found)
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def kept() -> Any:
    return json.loads((DOCS / "scale" / "sizes.json").read_text(encoding="utf-8"))


@pytest.mark.timeout(180)
def test_the_page_holds_what_is_measured() -> None:
    """Ranks that run now send what the page says, within a tenth, and its tables follow from the kept sizes."""
    done = subprocess.run(
        [sys.executable, str(DOCS / "measure_scale.py"), "--check"], capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_page_or_size_is_noticed(scale: Any, kept: Any) -> None:
    """A figure of a table that was changed by hand differs, and a size that moved by more than a tenth is named."""
    made = scale.tables.tables(scale.workload.Job(), scale.tables.RANKS, kept)
    assert scale.page.filled(PAGE, made) == PAGE
    edited = PAGE.replace("| 16 384 | `all` | 1 780 000 |", "| 16 384 | `all` | 1 790 000 |")
    assert edited != PAGE
    assert scale.page.filled(edited, made) == PAGE
    with pytest.raises(ValueError, match="table volume"):
        scale.page.filled(PAGE.replace("table volume", "volume"), made)
    moved = {"metrics": {"points": 111, "series": 109}}
    (line,) = scale.sizes.differences({"metrics": {"points": 100, "series": 100}}, moved, 0.1)
    assert line == "metrics.points: kept 100, measured 111"


def test_the_text_says_the_kept_figures(kept: Any) -> None:
    """The figures in the sentences of the page are those that were measured, rounded."""
    resource, (http, grpc) = kept["resource"], (kept["overhead"][way] for way in ("http", "grpc"))

    def tens(size: float) -> int:
        return round(size, -1)

    beside = f"HTTP headers add {tens(http['request'])} bytes to a request and {tens(http['response'])} to an answer"
    for sentence in (
        f"{resource['attributes']} attributes of {resource['bytes'] / 1000:.1f} kB",
        f"{beside}, gRPC {tens(grpc['request'])} and {tens(grpc['response'])};",
        f"{kept['collector']['peak MiB']} MiB at its peak",
    ):
        assert sentence in PAGE
    a_span = (kept["traces"]["default"]["plain"]["512"] - kept["traces"]["default"]["plain"]["64"]) / 448
    assert resource["bytes"] > 10 * a_span, "the page says that a resource is more than ten spans"


def test_arithmetic(scale: Any, kept: Any) -> None:
    """A job sends what its ranks send; a request holds what came in a delay, one item at least and a batch at most."""
    job, part, volume = scale.workload.Job(), scale.volume.Part, scale.volume
    one, many = (volume.of_job(job, ranks, [part(1, "default")], kept) for ranks in (8, 16_384))
    assert many.spans == pytest.approx(2048 * one.spans)
    assert many.size["gzip"] == pytest.approx(2048 * one.size["gzip"])
    # 543.008 spans in 5 s are more than a batch; metrics every 10 s; a log record every 50 s.
    rank = volume.of_rank(job, part(1, "all"), kept)
    assert rank.spans == pytest.approx(543.008 / 5)
    assert rank.requests == pytest.approx(543.008 / 5 / 512 + 0.1 + 0.02)
    # 1.008 spans in 5 s come alone, in requests of which the kept size is known.
    rank = volume.of_rank(job, part(1, "minimal"), kept)
    assert rank.requests == pytest.approx(1 / 5 + 0.1 + 0.02)
    sizes = (kept["traces"]["minimal"]["gzip"]["1"], kept["metrics"]["ways"]["gzip"]["1"], kept["logs"]["gzip"]["1"])
    beside = kept["overhead"]["http"]["request"]
    expected = sum(rate * (size + beside) for rate, size in zip((0.2, 0.1, 0.02), sizes, strict=True))
    assert rank.size["gzip"] == pytest.approx(expected, rel=0.01)
    assert volume.at({"1": 10, "8": 80, "64": 640}, 4.5) == pytest.approx(45)
    assert volume.at({"1": 10, "8": 80}, 16) == pytest.approx(160)


@pytest.mark.parametrize(("option", "value"), [("--step-time", "0"), ("--layers", "1.5"), ("--ranks", "8,x")])
def test_a_job_that_cannot_be_is_refused(
    scale: Any, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zero, parts of a layer and text are wrong arguments, named with what is accepted."""
    with pytest.raises(SystemExit, match="2"):
        scale.page.main(["--kept", option, value])
    assert re.search(f"argument {option}: .* is not a (whole )?number above 0", capsys.readouterr().err)


@pytest.mark.timeout(120)
def test_packing_makes_what_the_exporters_make(scale: Any, tmp_path: Path) -> None:
    """Spans packed anew into full requests and lines weigh what the exporters' own weigh, also compressed."""
    sizes, packing = scale.sizes, scale.packing
    with sizes.http_receiver() as (port, received):
        files = {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": f"{tmp_path}/{{signal}}.jsonl.gz"}
        sizes._run_rank("default", 80, sizes._over("http/protobuf", port, 512, "gzip"), files)
    bodies = received.bodies["traces"]
    assert packing.count("traces", bodies[0]) == 512
    assert packing.requests("traces", bodies, 512)[0] == bodies[0]
    assert packing.requests("traces", bodies[:1], 513) == []
    assert [packing.count("traces", body) for body in packing.requests("traces", bodies, 8)] == [8] * 16
    written = (tmp_path / "traces.jsonl.gz").read_bytes()
    line = gzip.decompress(written).splitlines(keepends=True)[0]
    assert packing.lines("traces", [line], 512) == [line]
    assert gzip.compress(line, sizes.FILE_LEVEL)[10:] == written[10 : len(gzip.compress(line, sizes.FILE_LEVEL))]


_TRAIN = """
import os
from nemo_lens.api import SpanRegistry, get_meter, managed_span, setup_telemetry
SpanRegistry.register("trainer", ["step", "phase"], {"default": ["step", "phase"], "minimal": ["step"]})
with setup_telemetry(resource_attributes={"nv.dl.rank": int(os.environ["SLURM_LOCALID"])}) as telemetry:
    with managed_span("step", "step"), managed_span("phase", "forward"):
        get_meter("trainer").create_counter("steps").add(1)
"""


def _run_fragment(fragment: str, folder: Path) -> dict[str, str]:
    """Run a fragment with a stand-in for ``srun`` that starts three tasks; return what each file holds."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "srun").write_text('#!/bin/sh\nfor id in 0 1 2; do SLURM_LOCALID=$id "$@" || exit 1; done\n')
    (programs / "srun").chmod(0o755)
    (folder / "train.py").write_text(_TRAIN, encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS_", "OTEL_", "SLURM_"))}
    environ |= {
        "NEMO_LENS_ENABLED": "1",
        "NEMO_LENS_EXPORTER": "file",
        "NEMO_LENS_FILE_PATH": "{signal}-{rank}",
        "NEMO_LENS_RUN_ID": "scale",
        "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euc", fragment], cwd=folder, env=environ, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*-[0-9]")}


def test_a_launcher_says_which_rank_records_what(tmp_path: Path) -> None:
    """Of each node one rank records the default preset and the others the minimal one, or nothing but metrics."""
    assert len(FRAGMENTS) == 2
    for number, (fragment, tracing) in enumerate(zip(FRAGMENTS, (3, 1), strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = _run_fragment(fragment, folder)
        assert [rank for rank in range(3) if f"traces-{rank}" in found] == list(range(tracing))
        assert [rank for rank in range(tracing) if '"forward"' in found[f"traces-{rank}"]] == [0]
        assert all('"steps"' in found[f"metrics-{rank}"] for rank in range(3))


_SAMPLED = """
import sys
from nemo_lens.api import NemoLensConfig, setup_telemetry, span_cm
kept = set()
for run in range(12):
    config = NemoLensConfig(
        enabled=True,
        exporter="console",
        metrics_enabled=False,
        run_id=f"run-{run}",
        single_trace=sys.argv[1] == "1",
        span_groups="",
    )
    with setup_telemetry(config, resource_attributes={"nv.dl.rank": 0}):
        sampled = 0
        for _ in range(64):
            with span_cm("step") as span:
                sampled += span.get_span_context().trace_flags.sampled
    kept.add(sampled)
sys.stderr.write(repr(sorted(kept)))
"""


@pytest.mark.parametrize("single_trace", ["0", "1"])
def test_a_single_trace_is_sampled_as_a_whole(single_trace: str) -> None:
    """Of a run with one trace a ratio keeps all steps or none; of one with a trace a step it keeps some."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS_", "OTEL_", "SLURM_"))}
    environ |= {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    done = subprocess.run(
        [sys.executable, "-c", _SAMPLED, single_trace], env=environ, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    kept = set(json.loads(done.stderr))
    assert kept == {0, 64} if single_trace == "1" else kept.isdisjoint({0, 64}), done.stderr
