"""The Collector configurations that are documented: valid for the real Collector, and run by it."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from nemo_lens.api import semconv
from support.all_signals import clean_environ
from support.collector import ReplayServer, replay_server
from support.collector_configs import (
    CONFIGS,
    FOLDER,
    Config,
    Ports,
    built_in,
    load,
    resolved,
    runnable,
    running_config,
    used_by,
    validate,
)
from support.otlp_receiver import OtlpReceiver
from support.peer_fixtures import needed_binary
from support.peer_programs import wait_for
from support.relay import running_relay
from support.victoria_metrics import VictoriaMetrics

pytestmark = pytest.mark.timeout(900)  # the first test may have to build the Collector
PAGE = (FOLDER.parent / "index.md").read_text(encoding="utf-8")
RANK = Path(__file__).parents[1] / "support" / "programs" / "rank_of_a_job.py"
FILES = ("file/traces", "file/metrics", "file/logs")
VARIABLE = re.compile(r"\$\{env:(?P<name>[A-Z_]+):-(?P<default>[^}]*)\}")


@pytest.fixture(scope="module", autouse=True)
def _otelcol() -> None:
    """Make the Collector before the tests."""
    needed_binary("otelcol")


def nowhere(name: str) -> dict[str, Config]:
    """Stand-ins for the files of a configuration that send to nobody."""
    nobody = {"endpoint": "http://127.0.0.1:9"}
    return {file: nobody for file in load(name)["exporters"] if file in FILES}


# ---- what is in them


@pytest.mark.parametrize("name", CONFIGS)
def test_the_collector_finds_it_valid(name: str, tmp_path: Path) -> None:
    """Each configuration is valid for the real Collector, without what is not in the build."""
    assert validate(runnable(load(name), nowhere(name)), tmp_path) == ""


MISSPELT: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "a setting": (("processors", "memory_limiter", "limit_mb"), 512, "limit_mb"),
    "a value": (("exporters", "otlp/traces", "compression"), "gzipp", "gzipp"),
    "a component": (("exporters", "otlp/tracez"), {"endpoint": "${env:NOT_THERE:-}"}, "otlp/tracez"),
    "a pipeline": (("service", "pipelines", "traces", "processors"), ["memory_limiterr"], "memory_limiterr"),
    "a variable's value": (
        ("receivers", "otlp", "protocols", "grpc", "max_recv_msg_size_mib"),
        "${env:PWD}",
        "max_recv",
    ),
    "the Collector's own metrics": (("service", "telemetry", "metrics", "readers"), [{"perodic": {}}], "readers"),
}


@pytest.mark.parametrize("what", MISSPELT)
def test_the_collector_finds_what_is_misspelt(what: str, tmp_path: Path) -> None:
    """The check of the test above finds a misspelt setting, value, component or pipeline."""
    path, value, found = MISSPELT[what]
    config = copy.deepcopy(runnable(load("single"), nowhere("single")))
    node = config
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    assert found in validate(config, tmp_path)


def test_the_page_names_what_is_not_in_the_build() -> None:
    """The page names exactly the components that no test executes, because the Collector that is built lacks them."""
    _, _, section = PAGE.partition("\n## What was executed, and what not\n")
    named = re.findall(r"^\| `(\w+)` \| (\w+) \|", section, flags=re.M)
    missing = set().union(*(used_by(load(name)) for name in CONFIGS)) - built_in()
    assert {(f"{kind}s", name) for name, kind in named} == missing
    assert len(named) == len(missing)


def test_the_page_lists_every_variable() -> None:
    """The page's table of variables has each variable of each configuration, with its default there, and no other."""
    listed = set()
    for name, *defaults in re.findall(r"^\| `(COLLECTOR_\w+)` \| (\S+) \| (\S+) \| (\S+) \|", PAGE, flags=re.M):
        listed |= {
            (config, name, default.strip("`"))
            for config, default in zip(CONFIGS, defaults, strict=True)
            if default != "-"
        }
    there = set()
    for config, path in CONFIGS.items():
        found = VARIABLE.findall(path.read_text(encoding="utf-8"))
        there |= {(config, name, default) for name, default in found if name != "NAME"}
    assert listed == there


def test_every_address_is_a_variable_and_loopback() -> None:
    """No configuration listens beyond loopback, or sends anywhere else, before its operator says so."""
    for path in CONFIGS.values():
        lines = [line.partition(" #")[0] for line in path.read_text(encoding="utf-8").splitlines()]
        addresses = [
            line for line in lines if re.match(r"\s*(- )?(\w+_)?(endpoint|host): ", line) and "host.name" not in line
        ]
        assert len(addresses) >= 6
        for line in addresses:
            (default,) = [found["default"] for found in VARIABLE.finditer(line)]
            assert re.fullmatch(r"(http://)?127\.0\.0\.1(:\d+(/.*)?)?", default), line


