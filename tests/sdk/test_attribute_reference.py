"""The references of attributes and metrics, ``docs/reference/``: complete, and what the tables in the code say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from nemo_lens.api import semconv
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def attributes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that writes the page of attributes."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("reference_pages.attributes")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """Cells of each row of the two pages, by the name in the first; bounds of histograms have a table of their own."""
    text = "".join((DOCS / "reference" / page).read_text(encoding="utf-8") for page in ("attributes.md", "metrics.md"))
    lines = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text.partition("## Bounds")[0], flags=re.M)
    assert len(lines) == len(dict(lines)), "a name stands on the pages twice"
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in lines}


def test_every_name_is_on_a_page_with_its_type(rows: dict[str, list[str]]) -> None:
    """Each constant of semconv has one row: attributes with their type, metrics with kind and unit."""
    constants = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    assert set(rows) == constants - {semconv.SEMCONV_VERSION}
    for name, kind in {
        **semconv.RESOURCE_FIELDS,
        **semconv.SPAN_FIELDS,
        **semconv.OTEL_SDK_METRIC_ATTRIBUTES,
    }.items():
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
    assert semconv.SEMCONV_VERSION in (DOCS / "reference/attributes.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize(
    ("name", "keyword"),
    [("dl.training.step.duration", "`step_duration_s`"), ("gen_ai.client.token.usage", "`input_tokens`")],
)
def test_keywords_of_metrics_are_named(rows: dict[str, list[str]], name: str, keyword: str) -> None:
    """A reader finds the argument by which a metric is recorded."""
    assert keyword in rows[name][3]


def test_resource_attributes_have_one_source_each(attributes: ModuleType) -> None:
    """What a table of a detector says is not said by hand as well, and everything has a source and one section."""
    tabled = {attribute for part in (attributes.of_slurm, attributes.of_kubernetes) for attribute, _ in part()}
    assert not tabled & set(attributes.OTHER_SOURCES)
    assert set(attributes.sources()) == set(semconv.RESOURCE_FIELDS)
    for name in semconv.RESOURCE_FIELDS:
        assert sum(name.startswith(prefixes) for _, prefixes, _ in attributes.GROUPS) == 1, name
    of_detectors = [name for name in semconv.RESOURCE_FIELDS if name.startswith(("k8s.", "slurm.", "nv.gpu.", "host."))]
    assert not [name for name in of_detectors if attributes.sources()[name] == attributes.APPLICATION]
