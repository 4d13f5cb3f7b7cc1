"""Boards as Grafana's JSON, by the builders of Grafana's own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from nemo_lens.api import semconv

from .board import Board, Panel, Row, Variable
from .choices import DEFAULT_SILENCE, SILENCE, SILENCES
from .prometheus_names import label

TAG = "nemo-lens"
# The data sources: metrics by a variable, so that one can choose among several; traces by this uid.
METRICS = "metrics"
METRICS_SOURCE = model.DataSourceRef(type_val="prometheus", uid=f"${{{METRICS}}}")
TRACES = "traces"
# Where the documentation is published: a hidden variable, whose default is the address of `mkdocs serve`.
DOCUMENTATION = "docs"
DEFAULT_DOCUMENTATION = "http://127.0.0.1:8000"
ALL = ".*"

_HEIGHTS = {"timeseries": 8, "bars": 8, "table": 8, "stat": 4}


def rendered(board: Board, others: Iterable[Board]) -> str:
    """Return the dashboard's JSON, the same text each time."""
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .editable()
        .timezone("browser")
        .time("now-30m", "now")
        .refresh("30s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .annotations([])
        .links([_to_board(other) for other in others if other is not board])
        .variables(
            [
                dashboard.DatasourceVariable(METRICS)
                .label("metrics")
                .type("prometheus")
                .current(model.VariableOption(text=METRICS, value=METRICS)),
                *(_variable(variable) for variable in board.variables),
                *([_silence()] if board.silence else []),
                dashboard.ConstantVariable(DOCUMENTATION).label("documentation").value(DEFAULT_DOCUMENTATION),
            ]
        )
    )
    number = 0
    for row in board.rows:
        number += 1
        built = built.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built = built.with_panel(_panel(panel, _height(row)).id(number))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _height(row: Row) -> int:
    return max(_HEIGHTS[panel.kind] for panel in row.panels)


def _panel(panel: Panel, height: int) -> Any:
    makers: dict[str, Callable[[Panel], Any]] = {
        "timeseries": _timeseries,
        "stat": _stat,
        "bars": _bars,
        "table": _table,
    }
    made = makers[panel.kind](panel)
    made.title(panel.title).description(_description(panel)).datasource(METRICS_SOURCE).unit(panel.unit)
    made.span(panel.width).height(height)
    for letter, query in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", panel.queries, strict=False):
        asked = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(letter)
        made.with_target(_asked(asked.interval(panel.every) if panel.every else asked, panel))
    steps = [model.Threshold(color="green"), *(model.Threshold(each.value, each.color) for each in panel.levels)]
    made.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    for value, setting in ((panel.minimum, made.min), (panel.maximum, made.max), (panel.decimals, made.decimals)):
        if value is not None:
            setting(value)
    if panel.traces:
        made.data_links([_to_traces()])
    return made


def _asked(query: prometheus.Dataquery, panel: Panel) -> prometheus.Dataquery:
    if panel.kind == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    if panel.now:
        return query.instant()
    # Points that lead to a trace, where the database keeps exemplars and the panel shows a histogram's values.
    return query.range().exemplar(any("_bucket{" in each.expression for each in panel.queries))


def _timeseries(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(5)
        .show_points(looks.VisibilityMode.AUTO)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(looks.LegendDisplayMode.LIST)
            .placement(looks.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
    )
    if panel.logarithmic:
        made.scale_distribution(common.ScaleDistributionConfig().type(looks.ScaleDistribution.LOG).log(10))
    return made


def _stat(panel: Panel) -> stat.Panel:
    several = len(panel.queries) > 1
    return (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(looks.BigValueGraphMode.NONE)
        .color_mode(looks.BigValueColorMode.VALUE)
        .text_mode(looks.BigValueTextMode.VALUE_AND_NAME if several else looks.BigValueTextMode.VALUE)
        .no_value("no data")
    )


def _bars(_panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(looks.VizOrientation.HORIZONTAL)
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
        .no_value("none")
    )


def _table(panel: Panel) -> table.Panel:
    headings = {_field(column.source): column.heading for column in panel.columns}
    return (
        table.Panel()
        .no_value("none")
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {field: True for field in ("Time", "Value") if field not in headings},
                    "indexByName": {field: place for place, field in enumerate(headings)},
                    "renameByName": headings,
                },
            )
        )
    )


def _field(source: str) -> str:
    return source if source == "Value" else label(source)


def _description(panel: Panel) -> str:
    address = "/".join(word for word in panel.page.split("/") if word != "index") + "/"
    return f"{panel.says}\n\n{panel.next_step}\n\n[More](${{{DOCUMENTATION}}}/{address})"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    query = f"label_values({variable.selector}, {label(variable.attribute)})"
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.heading)
        .datasource(METRICS_SOURCE)
        .query({"query": query, "refId": variable.name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(
            model.VariableSort.NUMERICAL_ASC
            if variable.attribute == semconv.NV_DL_RANK
            else model.VariableSort.ALPHABETICAL_ASC
        )
    )
    if variable.several:
        made.multi(True).include_all(True).all_value(ALL)
        made.current(model.VariableOption(text=["All"], value=["$__all"]))
    return made


def _silence() -> dashboard.CustomVariable:
    return (
        dashboard.CustomVariable(SILENCE.lstrip("$"))
        .label("silent for")
        .values(",".join(SILENCES))
        .current(model.VariableOption(text=DEFAULT_SILENCE, value=DEFAULT_SILENCE))
        .options([model.VariableOption(each == DEFAULT_SILENCE, each, each) for each in SILENCES])
    )


def _to_board(board: Board) -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink(board.title)
        .type(model.DashboardLinkType.LINK)
        .icon("dashboard")
        .url(f"/d/{board.uid}")
        .include_vars(True)
        .keep_time(True)
    )


def _to_traces() -> dashboard.DashboardLink:
    run, rank = (f"resource.{name}" for name in (semconv.NEMO_RUN_ID, semconv.NV_DL_RANK))
    of_the_rank = f"${{__field.labels.{label(semconv.NV_DL_RANK)}}}"
    asked = {
        "refId": "A",
        "datasource": {"type": "tempo", "uid": TRACES},
        "queryType": "traceql",
        "query": f'{{ {run} = "${{run}}" && {rank} = {of_the_rank} }}',
    }
    shown = {"datasource": TRACES, "queries": [asked], "range": {"from": "${__from}", "to": "${__to}"}}
    panes = quote(json.dumps({"traces": shown}, separators=(",", ":")))
    for variable in ("${run}", "${__from}", "${__to}", of_the_rank):  # Grafana fills these in
        panes = panes.replace(quote(variable), variable)
    return dashboard.DashboardLink("Traces of this rank").url(f"/explore?schemaVersion=1&panes={panes}")
