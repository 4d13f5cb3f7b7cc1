"""All signals over OTLP at a receiver on loopback that accepts, demands a header, or answers late."""

from __future__ import annotations

import pytest

from support.all_signals import check_all, send
from support.otlp_receiver import OtlpReceiver

PROTOCOLS = ["grpc", "http/protobuf"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_signal_arrives_once_over_the_protocol(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """All three signals arrive once, over the protocol that the environment names and over no other."""
    sent = send(otlp_receiver.environ(protocol))
    assert {item.transport for item in otlp_receiver.requests()} == {protocol}
    check_all(sent, otlp_receiver.spans(), otlp_receiver.points(), otlp_receiver.logs())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_of_the_environment_are_sent(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """``OTEL_EXPORTER_OTLP_HEADERS`` reaches a receiver that demands a header, on every signal."""
    otlp_receiver.demand_header("x-tenant", "blue")
    sent = send({**otlp_receiver.environ(protocol), "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue"})
    check_all(sent, otlp_receiver.spans(), otlp_receiver.points(), otlp_receiver.logs())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_late_answer_is_waited_for(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A receiver that answers late gets everything once, within the shutdown's timeout."""
    otlp_receiver.delay(0.3)
    sent = send(otlp_receiver.environ(protocol))
    check_all(sent, otlp_receiver.spans(), otlp_receiver.points(), otlp_receiver.logs())
