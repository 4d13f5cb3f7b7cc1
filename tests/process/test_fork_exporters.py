"""Forks around real exports over both protocols: before, during, and while a collector hangs."""

from __future__ import annotations

from collections import Counter

import pytest
from process_runs import Running, refusing_endpoint, run, warnings_of

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

PROTOCOLS = ["grpc", "http/protobuf"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_children_export_after_the_parent_has(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A parent with an open channel forks; children and parent export all signals, each over its own, each once."""
    job = run("forks", "exporting", environ=otlp_receiver.environ(protocol))
    assert (job.code, job.fact("codes")) == (0, [0, 0, 0]), job.stderr
    done = {fact["name"]: fact["worker"] for fact in job.facts if "worker" in fact}
    spans, logs = otlp_receiver.spans(), otlp_receiver.logs()
    assert {item.transport for item in otlp_receiver.requests()} == {protocol}
    assert Counter(span["name"] for span in spans) == Counter([*done, "open at fork"])
    assert Counter(log["body"] for log in logs) == Counter(done.keys())
    for name, pid in done.items():
        assert {span["resource"]["process.pid"] for span in spans if span["name"] == name} == {pid}
    last: dict[int, int] = {}
    for point in sorted(otlp_receiver.points(), key=lambda point: point["time"]):
        if point["name"] == "done":
            last[point["resource"]["process.pid"]] = point["value"]
    parent = job.fact("parent")
    assert last == {pid: 6 if pid == parent else 7 for pid in done.values()}
    assert job.stderr == ""


def test_http_goes_on_in_a_child_forked_during_a_hanging_export(otlp_receiver: OtlpReceiver) -> None:
    """The fork waits a moment and no longer; the child has a session of its own, and the parent sends its spans."""
    otlp_receiver.hang()
    job = Running("forks", "hanging_export", environ=otlp_receiver.environ("http/protobuf"))
    job.wait_until("hanging")
    job.go_on()
    job.wait_until("forked")
    otlp_receiver.accept()
    job.go_on()
    ended = job.finish()
    assert (ended.code, ended.fact("codes")) == (0, [0]), ended.stderr
    assert ended.fact("fork_s") < 0.6  # 100 ms, and a machine under load
    assert (ended.fact("confirmed"), ended.fact("exporting")) == (True, True), (ended.fact("flush_s"), ended.stderr)
    pids = {span["name"]: span["resource"]["process.pid"] for span in otlp_receiver.spans()}
    assert pids == {"in flight": ended.fact("parent"), "child": ended.fact("worker")}
    assert [log["body"] for log in otlp_receiver.logs()] == ["child"]


@pytest.mark.parametrize("fails", [False, True], ids=["hanging", "failing"])
def test_workers_do_not_wait_for_a_collector_that_is_dead(otlp_receiver: OtlpReceiver, fails: bool) -> None:
    """A worker whose parent's export hangs or failed ends soon, not after the 20 s of a close, and says its loss."""
    if fails:
        otlp_receiver.refuse(400)
    else:
        otlp_receiver.hang()
    environ = {**otlp_receiver.environ("http/protobuf"), "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "20000"}
    job = Running("forks", "workers_of_a_dead_collector", environ=environ)
    assert job.wait_until("parent_confirmed") is False
    otlp_receiver.hang()
    ended = job.finish()
    assert (ended.code, ended.all_facts("code")) == (0, [0, 0]), ended.stderr
    assert max(ended.all_facts("worker_s")) < 10
    lost = warnings_of(ended.stderr, "1 spans were dropped: the exporter did not confirm them")
    assert len(lost) == 3, ended.stderr


def test_workers_wait_for_a_collector_that_is_slow(otlp_receiver: OtlpReceiver) -> None:
    """A worker whose parent's exports come through has all of the time for a shutdown."""
    otlp_receiver.delay(0.5)
    environ = {**otlp_receiver.environ("http/protobuf"), "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "20000"}
    ended = run("forks", "workers_of_a_dead_collector", environ=environ)
    assert (ended.code, ended.all_facts("code")) == (0, [0, 0]), ended.stderr
    assert Counter(span["name"] for span in otlp_receiver.spans()) == {"parent": 1, "load": 2}


def test_grpc_stays_off_in_a_child_forked_during_a_hanging_export(otlp_receiver: OtlpReceiver) -> None:
    """Such a child says so in one WARNING, is not exporting, hangs nowhere, and the parent goes on."""
    otlp_receiver.hang()
    job = Running("forks", "hanging_export", environ=otlp_receiver.environ("grpc"))
    job.wait_until("hanging")
    job.go_on()
    job.wait_until("forked")
    otlp_receiver.accept()
    job.go_on()
    ended = job.finish()
    assert (ended.code, ended.fact("codes")) == (0, [0]), ended.stderr
    assert ended.fact("fork_s") < 0.6
    assert (ended.fact("confirmed"), ended.fact("exporting")) == (False, False)
    assert ended.fact("flush_s") < 1
    assert len(warnings_of(ended.stderr, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")) == 1
    assert len(warnings_of(ended.stderr, "1 spans were dropped")) == 1
    assert ended.fact("parent_confirmed")
    assert [span["name"] for span in otlp_receiver.spans()] == ["in flight"]


def test_a_child_forked_while_the_parent_shuts_down_sends_nothing(otlp_receiver: OtlpReceiver) -> None:
    """The run is over in such a child: it neither sends as its parent nor waits for the parent's collector."""
    otlp_receiver.hang()
    job = Running("forks", "closing", environ=otlp_receiver.environ("http/protobuf"))
    job.wait_until("child_s")
    otlp_receiver.accept()
    ended = job.finish()
    assert (ended.code, ended.fact("codes")) == (0, [0]), ended.stderr
    assert ended.fact("child_s") < 2
    assert otlp_receiver.spans() == []
    assert {point["value"] for point in otlp_receiver.points() if point["name"] == "done"} == {1}


@pytest.mark.parametrize(("protocol", "warned"), [("grpc", 1), ("http/protobuf", 0)])
def test_grpcs_own_fork_support_is_warned_of(protocol: str, warned: int) -> None:
    """``GRPC_ENABLE_FORK_SUPPORT`` can hang forked processes: one WARNING at set-up, when gRPC is used at all."""
    environ = {
        "GRPC_ENABLE_FORK_SUPPORT": "1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": refusing_endpoint(),
    }
    ended = run("lives", "set_up_only", environ=environ)
    assert ended.code == 0, ended.stderr
    assert len(warnings_of(ended.stderr, "GRPC_ENABLE_FORK_SUPPORT")) == warned
