"""Real services under uvicorn and real aiohttp clients, in processes of their own: one trace at a real receiver."""

from __future__ import annotations

import inspect
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("opentelemetry.instrumentation.fastapi")
pytest.importorskip("opentelemetry.instrumentation.aiohttp_client")
pytest.importorskip("uvicorn")

import fastapi
from process_runs import Finished, Running, run

from support.all_signals import clean_environ

if TYPE_CHECKING:
    from support.otlp_decode import Record
    from support.otlp_receiver import OtlpReceiver

PROGRAMS = Path(__file__).parent / "programs"
SERVICE, CLIENT = str(PROGRAMS / "web_service"), str(PROGRAMS / "web_client")
INTERNAL, SERVER, CLIENT_KIND = 1, 2, 3


@pytest.fixture
def environ(otlp_receiver: OtlpReceiver) -> dict[str, str]:
    """Give the environment that switches telemetry on and sends it to the receiver."""
    return {
        **otlp_receiver.environ("http/protobuf"),
        "NEMO_LENS_ENABLED": "1",
        "NEMO_LENS_SPAN_GROUPS": "all",
        "NEMO_LENS_RUN_ID": "run-1",
    }


@contextmanager
def service(scenario: str, *args: str, environ: Mapping[str, str]) -> Iterator[list[int]]:
    """Run a service; give its ports, and end it by SIGTERM."""
    running = Running(SERVICE, scenario, *args, environ=environ)
    try:
        ports = [running.wait_until("port")]
        if scenario == "prefork":
            ports.append(running.wait_until("port"))
        for port in ports:
            wait_for_port(port)
        yield ports
    finally:
        if scenario == "prefork":
            running.go_on()
        else:
            running.send(signal.SIGTERM)
        ended = running.finish()
    assert "Traceback" not in ended.stderr, ended.stderr
    if scenario == "prefork":
        assert ended.fact("codes") == [-signal.SIGTERM] * 2


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def call(environ: Mapping[str, str], *urls: str) -> Finished:
    done = run(CLIENT, "call", *urls, environ={**environ, "NEMO_LENS_INSTRUMENT": "aiohttp"})
    assert done.code == 0, done.stderr
    return done


