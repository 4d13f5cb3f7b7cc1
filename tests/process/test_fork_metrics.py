"""Many children that record metrics of every kind and log, while the parent does: totals are exact, in each process."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from process_runs import Finished, run, warnings_of

from support.otlp_decode import Record
from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(120)

CHILDREN, ROUNDS = 50, 3
RUN_ID, RANK = "run-1", 2
DELTA, CUMULATIVE = 1, 2
OBSERVABLE = ("observable_gauge", "observable_counter", "observable_up_down_counter")
# Pool workers are ended by their pool, all others tell how they ended.
POOLED = CHILDREN // 5
# Many forks then come in the middle of an export.
FREQUENT = {"OTEL_METRIC_EXPORT_INTERVAL": "40", "OTEL_BLRP_SCHEDULE_DELAY": "40"}


def own(points: list[Record]) -> list[Record]:
    """Return the points that the job's own code measured."""
    return [point for point in points if point["scope"] != "nemo.lens.sdk"]


def reported(points: list[Record], temporality: int) -> dict[int, dict[tuple[str, str], tuple[int, float]]]:
    """Return by process, then by metric and role, how many measurements it reported, and their sum.

    Of cumulative points the last says it, of deltas all of them together.
    """
    totals: dict[int, dict[tuple[str, str], tuple[int, float]]] = defaultdict(dict)
    for point in sorted(points, key=lambda item: item["time"]):
        of_process = totals[point["resource"]["process.pid"]]
        series = (point["name"], point["attributes"]["role"])
        never_delta = "up_down" in point["name"]
        assert point["temporality"] == (
            0 if point["kind"] == "gauge" else CUMULATIVE if never_delta else temporality
        ), point
        before = of_process.get(series, (0, 0.0)) if point["temporality"] == DELTA else (0, 0.0)
        of_process[series] = (before[0] + point["count"], before[1] + point["value"])
    return totals


def check_family(job: Finished, receiver: OtlpReceiver, temporality: int = CUMULATIVE) -> None:
    """Each process reported what it did itself, all of it and once, under its own pid.

    What a child did that knows it cannot export is not there.
    """
    done = [fact for fact in job.facts if "worker" in fact and fact["exporting"]]
    expected: dict[int, dict[tuple[str, str], tuple[int, float]]] = defaultdict(dict)
    bodies: Counter[tuple[int, str]] = Counter()
    for fact in done:
        pid, group, role, times = fact["worker"], fact["group"], fact["role"], fact["times"]
        sums = {"histogram": (times, fact["sum"]), "counter": (0, times), "up_down_counter": (0, fact["up_down"])}
        for key, (count, total) in sums.items():
            before = expected[pid].get((f"{group}.{key}", role), (0, 0.0))
            expected[pid][f"{group}.{key}", role] = (before[0] + count, before[1] + total)
        expected[pid][f"{group}.gauge", role] = (0, times - 1)
        for key in OBSERVABLE:
            expected[pid][f"{group}.{key}", "observed"] = (0, fact["observed"])
        bodies.update((pid, f"{group} {pid} {role} {number}") for number in range(times))

    points = own(receiver.points())
    assert reported(points, temporality) == expected
    assert Counter((log["resource"]["process.pid"], log["body"]) for log in receiver.logs()) == bodies
    born = {fact["worker"]: fact["born"] for fact in reversed(done)}
    for point in points:
        # Sums of the parent's would have begun in the parent.
        assert point["kind"] == "gauge" or point["start"] >= born[point["resource"]["process.pid"]], point


def check_instances(receiver: OtlpReceiver, parent: int) -> None:
    """Forked children have an instance of their own."""
    for record in [*receiver.points(), *receiver.logs()]:
        pid = record["resource"]["process.pid"]
        own = f"{RUN_ID}-rank{RANK}" if pid == parent else f"{RUN_ID}-rank{RANK}-{pid}"
        assert record["resource"]["service.instance.id"] == own


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_fifty_forked_children_each_report_their_own(otlp_receiver: OtlpReceiver, temporality: str) -> None:
    """50 children a round, three rounds, forked beside exports and threads that record: all totals are exact.

    Every kind of metric, on instruments from before the fork and from after it, and log records through ``logging``;
    children that flush and leave by os._exit, that multiprocessing ends, and workers of a pool. Nothing arrives twice,
    nothing of the parent's comes from a child, and nothing hangs.
    """
    environ = {
        **otlp_receiver.environ("http/protobuf"),
        **FREQUENT,
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": temporality,
    }
    job = run("family", "forks", CHILDREN, ROUNDS, environ=environ, timeout_s=100)
    assert job.code == 0, job.stderr
    assert job.stderr == ""
    assert job.fact("codes") == [0] * (CHILDREN - POOLED) * ROUNDS
    assert job.fact("confirmed")
    check_family(job, otlp_receiver, DELTA if temporality == "delta" else CUMULATIVE)
    check_instances(otlp_receiver, job.fact("parent"))


