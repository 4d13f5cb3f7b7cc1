"""Queries of the dashboards on samples that a short run does not make, in both databases."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import grafana_files
from support.grafana_files import BOARDS
from support.needed import needed
from support.peer_programs import PeerUnavailableError, wait_for
from support.prometheus_server import Prometheus, running_prometheus
from support.victoria_metrics import VictoriaMetrics, running_database

pytestmark = pytest.mark.timeout(300)  # the databases may be fetched first
END = int(time.time()) - 60
INTERVAL_S = 10
VALUES = {"run": "rare", "rank": ".*", "silence": "5m", "__range": "1800s", "__rate_interval": "40s"}
EXPRESSIONS = {
    (asked.board, asked.panel, asked.ref): asked.expression for board in BOARDS for asked in grafana_files.asked(board)
}
STEP = "dl_training_step_duration_seconds"
Database = VictoriaMetrics | Prometheus


def samples(name: str, values: list[float], ended_s: int = 0, **labels: str) -> str:
    """Return samples, the last of which is so old."""
    end = END - ended_s
    times = [(end - INTERVAL_S * (len(values) - 1 - place)) * 1000 for place in range(len(values))]
    metric = {"__name__": name, "nemo_run_id": "rare", "host_name": "n", "process_pid": "1", **labels}
    return json.dumps({"metric": metric, "values": values, "timestamps": times})


def steps(rank: str, counts: list[float], step_s: float, ended_s: int = 0) -> Iterator[str]:
    """Yield the samples of a rank's steps."""
    yield samples(f"{STEP}_count", counts, ended_s, nv_dl_rank=rank)
    yield samples(f"{STEP}_sum", [count * step_s for count in counts], ended_s, nv_dl_rank=rank)


SAMPLES = [
    # Failed exports: once and never again; before the time shown only; since before it, a hundred more in it.
    *(
        samples("otel_sdk_exporter_span_exported_total", values, nv_dl_rank=rank, error_type="Unavailable")
        for rank, values in {"0": [512.0] * 30, "1": [700.0] * 260, "2": [700.0] * 150 + [800.0] * 110}.items()
    ),
    samples("otelcol_exporter_enqueue_failed_spans_total", [8192.0] * 3, exporter="otlp/gateway"),
    samples("otelcol_exporter_send_failed_spans_total", [100.0] * 3, exporter="otlp/gateway"),
    # Two ranks of three hang, and are not silent; the third makes a step of a minute.
    *steps("0", [float(minute) for minute in range(60) for _ in range(6)], 60),
    *steps("1", [30.0] * 360, 60),
    *steps("2", [30.0] * 360, 60),
    # Started again in a container: the same process id, from zero.
    *steps("3", [float(count) for count in (*range(100), *range(60))], 1),
    # Silent for ten minutes.
    *steps("4", [float(count) for count in range(60)], 1, ended_s=600),
    *(
        samples("otel_sdk_exporter_metric_data_point_exported_total", [1.0] * 30, ended_s, nv_dl_rank=rank)
        for rank, ended_s in {"0": 0, "4": 600}.items()
    ),
]


@pytest.fixture(scope="module", params=["VictoriaMetrics", "Prometheus"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database of each kind with the samples."""
    folder = tmp_path_factory.mktemp("samples")
    with needed(request.param, PeerUnavailableError):
        if request.param == "Prometheus":
            with running_prometheus(folder, SAMPLES) as prometheus:
                yield prometheus
            return
        with running_database(folder) as database:
            database.take(SAMPLES)
            assert wait_for(lambda: len(database.exported('{nemo_run_id="rare"}')) == len(SAMPLES), 10)
            yield database


def found(database: Database, board: str, panel: str, ref: str = "A", **more: str) -> dict[str, float]:
    """Return what a panel's query finds at the end, by rank."""
    query = grafana_files.substituted(EXPRESSIONS[board, panel, ref], {**VALUES, **more})
    series: list[dict[str, Any]] = database.api("query", query=query, time=str(END))["result"]
    return {each["metric"].get("nv_dl_rank", ""): float(each["value"][1]) for each in series}


def test_what_failed_once_is_counted(filled: Database) -> None:
    """A counter that begins with the first failure counts in full, an old one by what it grew; nothing failed is 0."""
    health = "telemetry-health"
    assert found(filled, health, "Not confirmed") == {"": pytest.approx(612, rel=0.02)}
    most = found(filled, health, "Ranks whose exports fail most")
    assert most == {"0": 512, "2": pytest.approx(100, rel=0.05)}
    assert found(filled, health, "Lost by collectors") == {"": 8292}
    for panel, ref in (("Dropped", "A"), ("Not confirmed", "B"), ("Lost by collectors", "B")):
        assert found(filled, health, panel, ref) == {"": 0}


def test_ranks_without_a_step_are_no_numbers(filled: Database) -> None:
    """Ranks that hang are not in what is said of steps, where 0 by 0 would be; long steps are seen all the same."""
    assert found(filled, "training", "Slowest ranks now") == {"0": 60, "3": 1}
    alive = {"rank": "0|1|2", "__rate_interval": "120s"}
    for ref in "ABCD":
        assert found(filled, "training", "Step duration over the ranks", ref, **alive) == {"": 60}
    assert found(filled, "training", "Steps a minute", rank="0") == {"": pytest.approx(1, rel=0.25)}
    assert found(filled, "training", "Ranks that make steps") == {"": 2}
    assert found(filled, "training", "Ranks without a step") == {"": 3}
    assert found(filled, "training", "Steps a minute", rank="1|2") == {"": 0}


def test_a_restart_in_a_container_is_counted(filled: Database) -> None:
    """Where a rank that was started again has the same process id, its counters begin anew: that is one start over."""
    assert found(filled, "training", "Starts over") == {"": 1}
    assert found(filled, "training", "Ranks that were started again") == {"3": 1}


def test_a_silence_longer_than_the_time_shown(filled: Database) -> None:
    """Counts of ranks are never below zero: what stopped before the time shown is not missed in it."""
    assert found(filled, "training", "Ranks without a step", rank="0|3|4") == {"": 1}
    assert found(filled, "telemetry-health", "Silent ranks") == {"": 1}
    shown = {"__range": "60s", "silence": "30m"}
    assert found(filled, "training", "Ranks without a step", rank="0|3|4", **shown) == {"": 0}
    assert found(filled, "telemetry-health", "Silent ranks", **shown) == {"": 0}