def children(spans: list[Record], parent: Record | None) -> list[Record]:
    wanted = "" if parent is None else parent["span_id"]
    return sorted((span for span in spans if span["parent_id"] == wanted), key=lambda span: span["start"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scenario", ["before", "lifespan", "workers", "prefork", "everywhere", "everywhere_lifespan"])
def test_client_and_service_are_one_trace(scenario: str, environ: dict[str, str], otlp_receiver: OtlpReceiver) -> None:
    """The client's span, its request, the service's request and the work in it are one trace, each the child of the
    one before, across the processes and however the service is set up; a request of a worker is that worker's."""
    instrumented = {"NEMO_LENS_INSTRUMENT": "fastapi"} if scenario.startswith("everywhere") else {}
    with service(scenario, environ={**environ, **instrumented}) as ports:
        urls = [f"http://127.0.0.1:{port}/batch/{number}" for number, port in enumerate(ports)]
        client = call(environ, *urls)
    spans = otlp_receiver.spans()
    assert len(spans) == 1 + 3 * len(urls)
    assert len({span["trace_id"] for span in spans}) == 1
    (root,) = children(spans, None)
    assert root["name"] == "call"
    requests = children(spans, root)
    assert [(span["name"], span["kind"]) for span in requests] == [("GET", CLIENT_KIND)] * len(urls)
    for number, request in enumerate(requests):
        (served,) = children(spans, request)
        (work,) = children(spans, served)
        assert (served["name"], served["kind"]) == ("GET /batch/{number}", SERVER)
        assert (work["name"], work["kind"], work["attributes"]["number"]) == ("work", INTERNAL, number)
        pids = [span["resource"]["process.pid"] for span in (request, served, work)]
        assert pids == [client.fact("pid"), *[answer_pid(client, number)] * 2]
    points = {(point["name"], point["scope"]) for point in otlp_receiver.points()}
    scopes = {scope.rpartition(".")[2] for name, scope in points if name.startswith("http.")}
    assert scopes == {"aiohttp_client", "fastapi"}


def answer_pid(client: Finished, number: int) -> Any:
    return json.loads(client.fact("answers")[number])["pid"]


@pytest.mark.timeout(120)
def test_urls_excluded_by_the_environment(environ: dict[str, str], otlp_receiver: OtlpReceiver) -> None:
    """``OTEL_PYTHON_FASTAPI_EXCLUDED_URLS`` leaves health checks out."""
    with service("lifespan", environ={**environ, "OTEL_PYTHON_FASTAPI_EXCLUDED_URLS": "/health"}) as (port,):
        call(environ, f"http://127.0.0.1:{port}/health", f"http://127.0.0.1:{port}/batch/1")
    served = [span["name"] for span in otlp_receiver.spans() if span["kind"] == SERVER]
    assert served == ["GET /batch/{number}"]


@pytest.mark.timeout(120)
def test_a_pickled_application_in_another_process(
    environ: dict[str, str], otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """An instrumented application that one process pickles is traced by the process that serves it."""
    pytest.importorskip("cloudpickle")
    path = str(tmp_path / "app.pickle")
    assert run(SERVICE, "pickled", path, environ=environ).fact("pickled")
    with service("unpickled", path, environ=environ) as (port,):
        call(environ, f"http://127.0.0.1:{port}/batch/1")
    assert [span["name"] for span in otlp_receiver.spans() if span["kind"] == SERVER] == ["GET /batch/{number}"]


@pytest.mark.timeout(120)
def test_hostile_bytes_are_answered(environ: dict[str, str], otlp_receiver: OtlpReceiver) -> None:
    """Over a real socket, headers that are cut, padded, huge or no text get their answer, and are nobody's parent."""
    trace_parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    hostile = [
        b"traceparent: " + trace_parent[:-5],
        b"traceparent: " + trace_parent + b"0" * 90,
        b"traceparent: \xff\\x",
        b"traceparent: " + trace_parent + b"\r\nbaggage: a=" + b"x" * 9 * 1024,
        b"traceparent: " + trace_parent + b"\r\ntracestate: a=" + b"x" * 9 * 1024,
        b"baggage: \xff\xfe=%ZZ,\\x",
    ]
    with service("before", environ=environ) as (port,):
        for number, lines in enumerate(hostile):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(b"GET /batch/%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" % number)
                connection.sendall(lines + b"\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200"), lines[:60]
    served = [span for span in otlp_receiver.spans() if span["kind"] == SERVER]
    assert len(served) == len(hostile)
    assert {span["parent_id"] for span in served} == {""}


@pytest.mark.timeout(120)
def test_the_example(environ: dict[str, str], otlp_receiver: OtlpReceiver) -> None:
    """The example of the guide runs as it stands, on and off; on, its spans are the tree that it shows."""
    if "lifespan" not in inspect.signature(fastapi.FastAPI.__init__).parameters:
        pytest.skip("this FastAPI takes no lifespan")
    example = str(Path(__file__).parents[2] / "docs" / "examples" / "web_service")
    for enabled in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "error", f"{example}.py"],
            env=clean_environ({**environ, "NEMO_LENS_SPAN_GROUPS": "default", "NEMO_LENS_ENABLED": enabled}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "reward 0.25\n"
        spans = otlp_receiver.spans()
        assert len(spans) == (4 if enabled == "1" else 0)
    names: list[str] = []
    parent: Record | None = None
    while found := children(spans, parent):
        (parent,) = found
        names.append(parent["name"])
    assert names == ["ask", "GET", "GET /rewards/{item}", "score"]
