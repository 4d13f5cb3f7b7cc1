"""Wire names: what dashboards and collectors rely on, spelled once more, and what OpenTelemetry calls the same."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

from nemo_lens.api import semconv
from nemo_lens.api.semconv import metrics, otel_sdk, resource, slurm, span
from support.meters import Meter

# Kind of name to the names, with the type or unit each is sent with: the contract, as it is documented.
RESOURCE_TEXTS = """
service.name service.version service.instance.id deployment.environment deployment.environment.name nemo.run.id
nemo.user.id wandb.entity wandb.project host.name nv.dl.role nv.dl.provider.name nv.dl.training.config.optimizer
nv.dl.training.config.recompute_granularity nv.dl.software.torch nv.dl.software.cuda nv.dl.software.nccl
nv.dl.software.transformer_engine nv.dl.launch.container.image nv.dl.job.uuid nv.dl.run.uuid nv.gpu.model nv.gpu.uuid
nv.gpu.serial nv.gpu.pci_bus_id nv.gpu.compute_capability nv.gpu.driver_version k8s.namespace.name k8s.pod.name
k8s.pod.uid k8s.node.name k8s.container.name k8s.job.name slurm.job.id slurm.job.id.raw slurm.array.job_id
slurm.array.task_id slurm.job.name slurm.job.user slurm.job.account slurm.job.qos slurm.job.reservation
slurm.cluster.name slurm.partition slurm.segment slurm.sluid slurm.array.sluid slurm.topology.addr
slurm.topology.addr_pattern slurm.head_node.name
"""
RESOURCE_INTEGERS = """
process.pid host.gpu.count nv.dl.rank nv.dl.world_size nv.dl.local_rank nv.dl.topology.size.tp nv.dl.topology.size.pp
nv.dl.topology.size.dp nv.dl.training.config.global_batch_size nv.dl.training.config.micro_batch_size
nv.dl.training.config.sequence_length nv.dl.training.target.train_iters nv.dl.training.target.train_samples
nv.dl.training.target.train_tokens nv.gpu.index nv.gpu.memory_total slurm.array.count slurm.nnodes slurm.ntasks
slurm.restart_count slurm.het.size slurm.het.group
"""
SPAN_BOOLEANS = "nemo.span.truncated inverted.skew"
SPAN_INTEGERS = """
dl.iteration dl.microbatch_id dl.batch_size dl.sequence_length dl.data_parallel.rank dl.data_parallel.size
dl.tensor_parallel.rank dl.tensor_parallel.size dl.pipeline_parallel.rank dl.pipeline_parallel.size rl.num_rollouts
gym.num_servers gym.rollout.batch_size thread.id
"""
SPAN_TEXTS = """
nemo.span.truncated.reason nemo.span.interrupted inverted.start_epoch_seconds inverted.end_epoch_seconds
inverted.delta_seconds rl.algorithm rl.generation.backend gym.server.name gym.server.type gen_ai.operation.name
gen_ai.provider.name gen_ai.request.model gen_ai.token.type thread.name
"""
METRICS = {
    ("histogram", "s"): """gen_ai.server.request.duration gen_ai.server.time_to_first_token
        gen_ai.server.time_per_output_token dl.training.step.duration""",
    ("histogram", "{token}"): "gen_ai.client.token.usage",
    ("histogram", "ms"): """rl.generation.duration_ms rl.rollout.duration_ms gym.server.request_duration_ms
        gym.rollout.duration_ms gym.verify.duration_ms""",
    ("gauge", "1"): """rl.reward.mean rl.kl_divergence rl.policy_loss rl.value_loss rl.entropy rl.grad_norm
        rl.learning_rate gym.verify.success_rate dl.training.loss dl.training.learning_rate dl.training.grad_norm""",
    ("gauge", "{token}"): "rl.response_length.mean",
    ("gauge", "{token}/s"): "rl.throughput.tokens_per_sec dl.training.throughput.tokens_per_sec",
    ("gauge", "{sample}/s"): "dl.training.throughput.samples_per_sec",
    ("gauge", "{TFLOP}/s"): "dl.training.throughput.tflops",
    ("gauge", "{server}"): "gym.servers.active",
    ("gauge", "By"): "dl.training.memory.allocated",
    ("counter", "{iteration}"): "dl.training.skipped_iterations",
    ("counter", "{span}"): "otel.sdk.processor.span.processed otel.sdk.exporter.span.exported",
    ("counter", "{log_record}"): "otel.sdk.processor.log.processed otel.sdk.exporter.log.exported",
    ("counter", "{data_point}"): "otel.sdk.exporter.metric_data_point.exported",
    ("up_down_counter", "{span}"): """otel.sdk.processor.span.queue.size otel.sdk.processor.span.queue.capacity
        otel.sdk.exporter.span.inflight""",
    ("up_down_counter", "{log_record}"): """otel.sdk.processor.log.queue.size otel.sdk.processor.log.queue.capacity
        otel.sdk.exporter.log.inflight""",
    ("up_down_counter", "{data_point}"): "otel.sdk.exporter.metric_data_point.inflight",
}
METRIC_ATTRIBUTES = "otel.component.name otel.component.type error.type"

MODULES = (resource, slurm, span, metrics, otel_sdk)


def constants(module: object) -> dict[str, str]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_resource_fields_are_the_documented_ones() -> None:
    """Names and types of the resource are a contract."""
    texts, integers = dict.fromkeys(RESOURCE_TEXTS.split(), str), dict.fromkeys(RESOURCE_INTEGERS.split(), int)
    assert {**texts, **integers} == semconv.RESOURCE_FIELDS


def test_span_fields_are_the_documented_ones() -> None:
    """Names and types of span attributes are a contract."""
    expected: dict[str, type] = dict.fromkeys(SPAN_BOOLEANS.split(), bool)
    expected.update(dict.fromkeys(SPAN_INTEGERS.split(), int))
    expected.update(dict.fromkeys(SPAN_TEXTS.split(), str))
    assert {**expected, "rl.reward": float} == semconv.SPAN_FIELDS


def test_metric_fields_are_the_documented_ones() -> None:
    """Names, kinds and units of metrics are a contract."""
    assert {name: shape for shape, names in METRICS.items() for name in names.split()} == semconv.METRIC_FIELDS


def test_attributes_of_the_metrics_about_telemetry_are_the_documented_ones() -> None:
    """What tells a drop from an export that failed, and one exporter from another, is a contract."""
    assert dict.fromkeys(METRIC_ATTRIBUTES.split(), str) == semconv.OTEL_SDK_METRIC_ATTRIBUTES


def test_each_name_has_a_constant_that_spells_it() -> None:
    """``nv.dl.rank`` is ``NV_DL_RANK``, ``gen_ai.x`` is ``GENAI_X``; every name of the tables is one, exported."""
    tables = (semconv.RESOURCE_FIELDS, semconv.SPAN_FIELDS, semconv.METRIC_FIELDS, semconv.OTEL_SDK_METRIC_ATTRIBUTES)
    named = [name for table in tables for name in table]
    for name in named:
        constant = name.replace("gen_ai.", "genai.").replace(".", "_").upper()
        assert getattr(semconv, constant) == name
    spelled = [value for module in MODULES for value in constants(module).values()]
    assert sorted(spelled) == sorted(named)


def test_no_name_is_of_two_kinds() -> None:
    """What is fixed for the process, which one a span is about, and what moves are three things."""
    resources, spans, numbers = set(semconv.RESOURCE_FIELDS), set(semconv.SPAN_FIELDS), set(semconv.METRIC_FIELDS)
    assert not resources & spans
    assert not numbers & (resources | spans)
    assert not set(semconv.OTEL_SDK_METRIC_ATTRIBUTES) & (numbers | resources | spans)


def official_names() -> set[str]:
    """Return every attribute and metric name the official package knows, stable and incubating."""
    found: set[str] = set()
    for package_name in ("attributes", "_incubating.attributes", "_incubating.metrics"):
        package = pytest.importorskip(f"opentelemetry.semconv.{package_name}", exc_type=ImportError)
        for module in pkgutil.iter_modules(package.__path__):
            found.update(constants(importlib.import_module(f"{package.__name__}.{module.name}")).values())
    return found


def test_standard_names_are_those_of_the_official_package() -> None:
    """Names under an OpenTelemetry prefix exist there as they are spelled here; ``host.gpu.count`` alone is ours."""
    ours = [value for module in MODULES for value in constants(module).values()]
    prefixes = ("gen_ai", "k8s", "host", "service", "process", "thread", "otel", "error")
    standard = {name for name in ours if name.partition(".")[0] in prefixes}
    standard |= {name for name in ours if name.startswith("deployment.")}
    assert len(standard) > 15
    assert standard - official_names() == {"host.gpu.count"}


def test_metrics_about_telemetry_are_those_of_the_official_package() -> None:
    """Kind and unit, too: a dashboard made for any OpenTelemetry SDK reads them."""
    official = pytest.importorskip("opentelemetry.semconv._incubating.metrics.otel_metrics", exc_type=ImportError)
    for name, (kind, unit) in semconv.OTEL_SDK_METRIC_FIELDS.items():
        create = getattr(official, f"create_{name.replace('.', '_')}")
        meter = Meter()
        create(meter)
        (made,) = meter.made
        assert (made.name, made.kind, made.unit) == (name, kind, unit)


def test_the_stated_version_is_one_opentelemetry_published() -> None:
    """``SEMCONV_VERSION`` is the version of a schema that the lowest supported and the newest package know."""
    schemas = pytest.importorskip("opentelemetry.semconv.schemas")
    assert re.fullmatch(r"\d+\.\d+\.\d+", semconv.SEMCONV_VERSION)
    known = {schema.value for schema in schemas.Schemas}
    assert f"https://opentelemetry.io/schemas/{semconv.SEMCONV_VERSION}" in known
