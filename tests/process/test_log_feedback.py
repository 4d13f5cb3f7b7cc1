"""The logging bridge on the root logger over exporters that fail: each record once, in time, and no loop."""

from __future__ import annotations

from collections import Counter

import grpc
import pytest
from process_runs import Finished, Written, hanging_endpoint, refusing_endpoint, run

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

THREADS, EACH = 4, 50
FIRST = [f"first {thread} {number}" for thread in range(THREADS) for number in range(EACH)]
ALL = [*FIRST, *(body.replace("first", "second") for body in FIRST)]
# One batch takes all; the interval gives a loop many chances.
_ENVIRON = {
    "OTEL_BLRP_SCHEDULE_DELAY": "20",
    "OTEL_BLRP_MAX_QUEUE_SIZE": "4096",
    "OTEL_EXPORTER_OTLP_INSECURE": "true",
}


def check_ended(ended: Finished, of_application: int) -> None:
    """No logging call hung or raised, and the application's own handler had every record, once."""
    assert ended.code == 0, ended.stderr
    assert set(ended.all_facts("stuck")) == {0}, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.fact("application") == of_application


def check_loss(ended: Finished) -> None:
    """The loss of all the application's records is told, once and exactly."""
    told = [message for message in ended.fact("of_lens") if "were dropped" in message]
    assert told == [f"{len(ALL)} log records were dropped: the exporter did not confirm them"]


@pytest.mark.parametrize("how", ["refuses", "raises", "hangs"])
def test_a_failing_exporter_that_logs_is_given_each_record_once(how: str) -> None:
    """An exporter that logs about its failure, on a logger of its own, under a lock that logging threads take.

    Each of the application's records reaches it once and none of its own, nothing goes round in a loop, every call
    returns in its time, and the loss is told exactly.
    """
    ended = run("feedback", "third_party", how, environ=_ENVIRON)
    check_ended(ended, len(ALL))
    bodies = Counter(ended.fact("bodies"))
    if how == "hangs":
        assert set(bodies.values()) == {1}
        assert set(bodies) <= set(ALL)
    else:
        assert bodies == Counter(ALL)
    assert ended.fact("own") > 0
    assert ended.fact("later_calls") == 0
    assert max(ended.all_facts("flush_s")) < 0.5 + 0.5
    assert ended.fact("shutdown_s") < 1 + 0.5
    check_loss(ended)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_refusing_collector_is_sent_each_record_once(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A collector that refuses for good gets each record of the application once, and nothing about its refusals.

    With every logger at DEBUG, those of the exporter and its transport included.
    """
    otlp_receiver.refuse(http_status=400, grpc_status=grpc.StatusCode.INVALID_ARGUMENT)
    ended = run("feedback", "over_otlp", 10_000, environ={**_ENVIRON, **otlp_receiver.environ(protocol)})
    check_ended(ended, len(ALL))
    requests = otlp_receiver.requests("logs")
    assert not any(request.accepted for request in requests)
    otlp_receiver.accept()
    bodies = Counter(
        record["body"]["stringValue"]
        for request in requests
        for of_resource in request.payload["resourceLogs"]
        for of_scope in of_resource["scopeLogs"]
        for record in of_scope["logRecords"]
    )
    assert bodies == Counter(ALL)
    assert any(name.startswith("opentelemetry") for name in ended.fact("others"))
    check_loss(ended)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("collector", ["refusing", "hanging"])
def test_a_dead_collector_holds_nothing_up(protocol: str, collector: str) -> None:
    """Nobody listens, or nobody answers: logging calls and the shutdown return, and the loss is exact."""
    with hanging_endpoint() as hanging:
        endpoint = hanging if collector == "hanging" else refusing_endpoint()
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        ended = run("feedback", "over_otlp", 600, environ={**_ENVIRON, **environ})
    check_ended(ended, len(ALL))
    assert ended.fact("shutdown_s") < 0.6 + 0.5
    check_loss(ended)


def test_a_hosts_failing_exporter_meets_no_deadlock(written: Written) -> None:
    """A host's provider exports in the logging thread, fails, and logs, under a lock that logging threads hold.

    The host's exporter and ours are given each record of the application's once, and none about the failures.
    """
    ended = run("feedback", "host", environ={**_ENVIRON, **written.environ})
    assert ended.code == 0, ended.stderr
    assert ended.all_facts("stuck") == [0]
    assert ended.fact("application") == len(FIRST)
    assert ended.fact("own") == len(FIRST)
    assert Counter(ended.fact("bodies")) == Counter(FIRST)
    assert Counter(log["body"] for log in written.logs()) == Counter(FIRST)
