"""Forks against running threads: no lock is inherited held, no export is left waiting."""

from __future__ import annotations

import pytest
from process_runs import Written, run

pytestmark = pytest.mark.timeout(120)

FORKS = 200


def test_no_fork_hangs_beside_busy_threads(written: Written) -> None:
    """200 forks while two threads hammer spans, meters, tracers, logs and the registry: each child works and flushes.

    Every child's span and log record arrive once, and the parent's own are complete.
    """
    environ = {
        **written.environ,
        "OTEL_BSP_MAX_QUEUE_SIZE": "1000000",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
        "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "60000",  # of tens of thousands of spans, on a busy machine
    }
    ended = run("threads", "forks_against_threads", FORKS, environ=environ, timeout_s=110)
    assert ended.code == 0, ended.stderr
    assert ended.fact("codes") == [0] * FORKS, ended.stderr
    assert "Exception in thread" not in ended.stderr, ended.stderr
    names = written.names()
    iterations = ended.fact("iterations")
    assert {name: names.count(name) for name in set(names)} == {
        "child": FORKS,
        "inner": iterations,
        "outer": iterations,
    }
    children = [span for span in written.spans() if span["name"] == "child"]
    assert sorted(span["attributes"]["number"] for span in children) == list(range(FORKS))
    assert [log["body"] for log in written.logs()].count("child") == FORKS
    assert written.totals("of.children") == {span["resource"]["process.pid"]: 1 for span in children}


def test_the_parent_exports_on_after_threads_forked_at_once(written: Written) -> None:
    """Forks of several threads overlap; none leaves the parent's exports locked."""
    ended = run("threads", "forking_threads", 3, 4, environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert ended.fact("confirmed")
    assert written.names().count("last") == 1
