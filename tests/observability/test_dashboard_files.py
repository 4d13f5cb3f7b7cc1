"""The committed dashboards: up to date, sound for Grafana, and in the names of semconv alone."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from nemo_lens.api import semconv
from support import grafana_files
from support.grafana_files import BOARDS, FOLDER, Asked

promql = pytest.importorskip("promql_parser", reason="not installed: run `nox -s receivers`")
GENERATOR = FOLDER / "make_dashboards.py"
DOCS = FOLDER.parent
EXPRESSIONS = [asked for board in BOARDS for asked in grafana_files.asked(board)]
# A window of each of Grafana's variables, for the parser.
WINDOWS = {"__rate_interval": "1m", "__range": "1h", "silence": "5m"}
# What makes a series for each rank, process or node.
PER_RANK = {"nv_dl_rank", "process_pid", "host_name"}
# Metrics that are on no dashboard, and why.
NOT_SHOWN: dict[str, str] = {}
# Units of metrics in Grafana's words.
SHOWN_IN = {
    "s": {"s"},
    "ms": {"ms"},
    "By": {"bytes"},
    "{token}": {"si: tok"},
    "{token}/s": {"si: tok/s"},
    "{sample}/s": {"si: samples/s"},
    "{TFLOP}/s": {"tflops"},
    "1": {"none", "sci", "percentunit"},
}
# Panels that divide values of a metric by such.
RATIOS = {"Spread between ranks"}
# Grafana's SDK is for Python 3.11 and later.
_GRAFANA_SDK = importlib.util.find_spec("grafana_foundation_sdk") is not None
needs_grafana_sdk = pytest.mark.skipif(
    not _GRAFANA_SDK, reason="no grafana-foundation-sdk: run `nox -s receivers` with Python 3.11 or later"
)
OTHER_VARIABLES = {"run": "r", "rank": ".*", "model": ".*", "operation": ".*"}


@pytest.fixture(scope="module")
def source() -> Iterator[ModuleType]:
    """The module that gives the Prometheus names."""
    sys.path.insert(0, str(FOLDER))
    try:
        from dashboards_source import prometheus_names

        yield prometheus_names
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(params=BOARDS)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return grafana_files.board(request.param)


def generate(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=50)


def parsed(expression: str) -> promql.Expr:
    return promql.parse(grafana_files.substituted(expression, {**OTHER_VARIABLES, **WINDOWS}))


def nodes(expression: promql.Expr) -> list[promql.Expr]:
    """Every node of the syntax tree, selectors of ranges included."""
    found: list[promql.Expr] = []
    promql.walk(expression, found.append)
    return found


# ---- up to date


@needs_grafana_sdk
def test_the_files_are_up_to_date() -> None:
    """``--check`` passes: who changes the source, or a name in semconv, writes the files again."""
    done = generate(GENERATOR, "--check")
    assert done.returncode == 0, done.stderr


@needs_grafana_sdk
def test_stale_and_missing_files_are_found_and_mended(tmp_path: Path) -> None:
    """``--check`` names each stale file and the command, and writes nothing; what is written is the same each time."""
    folder = tmp_path / "observability"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    changed, missing, page = (
        folder / "dashboards/rl.json",
        folder / "dashboards/training.json",
        folder / "dashboards.md",
    )
    changed.write_text("{}")
    missing.unlink()
    page.write_text(page.read_text(encoding="utf-8").replace("| Reward |", "| Prize |"), encoding="utf-8")
    stale = generate(folder / GENERATOR.name, "--check")
    assert stale.returncode == 1
    for path in (changed, missing, page):
        assert f"{path} is not what" in stale.stderr
    assert "run python docs/observability/make_dashboards.py" in stale.stderr
    assert (changed.read_text(), missing.exists()) == ("{}", False)
    assert generate(folder / GENERATOR.name).returncode == 0
    for path in (changed, missing, page):
        assert path.read_bytes() == (FOLDER / path.relative_to(folder)).read_bytes()


def test_every_file_is_generated() -> None:
    """No dashboard lies in the folder that the source does not write."""
    assert sorted(path.stem for path in grafana_files.FILES) == sorted(BOARDS)


# ---- names


def names_of(source: ModuleType) -> dict[str, str]:
    """The name of each series that a metric of semconv, or of the Collector, is stored as, with the metric's name."""
    return {
        source.series_name(metric, part): metric
        for metric, (kind, _) in {**semconv.METRIC_FIELDS, **source.COLLECTOR_METRICS}.items()
        for part in source.PARTS[kind]
    }


