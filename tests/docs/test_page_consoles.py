"""Sessions that pages show with their output, held against what is printed, and the page's Prometheus reader."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from support.checkouts import environment
from support.doc_pages import all_blocks
from support.doctor_run import install, run_text
from support.otlp_receiver import OtlpReceiver
from support.shown_output import unseen_lines


def _session(opening: str) -> tuple[list[str], str]:
    """Return the commands of the one session that opens like this, and its output."""
    (block,) = [each for each in all_blocks("console") if each.opening.startswith(opening)]
    lines = block.text.splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")], "\n".join(
        line for line in lines if not line.startswith("$ ")
    )


def test_doctor_prints_its_page(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """In the surroundings that the page tells of, doctor prints what the page shows of it."""
    commands, shown = _session("$ nemo-lens doctor")
    assert commands == ["nemo-lens doctor"]
    groups = {"groups": ["step", "checkpoint"], "presets": {"default": ["step"], "io": ["checkpoint"]}}
    install(tmp_path, "trainer", f"GROUPS = {groups}\n", "[nemo_lens.span_groups]\ntrainer = trainer:GROUPS\n")
    port = otlp_receiver.grpc_endpoint.rpartition(":")[2]
    done = run_text(
        PYTHONPATH=str(tmp_path),
        COLUMNS="116",
        NEMO_LENS_LOGS_ENABLED="0",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://localhost:{port}",
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20TOKEN",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        CUDA_VISIBLE_DEVICES="0,1",
        SLURM_JOB_ID="4711",
        SLURM_CLUSTER_NAME="eos",
    )
    printed = done.stdout.replace(", nemo-lens-contrib 0.1.0 and", " and")
    assert unseen_lines(shown.replace("gpu-a1", socket.gethostname()), printed) == [], done.stdout


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder in which the demo of the guide has run, its files in ``run``, alias ``nemo-lens``."""
    folder = tmp_path_factory.mktemp("slow")
    demo, _ = _session("$ nemo-lens demo --ranks 4 --slow-rank 1")[0]
    _run(demo, folder)
    (folder / "nemo-lens").symlink_to("run")
    return folder


def _run(command: str, folder: Path) -> str:
    """Run a command of ``nemo-lens``; return what it says."""
    words = [sys.executable, "-m", "nemo_lens.sdk.cli", *shlex.split(command)[1:]]
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder, {"COLUMNS": "120"}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_summary_of_the_guide(slow_run: Path) -> None:
    """The summary of a demo with a slow rank names that rank and its phase, as the page shows."""
    (_, summary), shown = _session("$ nemo-lens demo --ranks 4 --slow-rank 1")
    printed = _run(summary, slow_run)
    # The line of who waits is there only where noise leaves no doubt, and its times are in units as they come.
    lines = shown.replace("gpu-a1", socket.gethostname()).splitlines()[:4]
    assert unseen_lines("\n".join(lines), printed) == [], printed


def test_the_timeline_of_the_guide(slow_run: Path) -> None:
    """The timeline of a folder says what is in it, and where to look at it."""
    (timeline,), shown = _session("$ nemo-lens timeline -o run.json.gz")
    printed = _run(timeline, slow_run)
    assert unseen_lines(shown, printed) == [], printed
    assert (slow_run / "run.json.gz").stat().st_size > 0


def test_the_prometheus_reader_of_the_guide() -> None:
    """The block of the page, its port a free one of loopback: what is recorded is scraped."""
    pytest.importorskip("opentelemetry.exporter.prometheus")
    (block,) = [each for each in all_blocks("py") if "PrometheusMetricReader()" in each.text]
    code = block.text.replace("start_http_server(9464)", "server, _ = start_http_server(0, addr='127.0.0.1')")
    assert code != block.text
    code += """
from nemo_lens.api.instruments import record_training_metrics
record_training_metrics(handle.meter, loss=2.5)
print(server.server_address[1], flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(Path(os.curdir), {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_TRACES_ENABLED": "0"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            scraped = answer.read().decode()
        process.communicate("\n", timeout=20)
    assert process.returncode == 0
    assert re.search(r"^dl_training_loss\S* 2\.5$", scraped, flags=re.M), scraped
