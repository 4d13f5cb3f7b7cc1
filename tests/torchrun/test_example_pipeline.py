"""``docs/examples/pipeline.py`` under torchrun: two stages whose spans link to each other, the same losses."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest
from torchrun_runs import needs_torch, run_example

from support.otlp_decode import Record
from support.written import Written

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "pipeline.py"
STEPS, MICROBATCHES = 6, 4

pytestmark = [
    needs_torch,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed"),
    pytest.mark.timeout(450),
]


@dataclass(frozen=True)
class Run:
    """A run of the example with telemetry on, and what others printed."""

    spans: list[Record]
    lines: list[str]
    lines_off: list[str]

    def of(self, name: str, rank: int) -> list[Record]:
        """Return the spans of this name and rank, in the order in which they began."""
        found = [span for span in self.spans if span["name"] == name and span["resource"]["nv.dl.rank"] == rank]
        return sorted(found, key=lambda span: span["start"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run it with telemetry on and with it off."""
    written, off = Written(tmp_path_factory.mktemp("on")), Written(tmp_path_factory.mktemp("off"))
    code, lines, errors = run_example(EXAMPLE, ranks=2, environ={"NEMO_LENS_ENABLED": "1", **written.environ})
    assert code == 0, errors
    assert "nemo_lens" not in errors
    code, lines_off, errors = run_example(EXAMPLE, ranks=2, environ={"NEMO_LENS_ENABLED": "0", **off.environ})
    assert code == 0, errors
    assert list(off.folder.iterdir()) == []
    return Run(written.spans(), lines, lines_off)


def test_tracing_does_not_change_the_training(run: Run) -> None:
    """The loss of every step is, to the last bit, that of a run without tracing, and falls."""
    for line in run.lines:
        print(line)
    assert run.lines == run.lines_off
    losses = [float.fromhex(line.split()[-1]) for line in run.lines]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]


def test_each_stage_has_a_trace_of_its_own(run: Run) -> None:
    """Each rank's spans are one trace: a run, its steps, and what a step does."""
    for rank in (0, 1):
        (train,) = run.of("train", rank)
        assert train["attributes"]["dl.pipeline_parallel.rank"] == rank
        assert train["parent_id"] == ""
        steps = {span["span_id"]: span["attributes"]["dl.iteration"] for span in run.of("step", rank)}
        assert sorted(steps.values()) == list(range(STEPS))
        assert {span["parent_id"] for span in run.of("step", rank)} == {train["span_id"]}
        for name in ("forward", "receive", "backward"):
            spans = run.of(name, rank)
            assert [steps[span["parent_id"]] for span in spans] == [
                step for step in range(STEPS) for _ in range(MICROBATCHES)
            ]
            assert {span["trace_id"] for span in spans} == {train["trace_id"]}
    assert len({span["trace_id"] for span in run.spans}) == 2


@pytest.mark.parametrize(("name", "sender", "receiver"), [("forward", 0, 1), ("backward", 1, 0)])
def test_what_a_stage_computes_links_to_what_it_was_sent(run: Run, name: str, sender: int, receiver: int) -> None:
    """An activation links the last stage's forward to the first's of the same microbatch; gradients the other way."""
    sent, worked_on = run.of(name, sender), run.of(name, receiver)
    assert len(sent) == len(worked_on) == STEPS * MICROBATCHES
    for origin, span in zip(sent, worked_on, strict=True):
        assert [(link["trace_id"], link["span_id"]) for link in span["links"]] == [
            (origin["trace_id"], origin["span_id"])
        ]
        assert span["attributes"]["dl.microbatch_id"] == origin["attributes"]["dl.microbatch_id"]
        assert origin["links"] == []