def labels_of(source: ModuleType) -> set[str]:
    fields = (*semconv.RESOURCE_FIELDS, *semconv.SPAN_FIELDS, *semconv.OTEL_SDK_METRIC_ATTRIBUTES)
    return {source.label(attribute) for attribute in fields} | source.COLLECTOR_ATTRIBUTES | {"le"}


def selectors(expression: promql.Expr) -> list[promql.VectorSelector]:
    found = nodes(expression)
    ranges = [node.vector_selector for node in found if isinstance(node, promql.MatrixSelector)]
    return [*ranges, *(node for node in found if isinstance(node, promql.VectorSelector))]


def labels_in(expression: promql.Expr) -> set[str]:
    """The labels that an expression matches, groups by, or joins on."""
    found = {matcher.name for selector in selectors(expression) for matcher in selector.matchers.matchers}
    for node in nodes(expression):
        if isinstance(node, promql.AggregateExpr) and node.modifier:
            found.update(node.modifier.labels)
        if isinstance(node, promql.BinaryExpr) and node.modifier:
            found.update(node.modifier.matching.labels if node.modifier.matching else ())
            found.update(node.modifier.group_labels or ())
    return found


@pytest.mark.parametrize("asked", EXPRESSIONS, ids=lambda asked: asked.name)
def test_every_name_is_in_semconv(source: ModuleType, asked: Asked) -> None:
    """An expression is PromQL, and each metric and label in it is a name of semconv, or of the Collector's table."""
    expression = parsed(asked.expression)
    assert selectors(expression)
    assert {selector.name for selector in selectors(expression)} <= names_of(source).keys()
    assert labels_in(expression) <= labels_of(source)


def test_a_misspelt_name_is_found(source: ModuleType) -> None:
    """What the test above reads out of an expression is each metric and each label: none hides in a corner of it."""
    expression = parsed(
        'topk(3, a{b="1"} / on (c) group_left (d) sum by (e) (rate(f{g!="",h=~"x"}[1m]))) and ignoring (i) j @ end()'
    )
    assert {selector.name for selector in selectors(expression)} == {"a", "f", "j"}
    assert labels_in(expression) == {"b", "c", "d", "e", "g", "h", "i"}


@pytest.mark.parametrize("call", [("dl.training.los",), ("dl.training.loss", "sum"), ("dl.training.step.duration",)])
def test_the_source_refuses_what_is_not_there(source: ModuleType, call: tuple[str, ...]) -> None:
    """A metric that semconv lacks, or a part that its kind lacks, is an error when the dashboards are made."""
    with pytest.raises(ValueError, match=re.escape(call[0])):
        source.series_name(*call)
    with pytest.raises(ValueError, match=r"nv\.dl\.rnak"):
        source.label("nv.dl.rnak")


@pytest.mark.parametrize(
    ("name", "kind", "unit", "expected"),
    [
        ("http.server.duration", "histogram", "s", "http_server_duration_seconds"),
        ("rl.rollout.duration_ms", "histogram", "ms", "rl_rollout_duration_ms_milliseconds"),
        ("process.cpu.time", "counter", "s", "process_cpu_time_seconds_total"),
        ("jobs.total", "counter", "{job}", "jobs_total"),
        ("loss", "gauge", "1", "loss_ratio"),
        ("balance", "up_down_counter", "1", "balance"),
        ("speed", "gauge", "{token}/s", "speed_per_second"),
        ("network.io", "gauge", "By/s", "network_io_bytes_per_second"),
        ("memory.bytes", "gauge", "By", "memory_bytes"),
        ("a..b--c", "gauge", "", "a_b_c"),
    ],
)
def test_names_follow_the_specification(source: ModuleType, name: str, kind: str, unit: str, expected: str) -> None:
    """Dots, units, counters and ratios become what the OpenTelemetry specification for Prometheus says."""
    assert source.metric_name(name, kind, unit) == expected


def test_every_metric_is_shown(source: ModuleType) -> None:
    """Each metric of semconv is on a dashboard, or the reason why not is written down."""
    names = names_of(source)
    shown = {names[selector.name] for asked in EXPRESSIONS for selector in selectors(parsed(asked.expression))}
    assert set(semconv.METRIC_FIELDS) - shown == set(NOT_SHOWN)
    assert set(source.COLLECTOR_METRICS) <= shown


