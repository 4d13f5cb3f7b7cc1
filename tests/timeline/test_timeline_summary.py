"""``nemo-lens timeline --summary``: times by span name, and which rank is slow in which phase."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.sdk.cli import main
from nemo_lens.sdk.cli._otlp_spans import Span
from nemo_lens.sdk.cli._timeline.summary.phases import RankSteps
from nemo_lens.sdk.cli._timeline.summary.span_table import Rank, SpanTable
from nemo_lens.sdk.cli._timeline.summary.straggler import judge

BASE_NS = 1_700_000_000_000_000_000
MS = 1_000_000


@dataclass
class Run:
    """Spans to be written to a file. Times are milliseconds from the start of the run."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        rank: int | None,
        name: str,
        start: float,
        end: float,
        *,
        iteration: int | None = None,
        thread: int | None = None,
        **resource: str,
    ) -> None:
        attributes = {"dl.iteration": iteration, "thread.id": thread}
        where: dict[str, int | str | None] = {
            "nv.dl.rank": rank,
            **{k.replace("_", "."): v for k, v in resource.items()},
        }
        span = {
            "traceId": "ab" * 16,
            "spanId": f"{len(self.lines) + 1:016x}",
            "name": name,
            "startTimeUnixNano": str(BASE_NS + round(start * MS)),
            "endTimeUnixNano": str(BASE_NS + round(end * MS)),
            "attributes": _attributes(attributes),
        }
        scopes = [{"scope": {"name": "test"}, "spans": [span]}]
        self.lines.append({"resourceSpans": [{"resource": {"attributes": _attributes(where)}, "scopeSpans": scopes}]})

    def write(self, folder: Path, name: str = "run.jsonl") -> Path:
        path = folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


@pytest.fixture(autouse=True)
def _unlimited_width(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some runners of tests set it.
    monkeypatch.delenv("COLUMNS", raising=False)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
        if value is not None
    ]


