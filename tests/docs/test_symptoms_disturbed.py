"""The job is disturbed: each cause made, its message read, its remedy tried."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.otlp_receiver import OtlpReceiver
from support.pytest_runs import outcomes, run_suite
from support.symptoms import Lab, Symptom, symptom

RUN = """
from nemo_lens.api import setup_telemetry, span_cm
with setup_telemetry(resource_attributes={"nv.dl.rank": 0}), span_cm("run"):
    pass
"""


@symptom("setup_telemetry raises ValueError")
def test_value_error(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """A setting that cannot work is one error that names it, and doctor finds it; the right one works."""
    environ = {
        "NEMO_LENS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
    }
    ended = lab.run(RUN, **environ)
    assert ended.code == 1
    case.seen(ended.err)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT='collector:4318': expected" in lab.command("doctor", **environ).out
    cured = lab.run(RUN, **environ, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint))
    assert (cured.code, [span["name"] for span in otlp_receiver.spans()]) == (0, ["run"])


@symptom("setup_telemetry raises RuntimeError")
def test_runtime_error(lab: Lab, case: Symptom) -> None:
    """The second set-up is an error; the handle of the first is there for whoever asks."""
    ended = lab.run("from nemo_lens.api import setup_telemetry\nsetup_telemetry()\nsetup_telemetry()\n")
    assert ended.code == 1
    case.seen(ended.err)
    cured = lab.run(case.python())
    assert cured.code == 0, cured.err
    case.absent(cured.err)


@symptom("An integration could not be switched on")
def test_unknown_integration(lab: Lab, case: Symptom) -> None:
    """It is said with the nearest name, and the job runs on."""
    ended = lab.run(RUN, NEMO_LENS_INSTRUMENT="rai")
    case.seen(ended.err)
    assert (ended.code, ended.written.names()) == (0, ["run"])


@symptom("The job takes seconds to end")
def test_slow_end(lab: Lab, case: Symptom) -> None:
    """A collector that hangs holds the end up for the timeout in all, and no longer; a shorter one is kept as well."""
    code = f"""
import time
{RUN.replace("with setup", "began = time.monotonic()" + chr(10) + "with setup")}
print(time.monotonic() - began)
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        environ = {
            "NEMO_LENS_EXPORTER": "otlp",
            "NEMO_LENS_METRICS_ENABLED": "1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        default = lab.run(code, **environ, NEMO_LENS_SHUTDOWN_TIMEOUT_MS="")
        case.seen(default.err)
        cured = lab.run(code, **environ, cure=case.cure())
    assert 4.5 < float(default.out) < 20
    assert float(cured.out) < float(default.out) - 2


@symptom("The log has lines of OpenTelemetry's exporter")
def test_noisy_exporter(lab: Lab, case: Symptom) -> None:
    """A collector that is away is one line, however often it is tried; silenced, what was lost is still said."""
    environ = {"NEMO_LENS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    work = "\nfrom nemo_lens.api import span_cm\nwith span_cm('run'):\n    pass\n"
    for protocol in ("grpc", "http/protobuf"):
        away = {**environ, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "1000"}
        # Time for a second try, a second after the first.
        patient = {**away, "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "2500"}
        noisy = lab.run(f"from nemo_lens.api import setup_telemetry\nsetup_telemetry(){work}", **patient)
        assert noisy.err.count("Transient error") == 1
        quiet = lab.run(case.python() + work, **away)
        case.absent(quiet.err)
        assert "1 spans were dropped" in quiet.err
    case.seen(noisy.err)


@symptom("A test fails because telemetry is on")
@pytest.mark.timeout(120)
def test_pytest_plugin(case: Symptom, tmp_path: Path) -> None:
    """The fixture says that telemetry is on already; once it is shut down, the next test has telemetry of its own."""
    suite = """
from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry

setup_telemetry(NemoLensConfig(enabled=True, exporter="console"))

def test_step(nemo_lens_telemetry):
    pass

def test_plain():
    get_telemetry().shutdown()

def test_next(nemo_lens_telemetry):
    pass
"""
    done = run_suite(tmp_path, suite)
    assert outcomes(done) == {"test_step": "error", "test_plain": "passed", "test_next": "passed"}, done.stdout
    case.seen(done.stdout)