def test_the_page_lists_the_attributes_that_must_be_labels(source: ModuleType) -> None:
    """Prometheus makes labels of what it is told: the list of the page is what queries and variables ask for."""
    asked = {name for each in EXPRESSIONS for name in labels_in(parsed(each.expression))}
    for name in BOARDS:
        for variable in grafana_files.queried(grafana_files.board(name)):
            selector, label = grafana_files.label_values(variable)
            asked |= {label, *labels_in(parsed(selector))}
    (block,) = re.findall(r"^```yaml\n(.+?)^```$", (FOLDER / "dashboards.md").read_text("utf-8"), flags=re.M | re.S)
    listed = yaml.safe_load(block)["otlp"]["promote_resource_attributes"]
    assert listed == [name for name in sorted(semconv.RESOURCE_FIELDS) if source.label(name) in asked]


def test_legends_show_labels_that_are_there() -> None:
    """A ``{{label}}`` of a legend, or a column of a table, is one that the query groups by."""
    for name in BOARDS:
        for panel in grafana_files.panels(grafana_files.board(name)):
            for target in panel["targets"]:
                grouped = labels_in(parsed(target["expr"]))
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, panel["title"]
            for change in panel.get("transformations", ()):
                assert set(change["options"]["renameByName"]) <= grouped | {"Value"}, panel["title"]


# ---- at many ranks


def bounded(node: promql.Expr) -> bool:
    """Whether the number of series that an expression finds does not grow with the number of ranks."""
    match node:
        case promql.AggregateExpr():
            if str(node.op) in ("topk", "bottomk"):
                return True
            return not PER_RANK & set(node.modifier.labels if node.modifier else ())
        case promql.BinaryExpr():
            sides = (bounded(node.lhs), bounded(node.rhs))
            operator = str(node.op)
            return sides[0] if operator == "unless" else all(sides) if operator == "or" else any(sides)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return bounded(node.expr)
        case promql.Call():
            return node.func.name == "vector" or any(map(bounded, node.args))
    return False


@pytest.mark.parametrize("asked", EXPRESSIONS, ids=lambda asked: asked.name)
def test_no_query_answers_with_a_series_for_each_rank(asked: Asked) -> None:
    """With 16 384 ranks a panel draws what it draws with eight."""
    assert bounded(parsed(asked.expression))


def test_what_grows_with_the_ranks_is_told_apart() -> None:
    """The test above fails for a selector, a sum by rank, and a sum by rank over what was chosen by rank."""
    for text in (
        "a",
        "sum by (nv_dl_rank) (a)",
        "sum by (nv_dl_rank) (a) / sum by (host_name) (a)",
        "a > 0",
        "a or vector(0)",
    ):
        assert not bounded(parsed(text)), text
    for text in ("sum(a)", "topk(5, a)", "a and on (nv_dl_rank) topk(8, a @ end())", "sum(a) or vector(0)"):
        assert bounded(parsed(text)), text


@pytest.mark.parametrize("asked", EXPRESSIONS, ids=lambda asked: asked.name)
def test_all_the_time_shown_is_read_once(asked: Asked) -> None:
    """``$__range`` and ``topk`` are asked for one moment: else each point of a line reads all, or names other ranks."""
    if asked.instant:
        return
    assert len(re.findall(r"\[\$__range\](?! @ end\(\))", asked.expression)) == 0
    for node in nodes(parsed(asked.expression)):
        if isinstance(node, promql.AggregateExpr) and str(node.op) in ("topk", "bottomk"):
            assert "@ end()" in node.prettify()


# ---- what Grafana wants


def test_the_model_is_sound(board: dict[str, Any]) -> None:
    """Ids are there once, a schema is named, and the dashboard is not bound to one installation."""
    ids = [panel["id"] for panel in grafana_files.all_panels(board)]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in grafana_files.all_panels(board)]
    assert len(titles) == len(set(titles))
    assert board["schemaVersion"] >= 36
    assert re.fullmatch(r"nemo-lens-[a-z-]{1,30}", board["uid"])
    assert board.get("id") is None
    assert board["title"]
    assert board["description"]
    assert board["time"] == {"from": "now-30m", "to": "now"}


def test_nothing_overlaps(board: dict[str, Any]) -> None:
    """Each place of the grid belongs to one panel, and rows are as wide as the grid."""
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                taken[x, y] += 1
    assert set(taken.values()) == {1}
    height = 1 + max(y for _, y in taken)
    assert len(taken) == 24 * height, "a hole in the grid"


