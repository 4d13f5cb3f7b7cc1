"""What OpenTelemetry's OTLP exporters log while a collector refuses: a line of each kind, however often they try."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from process_runs import Finished, Running

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

# A first try, a second one after a delay of about a second, and the batch is given up: two lines a batch.
_TRIES = {
    "OTEL_BSP_SCHEDULE_DELAY": "20",
    "OTEL_BLRP_SCHEDULE_DELAY": "20",
    "OTEL_METRIC_EXPORT_INTERVAL": "20",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1.5",
}
SIGNALS = ("traces", "metrics", "logs")
# Lines are of a kind when they have the same level, template and status, of a logger that may serve all signals.
_Kinds = Counter[tuple[str, str, str, str]]


def lines_of(ended: Finished, pid: int) -> _Kinds:
    """Return how often a process logged what."""
    said = (line[1:] for line in ended.all_facts("line") if line[0] == pid)
    return Counter((*kind, "".join(re.findall(r"StatusCode\.\w+", message))) for *kind, message in said)


def start(scenario: str, receiver: OtlpReceiver, protocol: str, *args: object, **environ: str) -> Running:
    """Start a process whose collector refuses all it sends."""
    receiver.refuse()
    chosen = {"NEMO_LENS_EXPORTER": "otlp", **receiver.environ(protocol), **_TRIES, **environ}
    return Running("exporter_log", scenario, *args, environ=chosen)


def wait_for_tries(receiver: OtlpReceiver, number: int, of: str = "") -> None:
    """Wait until each signal was sent, and refused, so often, with a text in it."""

    def tried(signal: str) -> bool:
        return sum(of in json.dumps(each.payload) for each in receiver.requests(signal)) >= number

    assert receiver.wait_for(lambda: all(map(tried, SIGNALS)), 30)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_refusing_collector_is_one_line_of_a_kind(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """After ten tries of each signal each kind of line was shown, and none of a signal's twice."""
    running = start("tries", otlp_receiver, protocol)
    wait_for_tries(otlp_receiver, 10)
    running.go_on()
    ended = running.finish()
    said = lines_of(ended, ended.all_facts("line")[0][0])
    shared = len(SIGNALS) if protocol == "grpc" else 1
    assert max(said.values()) <= shared, ended.facts
    assert {level for _, level, *_ in said} == {"WARNING", "ERROR"}
    assert "Traceback" not in ended.stderr


def test_a_forked_child_says_its_own(otlp_receiver: OtlpReceiver) -> None:
    """A child shows what its parent has shown, and no more of it."""
    running = start("forks", otlp_receiver, "http/protobuf")
    wait_for_tries(otlp_receiver, 4)
    running.go_on()
    child = running.wait_until("child")
    wait_for_tries(otlp_receiver, 6, of=f'"process.pid", "value": {{"intValue": "{child}"')
    running.go_on()
    ended = running.finish()
    parent = ended.all_facts("line")[0][0]
    assert lines_of(ended, child).keys() == lines_of(ended, parent).keys()
    assert {*lines_of(ended, child).values(), *lines_of(ended, parent).values()} == {1}


def test_an_exporter_of_the_application_says_all(otlp_receiver: OtlpReceiver) -> None:
    """Of five failures of an exporter of the application's own, to the same logger as ours, each is a line."""
    running = start("beside", otlp_receiver, "http/protobuf", 5)
    wait_for_tries(otlp_receiver, 4)
    running.go_on()
    ended = running.finish()
    assert ended.fact("own") == ["FAILURE"] * 5
    errors = [name for _, name, level, *_ in ended.all_facts("line") if level == "ERROR"]
    # One of them is ours.
    assert errors.count("opentelemetry.exporter.otlp.proto.http.trace_exporter") == 6
