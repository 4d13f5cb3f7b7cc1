"""The metric registry under eight threads, collections and forks: no exception, no hang, no total lost or made up."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from process_runs import Written, run, warnings_of

# More for a soak, less for a quick look.
SECONDS = float(os.environ.get("REGISTRY_STRESS_S", "10"))
THREADS = 8
pytestmark = pytest.mark.timeout(SECONDS + 90)

_ENVIRON = {
    "OTEL_METRIC_EXPORT_INTERVAL": "15",
    # What a collection loses is lost for good then, and what it finds twice is counted twice.
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
}


def test_no_total_is_lost_under_threads_and_forks(written: Written) -> None:
    """Eight threads register, record and unregister for ten seconds: what was recorded is what the exporter got.

    Instruments that all make at once count for all. Each thread owns a group, whose records count exactly while it is
    registered and not at all when it is not; a group of all threads counts exactly; one that comes and goes under
    their hands harms nobody. So it is in the children forked meanwhile. Memory does not grow with the cycles, and a
    problem is told once.
    """
    ended = run("registry", "hammer", SECONDS, environ={**_ENVIRON, **written.environ}, timeout_s=SECONDS + 60)
    assert ended.code == 0, ended.stderr
    assert ended.fact("failed") == []
    assert "Traceback" not in ended.stderr, ended.stderr
    assert set(ended.fact("codes")) == {0}, ended.stderr
    assert ended.fact("confirmed")

    expected: Counter[tuple[int, str]] = Counter()
    for fact in ended.facts:
        if "worker" in fact:
            pid, name = fact["worker"], fact["name"]
            expected[pid, f"{name}.counter"] += 2 * fact["own"]
            expected[pid, f"{name}.histogram count"] += fact["own"]
            expected[pid, f"{name}.extra"] += fact["extra"]
            expected[pid, "shared.counter"] += fact["shared"]
            expected[pid, "shared.histogram count"] += fact["shared"]
    parent = ended.fact("parent")
    expected.update({(parent, f"first_{number}"): THREADS for number in range(200)})
    got: Counter[tuple[int, str]] = Counter()
    contested: Counter[int] = Counter()
    for point in written.points():
        pid, name = point["resource"]["process.pid"], point["name"]
        if name == "contested.counter":
            contested[pid] += point["value"]
        elif point["kind"] == "histogram":
            got[pid, f"{name} count"] += point["count"]
        elif name.endswith((".counter", ".extra")) or name.startswith("first_"):
            got[pid, name] += point["value"]
    assert got == expected
    cycles = sum(fact["cycles"] for fact in ended.facts if fact.get("worker") == parent)
    assert 0 < contested[parent] <= cycles
    # Nothing observes for a group that is gone.
    late = [point["name"] for point in written.points() if point["time"] > ended.fact("flushed_at")]
    assert not [name for name in late if name.endswith("observed")]

    if "grown_cycles" in {key for fact in ended.facts for key in fact}:
        assert ended.fact("grown_blocks") < 10_000 + ended.fact("grown_cycles") / 10
    # One a group that was recorded into when it was not registered, in the parent and in each child.
    told = warnings_of(ended.stderr, "no metric group")
    assert len(told) == len(ended.stderr.splitlines())
    children = len(ended.fact("codes"))
    assert len(told) <= THREADS + 1 + 2 * children
