"""What no exporter can encode is mended before it is sent: one item does not take the others of its batch with it."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.sdk.outgoing import OutgoingLogs, OutgoingSpans
from support.otlp_decode import Record, message_to_json
from support.telemetry_samples import samples

# Times of OTLP are nanoseconds in 64 bits without a sign.
LATEST = 2**64 - 1
ODD_TIMES = [(1.7e9, 1_700_000_000), (-1, 0), (2**64, LATEST), (5, 5)]


@pytest.mark.parametrize(("given", "sent"), ODD_TIMES)
@pytest.mark.parametrize("where", ["start", "end", "event"])
def test_a_span_with_an_odd_time_is_sent(where: str, given: Any, sent: int) -> None:
    """A span to whose start, end or event OpenTelemetry took a time that is none is sent with the nearest that is."""
    ended = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ended))
    times = {"start": 10, "end": 20, "event": 15, where: given}
    span = provider.get_tracer("outgoing").start_span("odd", start_time=times["start"])
    span.add_event("event", timestamp=times["event"])
    span.end(times["end"])
    (part,) = OutgoingSpans(None).parts(ended.get_finished_spans())
    (decoded,) = message_to_json(encode_spans(part))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    found = {
        "start": decoded.get("startTimeUnixNano", 0),
        "end": decoded.get("endTimeUnixNano", 0),
        "event": decoded["events"][0].get("timeUnixNano", 0),
    }
    # A zero is left out of a message.
    assert {name: int(time) for name, time in found.items()} == {**times, where: sent}


def log_sent(**fields: Any) -> Record:
    """Return what is sent of a log record with these fields, as OTLP has it."""
    item = copy(samples().logs[0])
    record = copy(item.log_record)
    for name, value in fields.items():
        setattr(record, name, value)
    object.__setattr__(item, "log_record", record)
    ((prepared,),) = OutgoingLogs(None).parts([item])
    (decoded,) = message_to_json(encode_logs([prepared]))["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    return dict(decoded)


@pytest.mark.parametrize(("given", "sent"), ODD_TIMES)
def test_a_log_record_with_an_odd_time_is_sent(given: Any, sent: int) -> None:
    """A log record with a time that is none is sent with the nearest that is."""
    decoded = log_sent(timestamp=given, observed_timestamp=given)
    assert [int(decoded.get(name, 0)) for name in ("timeUnixNano", "observedTimeUnixNano")] == [sent] * 2


@pytest.mark.parametrize("body", [{1: "x"}, [{1: "x"}]])
def test_a_log_body_with_keys_that_are_no_text_is_sent(body: Any) -> None:
    """The keys of a mapping in a log record's body are text when it is sent."""
    sent = log_sent(body=body)["body"]
    if isinstance(body, list):
        (sent,) = sent["arrayValue"]["values"]
    assert sent == {"kvlistValue": {"values": [{"key": "1", "value": {"stringValue": "x"}}]}}
