"""Every query of every dashboard, executed against a real database that real processes measured themselves into."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from support import grafana_files
from support.grafana_files import BOARDS, Asked
from support.measured_cluster import (
    COLLECTOR_NODE,
    LOSSY,
    QUEUE,
    RESTARTED,
    RL,
    SERVING,
    SILENCE_S,
    SILENT,
    SLOW,
    SLOW_STEP_S,
    STEP_S,
    TRAINING,
    WORLD_SIZE,
    Cluster,
    measured_cluster,
)
from support.needed import needed
from support.peer_programs import PeerUnavailableError
from support.prometheus_server import Prometheus, running_prometheus
from support.victoria_metrics import VictoriaMetrics

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("measured_cluster"),
]  # the database may be fetched first

# What Grafana puts in for its variables, at a scrape interval of a second; `All` is the regular expression of the file.
VALUES = {
    "rank": ".*",
    "model": ".*",
    "operation": ".*",
    "silence": f"{SILENCE_S}s",
    "__range": "60s",
    "__rate_interval": "4s",
}
RUNS = {
    "training": TRAINING,
    "rl": RL,
    "inference": SERVING,
    "telemetry-health": f"{TRAINING}|{RL}|{SERVING}|{LOSSY}",
}
SHOWN_S = 8
Found = list[tuple[dict[str, str], float]]
EXPRESSIONS = [asked for board in BOARDS for asked in grafana_files.asked(board)]


@pytest.fixture(scope="module")
def cluster(database: VictoriaMetrics, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Run the cluster once."""
    with needed("OpenTelemetry Collector", PeerUnavailableError):
        return measured_cluster(database, tmp_path_factory.mktemp("collector"))


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that has the same samples."""
    exported = cluster.database.exported('{__name__!=""}')
    folder = tmp_path_factory.mktemp("prometheus")
    with needed("Prometheus", PeerUnavailableError), running_prometheus(folder, exported) as started:
        yield started


def expression(asked: Asked) -> str:
    return grafana_files.substituted(asked.expression, {**VALUES, "run": RUNS[asked.board]})


def answer(cluster: Cluster, asked: Asked, at: float | None = None) -> Found:
    """What a panel shows: labels and last value of each series, of a line as of a number."""
    return [(labels, values[-1]) for labels, values in lines(cluster, asked, at)]


def lines(
    cluster: Cluster, asked: Asked, at: float | None = None, asking: VictoriaMetrics | Prometheus | None = None
) -> list[tuple[dict[str, str], list[float]]]:
    """What a panel shows: labels and values of each series; of a number one."""
    end = cluster.working if at is None else at
    database = asking or cluster.database
    if asked.instant:
        found = database.api("query", query=expression(asked), time=f"{end:.3f}")["result"]
        return [(series["metric"], [float(series["value"][1])]) for series in found]
    found = database.api(
        "query_range", query=expression(asked), start=f"{end - SHOWN_S:.3f}", end=f"{end:.3f}", step="1s"
    )["result"]
    return [(series["metric"], [float(value) for _, value in series["values"]]) for series in found]


def dict_of(found: list[tuple[dict[str, str], list[float]]]) -> dict[frozenset[tuple[str, str]], list[float]]:
    return {frozenset(labels.items()): values for labels, values in found}


def panel(cluster: Cluster, board: str, title: str, ref: str = "A", at: float | None = None) -> Found:
    """What the query of this letter of a panel finds."""
    (asked,) = [each for each in EXPRESSIONS if (each.board, each.panel, each.ref) == (board, title, ref)]
    return answer(cluster, asked, at)


def number(cluster: Cluster, board: str, title: str, ref: str = "A", at: float | None = None) -> float:
    """The one number that the query of a panel finds."""
    (found,) = panel(cluster, board, title, ref, at)
    return found[1]


def by(label: str, found: Found) -> dict[str, float]:
    values = {labels.get(label, ""): value for labels, value in found}
    assert len(values) == len(found)
    return values


def ranks(found: Found) -> dict[int, float]:
    return {int(rank): value for rank, value in by("nv_dl_rank", found).items()}


@pytest.mark.parametrize("asked", EXPRESSIONS, ids=lambda asked: asked.name)
def test_every_query_returns_data(cluster: Cluster, asked: Asked) -> None:
    """A panel's query, as it stands in the file, finds finite numbers; shares lie between none and all."""
    found = lines(cluster, asked)
    assert found, expression(asked)
    for labels, values in found:
        assert all(map(math.isfinite, values)), (labels, values)
        assert min(values) >= (-0.5 if "loss" in asked.expression else 0), (labels, values)


