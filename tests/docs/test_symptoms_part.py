"""Only a part arrives: each cause made, its message read, its remedy tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from support.http_serving import serving
from support.otlp_receiver import OtlpReceiver
from support.symptoms import Lab, Symptom, symptom

SET_UP = "from nemo_lens.api import *\ntelemetry = setup_telemetry(resource_attributes={'nv.dl.rank': 0})\n"


@contextmanager
def receiver_of_spans_alone() -> Iterator[str]:
    """Run a receiver that has a pipeline for traces and for nothing else; give its endpoint."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with serving(Answer) as url:
        yield url


@symptom("Spans arrive, but metrics or logs do not")
def test_signal_not_accepted(lab: Lab, case: Symptom) -> None:
    """doctor names the signal that the collector has no pipeline for; without that signal all is well."""
    with receiver_of_spans_alone() as endpoint:
        environ = {
            "NEMO_LENS_EXPORTER": "otlp",
            "NEMO_LENS_LOGS_ENABLED": "1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        case.seen(lab.command("doctor", **environ).out)
        cured = lab.command("doctor", **environ, cure=case.cure())
    case.absent(cured.out)
    assert cured.code == 0


@symptom("Log records are not exported")
def test_bridge_without_logs(lab: Lab, case: Symptom) -> None:
    """The program says that logs are off; the variable brings them."""
    code = f"""{SET_UP}
import logging
from nemo_lens.sdk.logging_bridge import setup_logging_bridge
setup_logging_bridge()
logging.warning("disk is full")
"""
    ended = lab.run(code)
    case.seen(ended.err)
    assert ended.written.logs() == []
    cured = lab.run(code, cure=case.cure())
    case.absent(cured.err)
    assert [log["body"] for log in cured.written.logs()] == ["disk is full"]


@symptom("Log records of level INFO are missing")
def test_level(lab: Lab, case: Symptom) -> None:
    """Without a level only WARNING arrives, of which doctor reminds; with it INFO arrives."""
    case.seen(lab.command("doctor", NEMO_LENS_LOGS_ENABLED="1").out)
    code = case.python()
    broken = code.replace("logging.getLogger().setLevel(logging.INFO)\n", "")
    assert broken != code
    assert lab.run(broken, NEMO_LENS_LOGS_ENABLED="1").written.logs() == []
    cured = lab.run(code, NEMO_LENS_LOGS_ENABLED="1")
    assert [log["body"] for log in cured.written.logs()] == ["step 7"]


GROUP = """
from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry
SpanRegistry.register("mytrainer", ["step"], presets={"default": ["step"]})
telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
with managed_span("step", "train.step"):
    pass
"""


@symptom("A span group matches nothing")
def test_unknown_group(lab: Lab, case: Symptom) -> None:
    """The name is said with the nearest one; the right one opens the group."""
    ended = lab.run(GROUP, NEMO_LENS_SPAN_GROUPS="defualt")
    case.seen(ended.err)
    assert ended.written.names() == []
    cured = lab.run(GROUP, NEMO_LENS_SPAN_GROUPS="defualt", cure=case.cure())
    case.absent(cured.err)
    assert cured.written.names() == ["train.step"]


@symptom("The first spans of a library are missing")
def test_late_registration(lab: Lab, case: Symptom) -> None:
    """Spans before the registration are missing, which is said; registered first they are there."""
    late = """
from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry
telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
with managed_span("step", "first"):
    pass
SpanRegistry.register("mytrainer", ["step"], presets={"default": ["step"]})
with managed_span("step", "second"):
    pass
"""
    ended = lab.run(late)
    case.seen(ended.err)
    assert ended.written.names() == ["second"]
    cured = lab.run(case.python())
    case.absent(cured.err)
    assert cured.written.names() == ["train.step"]


RANK = """
import os
from nemo_lens.api import *
rank = int(os.environ["SLURM_PROCID"])
with setup_telemetry(resource_attributes={"nv.dl.rank": rank, "nv.dl.world_size": 2}):
    with span_cm("train.step", attributes={"dl.iteration": 0}):
        pass
"""


@symptom("Some ranks are missing")
def test_missing_rank(lab: Lab, case: Symptom) -> None:
    """The summary names the rank that the variables did not reach; with them it is there."""
    first = lab.run(RANK, SLURM_PROCID="0", NEMO_LENS_RUN_ID="r")
    second = lab.run(RANK, SLURM_PROCID="1", NEMO_LENS_RUN_ID="r", unset=("NEMO_LENS_ENABLED",))
    files = [str(ended.written.folder) for ended in (first, second)]
    case.seen(lab.command("timeline", "--summary", *files).out)
    cured = lab.run(RANK, SLURM_PROCID="1", NEMO_LENS_RUN_ID="r", unset=("NEMO_LENS_ENABLED",), cure=case.cure())
    case.absent(lab.command("timeline", "--summary", files[0], str(cured.written.folder)).out)


@symptom("Spans were dropped")
def test_queue_is_full(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """A burst past the queue is counted, with a collector that is there; with a longer queue all of it arrives."""
    code = f"""{SET_UP}
for number in range(5000):
    telemetry.tracer.start_span("burst").end()
telemetry.shutdown(20_000)
"""
    otlp_receiver.delay(0.5)
    environ = {"NEMO_LENS_EXPORTER": "otlp", **otlp_receiver.environ("http/protobuf")}
    case.seen(lab.run(code, **environ).err)
    otlp_receiver.accept()
    otlp_receiver.clear()
    cured = lab.run(code, **environ, cure=case.cure())
    case.absent(cured.err)
    assert len(otlp_receiver.spans()) == 5000


@symptom("The receiver rejects a part")
def test_partial_success(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """What the receiver says is said, and what it did not keep is lost; where it keeps all, nothing is."""
    code = f"{SET_UP}telemetry.tracer.start_span('step').end()\n"
    environ = {"NEMO_LENS_EXPORTER": "otlp", **otlp_receiver.environ("grpc")}
    otlp_receiver.reject(1, "older than an hour")
    ended = lab.run(code, **environ)
    case.seen(ended.err)
    assert "1 spans were dropped: the exporter did not confirm them" in ended.err
    otlp_receiver.accept()
    case.absent(lab.run(code, **environ).err)


@symptom("The last spans before SIGTERM are missing")
def test_sigterm(lab: Lab, case: Symptom) -> None:
    """Without the handler the last spans are lost; with it they are there, the open one marked, and SIGTERM ends it."""
    work = """
from nemo_lens.api import span_cm
import time
with span_cm("step"):
    pass
with span_cm("run"):
    print("ready", flush=True)
    time.sleep(30)
"""

    def evicted(code: str) -> tuple[int, list[str]]:
        with lab.started(code) as running:
            assert running.said() == "ready"
            running.terminate()
            ended = running.finish()
        return ended.code, ended.written.names()

    assert evicted(SET_UP + work) == (-15, [])
    assert evicted(case.python() + work) == (-15, ["run", "step"])


@symptom("A process that ends with os._exit loses its spans")
def test_os_exit(lab: Lab, case: Symptom) -> None:
    """Without a flush the child's span is lost; with it, it is there."""
    code = case.python()
    broken = code.replace("    get_telemetry().force_flush(2000)\n", "")
    assert broken != code
    assert lab.run(broken).written.names() == []
    assert lab.run(code).written.names() == ["child"]


@symptom("Spans of a Pool's workers are missing")
def test_pool(lab: Lab, case: Symptom) -> None:
    """A pool that its block ends loses spans of its workers; closed and joined before, it loses none."""
    code = case.python()
    broken = code.replace("        pool.close()\n        pool.join()\n", "")
    assert broken != code
    # Now and then all of its workers have left before they are terminated.
    assert any(lab.run(broken).written.names() != ["work"] * 4 for _ in range(10))
    assert lab.run(code).written.names() == ["work"] * 4


@symptom("A forked process exports nothing over gRPC")
def test_grpc_after_fork(lab: Lab, case: Symptom, otlp_receiver: OtlpReceiver) -> None:
    """Forked in the middle of an export, the child says that it sends nothing over gRPC; over HTTP it sends."""
    code = f"""{SET_UP}
import os, time
for number in range(600):
    telemetry.tracer.start_span("parent").end()
time.sleep(0.5)  # the export of the first batch is under way
child = os.fork()
if child == 0:
    with span_cm("child"):
        pass
    telemetry.force_flush(1500)
    os._exit(0)
os.waitpid(child, 0)
telemetry.shutdown(300)
"""
    otlp_receiver.delay(1.0)
    environ = {"NEMO_LENS_EXPORTER": "otlp", **otlp_receiver.environ("grpc")}
    case.seen(lab.run(code, **environ).err)
    assert "child" not in [span["name"] for span in otlp_receiver.spans()]
    cured = lab.run(code, **environ, cure=case.cure(http_endpoint=otlp_receiver.http_endpoint))
    case.absent(cured.err)
    assert otlp_receiver.wait_for(lambda: "child" in [span["name"] for span in otlp_receiver.spans()])


@symptom("An attribute is missing, cut or [REDACTED]")
def test_attributes(lab: Lab, case: Symptom) -> None:
    """What is dropped or cut is said at DEBUG; flat values and counts of tokens arrive, a prompt's text does not."""
    code = f"""
import logging
logging.basicConfig()
logging.getLogger("nemo_lens").setLevel(logging.DEBUG)
{SET_UP}
with span_cm("run", config={{"lr": 0.1}}, note="x" * 9000, prompt="secret", prompt_tokens=512):
    pass
"""
    ended = lab.run(code)
    case.seen(ended.err)
    attributes = ended.written.span("run")["attributes"]
    assert attributes == {"note": "x" * 8192, "prompt": "[REDACTED]", "prompt_tokens": 512}
    cured = lab.run(case.python())
    assert cured.written.span("run")["attributes"] == {"config.lr": 0.1, "config.layers": 12}


@symptom("A tensor on a GPU is no value")
def test_tensor_on_a_gpu(lab: Lab, case: Symptom) -> None:
    """A tensor on a device (a stand-in for torch's) is refused unread, as attribute and as metric; a number arrives."""
    code = f"""{SET_UP}
from types import SimpleNamespace
from nemo_lens.api.instruments import record_training_metrics

def item(self):
    raise AssertionError("read")

Tensor = type("Tensor", (), {{"__module__": "torch", "device": SimpleNamespace(type="cuda"), "item": item}})
with span_cm("run", loss=Tensor(), step=3):
    record_training_metrics(get_meter("mytrainer"), loss=Tensor())
with span_cm("cured", loss=2.5):
    record_training_metrics(get_meter("mytrainer"), loss=2.5)
"""
    ended = lab.run(code, NEMO_LENS_METRICS_ENABLED="1")
    assert ended.code == 0, ended.err
    case.seen(ended.err)
    assert ended.written.span("run")["attributes"] == {"step": 3}
    assert ended.written.span("cured")["attributes"] == {"loss": 2.5}
    assert list(ended.written.totals("dl.training.loss").values()) == [2.5]


@symptom("A metric is not recorded")
def test_metric_is_refused(lab: Lab, case: Symptom) -> None:
    """Unknown groups and keys, and negative counts, are named; what is right is recorded."""
    code = f"""{SET_UP}
from nemo_lens.api.instruments import record_metrics
meter = get_meter("mytrainer")
record_metrics(meter, "trainng", loss=1.5)
record_metrics(meter, "training", los=1.5)
record_metrics(meter, "training", skipped_iterations=-1)
record_metrics(meter, "training", loss=2.5)
"""
    ended = lab.run(code, NEMO_LENS_METRICS_ENABLED="1")
    case.seen(ended.err)
    named = {point["name"] for point in ended.written.points() if point["name"].startswith("dl.")}
    assert named == {"dl.training.loss"}
    assert list(ended.written.totals("dl.training.loss").values()) == [2.5]


@symptom("A metric has a series otel_metric_overflow")
def test_overflow(lab: Lab, case: Symptom) -> None:
    """The attribute that changes all the time is named, and the total stays right; without it there is one series."""
    code = f"""{SET_UP}
from nemo_lens.api.instruments import MetricSpec, record_metrics, register_metric_group
register_metric_group("mytrainer", [MetricSpec("samples", "mytrainer.samples", "counter")])
meter = get_meter("mytrainer")
for number in range(2100):
    record_metrics(meter, "mytrainer", samples=1, attributes={{"request.id": number}})
"""
    ended = lab.run(code, NEMO_LENS_METRICS_ENABLED="1")
    case.seen(ended.err)
    points = [point for point in ended.written.points() if point["name"] == "mytrainer.samples"]
    (rest,) = [point["value"] for point in points if point["attributes"] == {"otel.metric.overflow": True}]
    assert rest >= 100
    assert sum(point["value"] for point in points) == 2100
    cured = lab.run(code.replace(', attributes={"request.id": number}', ""), NEMO_LENS_METRICS_ENABLED="1")
    case.absent(cured.err)
    assert [p["value"] for p in cured.written.points() if p["name"] == "mytrainer.samples"] == [2100]


@symptom("Too many open files")
def test_no_descriptor(lab: Lab, case: Symptom, tmp_path: Path) -> None:
    """At the limit the exporter says which file it could not open; with a higher limit it writes."""
    code = f"""{SET_UP}
import os
kept = []
try:
    for number in range(100):
        kept.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
with span_cm("run"):
    pass
telemetry.force_flush()
"""
    low = "ulimit -S -n 60"
    ended = lab.run(code, cure=low)
    case.seen(ended.err)
    assert ended.written.names() == []
    cured = lab.run(code, cure=f"{low}\n{case.cure()}")
    case.absent(cured.err)
    assert cured.written.names() == ["run"]


@symptom("No space left on device")
def test_full_disk(lab: Lab, case: Symptom) -> None:
    """The exporter says which file has no room, and the job runs on; under another name it is written."""
    code = f"""{SET_UP}
with span_cm("run"):
    pass
telemetry.shutdown()
print("the job goes on")
"""
    ended = lab.run(code, NEMO_LENS_FILE_PATH="/dev/full")
    case.seen(ended.err)
    assert (ended.code, ended.out) == (0, "the job goes on\n")
    elsewhere = {"/scratch/nemo-lens/{run_id}/": ""}
    cured = lab.run(code, NEMO_LENS_FILE_PATH="/dev/full", cure=case.cure(**elsewhere))
    case.absent(cured.err)
    assert cured.written.names() == ["run"]
