"""Nothing arrives: each cause made, its message read, its remedy tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nemo_lens.api
from support.checkouts import environment
from support.otlp_receiver import OtlpReceiver
from support.symptoms import Lab, Symptom, symptom

RUN = """
from nemo_lens.api import setup_telemetry, span_cm
telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
with span_cm("run"):
    pass
telemetry.shutdown()
"""
OFF = ("NEMO_LENS_ENABLED",)


def names(receiver: OtlpReceiver) -> list[str]:
    return [span["name"] for span in receiver.spans()]


def test_the_five_commands(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Where all is well the five commands of the page succeed in order, and show what the page says they show."""
    (tmp_path / "train.py").write_text(RUN)
    commands = Symptom("Nothing arrives").cure().splitlines()
    assert len(commands) == 5
    environ = environment(tmp_path, {"NEMO_LENS_ENABLED": "1", **otlp_receiver.environ("http/protobuf")})
    out = {}
    for command in commands:
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        out[command.split()[1]] = done.stdout
    assert "Telemetry would arrive" in out["doctor"]
    assert names(otlp_receiver) == ["check"]
    assert otlp_receiver.spans()[0]["resource"]["service.name"] == "check"
    assert "run" in out["tree"]


@symptom("Telemetry is off")
def test_off(lab: Lab, case: Symptom) -> None:
    """doctor says that it is off; the variable switches it on."""
    case.seen(lab.command("doctor", NEMO_LENS_ENABLED="").out)
    assert lab.run(RUN, unset=OFF).written.names() == []
    assert lab.run(RUN, unset=OFF, cure=case.cure()).written.names() == ["run"]
    case.absent(lab.command("doctor", NEMO_LENS_ENABLED="", cure="export NEMO_LENS_ENABLED=1").out)


@symptom("A variable is misspelt")
def test_misspelt(lab: Lab, case: Symptom) -> None:
    """The program and doctor name the variable; the right name switches telemetry on."""
    wrong = lab.run(RUN, unset=OFF, NEMO_LENS_ENABLE="1")
    case.seen(wrong.err)
    assert wrong.written.names() == []
    assert "did you mean 'NEMO_LENS_ENABLED'?" in lab.command("doctor", NEMO_LENS_ENABLE="1").out
    right = lab.run(RUN, unset=OFF, NEMO_LENS_ENABLE="1", cure=case.cure())
    case.absent(right.err)
    assert right.written.names() == ["run"]


@symptom("OTEL_SDK_DISABLED is set")
def test_sdk_disabled(lab: Lab, case: Symptom) -> None:
    """doctor names the variable; without it spans are there."""
    case.seen(lab.command("doctor", OTEL_SDK_DISABLED="true").out)
    assert lab.run(RUN, OTEL_SDK_DISABLED="true").written.names() == []
    assert lab.run(RUN, OTEL_SDK_DISABLED="true", cure=case.cure()).written.names() == ["run"]


@symptom("No backend is installed")
def test_no_backend(lab: Lab, case: Symptom, tmp_path: Path) -> None:
    """With the API alone on the path the program says what to install; with the SDK it records."""
    alone = tmp_path / "alone" / "nemo_lens"
    shutil.copytree(Path(nemo_lens.api.__file__ or "").parent, alone / "api")
    code = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-S', '-c', {RUN!r}]).returncode)"
    ended = lab.run(code, PYTHONPATH=str(alone.parent))
    assert ended.code == 0, ended.err
    case.seen(ended.err)
    assert lab.run(RUN).written.names() == ["run"]
    assert sys.executable in lab.command("doctor").out


