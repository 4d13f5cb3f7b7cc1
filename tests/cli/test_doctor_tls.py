"""``nemo-lens doctor`` where one side speaks TLS and the other does not, or does not trust it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi
import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from support.doctor_run import Run, doctor, environment
from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")

PROTOCOLS = ("grpc", "http/protobuf")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    out = ["-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run([*command.split(), *out], check=True, capture_output=True, timeout=50)
    return files


@contextmanager
def receiver(protocol: str, files: tuple[Path, Path], *, of_clients: bool = False) -> Iterator[int]:
    """Receive traces over TLS on a free port."""
    serve = _grpc if protocol == "grpc" else _http
    with serve(files, of_clients) as port:
        yield port


@contextmanager
def _grpc(files: tuple[Path, Path], of_clients: bool) -> Iterator[int]:
    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: object, context: object) -> object:  # noqa: N802 - the service's name
            return trace_service_pb2.ExportTraceServiceResponse()

    certificate, key = (file.read_bytes() for file in files)
    credentials = grpc.ssl_server_credentials([(key, certificate)], certificate if of_clients else None, of_clients)
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=0)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def _http(files: tuple[Path, Path], of_clients: bool) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    if of_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files[0])
    server = _Server(("127.0.0.1", 0), _Handler)
    # The handshake belongs to the thread of the connection, or one that stalls would stall all.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def traces(endpoint: str, protocol: str, **variables: str) -> tuple[Run, str]:
    run = doctor(
        OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        NEMO_LENS_METRICS_ENABLED="0",
        NEMO_LENS_LOGS_ENABLED="0",
        **variables,
    )
    return run, run.outcomes()["traces"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_on_one_side_only(otlp_receiver: OtlpReceiver, certificate: tuple[Path, Path], protocol: str) -> None:
    """Plain text spoken to TLS, and TLS to plain text, each with the scheme that would be right."""
    with receiver(protocol, certificate) as port:
        run, outcome = traces(f"http://localhost:{port}", protocol)
    assert (run.code, outcome) == (1, "tls_expected")
    assert "https://" in run.finding("tls_expected")["remedy"]
    run, outcome = traces(otlp_receiver.endpoint(protocol).replace("http:", "https:"), protocol)
    assert (run.code, outcome) == (1, "tls_unexpected")
    assert "http://" in run.finding("tls_unexpected")["remedy"]


def test_a_grpc_target_without_a_scheme(otlp_receiver: OtlpReceiver) -> None:
    """It means TLS, which few people know."""
    run, outcome = traces(otlp_receiver.grpc_endpoint.removeprefix("http://"), "grpc")
    assert (run.code, outcome) == (1, "tls_unexpected")
    run, outcome = traces(
        otlp_receiver.grpc_endpoint.removeprefix("http://"), "grpc", OTEL_EXPORTER_OTLP_INSECURE="true"
    )
    assert (run.code, outcome) == (0, "arrives")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_certificate(certificate: tuple[Path, Path], protocol: str) -> None:
    """One that is not trusted, one of another host, and one that is in order."""
    trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate[0])}
    with receiver(protocol, certificate) as port:
        run, outcome = traces(f"https://localhost:{port}", protocol)
        assert (run.code, outcome) == (1, "tls_certificate")
        assert "self-signed" in run.finding("tls_certificate")["message"].replace("self signed", "self-signed")
        assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in run.finding("tls_certificate")["remedy"]
        run, outcome = traces(f"https://127.0.0.1:{port}", protocol, **trusted)
        assert (run.code, outcome) == (1, "tls_certificate")
        assert "mismatch" in run.finding("tls_certificate")["message"]
        run, outcome = traces(f"https://localhost:{port}", protocol, **trusted)
        assert (run.code, outcome) == (0, "arrives")


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_authorities_of_requests(certificate: tuple[Path, Path], tmp_path: Path, variable: str) -> None:
    """The variables of requests stand in for OpenTelemetry's, which wins over them; what judged is named."""
    other = tmp_path / "other.pem"
    other.write_bytes(Path(certifi.where()).read_bytes())
    with receiver("http/protobuf", certificate) as port:
        run, outcome = traces(f"https://localhost:{port}", "http/protobuf", **{variable: str(certificate[0])})
        assert (run.code, outcome) == (0, "arrives")
        run, outcome = traces(f"https://localhost:{port}", "http/protobuf", **{variable: str(other)})
        assert (run.code, outcome) == (1, "tls_certificate")
        assert f"by what {variable} names" in run.finding("tls_certificate")["message"]
        run, outcome = traces(f"https://localhost:{port}", "http/protobuf", **{variable: str(tmp_path / "gone.pem")})
        assert (run.code, outcome) == (1, "tls_certificate")
        assert f"by what {variable} names: there is no" in run.finding("tls_certificate")["message"]
        trusted = {"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": str(certificate[0])}
        run, outcome = traces(f"https://localhost:{port}", "http/protobuf", **{variable: str(other)}, **trusted)
        assert (run.code, outcome) == (0, "arrives")
        wrong = {"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": str(other)}
        run, outcome = traces(f"https://localhost:{port}", "http/protobuf", **{variable: str(certificate[0])}, **wrong)
        assert (run.code, outcome) == (1, "tls_certificate")
        found = run.finding("tls_certificate")
        assert "by what OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE names" in found["message"]
        assert found["remedy"].startswith("set OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE to")


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_set_up_trusts_what_opentelemetry_names(certificate: tuple[Path, Path], variable: str) -> None:
    """A job exports to a receiver of a private authority, whatever other programs of the image are told to trust."""
    program = (
        "from nemo_lens.api import setup_telemetry, span_cm\n"
        "telemetry = setup_telemetry(resource_attributes={'nv.dl.rank': 0})\n"
        "with span_cm('step'): pass\n"
        "print(telemetry.force_flush(20_000))\n"
        "telemetry.shutdown(100)\n"
    )
    with receiver("http/protobuf", certificate) as port:
        environ = environment(
            NEMO_LENS_ENABLED="1",
            NEMO_LENS_METRICS_ENABLED="0",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"https://localhost:{port}",
            OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate[0]),
            **{variable: certifi.where()},
        )
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_certificate_of_the_client(certificate: tuple[Path, Path], protocol: str) -> None:
    """A receiver that admits nobody without one, and one that is shown it."""
    trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate[0])}
    with receiver(protocol, certificate, of_clients=True) as port:
        run, outcome = traces(f"https://localhost:{port}", protocol, **trusted)
        assert (run.code, outcome) == (1, "tls_client_certificate")
        run, outcome = traces(
            f"https://localhost:{port}",
            protocol,
            **trusted,
            OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=str(certificate[0]),
            OTEL_EXPORTER_OTLP_CLIENT_KEY=str(certificate[1]),
        )
        assert (run.code, outcome) == (0, "arrives")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_wrong_protocol_under_tls(certificate: tuple[Path, Path], protocol: str) -> None:
    """TLS does not hide which protocol is spoken."""
    other = PROTOCOLS[1 - PROTOCOLS.index(protocol)]
    with receiver(other, certificate) as port:
        run, outcome = traces(f"https://localhost:{port}", protocol, OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate[0]))
    assert (run.code, outcome) == (1, "wrong_protocol")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_signal_that_is_not_taken(certificate: tuple[Path, Path], protocol: str) -> None:
    """A receiver of traces alone: metrics do not arrive, and the receiver is not taken for something else."""
    with receiver(protocol, certificate) as port:
        run = doctor(
            OTEL_EXPORTER_OTLP_ENDPOINT=f"https://localhost:{port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate[0]),
            NEMO_LENS_LOGS_ENABLED="0",
        )
    assert run.code == 1
    assert run.outcomes() == {"traces": "arrives", "metrics": "signal_not_accepted", "logs": "off"}
    assert "NEMO_LENS_METRICS_ENABLED=0" in run.finding("signal_not_accepted")["remedy"]