@pytest.mark.parametrize("asked", EXPRESSIONS, ids=lambda asked: asked.name)
def test_prometheus_answers_alike(cluster: Cluster, prometheus: Prometheus, asked: Asked) -> None:
    """A real Prometheus takes each query too, and finds in the same samples the same series, with such values."""
    here, there = dict_of(lines(cluster, asked)), dict_of(lines(cluster, asked, asking=prometheus))
    assert there.keys() == here.keys()
    for labels, values in there.items():
        assert all(map(math.isfinite, values)), (labels, values)
        # What a counter grew by is extrapolated there to the ends of the window; telemetry loses in bursts.
        if asked.board != "telemetry-health":
            assert values[-1] == pytest.approx(here[labels][-1], rel=0.5), labels


@pytest.mark.parametrize("board", BOARDS)
def test_every_variable_has_values(cluster: Cluster, board: str) -> None:
    """``label_values`` of a variable, asked as Grafana asks it, offers what the processes are, and no empty choice."""
    expected = {
        "run": {RUNS[board]} if board != "telemetry-health" else {TRAINING, RL, SERVING, LOSSY},
        "rank": {str(rank) for rank in range(WORLD_SIZE)} if board == "training" else {"0"},
        "model": {"llama", "nemotron"},
        "operation": {"chat", "text_completion"},
    }
    queried = grafana_files.queried(grafana_files.board(board))
    assert queried
    for variable in queried:
        selector, label = grafana_files.label_values(variable)
        match = grafana_files.substituted(selector, {**VALUES, "run": RUNS[board]})
        # The database rounds the time to a day here: it is told in full all the same, as Grafana does.
        offered = cluster.database.api(
            f"label/{label}/values", **{"match[]": match, "start": str(cluster.ended - 60), "end": str(cluster.ended)}
        )
        assert expected[variable["name"]] <= set(offered), variable["name"]
        if variable["name"] != "run":  # others may have sent runs of theirs to this database
            assert expected[variable["name"]] == set(offered), variable["name"]


def test_one_rank_can_be_chosen(cluster: Cluster) -> None:
    """With ranks chosen, which Grafana writes as alternatives, a panel is about these alone."""
    (asked,) = [each for each in EXPRESSIONS if (each.board, each.panel) == ("training", "Slowest ranks now")]
    chosen = grafana_files.substituted(asked.expression, {**VALUES, "run": TRAINING, "rank": f"(0|{SLOW})"})
    found = cluster.database.api("query", query=chosen, time=str(cluster.working))["result"]
    assert {series["metric"]["nv_dl_rank"] for series in found} == {"0", str(SLOW)}


# ---- training


def test_the_slow_rank_is_named(cluster: Cluster) -> None:
    """The slow rank stands first, with its node and its time; the others are not slow."""
    found = panel(cluster, "training", "Slowest ranks now")
    labels, slowest = max(found, key=lambda each: each[1])
    assert labels == {"nv_dl_rank": str(SLOW), "host_name": f"node-{SLOW // 2}"}
    assert SLOW_STEP_S <= slowest < SLOW_STEP_S * 1.5
    others = {rank: value for rank, value in ranks(found).items() if rank != SLOW}
    assert others
    assert all(STEP_S <= value < SLOW_STEP_S for value in others.values())
    nodes = by("host_name", panel(cluster, "training", "Slowest nodes now"))
    assert max(nodes, key=nodes.__getitem__) == f"node-{SLOW // 2}"
    assert SLOW in ranks(panel(cluster, "training", "Slowest ranks of the time shown"))


