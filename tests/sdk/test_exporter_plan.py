"""Exporter plans: what is chosen, what is refused, and that nothing is built."""

from __future__ import annotations

import gzip
import http.server
import importlib
import json
import math
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, get_args

import pytest
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter, UpDownCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, ExponentialBucketHistogramAggregation
from opentelemetry.sdk.trace.export import SpanExporter

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk._compat import LogRecordExporter
from nemo_lens.sdk.exporters import ExporterPlan, Signal, metric_preferences, plan_exporter
from support.telemetry_samples import samples

_SIGNALS = get_args(Signal)
_INTERFACES = {"traces": SpanExporter, "metrics": MetricExporter, "logs": LogRecordExporter}
_ENCODERS: dict[str, Any] = {"traces": encode_spans, "metrics": encode_metrics, "logs": encode_logs}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    _diagnostics.forget_reported()
    for name in list(os.environ):
        if name.startswith(("OTEL_", "NEMO_LENS_")):
            monkeypatch.delenv(name)


def _plan(signal: Signal, exporter: str = "otlp", file_path: str = "", **environ: str) -> ExporterPlan:
    config = NemoLensConfig(exporter=exporter, file_path=file_path)
    return plan_exporter(signal, config, run_id="run", rank=0, environ=environ)


def _refusal(signal: Signal, exporter: str = "otlp", file_path: str = "", **environ: str) -> str:
    with pytest.raises(ValueError, match=r"=.*: ") as caught:
        _plan(signal, exporter, file_path, **environ)
    return str(caught.value)


# Protocol


