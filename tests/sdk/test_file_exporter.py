"""The ``file`` exporter: OTLP JSON lines that survive kills, forks, full disks and odd names."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import signal as signals
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk.exporters import Signal, plan_exporter
from nemo_lens.sdk.exporters.otlp_json import to_json
from support.telemetry_samples import REMOTE, samples

_ENCODERS: dict[str, Callable[[Any], Message]] = {
    "traces": encode_spans,
    "metrics": encode_metrics,
    "logs": encode_logs,
}
_IDS = ("traceId", "spanId", "parentSpanId")

# What a program under test starts with.
_PROGRAM = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from support.telemetry_samples import samples
    from nemo_lens.api.config import NemoLensConfig
    from nemo_lens.sdk.exporters import plan_exporter
    def exporter(signal="traces"):
        config = NemoLensConfig(exporter="file", file_path={pattern!r})
        return plan_exporter(signal, config, run_id="run", rank=0).make
"""


@pytest.fixture(autouse=True)
def _every_warning_again() -> None:
    _diagnostics.forget_reported()


def _exporter(signal: Signal, pattern: Path | str, run_id: str = "run", rank: int | None = 0) -> Any:
    config = NemoLensConfig(exporter="file", file_path=str(pattern))
    return plan_exporter(signal, config, run_id=run_id, rank=rank).make()


def _run(folder: Path, pattern: str, program: str) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(_PROGRAM).format(path=sys.path, pattern=pattern) + textwrap.dedent(program)
    command = [sys.executable, "-c", text]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50, check=False)


