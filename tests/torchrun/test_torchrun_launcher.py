"""A launcher in Python that starts torchrun from inside a span: the ranks are set up alike and land under it."""

from __future__ import annotations

import pytest
from torchrun_runs import launch, needs_torch

from support.written import Written

pytestmark = [needs_torch, pytest.mark.timeout(120)]


@pytest.mark.parametrize("scenario", ["command_line", "in_python"])
def test_ranks_land_under_the_launchers_span(written: Written, scenario: str) -> None:
    """``config.to_env`` and ``inject_context`` go through torchrun's agent, be it a process or the launcher itself.

    All are one trace, every rank's root span a child of the launcher's span. The ranks have the launcher's run id,
    made up at random and handed on, which beats the rendezvous' own; its exporter, its groups and its user, of which
    the environment said nothing. Rank and instance are their own.
    """
    job = launch(scenario, written.environ)
    assert job.code == 0, job.stderr
    run_id = job.fact("launched")
    assert len(run_id) == 12
    assert job.common("nemo.run.id") == run_id
    assert job.common("nemo.user.id") == "ada"
    assert job.common("nv.dl.role") is None
    assert {rank: said["resource"]["service.instance.id"] for rank, said in job.ranks().items()} == {
        rank: f"{run_id}-rank{rank}" for rank in range(4)
    }
    assert {said["environ"]["TORCHELASTIC_RUN_ID"] for said in job.ranks().values()} != {run_id}

    assert written.names() == ["detail"] * 4 + ["launch"] + ["step"] * 4 + ["train"] * 4
    launched = written.span("launch")
    assert {span["trace_id"] for span in written.spans()} == {launched["trace_id"]}
    roots = {span["resource"]["nv.dl.rank"]: span for span in written.spans() if span["name"] == "train"}
    assert sorted(roots) == [0, 1, 2, 3]
    for span in roots.values():
        assert span["parent_id"] == launched["span_id"]
        assert launched["start"] <= span["start"] <= span["end"] <= launched["end"]
    assert "no run id is known" not in job.stderr
