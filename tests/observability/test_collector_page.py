"""``docs/observability/index.md`` as a reader follows it, with the real Collector as ``otelcol-contrib``."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.all_signals import clean_environ
from support.collector_configs import CONFIGS, FOLDER, Ports, install_contrib
from support.doc_pages import ROOT, blocks
from support.otlp_receiver import OtlpReceiver
from support.peer_fixtures import needed_binary
from support.peer_programs import running_peer

pytestmark = pytest.mark.timeout(900)  # the first test may have to build the Collector
PAGE = "docs/observability/index.md"
JOB, VALIDATE, RUN, SLURM = (block.text for block in blocks(PAGE) if block.language == "sh")
SHOWN = [block.text for block in blocks(PAGE) if block.language == "text"]


@pytest.fixture
def reader(tmp_path: Path) -> dict[str, str]:
    """The variables of a reader who has the Collector; ports are free ones."""
    needed_binary("otelcol")
    return clean_environ({**Ports().environ, "PATH": install_contrib(tmp_path)})


def test_the_configuration_is_checked(reader: Mapping[str, str]) -> None:
    """The command that checks a configuration finds nothing."""
    checked = subprocess.run(
        ("bash", "-ec", VALIDATE), cwd=ROOT, env=reader, capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_job_finds_the_collector(reader: Mapping[str, str], otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """The Collector starts as the page says, and doctor, with the page's variables, finds that spans would arrive."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "docs").symlink_to(ROOT / "docs")
    stores = {"COLLECTOR_TRACE_STORE": otlp_receiver.grpc_endpoint, "COLLECTOR_METRICS_STORE": "http://127.0.0.1:9/"}
    ports = [int(reader[f"COLLECTOR_{name}_ENDPOINT"].rpartition(":")[2]) for name in ("GRPC", "HTTP")]
    script = RUN.replace("otelcol-contrib", "exec otelcol-contrib")  # so that the end of the test reaches it
    command = ("env", "-C", str(folder), *(f"{k}={v}" for k, v in {**reader, **stores}.items()), "bash", "-ec", script)
    with running_peer(command, ports, tmp_path / "collector.log"):
        job = JOB.replace("127.0.0.1:4318", reader["COLLECTOR_HTTP_ENDPOINT"])
        asked = subprocess.run(
            ("bash", "-ec", f"{job}\nnemo-lens doctor"),
            cwd=folder,
            env=reader,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert (folder / "telemetry").is_dir()


def test_what_is_only_shown_names_what_there_is() -> None:
    """Commands that cannot run here name files, folders and variables that there are."""
    variables = set(re.findall(r"\$\{env:(COLLECTOR_\w+)", "".join(path.read_text() for path in CONFIGS.values())))
    assert len(SHOWN) == 4
    for line in "".join(SHOWN).splitlines():
        words = shlex.split(line)
        settings = [word.partition("=")[0] for word in words if re.match(r"[A-Z_]+=", word)]
        assert {name for name in settings if name.startswith("COLLECTOR_")} <= variables
        paths = [word for word in words if word.startswith("docs/")]
        paths += [os.path.relpath(FOLDER / word, ROOT) for word in words if word in {"node.yaml", "gateway.yaml"}]
        assert paths, line
        assert all((ROOT / path).exists() for path in paths), line
    assert "srun" in SLURM  # tests/slurm runs it
