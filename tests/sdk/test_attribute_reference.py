"""The attribute reference, ``docs/attributes.md``: complete, and what the tables in the code say."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nemo_lens.api import semconv
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
GENERATOR = DOCS / "generate_attributes.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_attributes", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """Cells of each row of the page, by the name in the first."""
    text = (DOCS / "attributes.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, flags=re.M)
    assert len(lines) == len(dict(lines)), "a name stands on the page twice"
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in lines}


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=50)


def test_the_page_is_up_to_date() -> None:
    """``--check`` passes: who changes a table writes the page again."""
    done = run(GENERATOR, "--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_or_missing_page_is_found_and_mended(tmp_path: Path) -> None:
    """``--check`` exits with 1 and the command to run, and writes nothing; without it the page is written."""
    script, page = tmp_path / GENERATOR.name, tmp_path / "attributes.md"
    shutil.copy(GENERATOR, script)
    for before in (None, "# Attribute reference\n"):
        if before is not None:
            page.write_text(before)
        stale = run(script, "--check")
        assert stale.returncode == 1
        assert "run python docs/generate_attributes.py" in stale.stderr
        assert (page.read_text() if page.exists() else None) == before
    assert run(script).returncode == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "attributes.md").read_text(encoding="utf-8")


def test_every_name_is_on_the_page_with_its_type(rows: dict[str, list[str]]) -> None:
    """Each constant of semconv has one row: attributes with their type, metrics with kind and unit."""
    constants = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    assert set(rows) == constants - {semconv.SEMCONV_VERSION}
    for name, kind in {**semconv.RESOURCE_FIELDS, **semconv.SPAN_FIELDS}.items():
        assert rows[name][0] == kind.__name__
    for name, (instrument, unit) in semconv.METRIC_FIELDS.items():
        assert rows[name][:2] == [instrument, f"`{unit}`"]


def test_every_name_is_described(rows: dict[str, list[str]]) -> None:
    """No name without a description, none that is not a name, and none that breaks its table."""
    assert set(DESCRIPTIONS) == set(rows)
    for name, text in DESCRIPTIONS.items():
        assert text.strip() == text, name
        assert "|" not in text, name
        assert text, name


def test_the_version_of_the_conventions_is_stated() -> None:
    """The page names the OpenTelemetry conventions that the standard names follow."""
    assert semconv.SEMCONV_VERSION in (DOCS / "attributes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("service.name", "`OTEL_SERVICE_NAME`"),
        ("nemo.user.id", "`NEMO_LENS_USER_ID`"),
        ("deployment.environment.name", "`DEPLOYMENT_ENV`, `ENVIRONMENT`"),
        ("nv.dl.rank", "`RANK` under torchelastic"),
        ("nv.dl.role", "the application"),
        ("nv.gpu.uuid", "`nvmlDeviceGetUUID`"),
        ("host.gpu.count", "`CUDA_VISIBLE_DEVICES`"),
        ("k8s.node.name", "inside a pod `NODE_NAME`"),
        ("k8s.job.name", "`batch.kubernetes.io/job-name`"),
        ("k8s.namespace.name", "`/var/run/secrets/kubernetes.io/serviceaccount/namespace`"),
        ("slurm.partition", "`SLURM_JOB_PARTITION`, `SLURM_PARTITION`"),
        ("slurm.restart_count", "`SLURM_RESTART_COUNT`, else 0"),
        ("slurm.job.id", "`SLURM_ARRAY_JOB_ID` and `SLURM_ARRAY_TASK_ID`"),
    ],
)
def test_sources_are_named(rows: dict[str, list[str]], name: str, source: str) -> None:
    """A reader finds the variable to set or to look at."""
    assert source in rows[name][2]


def test_resource_attributes_have_one_source_each(generator: ModuleType) -> None:
    """What a table of a detector says is not said by hand as well, and everything has a source and one section."""
    tabled = {attribute for part in (generator._of_slurm, generator._of_kubernetes) for attribute, _ in part()}
    assert not tabled & set(generator.OTHER_SOURCES)
    assert set(generator.sources()) == set(semconv.RESOURCE_FIELDS)
    for name in semconv.RESOURCE_FIELDS:
        assert sum(name.startswith(prefixes) for _, prefixes, _ in generator.GROUPS) == 1, name
    of_detectors = [name for name in semconv.RESOURCE_FIELDS if name.startswith(("k8s.", "slurm.", "nv.gpu.", "host."))]
    assert not [name for name in of_detectors if generator.sources()[name] == generator.APPLICATION]
