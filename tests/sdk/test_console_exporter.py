"""The ``console`` exporter: strict JSON, one object a line."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, get_args

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk._compat import log_to_json
from nemo_lens.sdk.exporters import Signal, plan_exporter
from support.telemetry_samples import samples


def _exporter(signal: Signal) -> Any:
    return plan_exporter(signal, NemoLensConfig(exporter="console"), run_id="run", rank=0).make()


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def _lines(text: str) -> list[Any]:
    return [json.loads(line, parse_constant=_refuse) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def _every_warning_again() -> None:
    _diagnostics.forget_reported()


@pytest.mark.parametrize("signal", get_args(Signal))
def test_each_object_is_one_compact_line_of_strict_json(signal: Signal, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the values, a line is strict compact ASCII JSON; metrics are one object a collection."""
    batch = samples().of(signal)

    assert _exporter(signal).export(batch).name == "SUCCESS"

    text = capsys.readouterr().out
    lines = _lines(text)
    assert len(lines) == (1 if signal == "metrics" else len(batch))
    assert text == "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


@pytest.mark.parametrize("signal", get_args(Signal))
def test_the_schema_is_the_sdks_own(signal: Signal, capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what the SDK's ``to_json`` says, with the names of JSON-less numbers as strings."""
    batch = samples().of(signal)

    _exporter(signal).export(batch)

    if signal == "logs":
        expected = [json.loads(log_to_json(item), parse_constant=str) for item in batch]
    else:
        items = [batch] if signal == "metrics" else batch
        expected = [json.loads(item.to_json(), parse_constant=str) for item in items]
    assert _lines(capsys.readouterr().out) == expected


def test_numbers_that_json_lacks_are_strings(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and the infinities are written as OTLP JSON spells them; a string of that name stays what it is."""
    _exporter("traces").export(samples().traces)

    (root,) = (line for line in _lines(capsys.readouterr().out) if line["name"] == "root")
    attributes = root["attributes"]
    assert (attributes["nan"], attributes["inf"], attributes["-inf"]) == ("NaN", "Infinity", "-Infinity")
    assert attributes["floats"] == [1.5, "NaN", "-Infinity"]


def test_standard_output_is_the_one_at_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that replaces ``sys.stdout`` after setup finds the lines in the new one, flushed."""
    exporter = _exporter("logs")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="ascii"))

    exporter.export(samples().logs)

    assert len(raw.getvalue().splitlines()) == len(samples().logs)


@pytest.mark.parametrize("broken", ["none", "closed"])
def test_an_unusable_standard_output_is_a_failure(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing or closed ``sys.stdout`` is the result FAILURE and one WARNING, never an exception."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", None if broken == "none" else closed)
    exporter = _exporter("traces")

    results = [exporter.export(samples().traces).name for _ in range(2)]

    assert results == ["FAILURE", "FAILURE"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "exporter console of traces" in caplog.text


def test_closing_leaves_standard_output_open(capsys: pytest.CaptureFixture[str]) -> None:
    """The application prints on after the exporter is closed, twice even."""
    exporter = _exporter("traces")
    exporter.export(samples().traces)

    exporter.shutdown()
    exporter.shutdown()

    print("still here")
    assert capsys.readouterr().out.endswith("still here\n")


def test_an_object_without_json_takes_no_other_with_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What the SDK cannot write as JSON is reported; the rest of the batch is printed."""

    class Odd:
        def to_json(self, indent: int | None = 4) -> str:
            return json.dumps(object())

    batch = samples().traces

    assert _exporter("traces").export((batch[0], Odd(), batch[1])).name == "FAILURE"

    assert [line["name"] for line in _lines(capsys.readouterr().out)] == [batch[0].name, batch[1].name]
    assert "not JSON serializable" in caplog.text
