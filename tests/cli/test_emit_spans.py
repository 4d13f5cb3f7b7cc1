"""``nemo-lens emit-spans`` as a launcher runs it: a real process, and real receivers over gRPC and HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from support.all_signals import clean_environ
from support.otlp_decode import Record, spans_of
from support.otlp_receiver import OtlpReceiver

NEMO_LENS = [sys.executable, "-W", "error", "-m", "nemo_lens.sdk.cli"]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
SECOND = 10**9
T = 1_750_000_000
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
# Above the timeout asked for: an interpreter that starts and ends on a machine that has other things to do.
START_AND_END_S = 20.0

Done = subprocess.CompletedProcess[str]


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Give the protocol."""
    return str(request.param)


def emit(*arguments: str | bytes, **environ: str) -> Done:
    """Run the command with these arguments and with no setting of the machine's own."""
    return subprocess.run(
        [*NEMO_LENS, "emit-spans", *arguments],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def spans_for(*records: str) -> list[str]:
    """Return the arguments for these spans."""
    return ["--service", "launcher", *(word for record in records for word in ("--span", record))]


def complaints(done: Done) -> list[str]:
    """Return the lines of stderr without their beginning, which all of them have."""
    start = "nemo-lens emit-spans: "
    lines = done.stderr.splitlines()
    assert all(line.startswith(start) for line in lines), done.stderr
    return [line.removeprefix(start) for line in lines]


def succeeded(done: Done) -> None:
    """Check that it was done, and that nothing was said about it."""
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def refusing_endpoint() -> str:
    """Return a loopback URL where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def by_name(spans: list[Record]) -> dict[str, Record]:
    """Return the spans by their names, of which each must be there once."""
    named = {span["name"]: span for span in spans}
    assert len(named) == len(spans)
    return named


# ---- what arrives


def test_spans_arrive_with_their_parents_and_every_nanosecond(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Parents are given in any order; all is confirmed, exit 0, nothing is printed, and no metric or log is sent."""
    done = emit(
        *spans_for(
            f"load,{T}.000000001,{T + 1}.123456789,stage",
            f'"stage, then load",{T},{T + 9}.5,run',
            f"stage,{T},{T + 2}.999999999,run",
            f"run,{T},{T + 10}",
            f"模型 訓練,{T + 3},{T + 4}",
        ),
        **otlp_receiver.environ(protocol),
    )
    succeeded(done)
    spans = by_name(otlp_receiver.spans())
    assert {name: (span["start"] - T * SECOND, span["end"] - T * SECOND) for name, span in spans.items()} == {
        "run": (0, 10 * SECOND),
        "stage": (0, 3 * SECOND - 1),
        "stage, then load": (0, 9 * SECOND + SECOND // 2),
        "load": (1, SECOND + 123456789),
        "模型 訓練": (3 * SECOND, 4 * SECOND),
    }
    run, stage = spans["run"], spans["stage"]
    assert run["parent_id"] == spans["模型 訓練"]["parent_id"] == ""
    assert stage["parent_id"] == spans["stage, then load"]["parent_id"] == run["span_id"]
    assert spans["load"]["parent_id"] == stage["span_id"]
    assert spans["load"]["trace_id"] == stage["trace_id"] == run["trace_id"] != spans["模型 訓練"]["trace_id"]
    assert {(span["status"], span["kind"], span["scope"]) for span in spans.values()} == {(0, 1, "nemo.lens.helpers")}
    assert all(span["attributes"] == {} for span in spans.values())
    assert {request.signal for request in otlp_receiver.requests()} == {"traces"}
    assert {request.transport for request in otlp_receiver.requests()} == {protocol}


def test_a_chain_of_a_thousand_spans(otlp_receiver: OtlpReceiver) -> None:
    """Each of 1000 spans is the child of the one before it, given last to first and sent in batches of 100.

    The queue has room for 300 of them, and none is dropped for that.
    """
    count = 1000
    records = [f"{place},{T},{T + 1},{place - 1}" for place in range(count - 1, 0, -1)]
    limits = {"OTEL_BSP_MAX_QUEUE_SIZE": "300", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"}
    done = emit(*spans_for(*records, f"0,{T},{T + 1}"), **otlp_receiver.environ("http/protobuf"), **limits)
    succeeded(done)
    spans = by_name(otlp_receiver.spans())
    assert len(spans) == count
    for place in range(1, count):
        assert spans[str(place)]["parent_id"] == spans[str(place - 1)]["span_id"]
    assert len({span["trace_id"] for span in spans.values()}) == 1


def test_the_resource_is_the_launchers(otlp_receiver: OtlpReceiver) -> None:
    """Service, run, host and role are there; the instance is this call's own, and no WARNING asks for a rank."""
    environ = {
        **otlp_receiver.environ("grpc"),
        "NEMO_LENS_RUN_ID": "run-7",
        "OTEL_SERVICE_NAME": "of-the-program",
        "OTEL_RESOURCE_ATTRIBUTES": "team=vision,nv.dl.rank=3,process.pid=1,service.name=of-the-job",
    }
    for _ in range(2):
        succeeded(emit(*spans_for(f"run,{T},{T + 1}"), **environ))
    one, other = (span["resource"] for span in otlp_receiver.spans())
    assert one["service.name"] == "launcher"
    assert one["nemo.run.id"] == "run-7"
    assert one["nv.dl.role"] == "launcher"
    assert one["team"] == "vision"
    assert one["host.name"] == socket.gethostname()
    assert one["process.pid"] != 1
    assert one["service.instance.id"] == f"run-7-launcher-{one['process.pid']}"
    assert other["service.instance.id"] == f"run-7-launcher-{other['process.pid']}"
    assert one["service.instance.id"] != other["service.instance.id"]


def test_an_inherited_role_and_instance_stay(otlp_receiver: OtlpReceiver) -> None:
    """What OTEL_RESOURCE_ATTRIBUTES says about role and instance is not the command's to change."""
    environ = otlp_receiver.environ("grpc")
    environ["OTEL_RESOURCE_ATTRIBUTES"] = "nv.dl.role=stager,service.instance.id=stager-1"
    succeeded(emit(*spans_for(f"run,{T},{T + 1}"), **environ))
    (span,) = otlp_receiver.spans()
    assert span["resource"]["nv.dl.role"] == "stager"
    assert span["resource"]["service.instance.id"] == "stager-1"


def test_traceparent_is_the_parent_of_roots(otlp_receiver: OtlpReceiver) -> None:
    """Spans without a PARENT are children of TRACEPARENT; the others of their own."""
    environ = {**otlp_receiver.environ("grpc"), "TRACEPARENT": f"00-{TRACE}-{PARENT}-01", "TRACESTATE": "vendor=1"}
    succeeded(emit(*spans_for(f"load,{T},{T + 1},run", f"run,{T},{T + 2}"), **environ))
    spans = by_name(otlp_receiver.spans())
    assert {span["trace_id"] for span in spans.values()} == {TRACE}
    assert {span["trace_state"] for span in spans.values()} == {"vendor=1"}
    assert spans["run"]["parent_id"] == PARENT
    assert spans["load"]["parent_id"] == spans["run"]["span_id"]


def test_single_trace_brings_calls_together(otlp_receiver: OtlpReceiver) -> None:
    """With NEMO_LENS_SINGLE_TRACE and one run id, the roots of two calls are in one trace."""
    environ = {**otlp_receiver.environ("grpc"), "NEMO_LENS_SINGLE_TRACE": "1", "NEMO_LENS_RUN_ID": "run-7"}
    for name in ("one", "two"):
        succeeded(emit(*spans_for(f"{name},{T},{T + 1}"), **environ))
    spans = by_name(otlp_receiver.spans())
    assert spans["one"]["trace_id"] == spans["two"]["trace_id"]


def test_an_end_before_its_start_is_told_and_emitted(otlp_receiver: OtlpReceiver) -> None:
    """Two clocks are no error: the end is moved to the start, with evidence, a line on stderr and exit 0."""
    done = emit(*spans_for(f"run,{T}.5,{T}.25"), **otlp_receiver.environ("grpc"))
    assert done.returncode == 0
    assert complaints(done) == ["span 'run' ends 0.25 s before it starts; emitted with its end moved to its start"]
    (span,) = otlp_receiver.spans()
    assert span["start"] == span["end"] == T * SECOND + SECOND // 2
    assert span["attributes"] == {
        "inverted.skew": True,
        "inverted.start_epoch_seconds": f"{T}.5",
        "inverted.end_epoch_seconds": f"{T}.25",
        "inverted.delta_seconds": "-0.25",
    }


def test_names_that_are_no_text_or_too_long(otlp_receiver: OtlpReceiver) -> None:
    """Bytes that are no UTF-8 become U+FFFD, and a name of 100 000 characters is cut, as everywhere in Lens."""
    long = "x" * 100_000
    words = [b"--service", b"caf\xe9", b"--span", b"caf\xe9,1,2", b"--span", f"{long},1,2,caf".encode() + b"\xe9"]
    succeeded(emit(*words, **otlp_receiver.environ("grpc"), PYTHONUTF8="1"))
    spans = by_name(otlp_receiver.spans())
    assert set(spans) == {"caf\ufffd", long[:8192]}
    assert spans[long[:8192]]["parent_id"] == spans["caf\ufffd"]["span_id"]
    assert spans["caf\ufffd"]["resource"]["service.name"] == "caf\ufffd"


@pytest.mark.parametrize("enabled", ["0", "false", "", "perhaps"])
def test_enabled_is_ignored(otlp_receiver: OtlpReceiver, enabled: str) -> None:
    """NEMO_LENS_ENABLED is for programs that may run without telemetry: whoever calls this wants spans."""
    succeeded(emit(*spans_for("run,1,2"), **otlp_receiver.environ("grpc"), NEMO_LENS_ENABLED=enabled))
    assert len(otlp_receiver.spans()) == 1


def test_no_library_is_imported_for_its_span_groups_or_integration(otlp_receiver: OtlpReceiver) -> None:
    """NEMO_LENS_SPAN_GROUPS and NEMO_LENS_INSTRUMENT are for programs, too: no group is pending, nothing missing."""
    environ = {"NEMO_LENS_SPAN_GROUPS": "of-the-program", "NEMO_LENS_INSTRUMENT": "of-the-program"}
    succeeded(emit(*spans_for("run,1,2"), **otlp_receiver.environ("grpc"), **environ))
    assert len(otlp_receiver.spans()) == 1


def test_the_file_exporter_writes_one_file(tmp_path: Path) -> None:
    """NEMO_LENS_EXPORTER=file puts the spans into a file, and prints nothing."""
    pattern = tmp_path / "{signal}-{run_id}-{pid}.jsonl"
    environ = {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": str(pattern), "NEMO_LENS_RUN_ID": "r"}
    succeeded(emit(*spans_for(f"load,{T},{T + 1},run", f"run,{T},{T + 2}"), **environ))
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"traces-r-\d+\.jsonl", path.name)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert set(by_name([span for line in lines for span in spans_of(json.loads(line))])) == {"load", "run"}


def test_the_console_exporter_has_stdout_to_itself() -> None:
    """NEMO_LENS_EXPORTER=console prints one JSON object a span and nothing else."""
    done = emit(*spans_for(f"load,{T},{T + 1},run", f"run,{T},{T + 2}"), NEMO_LENS_EXPORTER="console")
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["run", "load"]


# ---- what is wrong with the input


def test_every_problem_is_told_and_nothing_emitted(otlp_receiver: OtlpReceiver) -> None:
    """A line for each problem of the service and of the spans, exit 1, and no request, though one span is right."""
    done = emit(
        *("--service", " ", "--span", "right,1,2", "--span", "late,1,x", "--span", "a,1,2,b", "--span", "b,1,2,a"),
        *("--span", "right,1,2", "--span", "lost,1,2,rihgt"),
        **otlp_receiver.environ("grpc"),
    )
    assert (done.returncode, done.stdout) == (1, "")
    service, time_, repeated, missing, circle = complaints(done)
    assert service == "--service is ' '; expected the name of the service"
    assert time_.startswith("--span 2 ('late,1,x'): END is 'x'; expected seconds since the epoch")
    assert repeated == "--span 5 ('right,1,2'): the name 'right' is that of --span 1 ('right,1,2'); expected another"
    assert missing.endswith("no --span is named 'rihgt'; expected the NAME of another --span, did you mean 'right'?")
    assert "circle, a -> b -> a;" in circle
    assert otlp_receiver.requests() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --service, --span"),
        (["--service", "s"], "the following arguments are required: --span"),
        (["--span", "a,1,2"], "the following arguments are required: --service"),
        (["--service", "s", "--span"], "argument --span: expected one argument"),
        (["--service", "s", "--span", "a,1,2", "--parent", "b"], "unrecognized arguments: --parent b"),
        (["--service", "s", "--span", "a,1,2", "b,1,2"], "unrecognized arguments: b,1,2"),
        *(
            (
                ["--service", "s", "--span", "a,1,2", f"--timeout-ms={text}"],
                f"argument --timeout-ms: {text!r}: expected a whole number of milliseconds from 1 to 86400000",
            )
            for text in ("0", "-1", "1.5", "soon", "86400001", "9" * 50)
        ),
    ],
)
def test_wrong_arguments_give_1(arguments: list[str], message: str) -> None:
    """Exit 2 is a failed export and nothing else: what a script got wrong is 1, its options too."""
    done = emit(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: nemo-lens emit-spans ")
    assert done.stderr.splitlines()[-1] == f"nemo-lens emit-spans: error: {message}"


def test_help_gives_0() -> None:
    """``--help`` says what the command does and how it ends."""
    done = emit("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "exit codes: 0 done; 1 invalid input or configuration, nothing emitted; 2 export failed" in done.stdout


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NEMO_LENS_EXPORTER": "otpl"}, "NEMO_LENS_EXPORTER='otpl': expected one of otlp, console, file"),
        ({"NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "soon"}, "NEMO_LENS_SHUTDOWN_TIMEOUT_MS='soon': expected a whole number"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL='http/json': expected grpc or"),
        ({"OTEL_TRACES_SAMPLER": "always"}, "OTEL_TRACES_SAMPLER='always' is no sampler"),
        ({"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": "/dev/null/x"}, "NEMO_LENS_FILE_PATH='/dev/null/x': "),
    ],
)
def test_a_bad_configuration_gives_1(environ: dict[str, str], message: str) -> None:
    """One line names the variable, its value and what is accepted."""
    done = emit(*spans_for("run,1,2"), **environ)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = complaints(done)
    assert line.startswith(message)


def test_what_is_said_can_be_shown_anywhere() -> None:
    """Escape sequences and bytes that are no text reach no terminal, and a stream of ASCII takes everything."""
    done = emit(b"--service", b"s", b"--span", b"\x1b[31m\xff,1,2,\xe6\xa8\xa1", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    (line,) = complaints(done)
    assert line.startswith(r"--span 1 ('\x1b[31m\udcff,1,2,")
    assert line.isascii()
    assert line.isprintable()


# ---- switched off, and not sampled


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OTEL_SDK_DISABLED": " True"}, "OTEL_SDK_DISABLED=true: nothing is exported"),
        ({"NEMO_LENS_TRACES_ENABLED": "0"}, "NEMO_LENS_TRACES_ENABLED is off: nothing is exported"),
    ],
)
def test_an_operator_can_switch_it_off(otlp_receiver: OtlpReceiver, environ: dict[str, str], message: str) -> None:
    """Telemetry or spans off by wish is no failure: exit 0, so that no script ends for it, and a line that says so.

    The input is checked all the same.
    """
    done = emit(*spans_for("run,1,2"), **otlp_receiver.environ("grpc"), **environ)
    assert (done.returncode, done.stdout, complaints(done)) == (0, "", [message])
    assert emit(*spans_for("run,1,x"), **environ).returncode == 1
    assert otlp_receiver.requests() == []


@pytest.mark.parametrize("environ", [{"OTEL_TRACES_SAMPLER": "always_off"}, {"TRACEPARENT": f"00-{TRACE}-{PARENT}-00"}])
def test_what_is_not_sampled_is_counted(otlp_receiver: OtlpReceiver, environ: dict[str, str]) -> None:
    """A sampler that leaves spans out is a setting and no failure: exit 0, and how many on stderr."""
    done = emit(*spans_for("run,1,2", "load,1,2,run"), **otlp_receiver.environ("grpc"), **environ)
    assert done.returncode == 0
    assert complaints(done) == [
        "2 of 2 spans were not sampled, and so not exported, as OTEL_TRACES_SAMPLER or the flags of TRACEPARENT have it"
    ]
    assert otlp_receiver.spans() == []


# ---- exports that fail


def failed(done: Done, elapsed_s: float, timeout_ms: int) -> list[str]:
    """Check that it failed, and not long after its timeout; return what was said."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert elapsed_s < timeout_ms / 1000 + START_AND_END_S
    return complaints(done)


@pytest.mark.parametrize("kind", ["nothing listens", "unavailable", "hangs"])
def test_a_dead_collector_gives_2_within_the_timeout(otlp_receiver: OtlpReceiver, protocol: str, kind: str) -> None:
    """Refused, unavailable or silent for a second: exit 2 then, with the endpoint and what is known about it.

    The exporter alone would try for ten seconds, and wait for an answer as long.
    """
    environ = otlp_receiver.environ(protocol)
    if kind == "nothing listens":
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = refusing_endpoint()
    elif kind == "unavailable":
        otlp_receiver.refuse()
    else:
        otlp_receiver.hang()
    environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"
    started = time.monotonic()
    done = emit(*spans_for("run,1,2", "load,1,2,run"), "--timeout-ms", "1000", **environ)
    said = failed(done, time.monotonic() - started, 1000)
    target = environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + ("" if protocol == "grpc" else "/v1/traces")
    verdict = f"export failed: {target} did not confirm all spans"
    assert said[-2] == "2 spans were dropped: the exporter did not confirm them"
    if kind == "nothing listens":
        # OpenTelemetry's HTTP exporter tries again only since 1.39, and only since then does gRPC's say more.
        assert said[-1] in (verdict, f"{verdict} within 1000 ms (--timeout-ms)")
        assert re.search("Connection refused|UNAVAILABLE", "\n".join(said[:-2])), said
    else:
        assert said[-1] == f"{verdict} within 1000 ms (--timeout-ms)"
        assert kind == "hangs" or any("retrying" in line for line in said[:-2]), said


def test_the_timeout_of_the_configuration_is_the_default(otlp_receiver: OtlpReceiver) -> None:
    """Without ``--timeout-ms`` it is NEMO_LENS_SHUTDOWN_TIMEOUT_MS, and the option wins over the variable."""
    otlp_receiver.hang()
    environ = {**otlp_receiver.environ("http/protobuf"), "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "300"}
    started = time.monotonic()
    said = failed(emit(*spans_for("run,1,2"), **environ), time.monotonic() - started, 300)
    assert said[-1].endswith("did not confirm all spans within 300 ms (--timeout-ms)")
    otlp_receiver.delay(1.0)
    succeeded(emit(*spans_for("run,1,2"), "--timeout-ms", "30000", **environ))


def test_a_collector_that_says_no_is_not_waited_for(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """An answer that is final, a header that is missing for one, ends it at once, with the answer."""
    otlp_receiver.demand_header("authorization", "Bearer x")
    started = time.monotonic()
    done = emit(*spans_for("run,1,2"), "--timeout-ms", "600000", **otlp_receiver.environ(protocol))
    said = failed(done, time.monotonic() - started, 0)
    assert re.search("UNAUTHENTICATED|401|Unauthorized", "\n".join(said))
    assert said[-1].startswith("export failed: http://127.0.0.1:")
    assert said[-1].endswith(" did not confirm all spans")
    assert otlp_receiver.spans() == []


def test_a_part_that_is_lost_is_not_covered_up(otlp_receiver: OtlpReceiver) -> None:
    """The export of the first batch fails for good, and later ones would not: exit 2, however it went on.

    A batch that the command did not wait for any longer counts as lost, and may yet arrive.
    """
    otlp_receiver.refuse(http_status=400, grpc_status=grpc.StatusCode.INVALID_ARGUMENT)
    process = subprocess.Popen(
        [*NEMO_LENS, "emit-spans", *spans_for(*(f"{place},1,2" for place in range(2000)))],
        env=clean_environ({**otlp_receiver.environ("http/protobuf"), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert otlp_receiver.wait_for(otlp_receiver.requests, 40)
    otlp_receiver.accept()
    _, err = process.communicate(timeout=40)
    assert process.returncode == 2, err
    lost = int(re.search(r"(\d+) spans were dropped", err)[1])  # type: ignore[index]
    assert lost > 0
    assert len(otlp_receiver.spans()) - (2000 - lost) in (0, 1)


def test_a_file_that_cannot_be_written_gives_2(tmp_path: Path) -> None:
    """A disk that is full is known only when it is written to: a failed export, and the file is named."""
    environ = {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": "/dev/full"}
    done = emit(*spans_for("run,1,2"), **environ)
    assert done.returncode == 2
    said = complaints(done)
    assert any("No space left on device" in line for line in said), said
    assert said[-1] == "export failed: /dev/full did not confirm all spans"


@pytest.fixture
def plugged(tmp_path: Path) -> dict[str, str]:
    """Install a distribution with a backend that fails for one name and one that does not load; give the variable."""
    (tmp_path / "plug.py").write_text(
        "from nemo_lens.sdk.backend import OtelBackend\n"
        "class Fussy(OtelBackend):\n"
        "    def start_span(self, name, *rest, **more):\n"
        "        return super().start_span(name, *rest, **more) if name != 'bad' else 1 / 0\n"
        "BACKEND = Fussy()\n"
    )
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nemo_lens.backend]\nfussy = plug:BACKEND\nbroken = plug:ABSENT\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_a_span_that_a_plug_in_fails_for_gives_2(otlp_receiver: OtlpReceiver, plugged: dict[str, str]) -> None:
    """A backend that raises costs its span, which is told; the others arrive, its child as a root."""
    environ = {**otlp_receiver.environ("grpc"), **plugged, "NEMO_LENS_BACKEND": "fussy"}
    done = emit(*spans_for("child,1,2,bad", "bad,1,2,run", "run,1,2"), **environ)
    assert done.returncode == 2
    assert complaints(done) == ["export failed: 1 of 3 spans could not be made, by a fault of a plug-in"]
    assert set(by_name(otlp_receiver.spans())) == {"child", "run"}


def test_a_backend_that_does_not_load_gives_2(otlp_receiver: OtlpReceiver, plugged: dict[str, str]) -> None:
    """Without a backend nothing leaves the process, and that is no success."""
    done = emit(*spans_for("run,1,2"), **otlp_receiver.environ("grpc"), **plugged, NEMO_LENS_BACKEND="broken")
    assert done.returncode == 2
    said = complaints(done)
    assert "'broken'" in said[0]
    assert said[-1] == "export failed: no telemetry backend could be loaded (nemo-lens doctor says more)"
    assert otlp_receiver.requests() == []


def test_an_interrupt_ends_the_waiting(otlp_receiver: OtlpReceiver) -> None:
    """Ctrl-C while a collector hangs: exit 130 at once and no traceback, whatever is left of the timeout."""
    otlp_receiver.hang()
    process = subprocess.Popen(
        [*NEMO_LENS, "emit-spans", *spans_for("run,1,2"), "--timeout-ms", "600000"],
        env=clean_environ({**otlp_receiver.environ("http/protobuf"), "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert otlp_receiver.wait_for(otlp_receiver.requests, 40)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=START_AND_END_S)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err


# ---- the guide


@pytest.mark.parametrize("status", [0, 3])
def test_the_launcher_of_the_guide(otlp_receiver: OtlpReceiver, tmp_path: Path, status: int) -> None:
    """The script of docs/command-line.md runs as it stands, exits as its program does, and its spans arrive."""
    section = DOCS.read_text(encoding="utf-8").partition("\n## emit-spans\n")[2].partition("\n## ")[0]
    (script,) = re.findall(r"^```bash\n(.*?)^```$", section, flags=re.M | re.S)
    (tmp_path / "launch.sh").write_text(script, encoding="utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shard").write_text("1")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "nemo-lens").write_text(f'#!/bin/sh\nexec {sys.executable} -m nemo_lens.sdk.cli "$@"\n')
    (commands / "nemo-lens").chmod(0o755)
    environ = {
        **otlp_receiver.environ("http/protobuf"),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "DATA": str(tmp_path / "data"),
        "SCRATCH": str(tmp_path / "scratch"),
    }
    before = time.time_ns()
    done = subprocess.run(
        ["bash", "launch.sh", "sh", "-c", f'test "$(cat "$SCRATCH/shard")" = 1 && exit {status}'],
        cwd=tmp_path,
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    spans = by_name(otlp_receiver.spans())
    assert set(spans) == {"launch", "stage data", "train"}
    launch, stage, train = spans["launch"], spans["stage data"], spans["train"]
    assert stage["parent_id"] == train["parent_id"] == launch["span_id"]
    assert before < launch["start"] == stage["start"] <= stage["end"] == train["start"] <= train["end"] == launch["end"]
    assert launch["end"] < time.time_ns()
    assert launch["resource"]["service.name"] == "launch.sh"