@pytest.mark.parametrize("name", CONFIGS)
def test_variables_reach_every_component(name: str) -> None:
    """The Collector's own resolver puts the variables into the whole file, whatever is in the build."""
    environ = {
        "COLLECTOR_RANKS": "32",
        "COLLECTOR_FILES": "/data",
        "COLLECTOR_FILE_MB": "7",
        "COLLECTOR_HEALTH_ENDPOINT": "0.0.0.0:13133",
        "COLLECTOR_QUEUE_BYTES": "12345",
    }
    config = resolved(CONFIGS[name], environ)
    assert config["extensions"]["health_check"] == {"endpoint": "0.0.0.0:13133"}
    queues = [each["sending_queue"]["queue_size"] for each in config["exporters"].values() if "sending_queue" in each]
    assert set(queues) == {12345}
    if name != "node":
        assert {file: config["exporters"][file] for file in FILES} == {
            file: {
                "path": f"/data/{file.partition('/')[2]}.jsonl",
                "rotation": {"max_megabytes": 7, "max_backups": 10},
            }
            for file in FILES
        }
    if name != "gateway":
        rank = 'resource.attributes["nv.dl.rank"] >= 32'
        assert config["processors"]["filter/rank"] == {
            "error_mode": "ignore",
            "traces": {"span": [f"{rank} and status.code != STATUS_CODE_ERROR"]},
            "logs": {"log_record": [f"{rank} and severity_number < SEVERITY_NUMBER_WARN"]},
        }


def test_the_filter_reads_what_a_rank_says() -> None:
    """Each attribute that a condition compares with a number is one that a rank sends, as an integer."""
    text = "".join(path.read_text(encoding="utf-8") for path in CONFIGS.values()) + PAGE
    compared = set(re.findall(r'resource\.attributes\["([\w.]+)"\] (?:[<>=]+|/) ', text))
    assert compared == {semconv.NV_DL_RANK, semconv.NV_DL_LOCAL_RANK}
    assert {semconv.RESOURCE_FIELDS[name] for name in compared} == {int}


def test_what_the_job_says_is_not_overwritten() -> None:
    """Resource detection adds, and never replaces, which is the other way round by default; not in the gateway."""
    detecting = {name: load(name)["processors"].get("resourcedetection") for name in CONFIGS}
    adding = {
        "detectors": ["env", "system"],
        "timeout": "2s",
        "override": False,
        "system": {"hostname_sources": ["os"]},
    }
    assert detecting == {"single": adding, "node": adding, "gateway": None}


def test_every_pipeline_begins_with_the_memory_limiter_and_ends_with_batches() -> None:
    """In every pipeline memory is checked first, what is dropped is dropped next, and batches are made last."""
    order = ["memory_limiter", "filter/rank", "resourcedetection", "batch"]
    for name in CONFIGS:
        for pipeline in load(name)["service"]["pipelines"].values():
            processors = pipeline["processors"]
            assert processors == [each for each in order if each in processors]
            assert (processors[0], processors[-1]) == ("memory_limiter", "batch")


# ---- what they do


@contextmanager
def running(
    name: str, folder: Path, environ: Mapping[str, str], stand_ins: Mapping[str, Config] | None = None
) -> Iterator[Ports]:
    """Run a configuration on free ports."""
    ports = Ports()
    with running_config(runnable(load(name), stand_ins), ports, environ, folder / name):
        yield ports


def run_ranks(ports: Ports, run_id: str, *ranks: int, steps: int = 3) -> None:
    """Run ranks of a job, at once, that send to the Collector as the page says; each confirms what it sent."""
    environ = clean_environ(
        {
            "NEMO_LENS_ENABLED": "1",
            "NEMO_LENS_LOGS_ENABLED": "1",
            "NEMO_LENS_RUN_ID": run_id,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": ports.http_endpoint,
        }
    )
    command = (sys.executable, "-W", "error::DeprecationWarning", str(RANK))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen((*command, str(rank), str(steps)), env=environ, **pipes) for rank in ranks]
    for job in jobs:
        printed, complaints = job.communicate(timeout=60)
        assert job.returncode == 0, complaints
        assert json.loads(printed) == {"confirmed": True}, complaints


def names_by_rank(spans: list[Any]) -> dict[int, list[str]]:
    """Return the names of the spans of each rank, in order."""
    ranks = {span["resource"]["nv.dl.rank"] for span in spans}
    return {rank: sorted(span["name"] for span in spans if span["resource"]["nv.dl.rank"] == rank) for rank in ranks}