def summary(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert main(["timeline", *map(str, arguments), "--summary", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def named(found: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [row for row in found["names"] if row["name"] == name]
    return row


def synchronised(
    ranks: int,
    steps: int,
    work: Callable[[int, int], Iterable[tuple[str, float]]],
    *,
    collective: str = "grads.all_reduce",
    collective_ms: float = 1.0,
    skew_ms: Callable[[int], float] = lambda rank: 0.0,
) -> Run:
    """Return a data-parallel run: each rank works, and leaves the collective when the last one has come."""
    run = Run()
    now = 0.0
    for step in range(steps):
        phases = [list(work(rank, step)) for rank in range(ranks)]
        met = now + max(sum(ms for _, ms in own) for own in phases) + collective_ms
        for rank, own in enumerate(phases):
            clock = skew_ms(rank)
            at = now
            for name, ms in own:
                run.add(rank, name, at + clock, at + ms + clock)
                at += ms
            run.add(rank, collective, at + clock, met + clock)
            run.add(rank, "train.step", now + clock, met + clock, iteration=step)
        now = met + 0.1
    return run


def straggling(slow: int | None, jitter: random.Random) -> Callable[[int, int], Iterable[tuple[str, float]]]:
    """Return work of 20 ms forward and 40 ms backward; forward takes the slow rank 10 ms more."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 20 * jitter.uniform(0.97, 1.03) + (10 if rank == slow else 0)
        yield "backward", 40 * jitter.uniform(0.97, 1.03)

    return work


# ---- numbers


def test_the_numbers_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks, count, total, self, median, p95, max, slowest rank and shares of two ranks with two steps each."""
    run = Run()
    for rank, forward in ((0, 20), (1, 30)):
        for step in range(2):
            start = step * 100
            run.add(rank, "forward", start + 10, start + 10 + forward)
            run.add(rank, "train.step", start, start + 100, iteration=step)
    run.add(0, "save", 200, 250)
    found = summary(capsys, run.write(tmp_path))
    assert found["spans"] == 9
    assert found["ranks"] == [{"rank": 0, "role": None, "host": None}, {"rank": 1, "role": None, "host": None}]
    assert found["step"]["name"] == "train.step"
    assert (found["step"]["origin"], found["step"]["count"], found["step"]["ranks"]) == ("dl.iteration", 4, 2)
    assert found["step"]["median_ns"] == 100 * MS
    assert [row["name"] for row in found["names"]] == ["train.step", "forward", "save"]
    assert named(found, "forward") == {
        "name": "forward",
        "ranks": 2,
        "count": 4,
        "total_ns": 100 * MS,
        "self_ns": 100 * MS,
        "median_ns": 25 * MS,
        "p95_ns": 30 * MS,
        "max_ns": 30 * MS,
        "slowest": {"rank": 1, "role": None, "host": None, "median_ns": 30 * MS, "slower_by": 0.5},
        "share": 0.25,
        "self_share": 0.25,
    }
    step = named(found, "train.step")
    assert (step["self_ns"], step["share"], step["self_share"]) == (300 * MS, 1.0, 0.75)
    saved = named(found, "save")
    assert (saved["ranks"], saved["slowest"]["slower_by"], saved["share"]) == (1, None, None)


@pytest.mark.parametrize(("count", "p95"), [(1, 1), (19, 19), (20, 19), (100, 95), (101, 96)])
def test_p95_is_the_least_that_95_percent_do_not_exceed(
    count: int, p95: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest-rank definition: always one of the durations."""
    run = Run()
    for number in random.Random(1).sample(range(1, count + 1), count):
        run.add(0, "work", number * 1000, number * 1000 + number)
    assert named(summary(capsys, run.write(tmp_path)), "work")["p95_ns"] == p95 * MS


def test_every_moment_belongs_to_the_span_that_was_started_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nested spans, a generator around the body of its loop, coroutines that overlap: self times add up to the step."""
    run = Run()
    run.add(0, "step", 0, 100, iteration=0)
    run.add(0, "batches", 10, 70)  # a generator: open while the body runs, and no parent of it
    run.add(0, "body", 15, 40)
    run.add(0, "inner", 20, 25)
    run.add(0, "body", 45, 70)
    run.add(0, "upload a", 75, 90)
    run.add(0, "upload b", 80, 95)
    found = summary(capsys, run.write(tmp_path))
    self_ms = {row["name"]: row["self_ns"] / MS for row in found["names"]}
    assert self_ms == {"step": 20, "batches": 10, "body": 45, "inner": 5, "upload a": 5, "upload b": 15}
    assert sum(row["self_share"] for row in found["names"]) == pytest.approx(1)
    assert named(found, "batches")["share"] == 0.6


def test_recursion_and_overlap_do_not_count_twice_in_the_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two spans of one name at the same time take the step's time once; the total is still the sum of durations."""
    run = Run()
    run.add(0, "step", 0, 100, iteration=0)
    run.add(0, "walk", 10, 60)
    run.add(0, "walk", 20, 50)
    run.add(0, "walk", 55, 120)  # outlives the step
    row = named(summary(capsys, run.write(tmp_path)), "walk")
    assert (row["share"], row["total_ns"]) == (0.9, 145 * MS)


def test_other_threads_and_processes_run_beside_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loader thread and a forked worker of the rank have times, no share, and take nothing from the step."""
    run = Run()
    run.add(0, "step", 0, 100, iteration=0, process_pid="1")
    run.add(0, "load", 10, 90, thread=7, process_pid="1")
    run.add(0, "decode", 10, 90, process_pid="2")
    found = summary(capsys, run.write(tmp_path))
    assert named(found, "step")["self_share"] == 1.0
    for name in ("load", "decode"):
        row = named(found, name)
        assert (row["share"], row["self_share"], row["self_ns"]) == (None, None, 80 * MS)


def test_what_is_read_twice_or_has_no_duration_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of a file changes nothing; a span without end, and one that ends before its start are counted."""
    run = Run()
    run.add(0, "work", 10, 20)
    run.add(0, "backwards", 20, 10)
    run.add(0, "open", 20, 30)
    run.lines[-1]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["endTimeUnixNano"] = "0"
    path = run.write(tmp_path)
    copy = run.write(tmp_path, "copy.jsonl")
    assert main(["timeline", str(path), str(copy), "--summary", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["spans"], found["duplicates"], found["without_duration"]) == (1, 1, 4)
    assert err == "nemo-lens timeline: left out 1 span read twice, 4 spans without a duration\n"


def test_a_million_spans_fit_in_memory() -> None:
    """A span takes less than 100 bytes, whatever its attributes, and reading its thread less than 100 MB a million."""
    count = 100_000
    table = SpanTable()
    resource = {"nv.dl.rank": 3}
    tracemalloc.start()
    try:
        for number in range(count):
            start = BASE_NS + number * 10
            attributes = {"text": f"{number} " * 50}
            table.add(
                Span("a" * 32, f"{number:016x}", "", "n", start, start + 5, 0, "", attributes, (), (), resource, "")
            )
        held, _ = tracemalloc.get_traced_memory()
        assert sum(1 for thread in table.threads.values() for _ in thread.rows()) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100 * count
    assert peak - held < 100 * count


# ---- what a step is


def test_the_outermost_span_with_an_iteration_is_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is below a step carries its ``dl.iteration``, too; a name that ends in step does not win over it."""
    run = Run()
    for step in range(3):
        run.add(0, "optimizer.step", step * 100 + 50, step * 100 + 60, iteration=step)
        run.add(0, "iteration", step * 100, step * 100 + 90, iteration=step)
    run.add(0, "long.step", 0, 1000)
    found = summary(capsys, run.write(tmp_path))["step"]
    assert (found["name"], found["origin"]) == ("iteration", "dl.iteration")


def test_many_spans_inside_a_step_do_not_make_it_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Concurrent rollouts that carry the iteration take more time in all than the step they are in."""
    run = Run()
    for step in range(3):
        for task in range(8):
            run.add(0, "rollout", step * 100 + 10, step * 100 + 60 + task, iteration=step, thread=task)
        run.add(0, "iteration", step * 100, step * 100 + 90, iteration=step)
    found = summary(capsys, run.write(tmp_path))["step"]
    assert (found["name"], found["count"]) == ("iteration", 3)


def test_steps_that_overlap_all_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A step that begins before the last one has ended is the next one; one that ends within it is a part of it."""
    run = Run()
    for step in range(6):
        run.add(0, "step", step * 100, step * 100 + 110, iteration=step)
        run.add(0, "step", step * 100 + 20, step * 100 + 50, iteration=step)
    assert summary(capsys, run.write(tmp_path))["step"]["count"] == 6


def test_without_iterations_the_name_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that ends in step, in any case; of several the one with the most time."""
    run = Run()
    for step in range(3):
        run.add(0, "optimizer_step", step * 100 + 50, step * 100 + 60)
        run.add(0, "TrainStep", step * 100, step * 100 + 90)
    found = summary(capsys, run.write(tmp_path))["step"]
    assert (found["name"], found["origin"], found["count"]) == ("TrainStep", "name", 3)


def test_the_step_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--step`` wins; a name that no span has is an error that says the nearest one."""
    path = synchronised(2, 6, straggling(None, random.Random(1))).write(tmp_path)
    found = summary(capsys, path, "--step", "forward")
    assert (found["step"]["name"], found["step"]["origin"]) == ("forward", "given")
    assert named(found, "forward")["share"] == 1.0
    assert main(["timeline", str(path), "--summary", "--step", "forwrad"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "nemo-lens timeline: --step: no span is named 'forwrad', did you mean 'forward'?\n"


def test_a_run_without_steps_has_times_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No share, sorted by self time, and how to name the step."""
    run = Run()
    run.add(None, "request", 0, 100)
    run.add(None, "query", 10, 90)
    path = run.write(tmp_path)
    found = summary(capsys, path)
    assert found["step"] is None
    assert [(row["name"], row["ranks"], row["slowest"]) for row in found["names"]] == [
        ("query", 0, None),
        ("request", 0, None),
    ]
    assert "--step NAME" in found["no_verdict"]
    assert main(["timeline", str(path), "--summary"]) == 0
    assert "of step" not in capsys.readouterr().out


# ---- the verdict


def test_the_straggler_is_named_with_its_phase_and_where_the_others_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps take the same time on every rank; the slow one is long in its work and short in the collective."""
    path = synchronised(4, 20, straggling(2, random.Random(2))).write(tmp_path)
    (slow,) = summary(capsys, path)["slow_ranks"]
    assert slow["rank"] == 2
    (phase,) = slow["phases"]
    assert phase["name"] == "forward"
    assert phase["lag_ns"] == pytest.approx(10 * MS, rel=0.1)
    assert phase["own_ns"] == pytest.approx(30 * MS, rel=0.05)
    assert phase["others_ns"] == pytest.approx(20 * MS, rel=0.05)
    assert (phase["slower_steps"], phase["steps"], phase["waiting"]) == (20, 20, False)
    (wait,) = slow["waited_for_in"]
    assert wait["name"] == "grads.all_reduce"
    assert wait["others_ns"] - wait["own_ns"] == pytest.approx(10 * MS, rel=0.25)
    assert abs(slow["longer_step_ns"]) < MS
    assert main(["timeline", str(path), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "Rank 2 is slow, in forward: " in out
    assert "The others wait for it in grads.all_reduce: " in out


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("collective", ["grads.all_reduce", "phase x"])
def test_of_two_ranks_the_one_that_works_longer_is_slow(
    slow: int, collective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the one that waits as long: the name of the phase tells, or that both ranks leave it together."""
    path = synchronised(2, 12, straggling(slow, random.Random(3)), collective=collective).write(tmp_path)
    (found,) = summary(capsys, path)["slow_ranks"]
    assert (found["rank"], found["phases"][0]["name"]) == (slow, "forward")
    assert [wait["name"] for wait in found["waited_for_in"]] == [collective]


def test_two_ranks_that_cannot_be_told_apart_get_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A collective without a telling name, between hosts whose clocks are far apart: the summary says what it sees."""
    run = synchronised(2, 12, straggling(1, random.Random(3)), collective="phase x", skew_ms=lambda rank: rank * 25.0)
    found = summary(capsys, run.write(tmp_path))
    assert found["slow_ranks"] == []
    assert "one waits for the other" in found["no_verdict"]
    assert "forward" in found["no_verdict"]
    assert "phase x" in found["no_verdict"]


def test_doubt_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where neither names nor clocks show a collective, a rank that is early in one looks like a slow one."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", (18 if rank == 3 else 30) + 0.1 * ((rank + step) % 3)

    doubt = "  No span was found in which the others wait for it: if ranks wait for each other in phase x, it is early"
    for collective, doubtful in (("phase x", True), ("all_reduce", False)):
        run = synchronised(4, 20, work, collective=collective, skew_ms=lambda rank: rank * 30.0)
        assert main(["timeline", str(run.write(tmp_path)), "--summary"]) == 0
        assert (doubt in capsys.readouterr().out) == doubtful


def test_an_early_rank_is_not_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One rank that works less and waits longer for the others: a long wait is nobody's fault."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", (10 if rank == 3 else 30) + 0.1 * ((rank + step) % 3)

    found = summary(capsys, synchronised(4, 20, work).write(tmp_path))
    assert found["slow_ranks"] == []
    assert found["no_verdict"] is None


@pytest.mark.parametrize("traced", [True, False])
def test_slow_data_between_the_steps_is_found(traced: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The time before a step belongs to it, with the span that covers it or without one."""
    run = Run()
    now = 0.0
    jitter = random.Random(4)
    for step in range(15):
        loads = [jitter.uniform(4.5, 5.5) + (8 if rank == 1 else 0) for rank in range(3)]
        met = now + max(loads) + 45
        for rank, load in enumerate(loads):
            if traced:
                run.add(rank, "load", now, now + load)
            run.add(rank, "forward", now + load, now + load + 40)
            run.add(rank, "all_reduce", now + load + 40, met)
            run.add(rank, "step", now + load, met, iteration=step)
        now = met
    path = run.write(tmp_path)
    (slow,) = summary(capsys, path)["slow_ranks"]
    assert (slow["rank"], slow["phases"][0]["name"]) == (1, "load" if traced else None)
    assert main(["timeline", str(path), "--summary"]) == 0
    expected = "Rank 1 is slow, in " + ("load: " if traced else "no span, between the steps: ")
    assert expected in capsys.readouterr().out


def test_a_slow_rank_that_nobody_waits_for_has_longer_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that run for themselves; even in a collective, when the rank's own steps take longer by it."""
    run = Run()
    for rank in range(4):
        now = 0.0
        for step in range(10):
            wait = 12 if rank == 0 else 2
            run.add(rank, "work", now, now + 50 + rank * 0.1)
            run.add(rank, "recv", now + 50 + rank * 0.1, now + 50 + rank * 0.1 + wait)
            run.add(rank, "step", now, now + 50 + rank * 0.1 + wait, iteration=step)
            now += 70
    # The ranks begin their steps together: the one that is long in recv was early.
    assert summary(capsys, run.write(tmp_path))["slow_ranks"] == []
    run = Run()
    for rank in range(4):
        now = 0.0
        for step in range(10):
            wait = 12 if rank == 0 else 2
            run.add(rank, "work", now, now + 50)
            run.add(rank, "recv", now + 50, now + 50 + wait)
            run.add(rank, "step", now, now + 50 + wait, iteration=step)
            now += 50 + wait
    (slow,) = summary(capsys, run.write(tmp_path))["slow_ranks"]
    assert (slow["rank"], slow["phases"][0]["name"], slow["phases"][0]["waiting"]) == (0, "recv", True)
    assert slow["longer_step_ns"] == 10 * MS


def test_several_slow_ranks_are_listed_the_worst_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their hosts, and with each phase in which they are slow."""
    slower = {3: (8, 12), 6: (9, 0)}

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        forward, backward = slower.get(rank, (0, 0))
        yield "forward", 20 + forward + 0.1 * ((rank + step) % 3)
        yield "backward", 40 + backward + 0.1 * ((rank * 2 + step) % 3)

    run = synchronised(8, 10, work)
    for line in run.lines:
        attributes = line["resourceSpans"][0]["resource"]["attributes"]
        attributes += _attributes({"host.name": f"gpu-{int(attributes[0]['value']['intValue']) // 4}"})
    path = run.write(tmp_path)
    found = summary(capsys, path)["slow_ranks"]
    assert [(slow["rank"], slow["host"], [phase["name"] for phase in slow["phases"]]) for slow in found] == [
        (3, "gpu-0", ["backward", "forward"]),
        (6, "gpu-1", ["forward"]),
    ]
    assert main(["timeline", str(path), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "Rank 3 (gpu-0) is slow, in backward and forward: 19.9 ms longer a step" in out
    assert "Slow, too: rank 6 (gpu-1) " in out


def test_steps_are_compared_by_their_iteration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of very different lengths, a rank whose first steps are missing, and the lag is still exact."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 10 * (1 + step % 4) + (6 if rank == 1 else 0) + 0.01 * rank

    run = synchronised(3, 20, work)
    run.lines = [line for number, line in enumerate(run.lines) if number >= 9 or number % 9 >= 3]
    (slow,) = summary(capsys, run.write(tmp_path))["slow_ranks"]
    assert slow["rank"] == 1
    assert slow["phases"][0]["lag_ns"] == pytest.approx(6 * MS, rel=0.02)


def test_ranks_of_two_roles_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A generator's rank 0 is not the trainer's, and the verdict says which one it means."""
    run = synchronised(3, 12, straggling(0, random.Random(5)))
    for line in run.lines:
        line["resourceSpans"][0]["resource"]["attributes"] += _attributes({"nv.dl.role": "trainer"})
    run.add(0, "generate", 0, 500, nv_dl_role="generator")
    path = run.write(tmp_path)
    found = summary(capsys, path)
    assert len(found["ranks"]) == 4
    assert [(slow["rank"], slow["role"]) for slow in found["slow_ranks"]] == [(0, "trainer")]
    assert main(["timeline", str(path), "--summary"]) == 0
    assert "Rank 0 trainer is slow, in forward" in capsys.readouterr().out


def for_each_span(run: Run, change: Callable[[int, list[dict[str, Any]], dict[str, Any]], None]) -> Run:
    """Call for each span of a run, with its rank, its resource's attributes and the span itself."""
    for line in run.lines:
        attributes = line["resourceSpans"][0]["resource"]["attributes"]
        (span,) = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
        change(int(attributes[0]["value"]["intValue"]), attributes, span)
    return run


def test_ranks_of_different_roles_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Generators that have steps, too, spend them on something else by design; a slow one is found among its like."""

    def generators(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "generate", (70 if rank == 4 else 50) + 0.1 * ((rank + step) % 3)

    trainers = synchronised(4, 12, straggling(None, random.Random(9)))
    others = synchronised(5, 12, generators, collective="weights.broadcast")
    for role, run in (("trainer", trainers), ("generator", others)):
        for_each_span(
            run, lambda rank, attributes, span, role=role: attributes.extend(_attributes({"nv.dl.role": role}))
        )
    for_each_span(others, lambda rank, attributes, span: span.update(traceId="cd" * 16))
    trainers.lines += others.lines
    found = summary(capsys, trainers.write(tmp_path))
    assert [(slow["rank"], slow["role"], slow["phases"][0]["name"]) for slow in found["slow_ranks"]] == [
        (4, "generator", "generate")
    ]


def test_steps_of_two_runs_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run on 4 ranks and a slower one on 8: ranks 4 to 7 are not slow, and that there are two is said."""

    def work(forward: float) -> Callable[[int, int], Iterable[tuple[str, float]]]:
        return lambda rank, step: [("forward", forward + 0.1 * ((rank + step) % 3))]

    small, large = synchronised(4, 12, work(20)), synchronised(8, 12, work(60))
    for run_id, run in (("a", small), ("b", large)):
        for_each_span(
            run, lambda rank, attributes, span, run_id=run_id: attributes.extend(_attributes({"nemo.run.id": run_id}))
        )
    for_each_span(large, lambda rank, attributes, span: span.update(traceId="cd" * 16))
    small.lines += large.lines
    path = small.write(tmp_path)
    found = summary(capsys, path)
    assert (found["slow_ranks"], found["no_verdict"], found["short_ranks"]) == ([], None, [])
    assert found["run_ids"] == ["a", "b"]
    assert main(["timeline", str(path), "--summary"]) == 0
    assert "8 ranks, 2 run ids, " in capsys.readouterr().out


def test_steps_of_two_attempts_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job is requeued when a node fails with its spans, and is slower afterwards: the rank from there is not slow."""

    def work(forward: float) -> Callable[[int, int], Iterable[tuple[str, float]]]:
        return lambda rank, step: [("forward", forward + 0.1 * ((rank + step) % 3))]

    def attempt(number: int, run: Run) -> Run:
        def change(rank: int, attributes: list[dict[str, Any]], span: dict[str, Any]) -> None:
            job = {"nemo.run.id": "77", "slurm.restart_count": number, "process.pid": 10 * number + rank}
            attributes.extend(_attributes(job))
            span["traceId"] = f"{number + 1:032x}"
            for time in ("startTimeUnixNano", "endTimeUnixNano"):
                span[time] = str(int(span[time]) + number * 60_000 * MS)

        return for_each_span(run, change)

    first, second = attempt(0, synchronised(4, 12, work(20))), attempt(1, synchronised(4, 12, work(60)))
    lost = _attributes({"nv.dl.rank": 2})[0]
    first.lines = [line for line in first.lines if lost not in line["resourceSpans"][0]["resource"]["attributes"]]
    first.lines += second.lines
    found = summary(capsys, first.write(tmp_path))
    assert (found["slow_ranks"], found["no_verdict"], found["short_ranks"]) == ([], None, [])
    assert (found["run_ids"], found["step"]["count"]) == (["77"], 84)


def test_run_ids_that_each_rank_made_up_do_not_part_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the launcher sets no run id, every rank has its own: they are of one run all the same."""
    run = for_each_span(
        synchronised(4, 12, straggling(2, random.Random(9))),
        lambda rank, attributes, span: attributes.extend(_attributes({"nemo.run.id": f"random{rank}"})),
    )
    assert [slow["rank"] for slow in summary(capsys, run.write(tmp_path))["slow_ranks"]] == [2]


@pytest.mark.parametrize("name", ["data.wait", "wait_for_batch", "dataloader.wait", "cuda.synchronize"])
def test_waiting_for_data_or_the_device_is_no_waiting_for_ranks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The most usual straggler of all is the rank whose data comes late."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield name, 5 + 0.1 * ((rank + step) % 3) + (20 if rank == 1 else 0)
        yield "forward", 40 + 0.1 * ((rank + step) % 4)

    (slow,) = summary(capsys, synchronised(4, 20, work).write(tmp_path))["slow_ranks"]
    assert (slow["rank"], [phase["name"] for phase in slow["phases"]]) == (1, [name])
    assert [wait["name"] for wait in slow["waited_for_in"]] == ["grads.all_reduce"]


def test_a_rank_that_is_slow_in_everything_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A throttled device: 40 layers take 30 % longer, each by less than a percent of a step."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        for layer in range(40):
            yield f"layer.{layer}", (2 + 0.02 * ((rank + step + layer) % 3)) * (1.3 if rank == 2 else 1)

    path = synchronised(4, 12, work).write(tmp_path)
    (slow,) = summary(capsys, path)["slow_ranks"]
    assert slow["rank"] == 2
    (phase,) = slow["phases"]
    assert (phase["kind"], phase["name"]) == ("all_phases", None)
    assert phase["lag_ns"] == pytest.approx(24 * MS, rel=0.05)
    assert main(["timeline", str(path), "--summary"]) == 0
    assert "Rank 2 is slow, in all phases of work together: 24" in capsys.readouterr().out


def test_a_slow_host_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not rank by rank, when all ranks of it are slow."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 40 + 0.1 * ((rank + step) % 3) + (20 - rank if 4 <= rank < 8 else 0)

    run = for_each_span(
        synchronised(16, 10, work),
        lambda rank, attributes, span: attributes.extend(_attributes({"host.name": f"gpu-{rank // 4}"})),
    )
    path = run.write(tmp_path)
    assert len(summary(capsys, path)["slow_ranks"]) == 4
    assert main(["timeline", str(path), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "Rank 4 (gpu-1) is slow, in forward" in out
    assert "Slow, too: the other 3 ranks of gpu-1.\n" in out


def test_what_a_span_is_blamed_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own time, without the spans in it; or that others have no such span at all."""
    run = Run()
    for step in range(10):
        for rank in range(4):
            start, own = step * 100.0, 30.0 if rank == 1 else 10.0
            extra = 10.0 if rank == 3 else 0.0
            run.add(rank, "forward", start + own, start + own + 20)
            if extra:
                run.add(rank, "loss", start + own + 20, start + own + 20 + extra)
            run.add(rank, "all_reduce", start + own + 20 + extra, start + 90)
            run.add(rank, "step", start, start + 90, iteration=step)
    assert main(["timeline", str(run.write(tmp_path)), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "Rank 1 is slow, in step itself: 20.0 ms longer a step" in out
    assert "Slow, too: rank 3 10.0 ms in loss." in out
    run.lines = [
        line for line in run.lines if '"intValue": "1"}' not in json.dumps(line["resourceSpans"][0]["resource"])
    ]
    assert main(["timeline", str(run.write(tmp_path)), "--summary"]) == 0
    assert "  loss takes it 10.0 ms a step and most others have no such span; it is" in capsys.readouterr().out


def test_missing_ranks_and_missing_steps_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slow rank may be the one whose file is not there; a rank that died has fewer steps."""
    run = for_each_span(
        synchronised(5, 20, straggling(None, random.Random(10))),
        lambda rank, attributes, span: attributes.extend(_attributes({"nv.dl.world_size": 6})),
    )
    run.lines = [line for number, line in enumerate(run.lines) if number < 200 or number % 20 // 4 != 3]
    path = run.write(tmp_path)
    found = summary(capsys, path)
    assert found["missing_ranks"] == [5]
    assert found["short_ranks"] == [{"rank": 3, "role": None, "host": None, "steps": 10, "others_steps": 20}]
    assert main(["timeline", str(path), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "Missing: there is no span of rank 5.\n" in out
    assert "Far fewer steps than the others: rank 3 has 10 of 20.\n" in out


def test_a_rank_may_be_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``OTEL_RESOURCE_ATTRIBUTES=nv.dl.rank=2`` makes it with any OpenTelemetry SDK."""

    def as_text(rank: int, attributes: list[dict[str, Any]], span: dict[str, Any]) -> None:
        attributes[0]["value"] = {"stringValue": str(rank)}

    run = for_each_span(synchronised(4, 12, straggling(2, random.Random(11))), as_text)
    assert [slow["rank"] for slow in summary(capsys, run.write(tmp_path))["slow_ranks"]] == [2]


# ---- no verdict


@pytest.mark.parametrize(
    ("ranks", "steps", "reason"), [(1, 20, "of one rank only"), (4, 4, "fewer than 5 steps a rank")]
)
def test_too_little_data_is_said(
    ranks: int, steps: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is compared with nothing, however slow it is."""
    path = synchronised(ranks, steps, straggling(0, random.Random(6))).write(tmp_path)
    found = summary(capsys, path)
    assert found["slow_ranks"] == []
    assert reason in found["no_verdict"]


def test_one_bad_step_makes_no_straggler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A first step that compiles for a minute, and a checkpoint that one rank writes now and then."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 20 + 0.1 * ((rank + step) % 3) + (60_000 if step == 0 and rank == 1 else 0)
        if rank == 0 and step % 5 == 4:
            yield "checkpoint", 400

    found = summary(capsys, synchronised(4, 20, work).write(tmp_path))
    assert found["slow_ranks"] == []
    assert found["no_verdict"] is None
    assert named(found, "forward")["max_ns"] > 60_000 * MS


def test_a_lag_that_does_not_matter_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Slower in every step and without any noise, but by 2 % of a step."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 49 + (1 if rank == 2 else 0)

    assert summary(capsys, synchronised(4, 20, work).write(tmp_path))["slow_ranks"] == []


def test_ranks_that_all_differ_have_no_straggler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last of a row of ranks, each a little slower than the one before, does not stand out."""

    def work(rank: int, step: int) -> Iterable[tuple[str, float]]:
        yield "forward", 40 + 3 * rank

    assert summary(capsys, synchronised(6, 20, work).write(tmp_path))["slow_ranks"] == []


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: max(0.0, chance.gauss(1, 0.2)),
    "skewed": lambda chance: chance.lognormvariate(0, 0.5),
    "spikes": lambda chance: 1 + abs(chance.gauss(0, 0.05)) + (chance.random() < 0.1) * 5 * chance.random(),
    "two speeds": lambda chance: 1 + (chance.random() < 0.3),
}


@pytest.mark.parametrize("ranks", [2, 3, 8, 32])
@pytest.mark.parametrize("noise", list(NOISES))
def test_noise_is_no_straggler(noise: str, ranks: int) -> None:
    """In 30 runs whose ranks differ by chance alone, at most one verdict (a few in a thousand are expected)."""
    chance = random.Random(f"{noise} {ranks}")
    names = ["step", "forward", "backward", "optimizer", "data"]
    false_alarms = 0
    for _ in range(30):
        steps = {rank: RankSteps() for rank in range(ranks)}
        for own in steps.values():
            for step in range(16):
                spent = [ms * NOISES[noise](chance) * MS for ms in (2, 30, 50, 10, 8)]
                own.append(step, {name: round(value) for name, value in enumerate(spent)}, {})
        false_alarms += bool(judge({Rank(rank, ""): own for rank, own in steps.items()}, names).stragglers)
    assert false_alarms <= 1


# ---- the command


def test_it_prints_and_draws_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``-o`` no file appears; with it the trace is written as well, and both are the same as alone."""
    path = synchronised(2, 6, straggling(1, random.Random(7))).write(tmp_path)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["timeline", str(path), "--summary", "--json"]) == 0
    alone = capsys.readouterr().out
    assert list(folder.iterdir()) == []
    assert main(["timeline", str(path), "--summary", "--json", "-o", "both.json"]) == 0
    assert capsys.readouterr().out == alone
    assert main(["timeline", str(path), "-o", "drawn.json"]) == 0
    assert (folder / "both.json").read_bytes() == (folder / "drawn.json").read_bytes()


def test_it_reads_the_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``-`` works as it does for ``tree``."""
    text = synchronised(2, 6, straggling(1, random.Random(7))).write(tmp_path).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert summary(capsys, "-")["slow_ranks"][0]["rank"] == 1


def test_broken_lines_are_told_and_the_rest_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File and line number, as ``tree`` says it; input without any span is an error."""
    path = synchronised(2, 6, straggling(1, random.Random(7))).write(tmp_path)
    path.write_text(path.read_text() + "{broken\n")
    assert main(["timeline", str(path), "--summary"]) == 0
    out, err = capsys.readouterr()
    assert "Rank 1 is slow" in out
    assert f"{path}:49: skipped: not JSON" in err
    path.write_text("{broken\n")
    assert main(["timeline", str(path), "--summary"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "nemo-lens timeline: no span with a duration: nothing to sum up"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json"], "--json goes with --summary"),
        (["--step", "x"], "--step goes with --summary"),
        (["--summary", "-o", "-"], "cannot both go to the standard output"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nothing is read or written."""
    assert main(["timeline", str(tmp_path / "missing"), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "missing" not in err


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_the_table_fits_the_terminal(
    columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than the width; the slowest rank stays, and what was left out is said."""
    run = synchronised(3, 10, straggling(1, random.Random(8)))
    run.add(0, "a very long name of a span that nobody would ever want to read in a table", 0, 1)
    run.add(0, "日本語のとても長い名前のスパン日本語のとても長い名前のスパン", 0, 1)
    path = run.write(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["timeline", str(path), "--summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(_columns, lines)) <= columns
    assert "slowest" in next(text for text in lines if text.startswith("name "))
    assert any("for want of width" in text for text in lines) == (columns < 100)
    if columns == 140:
        row = next(text for text in lines if text.startswith("forward "))
        assert row.split()[:3] == ["forward", "3", "30"]
        assert " rank 1 +" in row


def _columns(text: str) -> int:
    return sum(2 if "\u3000" <= char <= "\u9fff" else 1 for char in text)


def test_names_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of names and hosts are shown, not sent."""
    run = synchronised(3, 10, lambda rank, step: [("for\x1b[31mward", 30 if rank == 1 else 20)])
    for line in run.lines:
        line["resourceSpans"][0]["resource"]["attributes"] += _attributes({"host.name": "evil\x07host"})
    assert main(["timeline", str(run.write(tmp_path)), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert r"Rank 1 (evil\x07host) is slow, in for\x1b[31mward" in out


# ---- a real run


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("groups", "phase"), [("detailed", "forward"), ("default", "train.microbatch")])
def test_the_demos_slow_rank_is_named(groups: str, phase: str, tmp_path: Path) -> None:
    """Real processes that wait for each other, and the file exporter: rank, phase, and where the others wait."""
    environ = {key: text for key, text in os.environ.items() if not key.startswith(("OTEL_", "NEMO_LENS_"))}
    command = [sys.executable, "-m", "nemo_lens.sdk.cli"]
    options = ["--ranks", "4", "--slow-rank", "2", "--steps", "20", "--span-groups", groups, "--out", "run"]
    for arguments in (["demo", *options], ["timeline", "--summary", "--json", "run"]):
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True, timeout=60
        )
    found = json.loads(done.stdout)
    assert found["step"]["name"] == "train.step"
    slow = found["slow_ranks"][0]
    assert (slow["rank"], slow["role"], slow["phases"][0]["name"]) == (2, "trainer", phase)
    # Two forward passes a step, 20 ms longer each; what the machine adds is not known.
    assert 20 * MS < slow["phases"][0]["lag_ns"] < 100 * MS
    assert "grads.all_reduce" in [wait["name"] for wait in slow["waited_for_in"]]
    assert named(found, "checkpoint.save")["share"] is None


def test_a_slow_rank_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    """``demo --slow-rank`` names one of the ranks."""
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "demo", "--slow-rank", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert done.stderr == "nemo-lens demo: error: argument --slow-rank: there are only ranks 0 to 2\n"
    assert list(tmp_path.iterdir()) == []
