"""Partial success: what a receiver takes and does not keep is counted as lost, and said."""

from __future__ import annotations

import http.server
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk._compat import succeeded
from nemo_lens.sdk.exporters import Signal, plan_exporter, rejected_of
from support.http_serving import serving
from support.otlp_decode import Record, points_of
from support.otlp_receiver import OtlpReceiver
from support.said import said_by
from support.telemetry_samples import samples

_PROGRAM = Path(__file__).parent.parent / "support" / "programs" / "self_metrics.py"
_PROTOCOLS = ["grpc", "http/protobuf"]
_ITEMS = {"traces": "spans", "metrics": "data points", "logs": "log records"}
_WHY = "older than an hour"


@pytest.fixture(autouse=True)
def _first_time() -> None:
    _diagnostics.forget_reported()


def run(environ: Mapping[str, str]) -> tuple[Record, str]:
    """Export 3 spans, a log record and metrics, then 2 spans; return what was said, and the standard error."""
    (said,), errors = said_by("-W", "error", str(_PROGRAM), "healthy", environ=environ)
    return said, errors


def counted(receiver: OtlpReceiver) -> dict[tuple[str, str], Any]:
    """Return what the last collection says of exporters: name and error.type to value."""
    points = points_of(receiver.requests("metrics")[-1].payload)
    return {
        (point["name"].removeprefix("otel.sdk.exporter."), point["attributes"].get("error.type", "")): point["value"]
        for point in points
        if point["name"].endswith(".exported")
    }


