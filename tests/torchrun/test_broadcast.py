"""``broadcast_trace_context`` among four ranks, of which one has telemetry off and one the vendored file alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torchrun_runs import Finished, needs_torch, torchrun

pytestmark = [needs_torch, pytest.mark.timeout(150)]

RANKS = range(4)
ONE, TWO = ["gloo:broadcast"], ["gloo:broadcast"] * 2
NOTHING: list[str] = []


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run all cases once."""
    folder = tmp_path_factory.mktemp("broadcasts")
    exporter = {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": str(folder / "{signal}-{pid}.jsonl")}
    done = torchrun("broadcasts", program="context.py", environ={"NEMO_LENS_ENABLED": "1", **exporter})
    assert done.code == 0, done.stderr
    return done


def own(job: Finished, rank: int) -> dict[str, str]:
    """Return the context that a rank had itself."""
    (carrier,) = [fact["own"] for fact in job.facts if "own" in fact and fact["rank"] == rank]
    return dict(carrier)


def check(job: Finished, case: str, result: Any, sent: list[str], ranks: Any = RANKS) -> None:
    """On these ranks a case gave this, and gloo did that; on all others nothing."""
    said = job.cases(case)
    assert {rank: said[rank]["result"] for rank in RANKS} == {rank: result if rank in ranks else None for rank in RANKS}
    assert {rank: said[rank]["sent"] for rank in RANKS} == {rank: sent if rank in ranks else NOTHING for rank in RANKS}


def test_every_rank_gets_the_context_of_the_source(job: Finished) -> None:
    """All four get what rank 0 or 1 has, by one collective, also those that record nothing: no deadlock."""
    assert own(job, 0)["traceparent"] != own(job, 1)["traceparent"]
    check(job, "from 0", own(job, 0), ONE)
    check(job, "from 1", own(job, 1), ONE)
    check(job, "in a model that is being made", own(job, 0), ONE)


def warnings(job: Finished) -> list[str]:
    """Return ours, which may stand behind half a line of torch's profiler: the ranks share one stderr."""
    return re.findall(r"nemo_lens WARNING .*", job.stderr)


@pytest.mark.parametrize("case", ["no span", "from 2", "from 3", "after all"])
def test_a_source_without_a_span_has_an_empty_context(job: Finished, case: str) -> None:
    """No span, telemetry off, the vendored file: every rank, the source too, gets an empty carrier and not None."""
    check(job, case, {}, ONE)


def test_the_rank_is_torchs(job: Finished) -> None:
    """A rank that is given changes nothing; a wrong one gets a WARNING."""
    check(job, "rank given", own(job, 1), ONE)
    check(job, "wrong rank given", own(job, 1), ONE)
    assert sorted(line for line in warnings(job) if "has the global rank" in line) == [
        f"nemo_lens WARNING broadcast_trace_context(rank={3 - rank}): this process has the global rank {rank}"
        for rank in (2, 1, 0)
    ]


def test_in_a_subgroup_the_source_is_a_global_rank(job: Finished) -> None:
    """In {1, 3} source 1 is the first of the two (pytorch 149200); the other two ranks neither enter nor wait."""
    check(job, "among the odd", own(job, 1), ONE, ranks=(1, 3))
    check(job, "among the odd, from 3", {}, ONE, ranks=(1, 3))


@pytest.mark.parametrize("case", ["of no member", "of no rank", "of no number", "of a float"])
def test_a_source_that_is_no_member(job: Finished, case: str) -> None:
    """No rank enters, none raises, and those that have the API say once what is wrong."""
    check(job, case, None, NOTHING)


def test_what_is_wrong_is_said(job: Finished) -> None:
    """The WARNINGs name the source and what there is, and nothing else was said."""
    said = [line for line in warnings(job) if "is not broadcast" in line]
    assert len([line for line in said if "src_rank=4 is none of the ranks 0 to 3" in line]) == 3
    assert len([line for line in said if "src_rank='0'" in line]) == 3
    assert len([line for line in said if "2" in line and "group" in line]) == 1  # rank 1: 3 has the vendored file
    assert len([line for line in said if "src_rank=1.0 is no rank: an int is expected" in line]) == 3
    assert len(said) == 10


def test_alone_there_is_no_collective(job: Finished) -> None:
    """In a group of one rank, that rank gets its own context and gloo does nothing."""
    check(job, "alone", own(job, 0), NOTHING, ranks=(0,))


def test_long_contexts_take_a_second_collective(job: Finished) -> None:
    """3 KB of baggage arrive whole, by two collectives; of 9 KB nothing but the trace arrives, by one."""
    check(job, "long", {**own(job, 0), "baggage": "job=" + "x" * 3000}, TWO)
    check(job, "too long", own(job, 0), ONE)


def test_cuda_is_not_touched(job: Finished) -> None:
    """In all of that nobody looked at the CUDA that was in sight, because gloo's tensors are on the CPU."""
    assert [fact for fact in job.facts if "touched" in fact] == []


def test_after_the_process_group(job: Finished) -> None:
    """Once the process group is destroyed there is nothing to take part in."""
    check(job, "destroyed", None, NOTHING, ranks=())


def test_a_collective_that_fails_is_torchs_to_report(tmp_path: Path) -> None:
    """When a rank is gone, the broadcast raises what torch raises: going on would meet the others out of step."""
    done = torchrun("a_rank_that_is_gone", program="context.py", environ={})
    raised = {fact["rank"]: fact["raised"] for fact in done.facts}
    assert set(raised) == {0, 2, 3}, done.facts
