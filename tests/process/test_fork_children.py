"""What children send, and what only their parent sends, however they were started and however they end."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from process_runs import Finished, Written, run

pytestmark = pytest.mark.timeout(60)

RUN_ID, RANK = "run-1", 2


def check_family(job: Finished, written: Written) -> None:
    """All that any process did arrived once, under its own pid and instance; ids are distinct; totals are exact."""
    assert job.code == 0, job.stderr
    assert set(job.fact("codes")) <= {0}, job.stderr
    parent = job.fact("parent")
    done = [fact for fact in job.facts if "worker" in fact]
    by_pid = {(fact["worker"], fact["name"]) for fact in done}

    spans = written.spans()
    assert Counter(span["name"] for span in spans) == Counter([*(fact["name"] for fact in done), "open at fork"])
    assert {(span["resource"]["process.pid"], span["name"]) for span in spans} == {*by_pid, (parent, "open at fork")}
    assert len({span["span_id"] for span in spans}) == len(spans)
    assert {span["resource"]["nemo.run.id"] for span in spans} == {RUN_ID}

    logs = written.logs()
    assert {(log["resource"]["process.pid"], log["body"]) for log in logs} == by_pid
    assert len(logs) == len(by_pid)
    spans_by_name = {span["name"]: span for span in spans}
    for log in logs:
        assert (log["trace_id"], log["span_id"]) == (
            spans_by_name[log["body"]]["trace_id"],
            spans_by_name[log["body"]]["span_id"],
        )

    amounts: Counter[int] = Counter()
    for fact in done:
        amounts[fact["worker"]] += fact["amount"]
    assert written.totals("done") == dict(amounts)
    assert written.span("open at fork")["resource"]["service.instance.id"] == f"{RUN_ID}-rank{RANK}"


def check_forked(job: Finished, written: Written) -> None:
    """Forked children have the parent's trace, and an instance of their own."""
    check_family(job, written)
    parent = job.fact("parent")
    open_at_fork = written.span("open at fork")
    for span in written.spans():
        pid = span["resource"]["process.pid"]
        own = f"{RUN_ID}-rank{RANK}" if pid == parent else f"{RUN_ID}-rank{RANK}-{pid}"
        assert span["resource"]["service.instance.id"] == own
        if span["name"].startswith("child"):
            assert (span["trace_id"], span["parent_id"]) == (open_at_fork["trace_id"], open_at_fork["span_id"])
    # Observed in the process that reports it; a worker that got nothing to do reports nothing else.
    observed = written.totals("pid")
    assert observed == {pid: pid for pid in observed}
    assert set(observed) >= set(written.totals("done"))


@pytest.mark.parametrize("scenario", ["os_exit", "sys_exit", "processes", "pool", "executor", "raising", "terminated"])
def test_a_forked_child_sends_its_own_and_the_parent_the_rest(written: Written, scenario: str) -> None:
    """However a forked child ends, its spans, logs and sums arrive exactly once, as its own, and start at zero.

    The parent's queued spans are sent once, by the parent, and so is the span that was open at the fork. With one
    random seed everywhere, all ids are distinct. Ends covered: os._exit after a public flush, sys.exit, an exception,
    multiprocessing's bootstrap, workers of pools, SIGTERM with a handler that the child installed.
    """
    arguments = ["fork"] if scenario == "processes" else []
    check_forked(run("forks", scenario, *arguments, environ=written.environ), written)


def test_children_do_not_inherit_the_sigterm_handler(written: Written) -> None:
    """A pool can end its workers: SIGTERM has its default action in them, whatever the parent installed.

    A worker with a handler in Python can miss the signal, and the pool would wait for it for ever.
    """
    job = run("forks", "terminated_pool", environ=written.environ)
    assert job.code == 0, job.stderr
    assert job.fact("actions") == [0]
    assert written.names().count("queued") == 1


def test_sigterm_right_after_the_fork_ends_a_child(written: Written) -> None:
    """A child that is terminated before its first line dies of it at once; the parent's own SIGTERM still flushes."""
    job = run("forks", "terminated_at_once", environ=written.environ)
    assert job.code == -signal.SIGTERM, job.stderr
    assert job.all_facts("codes") == [[-signal.SIGTERM], [0]]
    assert job.fact("child_s") < 10, "it waited for the parent's parked thread, which is not in the child"
    assert job.fact("blocked") == []
    assert sorted(written.names()) == ["last", "queued"], "the other child left by os._exit without a flush"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_with_a_setup_of_its_own_is_delivered(written: Written, method: str) -> None:
    """Children of spawn and forkserver, the latter ended by os._exit, deliver all signals without a shutdown call."""
    job = run("forks", "processes", method, environ=written.environ)
    check_family(job, written)
    instances = {span["resource"]["service.instance.id"] for span in written.spans()}
    assert instances == {f"{RUN_ID}-rank{rank}" for rank in (2, 10, 11, 12)}