@pytest.mark.parametrize("signal", _SIGNALS)
@pytest.mark.parametrize(
    ("own", "general", "transport"),
    [
        (None, None, "grpc"),
        (None, "http/protobuf", "http/protobuf"),
        ("grpc", "http/protobuf", "grpc"),
        ("http/protobuf", "grpc", "http/protobuf"),
        (" HTTP/Protobuf ", None, "http/protobuf"),
        ("  ", "http/protobuf", "http/protobuf"),
        ("", " ", "grpc"),
        ("grpc", "nonsense", "grpc"),
    ],
)
def test_protocol_of_each_signal(signal: Signal, own: str | None, general: str | None, transport: str) -> None:
    """The signal's variable wins over the general one, blank is unset, case and blanks do not matter, default gRPC."""
    names = {f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL": own, "OTEL_EXPORTER_OTLP_PROTOCOL": general}

    plan = _plan(signal, **{name: value for name, value in names.items() if value is not None})

    assert (plan.name, plan.transport) == ("otlp", transport)


@pytest.mark.parametrize("signal", _SIGNALS)
@pytest.mark.parametrize("value", ["http/json", "http", "grpcs", "thrift"])
def test_no_other_protocol_is_taken_for_one(signal: Signal, value: str) -> None:
    """Any other protocol, ``http/json`` included, is an error that names the variable it came from and the two."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
    for name in (own, "OTEL_EXPORTER_OTLP_PROTOCOL"):
        message = _refusal(signal, **{name: value})
        assert message.startswith(f"{name}='{value}': expected grpc or http/protobuf")


# Other settings of OTLP

_HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, "http://localhost:4317"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "collector:4317"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "unix:///run/otel.sock"}, "unix:///run/otel.sock"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "a:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": " https://b:2 "}, "https://b:2"),
        (_HTTP, "http://localhost:4318/v1/traces"),
        ({**_HTTP, "OTEL_EXPORTER_OTLP_ENDPOINT": " "}, "http://localhost:4318/v1/traces"),
        ({**_HTTP, "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({**_HTTP, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1]:9/in"}, "http://[::1]:9/in"),
    ],
)
def test_endpoint_of_the_plan(environ: dict[str, str], endpoint: str) -> None:
    """A plan says where its data will go, as the specification derives it."""
    assert _plan("traces", **environ).endpoint == endpoint


@pytest.mark.parametrize(
    ("http", "value"),
    [(True, value) for value in ("collector:4318", "localhost", "grpc://c:1", "http://", "https:///v1", "http://a b")]
    + [
        (each, value)
        for each in (True, False)
        for value in ("http://c:port", "http://c:99999", "https://", "http://[::1")
    ],
)
def test_an_endpoint_that_leads_nowhere_is_refused(http: bool, value: str) -> None:
    """Without a scheme and host that the transport can use, the error names the variable."""
    environ = _HTTP if http else {}
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
        assert f"{name}={value!r}: expected http://HOST:PORT" in _refusal("logs", **environ, **{name: value})


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", "1e400", "10s"])
@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT"])
def test_a_timeout_is_a_positive_number(name: str, value: str) -> None:
    """What is no number of seconds above 0 is refused on both transports, not replaced by a default."""
    for environ in ({}, _HTTP):
        assert f"{name}={value!r}: expected a number of seconds" in _refusal("metrics", **environ, **{name: value})


def test_a_blank_timeout_is_unset() -> None:
    """A blank timeout is an unset one, except where the gRPC exporter itself cannot read it: that is said."""
    assert _plan("logs", OTEL_EXPORTER_OTLP_TIMEOUT=" ")
    assert _plan("logs", **_HTTP, OTEL_EXPORTER_OTLP_LOGS_TIMEOUT="")
    assert "or the variable unset" in _refusal("logs", OTEL_EXPORTER_OTLP_LOGS_TIMEOUT="")


@pytest.mark.parametrize(
    ("environ", "value", "accepted", "hint"),
    [
        ({}, "deflate", "none, gzip", ""),
        ({}, "gzp", "none, gzip", ", did you mean 'gzip'?"),
        (_HTTP, "brotli", "none, gzip, deflate", ""),
    ],
)
def test_compression_is_one_the_transport_knows(environ: dict[str, str], value: str, accepted: str, hint: str) -> None:
    """An unknown compression is refused with those the transport has and the nearest."""
    for name in ("OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"):
        assert _refusal("traces", **environ, **{name: value}) == f"{name}={value!r}: expected {accepted}{hint}"


@pytest.mark.parametrize("key", ["CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"])
def test_tls_files_can_be_read(key: str, tmp_path: Path) -> None:
    """A file that is not there, or is a folder where none is taken, is refused at setup, not at the first export."""
    missing, folder, file = tmp_path / "missing.pem", tmp_path, tmp_path / "it.pem"
    file.write_text("pem")
    for environ in ({}, _HTTP):
        for name in (f"OTEL_EXPORTER_OTLP_{key}", f"OTEL_EXPORTER_OTLP_LOGS_{key}"):
            assert f"{name}={str(missing)!r}: expected a readable file" in _refusal(
                "logs", **environ, **{name: str(missing)}
            )
            assert _plan("logs", **environ, **{name: str(file)})
            if environ is _HTTP and key == "CERTIFICATE":
                assert _plan("logs", **environ, **{name: str(folder)})
            else:
                assert "expected a readable file" in _refusal("logs", **environ, **{name: str(folder)})


# Arrival


class _Receiver(http.server.BaseHTTPRequestHandler):
    received: list[bytes]
    paths: list[tuple[str, str | None]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        decoders: dict[str | None, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
        self.received.append(decoders.get(self.headers["Content-Encoding"], bytes)(body))
        self.paths.append((self.path, self.headers["Content-Encoding"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def http_receiver() -> Iterator[tuple[str, type[_Receiver]]]:
    handler = type("Receiver", (_Receiver,), {"received": [], "paths": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


@pytest.fixture
def grpc_receiver() -> Iterator[tuple[str, list[bytes]]]:
    received: list[bytes] = []

    def accept(request: bytes, context: Any) -> bytes:
        received.append(request)
        return b""

    grpc: Any = importlib.import_module("grpc")  # has no types
    export = {"Export": grpc.unary_unary_rpc_method_handler(accept)}
    server = grpc.server(futures.ThreadPoolExecutor(2))
    for service in ("trace.v1.TraceService", "metrics.v1.MetricsService", "logs.v1.LogsService"):
        name = f"opentelemetry.proto.collector.{service}"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, export),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", received
    server.stop(None).wait()


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate", " "])
@pytest.mark.parametrize("signal", _SIGNALS)
def test_what_is_planned_arrives_over_http(
    signal: Signal, compression: str, http_receiver: tuple[str, type[_Receiver]]
) -> None:
    """The exporter that the plan builds sends the batch where and how the variables say."""
    url, receiver = http_receiver
    batch = samples().of(signal)
    plan = _plan(signal, **_HTTP, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION=compression)
    exporter = plan.make()

    assert exporter.export(batch).name == "SUCCESS"
    exporter.shutdown()

    assert receiver.received == [_ENCODERS[signal](batch).SerializePartialToString()]
    assert receiver.paths == [(f"/v1/{signal}", compression if compression in ("gzip", "deflate") else None)]


@pytest.mark.parametrize("compression", ["none", "gzip", " "])
@pytest.mark.parametrize("signal", _SIGNALS)
def test_what_is_planned_arrives_over_grpc(
    signal: Signal, compression: str, grpc_receiver: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same over gRPC, where the exporter alone would refuse ``none`` and blank compressions and timeouts."""
    url, received = grpc_receiver
    batch = samples().of(signal)
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        f"OTEL_EXPORTER_OTLP_{signal.upper()}_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_TIMEOUT": " ",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    exporter = plan_exporter(signal, NemoLensConfig(), run_id="run", rank=0).make()

    assert exporter.export(batch).name == "SUCCESS"
    exporter.shutdown()

    assert received == [_ENCODERS[signal](batch).SerializePartialToString()]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("signal", _SIGNALS)
def test_a_dead_collector_is_a_failure(signal: Signal, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """A refused connection is the result FAILURE, with one WARNING of ours, whatever the exporter itself raises."""
    exporter = _plan(
        signal,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_TIMEOUT="0.2",
    ).make()

    results = [exporter.export(samples().of(signal)).name for _ in range(2)]
    exporter.shutdown()

    assert results == ["FAILURE", "FAILURE"]
    ours = [record for record in caplog.records if record.name == "nemo_lens"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert f"exporter otlp of {signal} ({protocol}, http://127.0.0.1:9" in ours[0].getMessage()


# Names


@pytest.mark.parametrize("signal", _SIGNALS)
@pytest.mark.parametrize(
    ("value", "name", "transport"),
    [("OTLP", "otlp", "grpc"), (" Console ", "console", "console"), ("file", "file", "file")],
)
def test_built_in_names(signal: Signal, value: str, name: str, transport: str) -> None:
    """The three built-in exporters exist for every signal, in any case, and build what the SDK takes."""
    plan = _plan(signal, value)

    assert (plan.name, plan.transport) == (name, transport)
    assert isinstance(plan.make(), _INTERFACES[signal])


def test_an_unknown_name_is_refused_with_the_list() -> None:
    """The error lists the built-in and the installed exporters and proposes the nearest."""
    message = _refusal("traces", "oltp")

    assert message.startswith("NemoLensConfig.exporter='oltp': expected one of otlp, console, file, ")
    assert "otlp_proto_grpc" in message
    assert message.endswith(", did you mean 'otlp'?")


def test_a_refusal_names_the_variable() -> None:
    """A name that came from the environment is refused under its variable."""
    for key, field in (("EXPORTER", "fiel"), ("FILE_PATH", "{x}")):
        config = NemoLensConfig.from_env("MY", environ={"MY_EXPORTER": "file", f"MY_{key}": field})
        with pytest.raises(ValueError, match=f"MY_{key}='{field}': .*"):
            plan_exporter("logs", config, run_id="run", rank=0, environ={})


_PLUGIN = """
class Exporter:
    def __init__(self):
        self.batches = seen
    def export(self, batch, **kwargs):
        if batch == "raise":
            raise RuntimeError("broken plug-in")
        self.batches.append(batch)
        return Result(batch != "fail")
    def shutdown(self):
        self.batches.append("closed")
        raise RuntimeError("cannot close")

class Reader:
    pass

class Result:
    def __init__(self, sent):
        self.name = "SUCCESS" if sent else "FAILURE"

seen = []
"""

_ENTRY_POINTS = """
[opentelemetry_traces_exporter]
lens_plugin = lens_test_plugin:Exporter
lens_missing = lens_test_not_there:Exporter
lens_exit = lens_test_exit:Exporter
lens_reader = lens_test_plugin:Reader
[opentelemetry_logs_exporter]
lens_plugin = lens_test_plugin:Exporter
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "lens_test_plugin.py").write_text(_PLUGIN)
    (tmp_path / "lens_test_exit.py").write_text("raise SystemExit(2)")
    info = tmp_path / "lens_test_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lens-test-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    import lens_test_plugin  # type: ignore[import-not-found]

    yield lens_test_plugin
    del sys.modules["lens_test_plugin"]


def test_an_installed_exporter_is_found(plugin: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A plug-in's exporter is found by its name, built at the first batch, and cannot hurt the exporting thread."""
    plan = _plan("traces", "lens_plugin")
    exporter = plan.make()

    assert (plan.name, plan.transport) == ("lens_plugin", "lens_plugin")
    assert [exporter.export(batch).name for batch in ("one", "fail", "raise", "raise", "two")] == [
        "SUCCESS", "FAILURE", "FAILURE", "FAILURE", "SUCCESS"
    ]  # fmt: skip
    exporter.shutdown()
    exporter.shutdown()

    assert plugin.seen == ["one", "fail", "two", "closed"]
    assert [record.getMessage() for record in caplog.records] == [
        "exporter lens_plugin of traces reported a failure: a batch is lost",
        "exporter lens_plugin of traces failed: RuntimeError: broken plug-in",
    ]


@pytest.mark.usefixtures("plugin")
def test_a_plugin_without_the_signal_is_refused() -> None:
    """An exporter that lacks a signal is refused for it, with the way to go on without."""
    message = _refusal("metrics", "lens_plugin")

    assert "it exports traces and logs only" in message
    assert message.endswith("or metrics_enabled=False")


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lens_missing", "lens_test_not_there:Exporter of lens-test-plugin 1.0 cannot be loaded: ModuleNotFoundError"),
        ("lens_exit", "lens_test_exit:Exporter of lens-test-plugin 1.0 cannot be loaded: SystemExit: 2"),
        ("lens_reader", "lens_test_plugin:Reader of lens-test-plugin 1.0 is no exporter"),
    ],
)
def test_a_broken_plugin_is_refused_at_setup(name: str, reason: str) -> None:
    """A plug-in that does not load, or is no exporter, is an error naming its distribution."""
    assert reason in _refusal("traces", name)


# Files


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("{ranks}.jsonl", "{ranks} is not known; expected no placeholders but {run_id}, {rank}, {pid}, {signal}"),
        ("{ranks}.jsonl", "did you mean 'rank'?"),
        ("{rank:04d}.jsonl", "{rank:04d} is not known"),
        ("{pid!r}.jsonl", "{pid!r} is not known"),
        ("{rank.real}.jsonl", "{rank.real} is not known"),
        ("{run_id[0]}.jsonl", "{run_id[0]} is not known"),
        ("{}.jsonl", "{} is not known"),
        ("{0}.jsonl", "{0} is not known"),
        ("{rank.jsonl", "expected '}' before end of string; expected no placeholders but"),
        ("rank}.jsonl", "Single '}' encountered in format string; expected no placeholders but"),
        (".", "is a folder"),
        ("{signal}/..", "is a folder"),
        ("taken/out.jsonl", "taken is no folder"),
        ("taken/a/b/out.jsonl", "taken is no folder"),
        ("/proc/version/out.jsonl", "/proc/version is no folder"),
        ("~no-such-user/out.jsonl", "home directory"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused(
    pattern: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown placeholders, unbalanced braces and folders that cannot be are named before anything is created."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    (tmp_path / "traces").mkdir()

    message = _refusal("traces", "file", pattern)

    assert message.startswith(f"NemoLensConfig.file_path={pattern!r}: ")
    assert reason in message
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["taken", "traces"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    """A folder in which nothing can be created is an error at setup."""
    (tmp_path / "locked").mkdir(mode=0o500)

    assert "no permission" in _refusal("traces", "file", str(tmp_path / "locked" / "new" / "out.jsonl"))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{run_id}/{signal}-{rank}-{pid}.jsonl", "run/traces-0-{pid}.jsonl"),
        ("{{braces}}-{rank}{rank}", "{{braces}}-00"),
        ("~/out.jsonl", "home/out.jsonl"),
        ("sub/./out.jsonl", "sub/out.jsonl"),
    ],
)
def test_placeholders(pattern: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Placeholders, doubled braces and the home folder are put in; the folder of setup counts, whatever its name."""
    here = tmp_path / "{x}"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here / "home"))
    exporter = _plan("traces", "file", pattern).make()
    monkeypatch.chdir(tmp_path)

    assert exporter.export(samples().traces).name == "SUCCESS"
    exporter.shutdown()

    assert (here / name.format(pid=os.getpid())).is_file()


# Nothing is built


def test_a_plan_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning opens no file, no connection and starts no thread."""
    monkeypatch.chdir(tmp_path)
    threads, descriptors = threading.active_count(), os.listdir("/proc/self/fd")

    for signal in _SIGNALS:
        for exporter in ("otlp", "console", "file"):
            _plan(signal, exporter)
        _plan(signal, **_HTTP)

    assert (threading.active_count(), os.listdir("/proc/self/fd")) == (threads, descriptors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("exporter", "protocol", "absent"),
    [
        ("console", "", "google.protobuf grpc requests"),
        ("file", "", "grpc requests"),
        ("otlp", "http/protobuf", "grpc"),
        ("otlp", "grpc", "requests"),
    ],
)
def test_only_the_chosen_transport_is_imported(exporter: str, protocol: str, absent: str) -> None:
    """A plan pays for the packages of its own transport only, and imports them without a warning."""
    program = f"""
import sys
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk.exporters import plan_exporter
for signal in ("traces", "metrics", "logs"):
    plan_exporter(signal, NemoLensConfig(exporter={exporter!r}), run_id="run", rank=0,
                  environ={{"OTEL_EXPORTER_OTLP_PROTOCOL": {protocol!r}}})
print(*(name for name in {absent!r}.split() if name in sys.modules))
"""
    options = ["-W", "error::DeprecationWarning", "-c", program]

    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, timeout=50, check=False)

    assert (done.stdout.strip(), done.stderr) == ("", "")


# Metric preferences

_CUMULATIVE, _DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA


@pytest.mark.parametrize(
    ("value", "counter", "observable", "histogram"),
    [
        (None, _CUMULATIVE, _CUMULATIVE, _CUMULATIVE),
        (" ", _CUMULATIVE, _CUMULATIVE, _CUMULATIVE),
        ("Cumulative", _CUMULATIVE, _CUMULATIVE, _CUMULATIVE),
        (" DELTA ", _DELTA, _DELTA, _DELTA),
        ("lowmemory", _DELTA, _CUMULATIVE, _DELTA),
    ],
)
def test_temporality(
    value: str | None, counter: AggregationTemporality, observable: AggregationTemporality,
    histogram: AggregationTemporality
) -> None:  # fmt: skip
    """Each preference gives the temporalities of the specification's table; up-down counters stay cumulative."""
    environ = {} if value is None else {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": value}

    temporality, _ = metric_preferences(environ)

    assert (temporality[Counter], temporality[ObservableCounter], temporality[Histogram]) == (
        counter, observable, histogram
    )  # fmt: skip
    assert temporality[UpDownCounter] is _CUMULATIVE


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ExplicitBucketHistogramAggregation),
        ("explicit_bucket_histogram", ExplicitBucketHistogramAggregation),
        (" Base2_Exponential_Bucket_Histogram", ExponentialBucketHistogramAggregation),
    ],
)
def test_histogram_aggregation(value: str, expected: type) -> None:
    """The default aggregation of histograms is the one asked for."""
    _, aggregation = metric_preferences({"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": value})

    assert {kind: type(each) for kind, each in aggregation.items()} == {Histogram: expected}


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "deltas", "delta"),
        ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "explicit", "explicit_bucket_histogram"),
    ],
)
def test_a_bad_preference_is_refused_by_every_exporter(name: str, value: str, hint: str) -> None:
    """A preference that the specification does not know is an error with the nearest, whatever the exporter."""
    with pytest.raises(ValueError, match=re.escape(f"{name}='{value}': expected ")) as caught:
        metric_preferences({name: value})
    assert hint in str(caught.value)
    for exporter in ("otlp", "console", "file"):
        assert name in _refusal("metrics", exporter, **{name: value})


def test_preferences_reach_a_reader(tmp_path: Path) -> None:
    """A reader over any of our metric exporters, not OTLP's alone, reports as the variables ask."""
    exporter = _plan(
        "metrics",
        "file",
        str(tmp_path / "out.jsonl"),
        OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
        OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION="base2_exponential_bucket_histogram",
    ).make()
    reader = PeriodicExportingMetricReader(exporter, math.inf)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("m").create_histogram("h").record(1)

    provider.force_flush()
    provider.shutdown()

    line = json.loads((tmp_path / "out.jsonl").read_text())
    (metric,) = line["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert metric["exponentialHistogram"]["aggregationTemporality"] == 1