def test_steps_are_as_long_as_they_were(cluster: Cluster) -> None:
    """Smallest, median, 95th percentile and largest are in order, from the fast to the slow rank, as is the spread."""
    low, middle, high, top = (number(cluster, "training", "Step duration over the ranks", ref) for ref in "ABCD")
    assert STEP_S <= low <= middle <= high <= top < SLOW_STEP_S * 1.5
    assert number(cluster, "training", "Spread between ranks") == pytest.approx((top - low) / middle, rel=0.01)
    # Bounds double: 0.08, 0.16, 0.32.
    assert 0.08 <= number(cluster, "training", "Single steps", "A") <= 0.16
    assert 0.16 <= number(cluster, "training", "Single steps", "C") <= 0.64


def test_progress_and_stalls(cluster: Cluster) -> None:
    """Ranks that make steps and the one that does not are told apart, and the rate of steps is that of the ranks."""
    assert number(cluster, "training", "Ranks that make steps") == WORLD_SIZE - 1
    assert number(cluster, "training", "Ranks without a step") == 1
    # Two ranks of nearly ten steps a second, one of three.
    assert 150 < number(cluster, "training", "Steps a minute") < 600
    later = cluster.ended + 3 * SILENCE_S
    assert number(cluster, "training", "Ranks that make steps", at=later) == 0
    assert number(cluster, "training", "Ranks without a step", at=later) == WORLD_SIZE


def test_restarts_are_counted(cluster: Cluster) -> None:
    """One rank was started again, once, and it is named."""
    assert number(cluster, "training", "Starts over") == 1
    assert ranks(panel(cluster, "training", "Ranks that were started again")) == {RESTARTED: 1}


def test_sums_are_of_the_ranks_that_report(cluster: Cluster) -> None:
    """Neither the silent rank nor the first life of the one that was started again counts in sums over the ranks."""
    reporting = WORLD_SIZE - 1
    for title in ("Tokens a second", "Tokens a second now"):
        assert number(cluster, "training", title) == 1000 * reporting
    assert number(cluster, "training", "Samples a second") == 4 * reporting
    assert by("host_name", panel(cluster, "training", "Ranks on each node")) == {"node-0": 2, "node-1": 1}


def test_learning_is_what_was_recorded(cluster: Cluster) -> None:
    """Loss, rates and memory are those of the program, and skipped iterations those that it counted."""
    for title, value in (
        ("Loss now", 2.5),
        ("Loss", 2.5),
        ("Norm of the gradient", 0.8),
        ("Learning rate", 3e-4),
        ("TFLOP/s of a rank", 300),
        ("Memory of a rank", 2**34),
    ):
        assert number(cluster, "training", title) == pytest.approx(value), title
    # A fifth of the steps.
    steps = number(cluster, "training", "Steps a minute")
    assert number(cluster, "training", "Skipped iterations") == pytest.approx(steps / 5, rel=0.5)


# ---- reinforcement learning, inference


def test_generation_and_rollouts(cluster: Cluster) -> None:
    """Half of a rollout is generation, and the slower environment server is named."""
    assert number(cluster, "rl", "Share of generation") == pytest.approx(0.5, abs=0.1)
    generation, rollout = (number(cluster, "rl", "Generation and rollout", ref) for ref in "AB")
    assert STEP_S * 500 <= generation < rollout
    servers = by("gym_server_name", panel(cluster, "rl", "Slowest servers now"))
    assert servers["math-1"] == pytest.approx(2 * servers["math-0"], rel=0.01)
    assert number(cluster, "rl", "Servers that answer") == 3
    assert number(cluster, "rl", "Verified responses") == 0.75


def test_requests_and_tokens(cluster: Cluster) -> None:
    """One in four requests fails, and tokens in and out are those of each request."""
    rate = number(cluster, "inference", "Requests a second")
    assert 5 < rate < 20.5
    assert number(cluster, "inference", "Failed requests") == pytest.approx(0.25, abs=0.05)
    assert by("error_type", panel(cluster, "inference", "Failures by reason")).keys() == {"timeout"}
    assert by("gen_ai_token_type", panel(cluster, "inference", "Tokens of a request")) == pytest.approx(
        {"input": 500, "output": 50}
    )
    tokens = by("gen_ai_request_model", panel(cluster, "inference", "Tokens in, by model"))
    assert tokens.keys() == {"llama", "nemotron"}
    assert sum(tokens.values()) == pytest.approx(rate * 500, rel=0.2)
    p50, p95, p99 = (number(cluster, "inference", "Request duration", ref) for ref in "ABC")
    assert STEP_S / 2 <= p50 <= p95 <= p99 < 1