def _read(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def _in_base64(content: Any) -> Any:
    if isinstance(content, dict):
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode() if key in _IDS else _in_base64(value)
            for key, value in content.items()
        }
    return [_in_base64(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
@pytest.mark.parametrize("signal", get_args(Signal))
def test_a_line_is_the_whole_export_request(signal: Signal, name: str, tmp_path: Path) -> None:
    """Protobuf's own JSON parser reads a line back as the request that would go to a collector, nothing lost."""
    batch = samples().of(signal)
    exporter = _exporter(signal, tmp_path / name)

    assert exporter.export(batch).name == "SUCCESS"

    (line,) = _read(tmp_path / name)
    request = _ENCODERS[signal](batch)
    parsed = json_format.ParseDict(_in_base64(line), type(request)())
    assert parsed.SerializeToString(deterministic=True) == request.SerializeToString(deterministic=True)


_values = st.recursive(
    st.one_of(
        st.builds(lambda value: AnyValue(string_value=value), st.text(st.characters(exclude_categories=["Cs"]))),
        st.builds(lambda value: AnyValue(bool_value=value), st.booleans()),
        st.builds(lambda value: AnyValue(int_value=value), st.integers(-(2**63), 2**63 - 1)),
        st.builds(lambda value: AnyValue(double_value=value), st.floats(allow_nan=False)),
        st.builds(lambda value: AnyValue(bytes_value=value), st.binary(max_size=20)),
        st.just(AnyValue()),
    ),
    lambda inner: st.one_of(
        st.builds(lambda values: AnyValue(array_value=ArrayValue(values=values)), st.lists(inner, max_size=4)),
        st.builds(
            lambda items: AnyValue(
                kvlist_value=KeyValueList(values=[KeyValue(key=key, value=value) for key, value in items.items()])
            ),
            st.dictionaries(st.text("ab.é", max_size=4), inner, max_size=4),
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(_values)
def test_any_attribute_value_survives(value: AnyValue) -> None:
    """Every value that OTLP can hold is read back as it was, through text."""
    text = json.dumps(to_json(value), allow_nan=False)

    assert json_format.Parse(text, AnyValue()) == value


def test_a_span_looks_as_otlp_json_wants_it(tmp_path: Path) -> None:
    """Ids are lower-case hex, enumerations numbers, 64-bit integers strings, odd numbers and bytes strings."""
    batch = samples().traces
    _exporter("traces", tmp_path / "out.jsonl").export(batch)

    (resource,) = _read(tmp_path / "out.jsonl")[0]["resourceSpans"]
    scopes = {scope["scope"]["name"]: scope for scope in resource["scopeSpans"]}
    spans = {span["name"]: span for scope in scopes.values() for span in scope["spans"]}
    sdk = {span.name: span for span in batch}
    root, failed = spans["root"], spans["failed"]
    attributes = {each["key"]: each["value"] for each in root["attributes"]}

    assert resource["schemaUrl"] == "https://example/1"
    assert {"key": "nv.dl.rank", "value": {"intValue": "3"}} in resource["resource"]["attributes"]
    assert scopes["lens.test"]["scope"]["version"] == "1.2"
    assert root["traceId"] == f"{REMOTE.trace_id:032x}" == failed["traceId"]
    assert root["parentSpanId"] == f"{REMOTE.span_id:016x}"
    assert failed["parentSpanId"] == root["spanId"] == f"{sdk['root'].context.span_id:016x}"
    assert "parentSpanId" not in spans["fine"]
    assert root["traceState"] == "vendor=a,other=b"
    assert root["startTimeUnixNano"] == str(sdk["root"].start_time)
    assert [spans[f"kind {kind}"]["kind"] for kind in ("INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")] == [
        1, 2, 3, 4, 5
    ]  # fmt: skip
    assert failed["status"] == {"code": 2, "message": "ValueError: nö"}
    assert spans["fine"]["status"] == {"code": 1}
    assert failed["droppedEventsCount"] == 2
    assert [event["name"] for event in failed["events"]] == ["event 2", "event 3", "event 4"]
    assert failed["events"][0]["timeUnixNano"] == "1700000000000000002"
    assert failed["links"][0]["traceId"] == root["traceId"]
    assert failed["links"][0]["attributes"] == [{"key": "why", "value": {"stringValue": "resumed"}}]
    assert (root["flags"], failed["flags"]) == (0x300, 0x100)
    assert attributes["int64.max"] == {"intValue": "9223372036854775807"}
    assert attributes["bool"] == {"boolValue": True}
    assert attributes["float.whole"] == {"doubleValue": 3.0}
    assert (attributes["nan"], attributes["-inf"]) == ({"doubleValue": "NaN"}, {"doubleValue": "-Infinity"})
    assert attributes["ints"]["arrayValue"]["values"][2] == {"intValue": "9007199254740993"}


def test_nothing_is_created_before_the_first_batch(tmp_path: Path) -> None:
    """Planning, building and empty batches leave no file and no folder."""
    for signal in get_args(Signal):
        exporter = _exporter(signal, tmp_path / "new" / "out.jsonl")
        if signal != "metrics":
            assert exporter.export(()).name == "SUCCESS"
        exporter.shutdown()

    assert list(tmp_path.iterdir()) == []


def test_the_default_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pattern the file stands under the current folder, by run, signal, rank and process."""
    monkeypatch.chdir(tmp_path)
    exporter = _exporter("logs", "", run_id="job 7", rank=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    exporter.export(samples().logs)

    assert _read(tmp_path / "nemo-lens" / "job_7" / f"logs-rankx-{os.getpid()}.jsonl")


@pytest.mark.parametrize(
    "run_id",
    ["../../up", "/absolute", "..", ".", "a/b", "a\\b", "", "nul\0", "new\nline", "é" * 300, ".hidden", "\ud800"],
)
def test_a_run_id_stays_inside_its_folder(run_id: str, tmp_path: Path) -> None:
    """No run id, however odd, leads out of the folder in the pattern or makes a name that cannot be created."""
    exporter = _exporter("traces", tmp_path / "base" / "{run_id}" / "out.jsonl", run_id=run_id)

    assert exporter.export(samples().traces).name == "SUCCESS"

    (file,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert file.parent.parent == tmp_path / "base"


def test_three_signals_share_a_file(tmp_path: Path) -> None:
    """Signals that write to one file at the same time leave whole lines, none lost."""
    batches = samples()
    path = tmp_path / "all.jsonl"
    exporters = {signal: _exporter(signal, path) for signal in get_args(Signal)}

    def export(signal: str) -> None:
        for _ in range(30):
            exporters[signal].export(batches.of(signal))

    threads = [threading.Thread(target=export, args=(signal,)) for signal in exporters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    keys = [next(iter(line)) for line in _read(path)]
    assert {key: keys.count(key) for key in keys} == {"resourceSpans": 30, "resourceMetrics": 30, "resourceLogs": 30}


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_killed_process_leaves_a_readable_file(name: str, tmp_path: Path) -> None:
    """After SIGKILL every batch that was confirmed is there, and the file is whole."""
    done = _run(
        tmp_path,
        name,
        """
        export = exporter()().export
        for _ in range(3):
            assert export(samples().traces).name == "SUCCESS"
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )

    assert done.returncode == -signals.SIGKILL, done.stderr
    assert len(_read(tmp_path / name)) == 3


@pytest.mark.parametrize(
    ("pattern", "parents", "childs"),
    [
        ("out.jsonl", "out.jsonl", "out.{child}.jsonl"),
        ("out.jsonl.gz", "out.jsonl.gz", "out.{child}.jsonl.gz"),
        ("out", "out", "out.{child}"),
        (".out", ".out", ".out.{child}"),
        ("v1.2-{pid}.jsonl", "v1.2-{parent}.jsonl", "v1.2-{child}.jsonl"),
        ("{rank}/{signal}.json", "0/traces.json", "0/traces.{child}.json"),
    ],
)
def test_a_forked_child_has_a_file_of_its_own(pattern: str, parents: str, childs: str, tmp_path: Path) -> None:
    """The plan made before a fork gives the child another file, with the extension where readers look for it."""
    done = _run(
        tmp_path,
        pattern,
        """
        make = exporter()
        parent = make()
        parent.export(samples().traces)
        child = os.fork()
        if child == 0:
            own = make()
            code = [own.export(samples().traces).name, own.export(samples().traces).name] != ["SUCCESS"] * 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        parent.export(samples().traces)
        parent.export(samples().traces)
        print(os.getpid(), child)
        """,
    )

    assert done.returncode == 0, done.stderr
    parent, child = done.stdout.split()
    assert len(_read(tmp_path / parents.format(parent=parent))) == 3
    assert len(_read(tmp_path / childs.format(child=child))) == 2


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_full_disk_tears_no_line(name: str, tmp_path: Path) -> None:
    """A batch that fits only in part is a FAILURE and leaves nothing behind; what fits later is appended whole."""
    done = _run(
        tmp_path,
        name,
        """
        import resource
        export = exporter()().export
        small, batch = samples().traces[:1], samples().traces
        results = [export(small).name]
        (name,) = os.listdir()
        size = os.stat(name).st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        results.append(export(batch).name)
        results.append(export(batch).name)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        results.append(export(batch).name)
        print(*results)
        """,
    )

    assert done.stdout.split() == ["SUCCESS", "FAILURE", "FAILURE", "SUCCESS"], done.stderr
    assert done.stderr.count("File too large") == 1
    assert len(_read(tmp_path / name)) == 2


def test_a_fault_is_a_failure_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that vanished behind a file of its name fails each export, is reported once, and heals."""
    exporter = _exporter("traces", tmp_path / "folder" / "out.jsonl")
    (tmp_path / "folder").write_text("in the way")

    assert [exporter.export(samples().traces).name for _ in range(3)] == ["FAILURE"] * 3
    (tmp_path / "folder").unlink()
    assert exporter.export(samples().traces).name == "SUCCESS"

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"exporter file of traces ({tmp_path}/folder/out.jsonl)" in caplog.text


def test_what_cannot_be_encoded_is_a_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that the official encoder refuses never raises out of the exporter."""
    exporter = _exporter("traces", tmp_path / "out.jsonl")

    assert exporter.export((object(),)).name == "FAILURE"

    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_closing_is_final_and_repeatable(tmp_path: Path) -> None:
    """After ``shutdown``, again or not, nothing is written any more and nothing raises."""
    exporter = _exporter("traces", tmp_path / "out.jsonl")
    exporter.export(samples().traces)

    assert exporter.force_flush()
    exporter.shutdown()
    exporter.shutdown()

    assert exporter.export(samples().traces).name == "FAILURE"
    assert len(_read(tmp_path / "out.jsonl")) == 1


def test_a_second_run_appends(tmp_path: Path) -> None:
    """A file that is there already keeps its lines."""
    for _ in range(2):
        exporter = _exporter("traces", tmp_path / "out.jsonl.gz")
        exporter.export(samples().traces)
        exporter.shutdown()

    assert len(_read(tmp_path / "out.jsonl.gz")) == 2


@pytest.mark.parametrize("removed", ["file", "folder"])
def test_a_file_that_is_removed_is_made_again(removed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever removes the file, or its folder, loses what was in it and no more: one WARNING, and a new file."""
    path = tmp_path / "folder" / "out.jsonl"
    exporters = [_exporter("traces", path), _exporter("logs", path)]
    for _ in range(2):
        exporters[0].export(samples().traces)
        exporters[1].export(samples().logs)
        if removed == "file":
            path.unlink()
        else:
            shutil.rmtree(path.parent)

    for _ in range(2):
        assert exporters[0].export(samples().traces).name == "SUCCESS"
        assert exporters[1].export(samples().logs).name == "SUCCESS"

    assert [next(iter(line)) for line in _read(path)] == ["resourceSpans", "resourceLogs"] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{path} was removed" in caplog.text


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
@pytest.mark.parametrize("created", [False, True])
def test_a_file_that_is_moved_is_whole(
    name: str, created: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rotated by its name, with a new file in its place or none, it keeps its lines; the next go to the new one."""
    path = tmp_path / name
    exporter = _exporter("traces", path)
    exporter.export(samples().traces)
    path.rename(tmp_path / f"old-{name}")
    if created:
        path.touch()

    assert exporter.export(samples().traces).name == "SUCCESS"
    assert exporter.export(samples().traces).name == "SUCCESS"

    assert (len(_read(tmp_path / f"old-{name}")), len(_read(path))) == (1, 2)
    assert caplog.records == []


def test_a_file_that_is_emptied_goes_on(tmp_path: Path) -> None:
    """Copied and cut to nothing, as ``copytruncate`` does it, it goes on at its beginning."""
    path = tmp_path / "out.jsonl"
    exporter = _exporter("traces", path)
    exporter.export(samples().traces)
    os.truncate(path, 0)

    exporter.export(samples().traces)

    assert len(_read(path)) == 1
