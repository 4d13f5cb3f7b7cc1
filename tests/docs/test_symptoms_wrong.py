"""What arrives is not right: each cause made, its message read, its remedy tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.otlp_lines import line, link, span, write
from support.symptoms import Lab, Symptom, symptom

RUN = """
import os
from nemo_lens.api import setup_telemetry, span_cm
rank = int(os.environ.get("SLURM_PROCID", "0"))
with setup_telemetry(resource_attributes={"nv.dl.rank": rank}), span_cm("run"):
    pass
"""


def two_ranks(lab: Lab, cure: str = "", **variables: str) -> list[dict[str, object]]:
    """Run two ranks; return the span of each."""
    return [lab.run(RUN, cure=cure, SLURM_PROCID=rank, **variables).written.span("run") for rank in "01"]


@symptom("Every rank has a trace of its own")
def test_trace_of_each_rank(lab: Lab, case: Symptom) -> None:
    """Two ranks of a run have two traces; with the variable one."""
    apart = two_ranks(lab, NEMO_LENS_RUN_ID="r")
    together = two_ranks(lab, cure=case.cure(), NEMO_LENS_RUN_ID="r")
    assert len({each["trace_id"] for each in apart}) == 2
    assert len({each["trace_id"] for each in together}) == 1


@symptom("A span has the wrong parent")
def test_parent_in_a_thread(lab: Lab, case: Symptom) -> None:
    """A thread of a pool starts roots; bound to the context, children."""
    code = case.python()
    broken = code.replace("bind_context(shard)", "shard")
    assert broken != code
    parents = []
    for each in (broken, code):
        written = lab.run(each).written
        save = written.span("save")["span_id"]
        shards = [span for span in written.spans() if span["name"] == "shard"]
        assert len(shards) == 2
        parents.append([span["parent_id"] == save for span in shards])
    assert parents == [[False, False], [True, True]]


@symptom("The rank is missing or wrong")
def test_rank(lab: Lab, case: Symptom) -> None:
    """Without a rank, and with one that is no number, it is said; the program's own rank is on its spans."""
    without = RUN.replace('resource_attributes={"nv.dl.rank": rank}', "")
    unknown = lab.run(without, SLURM_PROCID="3")
    case.seen(unknown.err, lab.run(without, OTEL_RESOURCE_ATTRIBUTES="nv.dl.rank=zero").err)
    assert "nv.dl.rank" not in unknown.written.span("run")["resource"]
    code = f"{case.python()}\nfrom nemo_lens.api import span_cm\nwith span_cm('run'):\n    pass\n"
    cured = lab.run(code, SLURM_PROCID="3")
    case.absent(cured.err)
    assert cured.written.span("run")["resource"]["nv.dl.rank"] == 3
    assert "rank" in lab.command("doctor").out


@symptom("service.name is nemo")
def test_service_name(lab: Lab, case: Symptom) -> None:
    """Nobody's name is ``nemo``; the variable gives one."""
    assert lab.run(RUN).written.span("run")["resource"]["service.name"] == "nemo"
    assert lab.run(RUN, cure=case.cure()).written.span("run")["resource"]["service.name"] == "trainer"


@symptom("The run id differs between ranks")
def test_run_id(lab: Lab, case: Symptom) -> None:
    """Ranks without a common id say so, and differ; with the variable they agree and say nothing."""
    said = lab.run(RUN, WORLD_SIZE="2")
    case.seen(said.err)
    assert len({each["resource"]["nemo.run.id"] for each in two_ranks(lab, WORLD_SIZE="2")}) == 2
    cure = case.cure()
    assert {each["resource"]["nemo.run.id"] for each in two_ranks(lab, cure, WORLD_SIZE="2")} == {"nightly-7"}
    case.absent(lab.run(RUN, cure=cure, WORLD_SIZE="2").err)


