"""Collectors that refuse, hang in TCP or hang in the call: shutdown, exit and flush keep their limits all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from process_runs import Finished, hanging_endpoint, refusing_endpoint, run, warnings_of

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

SPANS, LOGS = 3000, 100
# Room for all of them, so that what is lost is lost to the collector.
_ENVIRON = {"OTEL_BSP_MAX_QUEUE_SIZE": "4096", "OTEL_EXPORTER_OTLP_INSECURE": "true"}
# What the specification grants a shutdown beyond its timeout, and an exit in all.
ALLOWANCE_S, EXIT_S = 0.5, 1.0


@pytest.fixture(params=["refusing", "silent", "never answering"])
def endpoint(request: pytest.FixtureRequest, otlp_receiver: OtlpReceiver, protocol: str) -> Iterator[str]:
    """Give the endpoint of a collector that takes nothing."""
    if request.param == "refusing":
        yield refusing_endpoint()
    elif request.param == "silent":
        with hanging_endpoint() as url:
            yield url
    else:
        otlp_receiver.hang()
        yield otlp_receiver.endpoint(protocol)


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Give the protocol."""
    return str(request.param)


def _run(scenario: str, endpoint: str, protocol: str) -> Finished:
    ended = run(
        "lives",
        scenario,
        environ={**_ENVIRON, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol},
    )
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def test_shutdown_keeps_its_timeout_and_counts_what_was_lost(endpoint: str, protocol: str) -> None:
    """3000 queued spans and three signals: ``shutdown(1000)`` returns within 1.5 s and says what was dropped.

    The process then ends within a second more, with exit code 0.
    """
    ended = _run("shuts_down_dead", endpoint, protocol)
    assert ended.fact("shutdown_s") < 1 + ALLOWANCE_S
    assert ended.ended_at - ended.fact("ending") < EXIT_S
    assert len(warnings_of(ended.stderr, f"{SPANS} spans were dropped")) == 1, ended.stderr
    assert len(warnings_of(ended.stderr, f"{LOGS} log records were dropped")) == 1, ended.stderr


def test_exit_without_a_shutdown_is_bounded(endpoint: str, protocol: str) -> None:
    """The shutdown at exit has the configured timeout, one second here, and the process ends within a second more."""
    ended = _run("exits_dead", endpoint, protocol)
    assert ended.ended_at - ended.fact("ending") < 1 + ALLOWANCE_S + EXIT_S
    assert len(warnings_of(ended.stderr, f"{SPANS} spans were dropped")) == 1, ended.stderr


def test_a_flush_is_bounded(endpoint: str, protocol: str) -> None:
    """``force_flush(400)`` returns False in time, also while an earlier flush still hangs."""
    ended = _run("flushes_dead", endpoint, protocol)
    assert ended.all_facts("confirmed") == [False, False]
    assert max(ended.all_facts("flush_s")) < 0.4 + ALLOWANCE_S


def test_a_flush_beside_a_shutdown_ends_with_it() -> None:
    """A flush, or a second shutdown, that another thread's shutdown overtakes ends with it."""
    with hanging_endpoint() as url:
        ended = _run("flushes_while_closing", url, "http/protobuf")
    assert ended.fact("flush_s") < 5
    assert ended.fact("second_shutdown_s") < 5


def test_a_forked_child_with_a_last_span_at_exit_is_bounded() -> None:
    """A child that queues its first span in its last moment, when Python starts no more threads, ends in time."""
    with hanging_endpoint() as url:
        ended = _run("forked_end", url, "http/protobuf")
    assert ended.fact("child_ended") - ended.fact("ending") < 1 + ALLOWANCE_S + EXIT_S
