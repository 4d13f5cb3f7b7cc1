"""``docs/examples/train_ddp.py`` under torchrun: one trace a step over four ranks, workers' spans, the same losses."""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from torchrun_runs import needs_torch, run_example

from support.otlp_decode import Record
from support.written import Written

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_ddp.py"
RANKS, EPOCHS, STEPS = range(4), 2, 12

pytestmark = [
    needs_torch,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed"),
    pytest.mark.timeout(450),
]


@dataclass(frozen=True)
class Run:
    """A run of the example with telemetry on, and what one with it off printed."""

    written: Written
    lines: list[str]
    lines_off: list[str]

    def named(self, name: str) -> list[Record]:
        """Return the spans of this name."""
        return [span for span in self.written.spans() if span["name"] == name]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run it with telemetry on and with it off."""
    written, off = Written(tmp_path_factory.mktemp("on")), Written(tmp_path_factory.mktemp("off"))
    code, lines, errors = run_example(EXAMPLE, ranks=4, environ={"NEMO_LENS_ENABLED": "1", **written.environ})
    assert code == 0, errors
    assert "nemo_lens" not in errors
    code, lines_off, errors = run_example(EXAMPLE, ranks=4, environ={"NEMO_LENS_ENABLED": "0", **off.environ})
    assert code == 0, errors
    assert list(off.folder.iterdir()) == []
    return Run(written, lines, lines_off)


def rank_of(span: Record) -> int:
    return int(span["resource"]["nv.dl.rank"])


def test_tracing_does_not_change_the_training(run: Run) -> None:
    """The loss of every step, to the last bit, and the answers on the validation set are those of a run without."""
    for line in run.lines:
        print(line)
    assert run.lines == run.lines_off
    steps = [line.split() for line in run.lines if line.startswith("step ")]
    assert [int(words[1]) for words in steps] == list(range(STEPS))
    losses = [float.fromhex(words[-1]) for words in steps]
    assert losses[-1] < losses[0] - 0.1
    assert len(run.lines) == STEPS + 1


def test_each_step_is_one_trace_over_all_ranks(run: Run) -> None:
    """Rank 0's step is the root of a trace, the other ranks' steps are its children; each step has its trace."""
    traces: dict[str, list[Record]] = defaultdict(list)
    for span in run.named("step"):
        traces[span["trace_id"]].append(span)
    assert len(traces) == STEPS
    for steps in traces.values():
        by_rank = {rank_of(span): span for span in steps}
        assert sorted(by_rank) == list(RANKS)
        assert len({span["attributes"]["dl.iteration"] for span in steps}) == 1
        parents = {rank: span["parent_id"] for rank, span in by_rank.items()}
        assert parents == {rank: by_rank[0]["span_id"] if rank else "" for rank in RANKS}
    assert sorted(steps[0]["attributes"]["dl.iteration"] for steps in traces.values()) == list(range(STEPS))


@pytest.mark.parametrize("name", ["forward", "backward", "optimizer"])
def test_what_a_step_does_is_inside_it(run: Run, name: str) -> None:
    """Each phase is a child of the step of its own rank."""
    steps = {span["span_id"]: span for span in run.named("step")}
    phases = run.named(name)
    assert len(phases) == STEPS * len(RANKS)
    assert {span["parent_id"] for span in phases} == set(steps)
    assert all(rank_of(span) == rank_of(steps[span["parent_id"]]) for span in phases)


def test_a_step_links_to_the_epoch_of_its_rank(run: Run) -> None:
    """The run itself is a trace per rank; each step links to the epoch it belongs to, on its own rank."""
    runs = {span["span_id"]: span for span in run.named("train")}
    epochs = {span["span_id"]: span for span in run.named("epoch")}
    assert len({span["trace_id"] for span in runs.values()}) == len(RANKS)
    assert Counter(rank_of(span) for span in epochs.values()) == dict.fromkeys(RANKS, EPOCHS)
    assert all(rank_of(runs[span["parent_id"]]) == rank_of(span) for span in epochs.values())
    for step in run.named("step"):
        (link,) = step["links"]
        epoch = epochs[link["span_id"]]
        assert (link["trace_id"], rank_of(epoch)) == (epoch["trace_id"], rank_of(step))
        assert epoch["attributes"]["index"] == step["attributes"]["dl.iteration"] * EPOCHS // STEPS


def test_ids_are_distinct_under_the_same_seeds(run: Run) -> None:
    """All ranks have the same seeds of random and torch, and share no id but those they were handed."""
    spans = run.written.spans()
    assert len({span["span_id"] for span in spans}) == len(spans)
    assert len({span["trace_id"] for span in spans}) == STEPS + len(RANKS)
    assert {rank_of(span) for span in spans} == set(RANKS)


def test_spans_of_forked_workers_are_delivered(run: Run) -> None:
    """Every batch of training was loaded in a forked worker, in a span under the epoch of its rank."""
    epochs = {span["span_id"]: span for span in run.named("epoch")}
    loaded = [span for span in run.named("load_batch") if span["parent_id"] in epochs]
    assert Counter(span["parent_id"] for span in loaded) == dict.fromkeys(epochs, STEPS // EPOCHS)
    assert sum(span["attributes"]["rows"] for span in loaded) == 1536 * EPOCHS
    pids = {span["resource"]["process.pid"] for span in epochs.values()}
    assert len({span["resource"]["process.pid"] for span in loaded} - pids) == 2 * EPOCHS * len(RANKS)
    for span in loaded:
        resource, epoch = span["resource"], epochs[span["parent_id"]]
        assert rank_of(span) == rank_of(epoch)
        assert resource["service.instance.id"].endswith(f"-rank{rank_of(span)}-{resource['process.pid']}")


def test_spans_of_spawned_workers_are_delivered(run: Run) -> None:
    """So was every batch of validation in a spawned one, which set telemetry up for itself."""
    validations = {span["span_id"]: span for span in run.named("validate")}
    assert {rank_of(span) for span in validations.values()} == set(RANKS)
    loaded = [span for span in run.named("load_batch") if span["parent_id"] in validations]
    assert Counter(span["parent_id"] for span in loaded) == dict.fromkeys(validations, 1)
    assert sum(span["attributes"]["rows"] for span in loaded) == 256
    assert len(run.named("load_batch")) == len(loaded) + STEPS * len(RANKS)
    for span in loaded:
        rank = rank_of(validations[span["parent_id"]])
        assert span["trace_id"] == validations[span["parent_id"]]["trace_id"]
        assert span["resource"]["service.instance.id"] == f"rank{rank}-validation-worker0"
        assert span["resource"]["process.pid"] != validations[span["parent_id"]]["resource"]["process.pid"]