@symptom("Every request has its span twice, or not as configured")
def test_instrumented_twice(lab: Lab, case: Symptom) -> None:
    """The second instrumentation steps aside and says so; alone, it says nothing."""
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    code = """
from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from nemo_lens.api import instrument, setup_telemetry
app = FastAPI()
FastAPIInstrumentor.instrument_app(app)
instrument("fastapi", app)
"""
    case.seen(lab.run(code).err)
    case.absent(lab.run(code.replace("FastAPIInstrumentor.instrument_app(app)", "")).err)


@symptom("A span has no duration and is marked inverted.skew")
def test_inverted(lab: Lab, case: Symptom) -> None:
    """It is said, the span keeps the times as they were given, and in order it is not marked."""
    code = """
from nemo_lens.api import emit_span, setup_telemetry
with setup_telemetry(resource_attributes={"nv.dl.rank": 0}) as telemetry:
    emit_span(telemetry.tracer, "stage", 20.0, 10.5)
"""
    ended = lab.run(code)
    case.seen(ended.err)
    attributes = ended.written.span("stage")["attributes"]
    assert attributes["inverted.skew"] is True
    assert attributes["inverted.start_epoch_seconds"] == "20"
    cured = lab.run(code.replace("20.0, 10.5", "10.5, 20.0"))
    case.absent(cured.err)
    assert cured.written.span("stage")["attributes"] == {}


@symptom("An effect comes before its cause")
def test_clocks_differ(lab: Lab, case: Symptom, tmp_path: Path) -> None:
    """The arrow between two processes whose clocks differ says so in the timeline."""

    def picture(effect_starts: int) -> str:
        cause = line(span("send", 1, start=1000, end=2000), host__name="a", process__pid=1, nv__dl__rank=0)
        effect = line(
            span("receive", 2, start=effect_starts, end=effect_starts + 500, links=[link(1)]),
            host__name="b",
            process__pid=2,
            nv__dl__rank=1,
        )
        files = str(write(tmp_path / "spans.jsonl", cause, effect))
        ended = lab.command("timeline", "--quiet", "-o", "-", files)
        assert ended.code == 0, ended.err
        return ended.out

    case.seen(picture(0))
    case.absent(picture(3000))


@symptom("Spans are marked nemo.span.truncated")
def test_truncated(lab: Lab, case: Symptom) -> None:
    """A span that is open at the end is marked with how it ended; a ``with`` ends it before."""
    ended = lab.run("from nemo_lens.api import setup_telemetry\nkept = setup_telemetry().tracer.start_span('run')\n")
    left_open = ended.written.span("run")
    assert left_open["attributes"] == {"nemo.span.truncated": True}
    (event,) = left_open["events"]
    assert (event["name"], event["attributes"]) == ("nemo.span.truncated", {"nemo.span.truncated.reason": "exit"})
    assert lab.run(case.python()).written.span("run")["attributes"] == {}


@symptom("The application's own resource is on the spans")
def test_own_provider(lab: Lab, case: Symptom) -> None:
    """A provider that was there first gives its resource to the spans; set up first, Lens gives its own."""
    own = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
    ended = lab.run(own + RUN)
    case.seen(ended.err)
    assert "nv.dl.rank" not in ended.written.span("run")["resource"]
    cured = lab.run(RUN)
    case.absent(cured.err)
    assert cured.written.span("run")["resource"]["nv.dl.rank"] == 0


@symptom("The timeline is empty")
def test_empty_timeline(lab: Lab, case: Symptom, tmp_path: Path) -> None:
    """A folder without files, and files without spans, are told from one another."""
    empty, logs = tmp_path / "empty", tmp_path / "logs"
    empty.mkdir()
    logs.mkdir()
    (logs / "logs.jsonl").write_text('{"resourceLogs": []}\n')
    case.seen(lab.command("timeline", str(empty)).err, lab.command("timeline", str(logs)).err)
    run = lab.run(RUN)
    cured = lab.command("timeline", str(run.written.folder))
    assert cured.code == 0
    case.absent(cured.err)
