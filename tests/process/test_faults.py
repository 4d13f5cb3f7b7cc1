"""Exporters that fail and values that cannot be sent: the job runs on, and what can be delivered is."""

from __future__ import annotations

from collections import Counter

import pytest
from process_runs import Written, run, warnings_of

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

LONGEST = 8192


@pytest.mark.parametrize(
    "how", ["raises", "raises without text", "exits", "interrupts", "returns nothing", "returns text"]
)
def test_a_faulty_exporter_is_reported_and_hurts_nobody(how: str) -> None:
    """Whatever an exporter raises or returns, no call of ours raises or waits, the threads end, and the loss is told.

    Each batch is offered once; a fault that repeats is one WARNING; the counts at the end are right.
    """
    ended = run("faults", "faulty_exporter", how)
    assert ended.code == 0, ended.stderr
    assert ended.all_facts("confirmed") == [False, False]
    assert max(ended.all_facts("seconds")) < 4, "a call waited its timeout out"
    assert ended.fact("calls") == 4
    assert ended.fact("threads") == []
    assert len(warnings_of(ended.stderr, "2 spans were dropped")) == 1, ended.stderr
    assert len(warnings_of(ended.stderr, "2 log records were dropped")) == 1, ended.stderr
    if how == "raises":
        assert len(warnings_of(ended.stderr, "the exporter's own")) == 2, ended.stderr  # one a signal
    assert "Traceback" not in ended.stderr


def test_what_is_no_exporter_is_reported_and_hurts_nobody() -> None:
    """An object without ``export`` and a metric reader that fails end in warnings, not in the job."""
    ended = run("faults", "no_exporter_at_all")
    assert ended.code == 0, ended.stderr
    assert ended.fact("confirmed") is False
    assert ended.fact("seconds") < 4
    for part in (
        "'object' object has no attribute 'export'",
        "'int' object has no attribute 'export'",
        "flush is broken",
    ):
        assert len(warnings_of(ended.stderr, part)) == 1, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("protocol", ["file", "grpc", "http/protobuf"])
def test_poison_takes_nothing_with_it(written: Written, otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """A lone surrogate, a 70-bit integer and a 5 MB string, set past the cleaning, are mended; all else is as it was.

    In spans (attributes, keys, events, links, names, status), data points, log records (bodies, levels) and the scopes
    of all three, on every transport, and gRPC's message limit is kept.
    """
    environ = written.environ if protocol == "file" else otlp_receiver.environ(protocol)
    ended = run("faults", "poison", environ=environ)
    assert ended.code == 0, ended.stderr
    assert ended.fact("confirmed"), ended.stderr
    assert "dropped" not in ended.stderr
    receiver = written if protocol == "file" else otlp_receiver
    spans = {span["name"]: span for span in receiver.spans()}
    assert Counter(span["name"] for span in receiver.spans()) == {
        "good": 20,
        **dict.fromkeys(("surrogate", "integer", "large", "12", "", "name\ufffd", "scoped"), 1),
        **{f"wide {number}": 1 for number in range(6)},
    }
    surrogate = spans["surrogate"]
    assert surrogate["attributes"] == {"text": "a\ufffdb", "key\ufffd": "kept", "texts": ["ok", "\ufffd"]}
    assert [(event["name"], event["attributes"]) for event in surrogate["events"]] == [
        ("event\ufffd", {"text": "\ufffd"})
    ]
    assert [link["attributes"] for link in surrogate["links"]] == [{"text": "\ufffd"}]
    assert surrogate["description"] == "why\ufffd"
    assert spans["integer"]["attributes"] == {"number": str(2**70), "numbers": ["1", str(-(2**70))]}
    assert (
        len(spans["large"]["attributes"]["text"]) == len(spans["large"]["events"][0]["attributes"]["text"]) == LONGEST
    )
    for number in range(6):
        assert {len(text) for text in spans[f"wide {number}"]["attributes"].values()} == {LONGEST}

    assert spans["scoped"]["scope"] == "scope\ufffd"

    points = written.points() if protocol == "file" else otlp_receiver.points()
    done = [point for point in points if point["name"] == "done"]
    last = max(point["time"] for point in done)
    values = {tuple(sorted(point["attributes"])): point for point in done if point["time"] == last}
    assert values[()]["value"] == 1
    mended = values[("large", "number", "text")]
    assert (mended["value"], mended["attributes"]["text"]) == (2, "a\ufffdb")
    assert mended["attributes"]["number"] == str(2**70)
    assert len(mended["attributes"]["large"]) == LONGEST
    assert {point["value"] for point in points if point["name"] == "huge"} == {float(2**70)}
    assert {point["count"] for point in points if point["name"] == "spread"} == {1}
    assert {point["scope"] for point in points if point["name"] == "scoped"} == {"scope\ufffd"}

    named = {(log["body"], log["scope"], log["severity_text"]) for log in receiver.logs() if log["severity_text"]}
    assert named == {("bridged", "scope\ufffd", "level\ufffd"), ("scoped", "raw\ufffd", "level\ufffd")}
    bodies = [log["body"] for log in receiver.logs() if not log["severity_text"]]
    assert len(bodies) == 4
    assert {body for body in bodies if isinstance(body, str) and len(body) < 10} == {"good", "a\ufffdb"}
    assert {len(body) for body in bodies if isinstance(body, str) and len(body) > 10} == {LONGEST}