def exporter_to(environ: Mapping[str, str], signal: Signal = "traces") -> Any:
    """Return an exporter as the pipes have it."""
    return plan_exporter(signal, NemoLensConfig(exporter="otlp"), run_id="run", rank=0, environ=environ).make()


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_what_is_rejected_is_no_success(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """One of 3 spans, one of 2, the log record and a point of each collection: lost, by the reason ``rejected``.

    A flush says so, a WARNING for each signal says why, and the shutdown says how many were lost.
    """
    otlp_receiver.reject(1, _WHY)
    said, errors = run(otlp_receiver.environ(protocol))
    assert said["flushed"][0] is False
    found = counted(otlp_receiver)
    assert (found["span.exported", ""], found["span.exported", "rejected"]) == (3, 2)
    assert (found["log.exported", ""], found["log.exported", "rejected"]) == (0, 1)
    *before, _ = (len(list(points_of(request.payload))) for request in otlp_receiver.requests("metrics"))
    assert found["metric_data_point.exported", "rejected"] == len(before)
    assert found["metric_data_point.exported", ""] == sum(before) - len(before)
    assert {value for (_, reason), value in found.items() if reason == "_OTHER"} == {0}
    for signal, items in _ITEMS.items():
        (warning,) = (line for line in errors.splitlines() if f"exporter otlp of {signal} " in line)
        assert warning.endswith(f"the receiver rejected 1 {items}: {_WHY}")
    assert "2 spans were dropped: the exporter did not confirm them" in errors


def test_more_than_was_sent_cannot_be_rejected(otlp_receiver: OtlpReceiver) -> None:
    """A receiver that counts wrong, or sends nonsense, takes no more from the counts than there was."""
    otlp_receiver.reject(2**40, "")
    _, errors = run(otlp_receiver.environ("http/protobuf"))
    found = counted(otlp_receiver)
    assert (found["span.exported", ""], found["span.exported", "rejected"]) == (0, 5)
    assert found["metric_data_point.exported", ""] == 0
    assert "it does not say why" in errors


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_warning_of_the_receiver_is_said(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """An answer with a message that rejects nothing is a success, and the message is said once."""
    otlp_receiver.reject(0, "spans without a service")
    said, errors = run(otlp_receiver.environ(protocol))
    assert said["flushed"] == [True, True]
    assert ("span.exported", "rejected") not in counted(otlp_receiver)
    assert errors.count("the receiver warns: spans without a service") == len(get_args(Signal))


def test_each_export_is_judged_alone(otlp_receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture) -> None:
    """What one export lost is not held against the next, also not when that one fails."""
    exporter = exporter_to({**otlp_receiver.environ("http/protobuf"), "OTEL_EXPORTER_OTLP_TIMEOUT": "2"})
    otlp_receiver.reject(1, _WHY)
    assert succeeded(exporter.export(samples().traces))
    assert rejected_of(exporter) == 1
    otlp_receiver.refuse(400)
    assert not succeeded(exporter.export(samples().traces))
    assert rejected_of(exporter) == 0
    otlp_receiver.accept()
    assert succeeded(exporter.export(samples().traces))
    assert rejected_of(exporter) == 0
    exporter.shutdown()


def test_answers_are_heard_on_a_channel_made_again(
    otlp_receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failure that makes the gRPC exporter connect anew, what the receiver rejects is still counted."""
    exporter = exporter_to({**otlp_receiver.environ("grpc"), "OTEL_EXPORTER_OTLP_TIMEOUT": "3"})
    otlp_receiver.refuse()
    assert not succeeded(exporter.export(samples().traces))
    otlp_receiver.reject(1, _WHY)
    assert succeeded(exporter.export(samples().traces))
    assert rejected_of(exporter) == 1
    exporter.shutdown()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"\n\x02\x08\x01"),
        ("application/json", b"{}"),
        ("application/x-protobuf", b"\xff\xff"),
        ("application/x-protobuf", b""),
        ("", b"ok"),
    ],
)
def test_an_answer_that_is_none_changes_nothing(kind: str, body: bytes) -> None:
    """Receivers that answer 200 with something else than OTLP's message have taken what was sent."""
    with answering(kind, body) as endpoint:
        exporter = exporter_to(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        )
        assert succeeded(exporter.export(samples().traces))
        assert rejected_of(exporter) == 0
        exporter.shutdown()


@pytest.mark.parametrize("status", [301, 302, 303, 304])
def test_a_redirect_is_no_success(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """What a receiver redirects, to a login page for instance, is lost, and the redirect is said."""
    with answering("text/html", b"log in", status=status) as endpoint:
        exporter = exporter_to(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        )
        assert not succeeded(exporter.export(samples().traces))
        exporter.shutdown()
    assert f"redirects to another address ({status})" in caplog.text


def test_a_redirect_that_delivers_is_followed_or_a_failure() -> None:
    """A success means that the address that a receiver redirects to was given the spans."""
    given: list[int] = []
    with answering("", b"", status=307, given=given) as endpoint:
        exporter = exporter_to(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        )
        # Newer exporters do not follow it.
        assert succeeded(exporter.export(samples().traces)) == (len(given) == 1)
        exporter.shutdown()


def test_a_session_with_credentials_is_not_replaced(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Where a credential provider of OpenTelemetry gives the session, the exports carry its header."""
    info = tmp_path / "provider-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opentelemetry_otlp_credential_provider]\nmine = otlp_provider:session\n")
    (tmp_path / "otlp_provider.py").write_text(
        "import requests\n"
        "def session():\n"
        "    made = requests.Session()\n"
        "    made.headers['x-mine'] = 'yes'\n"
        "    return made\n"
    )
    otlp_receiver.demand_header("x-mine", "yes")
    environ = {"OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER": "mine", "PYTHONPATH": str(tmp_path)}
    run({**otlp_receiver.environ("http/protobuf"), **environ})
    assert [request.accepted for request in otlp_receiver.requests("traces")] == [True, True]


@contextmanager
def answering(kind: str, body: bytes, status: int = 200, given: list[int] | None = None) -> Iterator[str]:
    """Run an HTTP server; give its URL.

    Args:
        kind: content type of each answer; blank for none.
        body: of each answer.
        status: of the answer to an export; where it redirects, all is redirected to the same page, which answers 200.
        given: where lengths of what that page is sent are added.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/page":
                self._answer(status)
                return
            if given is not None:
                given.append(len(sent))
            self._answer(200)

        def do_GET(self) -> None:
            self._answer(200)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/page")
            if status == 304:  # has no body
                self.end_headers()
                return
            if kind:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output to the test."""

    with serving(Handler) as url:
        yield url