def stored(receiver: OtlpReceiver, ranks: int, steps: int = 3) -> Callable[[], bool]:
    """Return the condition that a trace store has every span of so many ranks."""
    return lambda: len(receiver.spans()) >= ranks * (steps + 2)


SPANS = ["evaluate", "run", "train_step", "train_step", "train_step"]


def test_one_machine(database: VictoriaMetrics, otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Of every rank, metrics are in the database under Prometheus' names, and spans in the trace store, once each."""
    with replay_server() as files:
        environ = {**stores(database, otlp_receiver), "COLLECTOR_NODE": "workstation"}
        with running("single", tmp_path, environ, dict.fromkeys(FILES, files.exporter)) as ports:
            run_ranks(ports, "one-machine", 0, 1, 9)
            assert wait_for(stored(otlp_receiver, 3), 15)
            assert wait_for(lambda: len(files.records("logs")) >= 6, 10)
            steps = 'dl_training_step_duration_seconds_count{nemo_run_id="one-machine"}'
            database.wait_for(f"sum({steps})", 9)
            # The Collector's own metrics, by both ways.
            database.wait_for('otelcol_receiver_accepted_spans_total{service_name="otelcol-single"}', 15)
            assert counted(ports, "otelcol_receiver_accepted_spans") == 15
    assert database.by("nv_dl_rank", steps) == {"0": 3, "1": 3, "9": 3}
    assert names_by_rank(otlp_receiver.spans()) == dict.fromkeys((0, 1, 9), SPANS)
    bodies = sorted(record["body"] for record in files.records("logs"))
    assert bodies == ["loss is high"] * 3 + ["trained"] * 3
    ((labels, _),) = database.query('otelcol_exporter_queue_capacity{exporter="otlp/traces",data_type="traces"}')
    assert labels["host_name"] == "workstation"
    assert_readable(files, tmp_path)


def stores(database: VictoriaMetrics, traces: OtlpReceiver) -> dict[str, str]:
    """Return the variables that name the stores: a real metrics database, and a receiver in place of a trace store."""
    return {
        "COLLECTOR_METRICS_STORE": database.environ()["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"],
        "COLLECTOR_TRACE_STORE": traces.grpc_endpoint,
    }


def assert_readable(files: ReplayServer, folder: Path) -> None:
    """What the Collector writes as OTLP JSON, a line a batch as its file exporter does, is what our commands read."""
    written = folder / "files"
    written.mkdir()
    for signal in ("traces", "metrics", "logs"):
        lines = [json.dumps(payload) for path, payload in files.received if path == f"/v1/{signal}"]
        (written / f"{signal}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = Path(sys.executable).parent / "nemo-lens"
    for name, printed in {"tree": "train_step", "timeline": "3 processes, 3 tracks, 15 spans"}.items():
        read = subprocess.run(
            (str(command), name, str(written)), cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert read.returncode == 0, read.stderr
        assert printed in read.stdout


def test_nodes_and_a_gateway(database: VictoriaMetrics, otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Two nodes send through a gateway: everything is stored once, and compressed on its way."""
    with replay_server() as files:
        gateway_stores = stores(database, otlp_receiver)
        with (
            running("gateway", tmp_path, gateway_stores, dict.fromkeys(FILES, files.exporter)) as gateway,
            running_relay(gateway.listening[0]) as relay,
        ):
            to_gateway = {"COLLECTOR_GATEWAY": f"http://127.0.0.1:{relay.port}"}
            first, second = tmp_path / "first", tmp_path / "second"
            first.mkdir()
            second.mkdir()
            with (
                running("node", first, {**to_gateway, "COLLECTOR_NODE": "gpu-1"}) as one,
                running("node", second, {**to_gateway, "COLLECTOR_NODE": "gpu-2"}) as two,
            ):
                run_ranks(one, "nodes", 0, 1, steps=400)
                run_ranks(two, "nodes", 8, 9, steps=400)
                assert wait_for(stored(otlp_receiver, 4, 400), 15)
                assert wait_for(lambda: len(files.records("logs")) >= 8, 10)
                sent = relay.sent
                steps = 'dl_training_step_duration_seconds_count{nemo_run_id="nodes"}'
                database.wait_for(f"sum({steps})", 1600)
                # Each node's own metrics come through the gateway.
                accepted = (
                    'count(otelcol_receiver_accepted_spans_total{service_name="otelcol-node",host_name=~"gpu-[12]"})'
                )
                database.wait_for(accepted, 2, 15)
    assert len(otlp_receiver.spans()) == 4 * 402
    ids = {(span["trace_id"], span["span_id"]) for span in otlp_receiver.spans()}
    assert len(ids) == 4 * 402
    # Four spans in a row are alike but for ids and times: gzip halves them at least.
    assert sent < 0.5 * sum(len(request_bytes(request.payload)) for request in otlp_receiver.requests("traces"))


def request_bytes(payload: Any) -> bytes:
    """Return about what a request is uncompressed."""
    return json.dumps(payload, separators=(",", ":")).encode()


def test_nothing_is_lost_while_the_gateway_is_away(
    database: VictoriaMetrics, otlp_receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """While there is no gateway a node confirms and keeps what it gets; when one is back, it sends it once."""
    gateway = Ports()
    to_gateway = {"COLLECTOR_GATEWAY": gateway.grpc_endpoint}
    with ExitStack() as started, running("node", tmp_path, to_gateway) as node:  # the node ends first
        run_ranks(node, "away", 0, 1)
        steps = 'dl_training_step_duration_seconds_count{nemo_run_id="away"}'
        assert not wait_for(lambda: otlp_receiver.spans() or database.query(steps), 1.5)
        config = runnable(load("gateway"), nowhere("gateway"))
        started.enter_context(running_config(config, gateway, stores(database, otlp_receiver), tmp_path / "gateway"))
        run_ranks(node, "away", 2)
        assert wait_for(stored(otlp_receiver, 3), 20)
        database.wait_for(f"sum({steps})", 9, 20)
    assert names_by_rank(otlp_receiver.spans()) == dict.fromkeys(range(3), SPANS)


def test_a_node_that_is_ended_sends_what_it_has(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Ended by SIGTERM, as at the end of a job, the collector of a node sends what waits for a batch to fill."""
    with running("node", tmp_path, {"COLLECTOR_GATEWAY": otlp_receiver.grpc_endpoint}) as node:
        run_ranks(node, "ended", 0)
    assert names_by_rank(otlp_receiver.spans()) == {0: SPANS}


def test_over_its_limit_of_memory_it_refuses(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Over the limit the sender is refused, with a status that means: come back later; and it is counted."""
    too_little = {"COLLECTOR_MEMORY_MIB": "20", "COLLECTOR_MEMORY_SPIKE_MIB": "19"}
    with running("node", tmp_path, {"COLLECTOR_GATEWAY": otlp_receiver.grpc_endpoint, **too_little}) as node:
        assert wait_for(lambda: posted(node) == 503, 10)
        assert counted(node, "otelcol_receiver_refused_spans")
    with running("node", tmp_path, {"COLLECTOR_GATEWAY": otlp_receiver.grpc_endpoint}) as node:
        assert not wait_for(lambda: posted(node) != 200, 1.5)
        assert not counted(node, "otelcol_receiver_refused_spans")


def test_what_is_dropped_is_counted(otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """What finds the queue full, and what the gateway refuses for good, is in the metrics that the page names."""
    full = {"COLLECTOR_GATEWAY": "http://127.0.0.1:9", "COLLECTOR_QUEUE_BYTES": "1"}
    with running("node", tmp_path, full) as node:
        assert posted(node) == 200
        assert wait_for(lambda: counted(node, "otelcol_exporter_enqueue_failed_spans"), 10)
    otlp_receiver.refuse(grpc_status=grpc.StatusCode.INVALID_ARGUMENT)
    with running("node", tmp_path, {"COLLECTOR_GATEWAY": otlp_receiver.grpc_endpoint}) as node:
        assert posted(node) == 200
        assert wait_for(lambda: counted(node, "otelcol_exporter_send_failed_spans"), 10)
    for name in ("receiver_refused", "exporter_enqueue_failed", "exporter_send_failed"):
        assert f"`otelcol_{name}_spans_total`" in PAGE


def counted(collector: Ports, metric: str) -> float:
    """Return the sum of a counter that the Collector itself shows."""
    series = re.findall(rf"^{metric}(?:_total)?\{{.*\}} (\S+)$", own_metrics(collector), flags=re.M)
    return sum(map(float, series))


def own_metrics(collector: Ports) -> str:
    """Return what the Collector says of itself, in Prometheus' text format."""
    with urllib.request.urlopen(f"http://127.0.0.1:{collector.own_metrics}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def posted(collector: Ports) -> int:
    """Send a span by hand; return the status of the answer."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="by hand")
    span.trace_id, span.span_id = b"t" * 16, b"s" * 8
    header = {"Content-Type": "application/x-protobuf"}
    url = f"{collector.http_endpoint}/v1/traces"
    asked = urllib.request.Request(url, data=request.SerializeToString(), headers=header)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
