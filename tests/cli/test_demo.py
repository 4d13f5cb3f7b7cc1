"""``nemo-lens demo`` as a person runs it: a real program with real child processes in an empty folder."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nemo_lens.sdk.cli._forest import Forest, Node
from nemo_lens.sdk.cli._otlp_reader import OtlpReader, expand

NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without settings of the machine's own that telemetry reads."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OTEL_", "NEMO_LENS_", "SLURM_", "TORCHELASTIC_")) and key not in ("COLUMNS", "RANK")
    }
    return {**kept, **more}


def demo(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEMO_LENS, "demo", *options],
        cwd=folder,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@dataclass
class Demo:
    """A finished demo and what its files hold."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    forest: Forest
    problems: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[Node]:
        return [node for trace in self.forest.traces for node in trace.nodes if node.span.name == name]

    def parent_name(self, node: Node) -> str:
        parent = self.forest.find(node.span.trace_id, node.span.parent_id)
        return parent.name if parent else ""


def finished(folder: Path, done: subprocess.CompletedProcess[str], out: str = "") -> Demo:
    assert done.returncode == 0, done.stderr
    problems: list[str] = []
    (found,) = [Path(out)] if out else folder.iterdir()
    forest = Forest(OtlpReader(problems.append).read(expand([str(folder / found)], problems.append)))
    return Demo(folder / found, done, forest, problems)


@pytest.fixture(scope="module")
def default_demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    return finished(folder, demo(folder))


def test_the_run_is_one_whole_tree(default_demo: Demo) -> None:
    """All spans of all processes hang together in one trace with one root, none lost, none twice, every id its own."""
    assert default_demo.problems == []
    assert default_demo.forest.duplicates == 0
    (trace,) = default_demo.forest.traces
    (root,) = trace.roots
    assert root.span.name == "demo.run"
    assert [node.problem for node in trace.nodes if node.problem] == []
    assert [node.span.name for node in trace.nodes if node.span.end_ns < node.span.start_ns] == []


def test_each_rank_is_a_process_with_its_own_resource(default_demo: Demo) -> None:
    """Spawned and forked ranks alike: rank, world size, role, pid are their own, the run id is the run's."""
    runs = {json.dumps(node.span.resource.get("nemo.run.id")) for node in default_demo.forest.traces[0].nodes}
    assert len(runs) == 1
    (launcher,) = [node.span.resource for node in default_demo.named("demo.run")]
    assert launcher["nv.dl.role"] == "launcher"
    assert "nv.dl.rank" not in launcher
    ranks = {node.span.resource["nv.dl.rank"]: node.span.resource for node in default_demo.named("train.run")}
    assert sorted(map(str, ranks)) == ["0", "1", "2"]
    for rank, resource in ranks.items():
        assert resource["nv.dl.world_size"] == 3
        assert resource["nv.dl.role"] == "trainer"
        assert resource["service.name"] == "nemo-lens-demo"
        assert str(resource["service.instance.id"]).startswith(f"{launcher['nemo.run.id']}-rank{rank}")
    pids = {resource["process.pid"] for resource in (launcher, *ranks.values())}
    assert len(pids) == 4


def test_spans_carry_what_the_program_says(default_demo: Demo) -> None:
    """Nested groups, the forked checkpoint writer, coroutines, the generator, scoped and computed attributes."""
    assert {default_demo.parent_name(node) for node in default_demo.named("train.run")} == {"demo.run"}
    assert len(default_demo.named("train.step")) == 9
    microbatches = default_demo.named("train.microbatch")
    assert len(microbatches) == 18
    assert {default_demo.parent_name(node) for node in microbatches} == {"train.step"}
    assert {node.span.attributes["dl.iteration"] for node in microbatches} == {0, 1, 2}
    assert {node.span.attributes["dl.microbatch_id"] for node in microbatches} == {0, 1}
    generators = default_demo.named("data.microbatches")
    assert {default_demo.parent_name(node) for node in generators} == {"train.step"}
    assert [node for node in generators if node.children] == []
    (save,) = default_demo.named("checkpoint.save")
    (written,) = default_demo.named("checkpoint.write")
    assert default_demo.parent_name(written) == "checkpoint.save"
    assert written.span.resource["process.pid"] != save.span.resource["process.pid"]
    assert written.span.resource["nv.dl.rank"] == 0
    uploads = default_demo.named("checkpoint.upload")
    assert {default_demo.parent_name(node) for node in uploads} == {"checkpoint.save"}
    assert max(node.span.start_ns for node in uploads) < min(node.span.end_ns for node in uploads)
    assert {node.span.resource["nv.dl.role"] for node in default_demo.named("result.collect")} == {"launcher"}
    assert {default_demo.parent_name(node) for node in default_demo.named("result.collect")} == {"result.send"}