def test_forked_children_over_grpc_deliver_or_say_so(otlp_receiver: OtlpReceiver) -> None:
    """Over gRPC a child reports its own, exactly, too, unless it was forked in the middle of an export.

    Such a child says that it exports nothing; it hangs nowhere, and no other process loses anything.
    """
    job = run("family", "forks", CHILDREN, 1, environ={**otlp_receiver.environ("grpc"), **FREQUENT}, timeout_s=100)
    assert job.code == 0, job.stderr
    off = {fact["worker"] for fact in job.facts if fact.get("exporting") is False}
    assert len(off) < CHILDREN / 2
    assert len(warnings_of(job.stderr, "forked while a gRPC export was in flight")) == len(off)
    codes = Counter(job.fact("codes"))
    assert set(codes) <= {0, 2}, job.stderr
    assert codes[2] <= len(off)
    check_family(job, otlp_receiver)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_set_up_apart_report_their_own(otlp_receiver: OtlpReceiver, method: str) -> None:
    """Children of spawn and forkserver that never shut down deliver their metrics and log records, once."""
    job = run("family", "apart", method, 3, environ=otlp_receiver.environ("http/protobuf"), timeout_s=60)
    assert (job.code, job.fact("codes"), job.stderr) == (0, [0] * 3, "")
    check_family(job, otlp_receiver)


@pytest.mark.parametrize("kind", ["counter", "histogram", "observable_counter"])
def test_an_instrument_half_made_at_the_fork_is_made_in_the_child(otlp_receiver: OtlpReceiver, kind: str) -> None:
    """A thread that is in the middle of making an instrument is not in the child, which makes it and loses nothing."""
    job = run("family", "half_made", kind, environ=otlp_receiver.environ("http/protobuf"))
    assert (job.code, job.fact("codes"), job.stderr) == (0, [0], "")
    check_family(job, otlp_receiver)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_callback_that_runs_at_the_fork_is_no_matter(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A callback of the parent's that takes long leaves the child gRPC and its own observation, and delivers later."""
    job = run("family", "slow_callback", environ=otlp_receiver.environ(protocol))
    assert (job.code, job.fact("codes")) == (0, [0]), job.stderr
    assert (job.fact("exporting"), job.fact("confirmed"), job.fact("delivered")) == (True, True, True)
    observed = {(point["resource"]["process.pid"], point["value"]) for point in own(otlp_receiver.points())}
    assert observed == {(pid, pid) for pid in (job.fact("parent"), job.fact("worker"))}
    assert "gRPC" not in job.stderr


def test_a_lock_of_a_hosts_logger_provider_is_not_inherited(otlp_receiver: OtlpReceiver) -> None:
    """A child logs through the bridge though a thread of its parent's was in the middle of the host's provider."""
    job = run("family", "host_lock", environ=otlp_receiver.environ("http/protobuf"))
    assert (job.code, job.fact("codes"), job.stderr) == (0, [0], "")
    told = {
        f"{fact['group']} {fact['worker']} {fact['role']} {n}"
        for fact in job.facts
        if "worker" in fact
        for n in range(fact["times"])
    }
    assert Counter(log["body"] for log in otlp_receiver.logs()) == Counter(told)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_the_first_export_imports_nothing(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """What exporting needs is imported at set-up: a fork beside an import would leave the child its lock, for ever."""
    job = run("family", "late_imports", environ=otlp_receiver.environ(protocol))
    assert (job.code, job.fact("confirmed")) == (0, True), job.stderr
    assert job.fact("imported") == []
