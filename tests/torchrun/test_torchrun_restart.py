"""Ranks that torchrun ends: for a restart, after which two attempts are to be told apart, and for an eviction."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchrun_runs import STANDALONE, evict, needs_torch, torchrun

from support.otlp_decode import Record
from support.written import Written

pytestmark = [needs_torch, pytest.mark.timeout(120)]

ERROR = 2
RESTARTING = (*STANDALONE, "--max-restarts=1", "--monitor-interval=0.1")


def test_both_attempts_are_there_and_told_apart(written: Written, tmp_path: Path) -> None:
    """A rank fails, torchrun ends the others and starts all again: no span of either attempt is lost.

    The failed rank's spans hold its error; those of the ranks that SIGTERM ended in the middle of a step are marked
    truncated. The run id stays, the run UUID is another one, and ranks keep their instance ids under new processes.
    """
    flags = tmp_path / "flags"
    flags.mkdir()
    environ = {"NEMO_LENS_ENABLED": "1", **written.environ}
    job = torchrun("fails_once", flags, options=RESTARTING, environ=environ)
    assert job.code == 0, job.stderr
    assert "loss is not finite" in job.stderr

    attempts: dict[str, list[Record]] = {"0": [], "1": []}
    for fact in job.facts:
        attempts[fact["environ"]["TORCHELASTIC_RESTART_COUNT"]].append(fact)
    for facts in attempts.values():
        assert sorted(fact["resource"]["nv.dl.rank"] for fact in facts) == [0, 1, 2, 3]
        assert len({fact["run_uuid"] for fact in facts}) == 1
    first, second = (facts[0]["run_uuid"] for facts in attempts.values())
    assert first != second
    assert len({fact["resource"]["nemo.run.id"] for fact in job.facts}) == 1
    assert len({fact["resource"]["service.instance.id"] for fact in job.facts}) == 4
    assert len({fact["pid"] for fact in job.facts}) == 8

    spans = {
        (span["name"], span["attributes"]["attempt"], span["resource"]["nv.dl.rank"]): span for span in written.spans()
    }
    assert len(written.spans()) == len(spans) == 16
    pids = {(fact["environ"]["TORCHELASTIC_RESTART_COUNT"], int(fact["environ"]["RANK"])): fact for fact in job.facts}
    for (name, attempt, rank), span in spans.items():
        assert span["resource"]["process.pid"] == pids[attempt, rank]["pid"]
        failed = attempt == "0" and rank == 1
        assert span["status"] == (ERROR if failed else 0), (name, attempt, rank)
        truncated = attempt == "0" and rank != 1
        assert span["attributes"].get("nemo.span.truncated", False) is truncated, (name, attempt, rank)
        if truncated:
            assert span["events"][-1]["attributes"] == {"nemo.span.truncated.reason": "SIGTERM"}
    assert spans["step", "0", 1]["description"] == "RuntimeError: loss is not finite"


def test_an_evicted_job_delivers_its_open_spans(written: Written) -> None:
    """SIGTERM to torchrun, as a scheduler sends it, ends the ranks by SIGTERM: their open spans are there, marked."""
    job = evict("waits", environ={"NEMO_LENS_ENABLED": "1", **written.environ})
    assert job.code != 0
    assert written.names() == ["step"] * 4 + ["train"] * 4
    assert {span["resource"]["nv.dl.rank"] for span in written.spans()} == {0, 1, 2, 3}
    assert all(span["attributes"]["nemo.span.truncated"] is True for span in written.spans())


def test_an_evicted_rank_in_a_collective_delivers_its_open_spans(written: Written, tmp_path: Path) -> None:
    """A rank that waits in C for another one's part is flushed and ends by SIGTERM; one that ignores it goes on.

    No handler runs in such a rank: torchrun would wait for it until it kills it, and all its last spans be lost.
    """
    environ = {"NEMO_LENS_ENABLED": "1", **written.environ}
    job = evict("stays_away", tmp_path, ranks=2, environ=environ)
    assert job.code != 0
    assert "forcefully" not in job.stderr  # what torchrun says when it has waited in vain
    assert written.names() == ["all_reduce", "train", "train"]
    cut = {(span["name"], span["resource"]["nv.dl.rank"]): span["events"] for span in written.spans()}
    assert {name: [event["attributes"] for event in events] for name, events in cut.items()} == {
        ("all_reduce", 0): [{"nemo.span.truncated.reason": "SIGTERM"}],
        ("train", 0): [{"nemo.span.truncated.reason": "SIGTERM"}],
        ("train", 1): [],
    }