@symptom("Nothing listens at the endpoint")
def test_refused(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """The program counts what it lost, doctor says that nothing listens; at the collector's address it arrives."""
    nowhere = {"NEMO_LENS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    case.seen(lab.run(RUN, **nowhere, NEMO_LENS_SHUTDOWN_TIMEOUT_MS="300").err)
    case.seen(lab.command("doctor", **nowhere, NEMO_LENS_METRICS_ENABLED="1").out)
    cured = lab.run(RUN, **nowhere, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint))
    case.absent(cured.err)
    assert names(otlp_receiver) == ["run"]


@symptom("A proxy is on the way")
def test_proxy(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """Through a proxy that leads nowhere nothing arrives, and doctor names it; past it everything does."""
    environ = {
        "NEMO_LENS_EXPORTER": "otlp",
        "NEMO_LENS_METRICS_ENABLED": "1",
        **otlp_receiver.environ("http/protobuf"),
        "http_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
        "NO_PROXY": "",
    }
    assert "spans were dropped" in lab.run(RUN, **environ, NEMO_LENS_SHUTDOWN_TIMEOUT_MS="300").err
    assert names(otlp_receiver) == []
    case.seen(lab.command("doctor", **environ).out)
    lab.run(RUN, **environ, cure=case.cure(collector="127.0.0.1"))
    assert names(otlp_receiver) == ["run"]


@symptom("gRPC is spoken to a port for HTTP, or the reverse")
def test_wrong_protocol(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """doctor tells both mistakes; with protocol and port of the same kind it arrives."""
    grpc_to_http = {"NEMO_LENS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_receiver.http_endpoint}
    http_to_grpc = {
        **grpc_to_http,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_receiver.grpc_endpoint,
    }
    assert "spans were dropped" in lab.run(RUN, **grpc_to_http, NEMO_LENS_SHUTDOWN_TIMEOUT_MS="300").err
    case.seen(lab.command("doctor", **grpc_to_http).out, lab.command("doctor", **http_to_grpc).out)
    lab.run(RUN, **grpc_to_http, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint))
    assert names(otlp_receiver) == ["run"]


@symptom("One side speaks TLS and the other does not")
def test_tls(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """doctor says that the receiver speaks no TLS; with the scheme http it arrives."""
    tls = {
        "NEMO_LENS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_receiver.http_endpoint.replace("http:", "https:"),
    }
    case.seen(lab.command("doctor", **tls).out)
    no_scheme = {
        "NEMO_LENS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_receiver.grpc_endpoint.removeprefix("http://"),
    }
    assert "does not speak TLS" in lab.command("doctor", **no_scheme).out
    lab.run(RUN, **tls, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint))
    assert names(otlp_receiver) == ["run"]


@symptom("The receiver answers 401 or 403")
def test_unauthorized(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """The program and doctor say that the receiver wants credentials; with the header it arrives."""
    otlp_receiver.demand_header("authorization", "Bearer TOKEN")
    environ = {"NEMO_LENS_EXPORTER": "otlp", **otlp_receiver.environ("http/protobuf")}
    case.seen(lab.run(RUN, **environ).err, lab.command("doctor", **environ).out)
    cured = lab.run(RUN, **environ, cure=case.cure())
    case.absent(cured.err)
    assert names(otlp_receiver) == ["run"]
    malformed = lab.command("doctor", **environ, OTEL_EXPORTER_OTLP_HEADERS="Bearer TOKEN", cure="")
    assert "OTEL_EXPORTER_OTLP_HEADERS" in malformed.out


@symptom("The receiver answers 404")
def test_no_path(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """doctor says which path is missing; with it spans arrive."""
    environ = {
        "NEMO_LENS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": otlp_receiver.http_endpoint,
    }
    case.seen(lab.run(RUN, **environ).err, lab.command("doctor", **environ).out)
    case.absent(lab.run(RUN, **environ, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint)).err)
    assert names(otlp_receiver) == ["run"]


@symptom("The sampler drops every span")
def test_sampled_out(lab: Lab, case: Symptom) -> None:
    """doctor names the sampler, or the parent that is not sampled; without them spans are there."""
    never = {"OTEL_TRACES_SAMPLER": "always_off"}
    inherited = {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    case.seen(lab.command("doctor", **never).out, lab.command("doctor", **inherited).out)
    assert lab.run(RUN, **never).written.names() == lab.run(RUN, **inherited).written.names() == []
    assert lab.run(RUN, **never, **inherited, cure=case.cure()).written.names() == ["run"]


@symptom("A worker process sends nothing")
def test_spawned_worker(lab: Lab, case: Symptom) -> None:
    """A spawned worker that sets nothing up says so at DEBUG; with the initializer its spans are under the epoch's."""
    cured = case.python()
    broken = cured.replace("setup_telemetry(resource", "logging.basicConfig(level=logging.DEBUG); dict(resource")
    ended = lab.run(
        f"import logging\nfrom nemo_lens.api import get_telemetry\n{broken}".replace(
            "        return number", "        get_telemetry()\n        return number"
        )
    )
    assert ended.code == 0, ended.err
    case.seen(ended.err)
    assert ended.written.names() == ["epoch"]
    ended = lab.run(cured)
    assert ended.written.names() == ["epoch", "load", "load"], ended.err
    epoch = ended.written.span("epoch")
    loads = [span for span in ended.written.spans() if span["name"] == "load"]
    assert {span["parent_id"] for span in loads} == {epoch["span_id"]}
    assert all(span["resource"]["service.instance.id"].startswith("loader-") for span in loads)