def test_one_microbatch_fails_and_nothing_else(default_demo: Demo) -> None:
    """The error is on the span of the microbatch, once, with its description, and not on what is around it."""
    (failed,) = [node.span for node in default_demo.forest.traces[0].nodes if node.span.status_code == 2]
    assert failed.name == "train.microbatch"
    assert failed.resource["nv.dl.rank"] == 1
    assert failed.status_message == "FloatingPointError: loss is nan at step 1, microbatch 1"
    assert [event.name for event in failed.events] == ["exception"]


def test_receivers_are_linked_to_the_broadcast(default_demo: Demo) -> None:
    """Each receiver's link leads to the span of rank 0, across processes."""
    (sent,) = default_demo.named("weights.broadcast")
    received = default_demo.named("weights.receive")
    assert len(received) == 2
    for node in received:
        (link,) = node.span.links
        assert (link.trace_id, link.span_id) == (sent.span.trace_id, sent.span.span_id)


def test_the_files_are_in_a_new_folder_named_after_the_run(default_demo: Demo) -> None:
    """One file for each process and signal, in a folder of the current one."""
    run_id = default_demo.named("demo.run")[0].span.resource["nemo.run.id"]
    assert default_demo.folder.name == f"nemo-lens-demo-{run_id}"
    names = [path.name for path in default_demo.folder.iterdir()]
    assert all(re.fullmatch(r"(traces|metrics)-rank[x012]-\d+\.jsonl", name) for name in names), names
    assert sum(name.startswith("traces") for name in names) == 5


