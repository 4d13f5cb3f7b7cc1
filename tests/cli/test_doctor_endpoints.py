"""``nemo-lens doctor`` against receivers that are real, healthy or not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from support.doctor_run import Run, doctor
from support.http_serving import serving
from support.otlp_receiver import OtlpReceiver, running_receiver

PROTOCOLS = ("grpc", "http/protobuf")
OTHER = {"grpc": "http/protobuf", "http/protobuf": "grpc"}
SIGNALS = ["traces", "metrics", "logs"]
TOKEN = "sesame-open-4711"  # what a test's receiver demands


def all_of(outcome: str) -> dict[str, str]:
    return dict.fromkeys(SIGNALS, outcome)


def address(endpoint: str) -> str:
    return endpoint.partition("//")[2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_healthy_receiver(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """An export of each signal arrives: exit 0, with the time it took, and what was sent holds nothing."""
    run = doctor(**otlp_receiver.environ(protocol))
    assert run.code == 0
    assert run.report["arrives"] is True
    assert run.outcomes() == all_of("arrives")
    found = run.finding("arrives")
    assert (found["level"], found["signals"], found["remedy"]) == ("ok", SIGNALS, "")
    assert address(otlp_receiver.endpoint(protocol)) in found["message"]
    for way in run.report["endpoints"]:
        assert way["transport"] == protocol
        assert way["round_trip_ms"] > 0
    requests = otlp_receiver.requests()
    assert sorted(request.signal for request in requests) == sorted(SIGNALS)
    assert {request.transport for request in requests} == {protocol}
    assert otlp_receiver.spans() == otlp_receiver.points() == otlp_receiver.logs() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_listening(protocol: str) -> None:
    """A refused connection is told from everything else, and the variable to change is named."""
    with running_receiver() as receiver:
        variables = receiver.environ(protocol)
    run = doctor(**variables)
    assert run.code == 1
    assert run.outcomes() == all_of("refused")
    found = run.finding("refused")
    assert found["level"] == "problem"
    assert address(variables["OTEL_EXPORTER_OTLP_ENDPOINT"]) in found["message"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in found["remedy"]


def test_a_receiver_on_the_default_port() -> None:
    """Where nothing listens on one default port, and the other one is answered, the settings for that are given."""
    with web_server(200, {}, ("127.0.0.2", 4318)) as url:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.2:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert (run.code, run.outcomes()) == (1, all_of("refused"))
    remedy = run.finding("refused")["remedy"]
    assert f"set OTEL_EXPORTER_OTLP_ENDPOINT={url} and OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in remedy


def test_no_endpoint_set() -> None:
    """Where nobody set an endpoint, it says that it is the default that was tried."""
    run = doctor(NEMO_LENS_METRICS_ENABLED="0", NEMO_LENS_LOGS_ENABLED="0", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    (way,) = [way for way in run.report["endpoints"] if way["signal"] == "traces"]
    assert (way["endpoint"], way["endpoint_origin"]) == ("http://localhost:4317", "default")
    assert run.outcomes() == {"traces": way["outcome"], "metrics": "off", "logs": "off"}


@pytest.mark.parametrize("spoken", PROTOCOLS)
def test_the_wrong_protocol(otlp_receiver: OtlpReceiver, spoken: str) -> None:
    """Each protocol spoken to the other's port is recognised, because the other one was tried and answered."""
    other = OTHER[spoken]
    run = doctor(OTEL_EXPORTER_OTLP_PROTOCOL=spoken, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_receiver.endpoint(other))
    assert run.code == 1
    assert run.outcomes() == all_of("wrong_protocol")
    found = run.finding("wrong_protocol")
    assert f"speaks {other}, and {spoken} is spoken to it" in found["message"]
    assert f"OTEL_EXPORTER_OTLP_PROTOCOL={other}" in found["remedy"]