# ---- telemetry health


def test_the_silent_rank_is_named(cluster: Cluster) -> None:
    """The rank that fell silent is counted and named with its node; a run's ranks stand beside its world size."""
    health = "telemetry-health"
    assert number(cluster, health, "Silent ranks") == 1
    assert [labels for labels, _ in panel(cluster, health, "Which ranks are silent")] == [
        {"nemo_run_id": TRAINING, "nv_dl_rank": str(SILENT), "host_name": f"node-{SILENT // 2}"}
    ]
    reporting = {
        (labels["nemo_run_id"], labels["nv_dl_world_size"]): value
        for labels, value in panel(cluster, health, "Ranks that report, by run")
    }
    assert reporting == {(TRAINING, "4"): 3, (RL, "4"): 1, (LOSSY, "4"): 1}
    assert number(cluster, health, "Ranks that report") == 5


def test_what_is_lost_is_counted(cluster: Cluster) -> None:
    """Dropped and not confirmed together are what the lossy rank recorded, and it alone is named."""
    counts, health, at = cluster.counts["lossy"], "telemetry-health", cluster.ended
    for ref, recorded in (("A", "spans"), ("B", "records")):
        dropped = number(cluster, health, "Dropped", ref, at)
        failed = number(cluster, health, "Not confirmed", ref, at)
        assert dropped > counts[recorded] / 4
        assert failed > QUEUE
        # All of it, but for what was on its way when the rank told for the last time.
        assert counts[recorded] - QUEUE <= dropped + failed <= counts[recorded]
        for title, value in (("Ranks that drop most", dropped), ("Ranks whose exports fail most", failed)):
            ((labels, most),) = panel(cluster, health, title, ref, at)
            assert (labels["nemo_run_id"], most) == (LOSSY, value)
    assert number(cluster, health, "Not confirmed", "C", at) > 0
    assert by("error_type", panel(cluster, health, "Dropped, by reason", "A")).keys() == {"queue_full"}


def test_a_full_queue_is_seen(cluster: Cluster) -> None:
    """The queue of the lossy rank is the fullest, and nearly full; what is refused so slowly is on its way."""
    health = "telemetry-health"
    for ref in "AB":
        fullest = by(
            "nemo_run_id",
            [(labels, value) for labels, value in panel(cluster, health, "Fullest queues now", ref) if value > 0.3],
        )
        assert fullest.keys() == {LOSSY}
        assert fullest[LOSSY] <= 1
    assert 0 < number(cluster, health, "On the way") <= QUEUE
    assert number(cluster, health, "Fill of the queues", "B") > number(cluster, health, "Fill of the queues", "A")


def test_what_collectors_lose_is_counted(cluster: Cluster) -> None:
    """A collector whose stores are away fills its queues and drops; it is counted by signal, and the queue is named."""
    health = "telemetry-health"
    for ref in "ABC":
        assert number(cluster, health, "Taken by collectors", ref) > 0
        assert number(cluster, health, "Lost by collectors", ref) > 0
        assert number(cluster, health, "Refused by collectors", ref) == 0
    for asked in [
        each for each in EXPRESSIONS if (each.board, each.panel) == (health, "Lost by collectors, by reason")
    ]:
        ((_, values),) = lines(cluster, asked)
        assert max(values) > 0, asked.name
    fullest = panel(cluster, health, "Fullest queues of collectors")
    assert {labels["host_name"] for labels, _ in fullest} == {COLLECTOR_NODE}
    assert {labels["exporter"] for labels, value in fullest if 0.3 < value <= 1}


def test_volumes(cluster: Cluster) -> None:
    """Confirmed are the spans of those whose receiver takes them; more was handed on."""
    health = "telemetry-health"
    handed_on, confirmed = (number(cluster, health, "Spans", ref) for ref in "AB")
    # Two ranks of ten steps a second, one of three, and ten rollouts.
    assert 10 < confirmed < 40
    assert handed_on > confirmed
    assert by("otel_component_type", panel(cluster, health, "By exporter")).keys() == {"otlp_http_span_exporter"}
    assert number(cluster, health, "Data points") > 50
