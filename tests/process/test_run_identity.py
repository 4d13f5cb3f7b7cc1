"""What a launcher hands on to a job, and that to its workers: run, settings, resource, place in a trace."""

from __future__ import annotations

import re

import pytest
from process_runs import Finished, Written, run

from support.otlp_decode import Record

# What a shell, a comma list and an unwary reader would each take apart.
AWKWARD = 'O\'Brien "x" $HOME `id`\n\\ größe, a=b;50% +1'

OUTER_TRACE, OUTER_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OUTER = {"TRACEPARENT": f"00-{OUTER_TRACE}-{OUTER_SPAN}-01", "TRACESTATE": "vendor=1", "BAGGAGE": "tenant=a%20b"}

# Each level and the one that it was started from.
PARENTS = {
    "job": "launcher",
    "forked": "job",
    "subprocess": "job",
    "spawn": "job",
    "forkserver": "job",
}


def chain(written: Written, next_level: str = "job", **environ: str) -> Finished:
    """Run the chain to its end; nobody may have complained."""
    job = run("chain", "launcher", next_level, AWKWARD, environ={**written.environ, **environ})
    assert job.code == 0, job.stderr
    assert {code for codes in job.all_facts("codes") for code in codes} == {0}, job.stderr
    assert job.stderr == ""
    return job


def check_chain(job: Finished, written: Written) -> dict[str, Record]:
    """Each level is one process, ran once, and its span is the child of the level that started it."""
    levels = [fact["level"] for fact in job.facts if "level" in fact]
    assert sorted(levels) == sorted([*PARENTS, "launcher"])
    spans = {name: written.span(name) for name in levels}
    assert written.names() == sorted(levels)
    for name, parent in PARENTS.items():
        assert spans[name]["parent_id"] == spans[parent]["span_id"], name
    assert len({span["trace_id"] for span in spans.values()}) == 1
    pids = {fact["level"]: fact["pid"] for fact in job.facts if "level" in fact}
    assert {name: span["resource"]["process.pid"] for name, span in spans.items()} == pids
    assert len(set(pids.values())) == len(pids)
    return spans


def test_three_levels_are_one_run_in_one_trace(written: Written) -> None:
    """A random run id is handed on by ``to_env`` and beats what the job would find for itself; so do all settings.

    Values survive a shell and the comma list, integers of known keys arrive as integers, and every level is itself.
    """
    job = chain(written)
    spans = check_chain(job, written)
    assert spans["launcher"]["parent_id"] == ""
    (run_id,) = {span["resource"]["nemo.run.id"] for span in spans.values()}
    assert re.fullmatch("[0-9a-f]{12}", run_id)
    assert {fact["run_id"] for fact in job.facts if "level" in fact} == {run_id}
    for name, span in spans.items():
        resource = span["resource"]
        assert (resource["service.name"], resource["nemo.user.id"]) == ("chain", AWKWARD)
        pid = resource["process.pid"]
        assert resource["service.instance.id"] == (f"job-{pid}" if name == "forked" else name)
        inherited = {"nv.dl.world_size": 8, "nv.dl.topology.size.tp": 2, "team": AWKWARD}
        found = {key: resource[key] for key in inherited if key in resource}
        assert found == ({} if name == "launcher" else inherited)


def test_the_launcher_itself_may_be_part_of_a_trace(written: Written) -> None:
    """A trace from outside goes through all levels, with its trace state and its baggage."""
    job = chain(written, **OUTER)
    spans = check_chain(job, written)
    assert (spans["launcher"]["trace_id"], spans["launcher"]["parent_id"]) == (OUTER_TRACE, OUTER_SPAN)
    assert {span["trace_state"] for span in spans.values()} == {"vendor=1"}
    assert [fact["baggage"] for fact in job.facts if "level" in fact] == [{"tenant": "a b"}] * len(spans)


def test_a_level_without_telemetry_hands_on_what_it_was_given(written: Written) -> None:
    """Where telemetry is off in between, run and trace go on: the worker's span is the launcher's child."""
    chain(written, "job_without_telemetry")
    launcher, worker = written.span("launcher"), written.span("subprocess")
    assert written.names() == ["launcher", "subprocess"]
    assert (worker["trace_id"], worker["parent_id"]) == (launcher["trace_id"], launcher["span_id"])
    assert worker["resource"]["nemo.run.id"] == launcher["resource"]["nemo.run.id"]


@pytest.mark.parametrize(
    ("variables", "run_id"),
    [
        ({"NEMO_LENS_RUN_ID": " explicit ", "SLURM_JOB_ID": "4711"}, "explicit"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "nemo.run.id=of%20a%20scheduler", "SLURM_JOB_ID": "4711"}, "of a scheduler"),
        ({"SLURM_JOB_ID": "4711", "TORCHELASTIC_RUN_ID": "elastic"}, "4711"),
        ({"TORCHELASTIC_RUN_ID": "elastic"}, "elastic"),
    ],
    ids=["explicit", "inherited", "SLURM", "torchelastic"],
)
def test_the_job_has_the_run_id_that_the_launcher_found(
    written: Written, variables: dict[str, str], run_id: str
) -> None:
    """Wherever the launcher has its id from, the job it starts has the same one, though it is another SLURM job."""
    chain(written, "job", **variables)
    assert {span["resource"]["nemo.run.id"] for span in written.spans()} == {run_id}
    assert len(written.spans()) == len(PARENTS) + 1