def test_it_prints_the_tree_and_what_to_do_next(default_demo: Demo) -> None:
    """The merged tree with durations, ranks and the error, then the folder and commands that work."""
    lines = default_demo.done.stdout.splitlines()
    spans = len(default_demo.forest.traces[0].nodes)
    assert re.fullmatch(
        rf"trace [0-9a-f]{{32}}  nemo-lens-demo, run [0-9a-f]{{12}}, {spans} spans, 5 processes, [0-9.]+ m?s, 1 error",
        lines[0],
    )
    assert re.match(r"demo\.run +[0-9.]+ m?s  launcher pid \d+", lines[1])
    assert re.search(
        r"─ train\.microbatch +[0-9.]+ ms  rank 1 trainer pid \d+ +ERROR FloatingPointError: loss is nan",
        default_demo.done.stdout,
    )
    assert default_demo.done.stdout.count("→ link to weights.broadcast (rank 0 trainer pid ") == 2
    assert f"Files: ./{default_demo.folder.name} " in default_demo.done.stdout
    command = next(text.split() for text in lines if text.startswith("  nemo-lens tree"))
    again = subprocess.run(
        [*NEMO_LENS, *command[1:]],
        cwd=default_demo.folder.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert again.stdout.splitlines()[0] == lines[0]
    assert "dl.microbatch_id = 1" in again.stdout


def test_its_hints_answer(default_demo: Demo) -> None:
    """Three steps are too few for a verdict: the hint makes a run that has one, and names its rank and phase."""
    (line,) = [text for text in default_demo.done.stdout.splitlines() if "timeline --summary" in text]
    first, second = (command.split()[1:] for command in line.split(" && "))
    folder = default_demo.folder.parent
    made = demo(folder, *first[1:])
    assert made.returncode == 0, made.stderr
    # Hundreds of lines of a tree would hide what to do next.
    assert re.match(r"\d+ spans, too many to show here: nemo-lens tree \./\S+\n\nFiles: ", made.stdout)
    assert f"  nemo-lens {' '.join(second[:-1])} ./{second[-1]}\n" in made.stdout
    found = subprocess.run(
        [*NEMO_LENS, *second], cwd=folder, env=environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert re.search(r"^Rank 1 .* is slow, in train\.microbatch", found.stdout, re.MULTILINE)


def test_progress_is_plain_lines_where_there_is_no_terminal(default_demo: Demo) -> None:
    """Standard error has a line at the start and one for each rank, and not one warning."""
    lines = default_demo.done.stderr.splitlines()
    assert lines[0] == "nemo-lens demo: starting 3 ranks"
    assert sorted(re.sub(r"rank \d", "rank", text) for text in lines[1:]) == [
        f"nemo-lens demo: rank done, {number} of 3" for number in (1, 2, 3)
    ]


def test_progress_is_one_line_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal one line is rewritten, and gone when the tree is printed."""
    primary, secondary = pty.openpty()
    try:
        process = subprocess.Popen(
            [*NEMO_LENS, "demo", "--steps", "1"],
            cwd=tmp_path,
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=secondary,
        )
        out, _ = process.communicate(timeout=50)
        progress = os.read(primary, 65536).decode()
    finally:
        os.close(primary)
        os.close(secondary)
    assert process.returncode == 0
    assert b"demo.run" in out
    assert "\n" not in progress
    assert "step 3 of 3" in progress
    assert progress.endswith("\r\x1b[K")


def test_the_options_shape_the_run(tmp_path: Path) -> None:
    """More ranks, another number of steps, other groups, a folder of the user's, with characters that patterns use."""
    done = demo(tmp_path, "--ranks", "5", "--steps", "1", "--span-groups", "detailed", "--out", "my {run} 1")
    run = finished(tmp_path, done, "my {run} 1")
    assert {node.span.resource["nv.dl.rank"] for node in run.named("train.run")} == {0, 1, 2, 3, 4}
    assert len(run.named("train.step")) == 5
    assert len(run.named("forward")) == 10
    assert "5 processes" not in done.stdout
    assert "7 processes" in done.stdout


def test_groups_that_are_off_leave_no_span(tmp_path: Path) -> None:
    """With one group only its spans and the ungated root are there, and they still form one tree."""
    run = finished(tmp_path, demo(tmp_path, "--span-groups", "checkpoint", "--steps", "1"))
    (trace,) = run.forest.traces
    assert {node.span.name for node in trace.nodes} == {
        "demo.run",
        "checkpoint.save",
        "checkpoint.write",
        "checkpoint.upload",
    }
    assert [root.span.name for root in trace.roots] == ["demo.run"]


def test_the_surroundings_do_not_leak_in(tmp_path: Path) -> None:
    """Settings and trace context of the shell it is started in change neither the tree nor where the data goes."""
    done = demo(
        tmp_path,
        "--steps",
        "1",
        TRACEPARENT="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        NEMO_LENS_EXPORTER="otlp",
        NEMO_LENS_ENABLED="0",
        NEMO_LENS_SPAN_GROUPS="nothing",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )
    run = finished(tmp_path, done)
    (trace,) = run.forest.traces
    assert trace.trace_id != "4bf92f3577b34da6a3ce929d0e0e4736"
    assert [root.problem for root in trace.roots] == [""]
    assert len(run.named("train.step")) == 3


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OTEL_SDK_DISABLED": "True "}, "OTEL_SDK_DISABLED"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "OTEL_TRACES_SAMPLER"),
    ],
)
def test_an_environment_that_records_nothing_is_named(environ: dict[str, str], message: str, tmp_path: Path) -> None:
    """Telemetry switched off from outside is a failure that says which variable did it, not an empty tree."""
    done = demo(tmp_path, "--steps", "1", **environ)
    assert done.returncode == 1
    assert done.stdout == ""
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "2"], "argument --ranks: '2': expected a whole number from 3 to 64"),
        (["--ranks", "many"], "argument --ranks: 'many': expected a whole number from 3 to 64"),
        (["--steps", "0"], "argument --steps: '0': expected a whole number from 1 to 1000"),
        (
            ["--span-groups", "step,microbach"],
            (
                "argument --span-groups: no group or preset of the demo: 'microbach', did you mean 'microbatch'? "
                "(there are all, default, detailed, minimal, checkpoint, comm, compute, data, microbatch, step)"
            ),
        ),
        (
            ["--span-groups", " , "],
            "argument --span-groups: ' , ' names no group: expected a comma list of all, default",
        ),
        (["--out", "full"], "argument --out: 'full' is not empty: expected a new or an empty folder"),
        (["--out", "full/file"], "argument --out: 'full/file' is no folder: expected a new or an empty one"),
        (["--out", ""], "argument --out: '' is no folder: expected a new or an empty one"),
    ],
)
def test_wrong_options_give_one_clear_error(options: list[str], message: str, tmp_path: Path) -> None:
    """Exit code 2, the option, the value, what is accepted and the nearest name; nothing is started or created."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = demo(tmp_path, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f"nemo-lens demo: error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_an_empty_folder_may_be_given(tmp_path: Path) -> None:
    """``--out`` takes a folder that exists when nothing is in it, and creates the folders above one that does not."""
    (tmp_path / "empty").mkdir()
    finished(tmp_path, demo(tmp_path, "--steps", "1", "--out", "empty"), "empty")
    finished(tmp_path, demo(tmp_path, "--steps", "1", "--out", "a/b"), "a/b")


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    """The reason is told and no rank is started."""
    (tmp_path / "file").touch()
    done = demo(tmp_path, "--out", "file/below")
    assert done.returncode != 0
    assert "file/below" in done.stderr.splitlines()[-1]
    assert "starting" not in done.stderr


def _children(pid: int) -> list[int]:
    """Return the running child processes that are ranks, and not multiprocessing's resource tracker."""
    return [
        child
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _long_demo(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [*NEMO_LENS, "demo", "--steps", "1000"],
        cwd=folder,
        env=environment(OTEL_BSP_SCHEDULE_DELAY="100"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    # A rank has written spans: all are up, since each waits for the weights of rank 0.
    while not list(folder.glob("*/traces-rank2-*.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = _children(process.pid)
    assert len(children) == 3
    return process, children


def _running(pids: list[int]) -> list[int]:
    """Return those that have not ended; a zombie, which nobody has waited for, has."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            running.append(pid)
    return running


def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    """Ctrl-C, which reaches every process of the group, ends it without a traceback and leaves no process behind."""
    process, children = _long_demo(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert err == "nemo-lens demo: starting 3 ranks\n"
    assert _running(children) == []


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    """When the launcher alone is killed, its ranks notice and leave."""
    process, children = _long_demo(tmp_path)
    process.kill()
    process.communicate(timeout=20)
    deadline = time.monotonic() + 20
    while _running(children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_rank_that_dies_ends_the_run(tmp_path: Path) -> None:
    """The message says which rank, the others are ended, and what was recorded stays there to be read."""
    process, children = _long_demo(tmp_path)
    os.kill(children[1], signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert re.search(r"^nemo-lens demo: rank \d ended with exit code -9$", err, re.MULTILINE)
    assert "Traceback" not in err
    assert _running(children) == []
    shown = subprocess.run(
        [*NEMO_LENS, "tree", "."],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert re.search(r"demo\.run .* ERROR RunFailedError: rank \d ended with exit code -9", shown.stdout)
    # The two that were told to end have closed their spans.
    assert len(re.findall(r"train\.run .* trainer .* truncated", shown.stdout)) == 2