def test_the_wrong_protocol_of_one_signal(otlp_receiver: OtlpReceiver) -> None:
    """The variable of the signal is named when it is the one in force, and the other signals arrive."""
    variables = {**otlp_receiver.environ("grpc"), "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    run = doctor(**variables)
    assert run.code == 1
    assert run.outcomes() == {**all_of("arrives"), "traces": "wrong_protocol"}
    assert run.finding("wrong_protocol")["signals"] == ["traces"]
    assert "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc" in run.finding("wrong_protocol")["remedy"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_demanded_header(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Without, with a wrong and with the right header; its value is never shown."""
    otlp_receiver.demand_header("authorization", f"Bearer {TOKEN}")
    variables = otlp_receiver.environ(protocol)
    without = doctor(**variables)
    assert (without.code, without.outcomes()) == (1, all_of("unauthenticated"))
    assert "no header is configured" in without.finding("unauthenticated")["message"]
    assert "OTEL_EXPORTER_OTLP_HEADERS" in without.finding("unauthenticated")["remedy"]

    wrong = doctor(**variables, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20not-the-word")
    assert (wrong.code, wrong.outcomes()) == (1, all_of("unauthenticated"))
    assert "OTEL_EXPORTER_OTLP_HEADERS sends authorization" in wrong.finding("unauthenticated")["message"]
    assert "not-the-word" not in wrong.stdout + wrong.stderr

    right = doctor(**variables, OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{TOKEN}")
    assert (right.code, right.outcomes()) == (0, all_of("arrives"))
    assert TOKEN not in right.stdout + right.stderr
    assert right.report["endpoints"][0]["headers"] == {"authorization": "[REDACTED]"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_forbidden_export(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """403 and PERMISSION_DENIED are no want of credentials."""
    otlp_receiver.refuse(403, grpc.StatusCode.PERMISSION_DENIED)
    run = doctor(**otlp_receiver.environ(protocol))
    assert (run.code, run.outcomes()) == (1, all_of("forbidden"))


@pytest.mark.parametrize(
    ("http_status", "grpc_status"),
    [(503, grpc.StatusCode.UNAVAILABLE), (429, grpc.StatusCode.RESOURCE_EXHAUSTED), (500, grpc.StatusCode.INTERNAL)],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_collector_that_is_unwell(
    otlp_receiver: OtlpReceiver, protocol: str, http_status: int, grpc_status: grpc.StatusCode
) -> None:
    """A collector that is there and refuses for now is a warning: exit 0, at once and without another attempt."""
    otlp_receiver.refuse(http_status, grpc_status)
    run = doctor(**otlp_receiver.environ(protocol))
    assert (run.code, run.outcomes()) == (0, all_of("unwell"))
    status = grpc_status.name if protocol == "grpc" else str(http_status)
    assert status in run.finding("unwell")["message"]
    assert len(otlp_receiver.requests()) == 3


def test_a_receiver_that_wants_no_empty_export(otlp_receiver: OtlpReceiver) -> None:
    """400 to a request without content says nothing about requests with some: a warning."""
    otlp_receiver.refuse(400, grpc.StatusCode.INVALID_ARGUMENT)
    for protocol in PROTOCOLS:
        run = doctor(**otlp_receiver.environ(protocol))
        assert (run.code, run.outcomes()) == (0, all_of("empty_refused"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hanging_collector(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """One that never answers holds doctor up for no longer than its steps may take."""
    otlp_receiver.hang()
    start = time.monotonic()
    run = doctor("--timeout-ms", "400", **otlp_receiver.environ(protocol))
    assert time.monotonic() - start < 30
    assert (run.code, run.outcomes()) == (1, all_of("no_answer"))
    found = run.finding("no_answer")
    assert "within 400 ms" in found["message"]
    assert "--timeout-ms" in found["remedy"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_slow_collector(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """One that is slower than the default arrives when it is given longer."""
    otlp_receiver.delay(2.5)
    run = doctor("--timeout-ms", "15000", **otlp_receiver.environ(protocol))
    assert (run.code, run.outcomes()) == (0, all_of("arrives"))
    assert all(way["round_trip_ms"] >= 2500 for way in run.report["endpoints"])


def test_a_signal_endpoint_without_its_path(otlp_receiver: OtlpReceiver) -> None:
    """The variable of a signal is taken as it stands, so it needs the path: found out by trying the right one."""
    variables = otlp_receiver.environ("http/protobuf")
    run = doctor(**variables, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=otlp_receiver.http_endpoint)
    assert run.code == 1
    assert run.outcomes() == {**all_of("arrives"), "metrics": "wrong_path"}
    remedy = run.finding("wrong_path")["remedy"]
    assert f"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT={otlp_receiver.http_endpoint}/v1/metrics" in remedy


def test_a_name_that_does_not_resolve() -> None:
    """A wrong host name is told from a host that is not there."""
    run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector.invalid:4317")
    assert (run.code, run.outcomes()) == (1, all_of("name_not_resolved"))
    assert "collector.invalid does not resolve" in run.finding("name_not_resolved")["message"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_of_something_else(protocol: str) -> None:
    """What is no OTLP receiver is quoted: a server that greets first, and a web server."""
    with listening(greet(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    assert (run.code, run.outcomes()) == (1, all_of("not_otlp"))
    assert "SSH-2.0-OpenSSH_9.2" in run.finding("not_otlp")["message"]
    with web_server(404, {}) as url:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    assert (run.code, run.outcomes()) == (1, all_of("not_otlp"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_that_is_silent(protocol: str) -> None:
    """A server that takes connections and says nothing does not hold doctor up."""
    with listening(swallow) as port:
        run = doctor(
            "--timeout-ms",
            "300",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )
    assert (run.code, run.outcomes()) == (1, all_of("no_answer"))


def test_a_login_page() -> None:
    """A redirect and a web page are no receipt, whatever the exporter makes of them."""
    with web_server(302, {"Location": "https://login.invalid/"}) as url:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")
    assert (run.code, run.outcomes()) == (1, all_of("redirected"))
    with web_server(200, {"Content-Type": "text/html; charset=utf-8"}) as url:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")
    assert (run.code, run.outcomes()) == (1, all_of("not_otlp"))


@pytest.mark.parametrize(
    ("kind", "body", "outcome"),
    [
        ("application/json", b'{"ok": true}', "not_otlp"),
        ("application/json", b"", "not_otlp"),
        ("application/json", b"{}", "arrives"),
        ("application/json; charset=utf-8", b'{"partialSuccess": {}}', "arrives"),
        ("text/plain; charset=utf-8", b"OK", "not_otlp"),
        ("", b"OK", "not_otlp"),
        ("", b"", "arrives"),
        ("application/octet-stream", b"\x0a\x00", "arrives"),
        ("application/x-protobuf", b"", "arrives"),
    ],
)
def test_a_web_server_that_is_content_with_anything(kind: str, body: bytes, outcome: str) -> None:
    """200 alone is no receipt: OTLP's answer is protobuf, whose type some receivers leave out."""
    with web_server(200, {"Content-Type": kind} if kind else {}, body=body) as url:
        run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")
    assert (run.code, run.outcomes()) == (int(outcome != "arrives"), all_of(outcome))
    if kind and outcome != "arrives":
        assert kind.partition(";")[0] in run.finding("not_otlp")["message"]


def test_a_unix_socket(tmp_path: Path) -> None:
    """gRPC speaks TLS to it unless it is told not to, and that is what is advised when the receiver is healthy."""
    with grpc_on(f"unix:{tmp_path}/otel.sock") as endpoint:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NEMO_LENS_METRICS_ENABLED": "0"}
        run = doctor(**variables, NEMO_LENS_LOGS_ENABLED="0")
        assert (run.code, run.outcomes()["traces"]) == (1, "tls_unexpected")
        assert run.finding("tls_unexpected")["remedy"].startswith("set OTEL_EXPORTER_OTLP_INSECURE=true")
        run = doctor(**variables, NEMO_LENS_LOGS_ENABLED="0", OTEL_EXPORTER_OTLP_INSECURE="true")
        assert (run.code, run.outcomes()["traces"]) == (0, "arrives")
    run = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=f"unix:{tmp_path}/none.sock")
    assert (run.code, run.outcomes()) == (1, all_of("failed"))


def test_advice_about_endpoints_names_the_variables_of_the_prefix(tmp_path: Path) -> None:
    """A signal that a receiver does not take is switched off under the application's own prefix."""
    with grpc_on("127.0.0.1:0") as endpoint:
        run = doctor(
            "--prefix",
            "ACME",
            ACME_ENABLED="1",
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_INSECURE="true",
        )
    assert run.outcomes() == {"traces": "arrives", "metrics": "signal_not_accepted", "logs": "off"}
    assert "set ACME_METRICS_ENABLED=0" in run.finding("signal_not_accepted")["remedy"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_on_the_way(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A proxy that fails is blamed by the variable that names it, and not where the host is exempt from it."""
    with listening(lambda connection: None) as port:
        proxy = f"http://127.0.0.1:{port}"
    variables = otlp_receiver.environ(protocol)
    run = doctor(**variables, http_proxy=proxy)
    assert (run.code, run.outcomes()) == (1, all_of("proxy"))
    assert "http_proxy" in run.finding("proxy")["message"]
    run = doctor(**variables, http_proxy=proxy, no_proxy="127.0.0.1")
    assert (run.code, run.outcomes()) == (0, all_of("arrives"))


def test_telemetry_that_is_off_is_tried_all_the_same(otlp_receiver: OtlpReceiver) -> None:
    """Before switching telemetry on, one wants to know whether it would work."""
    for off in ({"NEMO_LENS_ENABLED": ""}, {"OTEL_SDK_DISABLED": " True "}):
        run = doctor(**otlp_receiver.environ("grpc"), **off)
        assert (run.code, run.outcomes()) == (1, all_of("arrives"))
        assert run.problems() == ["telemetry_off"]
        assert next(iter(off)) in run.finding("telemetry_off")["message"]


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    """What set-up would raise is a problem of the signal it belongs to."""
    run = doctor(OTEL_EXPORTER_OTLP_PROTOCOL="http/json", OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="http://a b")
    assert (run.code, run.outcomes()) == (1, all_of("bad_setting"))
    assert "OTEL_EXPORTER_OTLP_PROTOCOL='http/json'" in run.findings("bad_setting")[0]["message"]
    run = doctor(NEMO_LENS_EXPORTER="otpl", OTEL_METRIC_EXPORT_INTERVAL="soon")
    assert "did you mean 'otlp'" in run.findings("bad_setting")[-1]["message"]
    assert any("OTEL_METRIC_EXPORT_INTERVAL='soon'" in found["message"] for found in run.findings("bad_setting"))


def test_the_file_exporter(tmp_path: Path) -> None:
    """The files that would be written are named, and none is; a folder that cannot be made is a problem."""
    run = doctor(cwd=tmp_path, NEMO_LENS_EXPORTER="file", NEMO_LENS_RUN_ID="r1")
    assert (run.code, run.outcomes()) == (0, all_of("writable"))
    (way,) = [way for way in run.report["endpoints"] if way["signal"] == "traces"]
    assert way["endpoint"] == str(tmp_path / "nemo-lens" / "r1" / "traces-rankx-{pid}.jsonl")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").write_text("")
    run = doctor(cwd=tmp_path, NEMO_LENS_EXPORTER="file", NEMO_LENS_FILE_PATH="taken/{signal}.jsonl")
    assert (run.code, run.outcomes()) == (1, all_of("bad_setting"))
    assert "NEMO_LENS_FILE_PATH" in run.findings("bad_setting")[0]["message"]


def doctor_on_a_disk(folder: Path, total: int, free: int) -> Run:
    """Run doctor with files on a disk that says so many bytes of itself."""
    script = folder / "start.py"
    script.write_text(
        "import collections, shutil, sys\n"
        f"shutil.disk_usage = lambda path: collections.namedtuple('usage', 'total used free')({total}, 1, {free})\n"
        "from nemo_lens.sdk.cli import main\nsys.exit(main())\n"
    )
    return doctor(python=(str(script),), cwd=folder, NEMO_LENS_EXPORTER="file")


@pytest.mark.parametrize(("free", "code", "found"), [(24 * 1024, 1, "no_space"), (50 * 1024**2, 0, "little_space")])
def test_a_disk_without_room(tmp_path: Path, free: int, code: int, found: str) -> None:
    """Full is a problem: what is exported would be lost; nearly full is a warning. Each says what to do."""
    run = doctor_on_a_disk(tmp_path, 10**12, free)
    assert (run.code, run.outcomes()) == (code, all_of("no_space" if code else "writable"))
    assert run.finding(found)["signals"] == ["traces", "metrics", "logs"]
    assert "make room, or set NEMO_LENS_FILE_PATH" in run.finding(found)["remedy"]


def test_a_disk_that_does_not_say_its_room(tmp_path: Path) -> None:
    """A file system that reports 0 of 0 bytes, as some of FUSE do, is not taken for full."""
    run = doctor_on_a_disk(tmp_path, 0, 0)
    assert (run.code, run.outcomes()) == (0, all_of("writable"))
    assert not run.findings("little_space")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("header", ["token=s3cret%ff", "token=s3cret%0Ax", "to%20ken=s3cret", "a=b,c=s3cret%E2%82%AC"])
def test_a_header_that_cannot_be_sent(protocol: str, header: str) -> None:
    """Set-up refuses it, since no export could leave the process, and doctor says which, and not what it holds."""
    run = doctor(OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_EXPORTER_OTLP_HEADERS=header)
    assert (run.code, run.outcomes()) == (1, all_of("bad_setting"))
    message = run.finding("bad_setting")["message"]
    assert message.startswith("OTEL_EXPORTER_OTLP_HEADERS: ")
    assert "s3cret" not in run.stdout


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    """The file exporter's default name is relative: it says that, and what to set; an absolute name needs no folder."""
    gone = tmp_path / "gone"
    gone.mkdir()
    # A script, as the installed command is one: with -c, Python 3.13.0 fails by itself in a folder that is gone.
    script = tmp_path / "start.py"
    script.write_text(
        f"import os, sys\nos.chdir({str(gone)!r})\nos.rmdir({str(gone)!r})\n"
        "from nemo_lens.sdk.cli import main\nsys.exit(main())\n"
    )
    run = doctor(python=(str(script),), NEMO_LENS_EXPORTER="file")
    assert (run.code, run.outcomes()) == (1, all_of("bad_setting"))
    message = run.finding("bad_setting")["message"]
    assert "working directory is gone" in message
    assert "NEMO_LENS_FILE_PATH" in message
    gone.mkdir()
    run = doctor(python=(str(script),), NEMO_LENS_EXPORTER="file", NEMO_LENS_FILE_PATH=f"{tmp_path}/{{signal}}.jsonl")
    assert (run.code, run.outcomes()) == (0, all_of("writable"))


def test_the_console_exporter() -> None:
    """Standard output is always there."""
    run = doctor(NEMO_LENS_EXPORTER="console")
    assert (run.code, run.outcomes()) == (0, all_of("console"))


def test_grpc_fork_support(otlp_receiver: OtlpReceiver) -> None:
    """The variable with which gRPC hangs forked processes is a warning where gRPC is used, and only there."""
    run = doctor(**otlp_receiver.environ("grpc"), GRPC_ENABLE_FORK_SUPPORT="1")
    assert (run.code, run.finding("grpc_fork_support")["level"]) == (0, "warning")
    run = doctor(**otlp_receiver.environ("http/protobuf"), GRPC_ENABLE_FORK_SUPPORT="1")
    assert run.findings("grpc_fork_support") == []


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """Listen on a free port of 127.0.0.1 and hand each connection to ``serve``, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    serve(connection)
                    time.sleep(0.2)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def swallow(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def greet(text: bytes) -> Callable[[socket.socket], object]:
    return lambda connection: (connection.sendall(text), connection.recv(100))


@contextmanager
def grpc_on(address: str) -> Iterator[str]:
    """Receive traces in plain text."""

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: object, context: object) -> object:  # noqa: N802 - the service's name
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield address.replace(":0", f":{port}")
    finally:
        server.stop(grace=0)


@contextmanager
def web_server(
    status: int, headers: dict[str, str], where: tuple[str, int] = ("127.0.0.1", 0), body: bytes = b""
) -> Iterator[str]:
    """Answer every request alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(Handler, where) as url:
        yield url