@needs_grafana_sdk
def test_every_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    """It has a unit, a description with what to do next and a page that exists, the chosen data source, and legends."""
    from grafana_foundation_sdk.models import units

    known = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}
    for panel in grafana_files.panels(board):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert unit in known or re.fullmatch(r"si: \S+", unit), panel["title"]
        reading, then, more = panel["description"].split("\n\n")
        assert len(reading) > 20, panel["title"]
        assert len(then) > 10, panel["title"]
        page = re.fullmatch(r"\[More\]\(\$\{docs\}/(.+)/\)", more)
        assert page, panel["title"]
        # MkDocs serves a/b.md, and a/b/index.md, as a/b/.
        sources = [DOCS / f"{page[1]}.md", DOCS / page[1] / "index.md"]
        assert any(source.exists() for source in sources), f"{panel['title']}: {page[1]}"
        assert not page[1].endswith("index"), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${metrics}"}
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(references) == len(set(references))
        assert all(0 < len(target["legendFormat"]) < 50 for target in panel["targets"])


def test_units_are_those_of_the_metrics(source: ModuleType) -> None:
    """Where values of one metric are shown, or a mean or a percentile of them, the panel's unit is the metric's."""
    names, checked = names_of(source), set()
    for name in BOARDS:
        for panel in grafana_files.panels(grafana_files.board(name)):
            for target in panel["targets"]:
                series = {selector.name for selector in selectors(parsed(target["expr"]))}
                metrics = {names[each] for each in series}
                kind, unit = source.METRICS[next(iter(metrics))]
                parts = {each.rpartition("_")[2] for each in series}
                of_values = kind == "gauge" or (kind == "histogram" and parts in ({"bucket"}, {"sum", "count"}))
                if len(metrics) == 1 and of_values and panel["title"] not in RATIOS:
                    checked |= metrics
                    assert panel["fieldConfig"]["defaults"]["unit"] in SHOWN_IN.get(unit, {"short"}), panel["title"]
    recorded = {metric for metric, (kind, _) in semconv.METRIC_FIELDS.items() if kind in ("gauge", "histogram")}
    assert checked == recorded


def test_numbers_that_must_be_nought_are_red_from_one() -> None:
    """Losses, silent ranks and restarts are green at 0 and red from 1; shares have their levels between 0 and 1."""
    red = set()
    for name in BOARDS:
        for panel in grafana_files.panels(grafana_files.board(name)):
            levels = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            if [(each["value"], each["color"]) for each in levels] == [(None, "green"), (1, "red")]:
                red.add(panel["title"])
            if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
                assert all(0 < each["value"] < 1 for each in levels[1:]), panel["title"]
    losses = {"Dropped", "Not confirmed", "Lost by collectors", "Ranks that drop most", "Ranks whose exports fail most"}
    ranks = {"Silent ranks", "Ranks without a step", "Starts over", "Ranks that were started again"}
    assert red == losses | ranks


def test_variables_are_declared(board: dict[str, Any]) -> None:
    """What the panels, links and variables name is declared before it is used, and none is declared in vain."""
    declared: list[str] = []
    for variable in grafana_files.variables(board):
        used = {name for pair in re.findall(r"\$(?:\{(\w+)\}|(\w+))", json.dumps(variable)) for name in pair if name}
        assert used - {"__all"} <= set(declared), variable["name"]
        declared.append(variable["name"])
    text = json.dumps(board["panels"])
    used = {name for pair in re.findall(r"\$(?:\{(\w+)[}.]|(\w+))", text) for name in pair if name}
    of_grafana = {"__rate_interval", "__range", "__from", "__to", "__field"}
    assert used - of_grafana == set(declared)


def test_the_data_source_can_be_chosen(board: dict[str, Any]) -> None:
    """The first variable is the data source, a Prometheus, with the uid ``metrics`` unless another one is chosen."""
    first = grafana_files.variables(board)[0]
    assert (first["name"], first["type"], first["query"]) == ("metrics", "datasource", "prometheus")
    assert first["current"]["value"] == "metrics"
    assert all(variable["datasource"]["uid"] == "${metrics}" for variable in grafana_files.queried(board))


def test_ranks_lead_to_their_traces() -> None:
    """Where a rank is named, a click asks the data source ``traces`` for the traces of that rank of that run."""
    links = [
        link["url"]
        for name in ("training", "rl")
        for panel in grafana_files.panels(grafana_files.board(name))
        for link in panel["fieldConfig"]["defaults"].get("links", ())
    ]
    assert len(links) == 3
    for url in links:
        filled = url
        values = {"run": "r-7", "__from": "1", "__to": "2", "__field.labels.nv_dl_rank": "3"}
        for variable, value in values.items():
            filled = filled.replace(f"${{{variable}}}", value)
        panes = json.loads(unquote(filled.partition("panes=")[2]))
        assert panes["traces"]["datasource"] == "traces"
        (query,) = panes["traces"]["queries"]
        assert query["query"] == '{ resource.nemo.run.id = "r-7" && resource.nv.dl.rank = 3 }'