def test_a_spawned_child_is_set_up_from_the_environment(written: Written) -> None:
    """``config.to_env`` sets a spawned worker up alike, and ``TRACEPARENT`` makes its root span the parent's child."""
    job = run("forks", "from_environment", "4", environ=written.environ)
    assert (job.code, job.fact("codes")) == (0, [0]), job.stderr
    parent, child = written.span("parent"), written.span("child")
    assert (child["trace_id"], child["parent_id"]) == (parent["trace_id"], parent["span_id"])
    of_child = {"service.name": "of-parent", "nemo.run.id": "run-of-parent", "nemo.user.id": "ada", "nv.dl.rank": 5}
    assert {key: child["resource"].get(key) for key in of_child} == of_child
    assert child["resource"]["process.pid"] == job.fact("worker")
    assert written.totals("done") == {job.fact("worker"): 3}
    assert [log["body"] for log in written.logs()] == ["child"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_sets_up_on_import_is_delivered(written: Written, method: str) -> None:
    """A set-up at the top of the main module runs before multiprocessing's bootstrap, which must not forget it."""
    job = run("set_up_on_import", method, environ=written.environ)
    assert (job.code, job.fact("codes")) == (0, [0]), job.stderr
    assert written.span("done")["resource"]["process.pid"] == job.fact("worker")
    assert written.totals("done") == {job.fact("worker"): 3}
    assert [log["body"] for log in written.logs()] == ["done"]


def test_a_worker_that_never_set_up_is_left_alone(written: Written) -> None:
    """Every call works in a spawned worker without a set-up, sends nothing and says nothing."""
    job = run("forks", "without_a_set_up", environ=written.environ)
    assert (job.code, job.fact("codes"), job.stderr) == (0, [0], "")
    assert written.names() == ["queued"]


def test_grandchildren_are_themselves(written: Written) -> None:
    """A child of a child sends its own spans once, under its own pid; what was open in its parent stays there."""
    job = run("forks", "grandchildren", environ=written.environ)
    assert job.code == 0, job.stderr
    assert [code for codes in job.all_facts("codes") for code in codes] == [0, 0]
    done = {fact["name"]: fact["worker"] for fact in job.facts if "worker" in fact}
    assert len(set(done.values())) == 5
    assert written.names() == sorted([*done, "open at fork", "open in child"])
    for name, pid in done.items():
        resource = written.span(name)["resource"]
        assert resource["process.pid"] == pid
        assert resource["service.instance.id"].endswith("rank2" if name == "queued" else f"rank2-{pid}")
    assert written.span("open in child")["resource"]["process.pid"] == done["child 1"]
    assert written.totals("done") == {
        pid: {"queued": 5, "child": 3, "grandchild": 2}[name.split()[0]] for name, pid in done.items()
    }


def test_leaving_the_parents_span_in_the_child_sends_nothing(written: Written) -> None:
    """A span that was open at the fork is the parent's; a child that leaves its ``with`` block exports nothing."""
    job = run("forks", "open_span_left_in_child", environ=written.environ)
    assert (job.code, job.fact("codes")) == (0, [0]), job.stderr
    assert written.names() == ["open at fork", "queued"]
    assert written.span("open at fork")["resource"]["process.pid"] == job.fact("parent")
    assert written.span("open at fork")["attributes"] == {"before": True}
    assert "ended span" not in job.stderr


def test_a_forked_child_can_set_up_for_itself(written: Written) -> None:
    """The inherited run is finished first: what it held is delivered, and no thread of it stays."""
    job = run("forks", "child_sets_up", environ=written.environ)
    assert (job.code, job.fact("codes")) == (0, [0]), job.stderr
    child = next(fact["worker"] for fact in job.facts if fact.get("name") == "after own setup")
    assert written.names() == ["after own setup", "before own setup", "open at own setup", "queued"]
    first, second = written.span("before own setup"), written.span("after own setup")
    assert first["resource"]["service.instance.id"] == f"run-1-rank2-{child}"
    assert second["resource"]["service.instance.id"] == "run-1-rank8"
    assert first["resource"]["process.pid"] == second["resource"]["process.pid"] == child
    assert written.span("open at own setup")["attributes"]["nemo.span.truncated"] is True
    assert job.fact("threads") == ["nemo-lens-logs", "nemo-lens-metrics", "nemo-lens-traces"]
    assert [log["body"] for log in written.logs()].count("before own setup") == 1
