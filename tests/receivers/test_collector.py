"""Traces, metrics and logs at the real OpenTelemetry Collector."""

from __future__ import annotations

import pytest

from support.all_signals import check_all, send
from support.collector import Collector


@pytest.mark.timeout(900)  # the first test may have to build the Collector
@pytest.mark.parametrize(
    ("protocol", "compression"),
    [("grpc", "none"), ("grpc", "gzip"), ("http/protobuf", "none"), ("http/protobuf", "gzip")],
)
def test_every_signal_passes_the_collector(collector: Collector, protocol: str, compression: str) -> None:
    """All three signals pass a real Collector unchanged, resource, scope, links, events and status included."""
    sent = send({**collector.environ(protocol), "OTEL_EXPORTER_OTLP_COMPRESSION": compression})
    assert collector.wait_for(lambda: len(collector.spans()) >= 6 and collector.points() and collector.logs())
    check_all(sent, collector.spans(), collector.points(), collector.logs())


def test_signals_may_take_different_ways(collector: Collector) -> None:
    """The per-signal protocol and endpoint variables win over the general ones, for each signal."""
    sent = send(
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint,
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": " HTTP/Protobuf ",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{collector.http_endpoint}/v1/logs",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.http_endpoint}/v1/metrics",
        }
    )
    assert collector.wait_for(lambda: len(collector.spans()) >= 6 and collector.points() and collector.logs())
    check_all(sent, collector.spans(), collector.points(), collector.logs())
