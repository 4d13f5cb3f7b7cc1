"""What type checkers see of the public API. Checked, never run.

``assert_type`` states what a call returns; a ``type: ignore`` states what must be refused, and is an error when it is
not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from decimal import Decimal
from fractions import Fraction
from typing import Any

from typing_extensions import assert_type

import nemo_lens.api
from nemo_lens.api import (
    DEFAULT_REDACT_KEYS,
    NemoLensConfig,
    SpanRegistry,
    TelemetryHandle,
    bind_context,
    broadcast_trace_context,
    create_linked_span,
    emit_span,
    enabled_span_groups,
    ensure_run_id,
    extract_context,
    get_pp_trace_carrier,
    get_telemetry,
    inject_context,
    instrument,
    is_span_group_enabled,
    linux_process_create_time,
    managed_span,
    mark,
    pending_span_groups,
    redact_value,
    safe_set_span_attributes,
    set_enabled_span_groups,
    set_pp_trace_carrier,
    set_span_group_spec,
    setup_telemetry,
    span_attributes,
    span_cm,
    trace_fn,
    uninstrument,
)
from nemo_lens.api.backend import Backend, NoopBackend
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_gym_metrics,
    record_inference_metrics,
    record_metrics,
    record_rl_metrics,
    record_training_metrics,
    register_metric_group,
    registered_metric_groups,
    unregister_metric_group,
)

# ---- lifecycle

assert_type(nemo_lens.api.__version__, str)
config = NemoLensConfig(enabled=True, service_name=None, exporter="file", shutdown_timeout_ms=1000)
assert_type(NemoLensConfig.from_env(prefix="MINE", fallback_prefix="NEMO_LENS", known=("MODE",)), NemoLensConfig)
NemoLensConfig(enabeld=True)  # type: ignore[call-arg]
NemoLensConfig(shutdown_timeout_ms="soon")  # type: ignore[arg-type]

handle = setup_telemetry(config, resource_attributes={"nv.dl.rank": 0})
assert_type(handle, TelemetryHandle)
assert_type(get_telemetry(), TelemetryHandle)
assert_type(handle.is_exporting, bool)
assert_type(handle.force_flush(timeout_ms=100), bool)
with setup_telemetry() as entered:
    assert_type(entered, TelemetryHandle)
setup_telemetry({"enabled": True})  # type: ignore[arg-type]
handle.is_exporting = True  # type: ignore[misc]
instrument("fastapi", object(), option=1)
uninstrument("fastapi")
backend: Backend = NoopBackend()

# ---- spans

span: AbstractContextManager[Any] = managed_span("step", "forward", attributes={"a.b": 1}, span_kind="server", size=8)
both: AbstractAsyncContextManager[Any] = managed_span("step", "forward", group="an attribute", name="another")
managed_span("step")  # type: ignore[call-arg]
managed_span(group="step", name="forward")  # type: ignore[call-arg]
managed_span("step", 3)  # type: ignore[arg-type]
span_cm("load", None, False, links=[{"traceparent": "00-"}])
with span_cm("load") as opened:
    safe_set_span_attributes(opened, {"a": 1})


@trace_fn("step", attributes=lambda batch: {"size": len(batch)})
def plain(batch: list[int]) -> float:
    return float(sum(batch))


@trace_fn("step")
async def coroutine(x: int) -> str:
    async with managed_span("step", "inner"):
        return str(x)


@trace_fn("step", "numbers")
def generator(n: int) -> Iterator[int]:
    yield from range(n)


@trace_fn("step")
async def stream(n: int) -> AsyncIterator[bytes]:
    yield bytes(n)


class Trainer:
    @trace_fn("step")
    def run(self, steps: int) -> int:
        return steps


assert_type(plain([1]), float)
assert_type(generator(3), Iterator[int])
assert_type(stream(3), AsyncIterator[bytes])
assert_type(Trainer().run(3), int)
plain("text", 1)  # type: ignore[call-arg, arg-type]
trace_fn(plain)  # type: ignore[arg-type]


async def caller() -> None:
    assert_type(await coroutine(1), str)


with span_attributes({"phase": "train"}):
    mark("checkpoint", group="save", attributes={"shard": 1})
emit_span(None, "measured", 1.5, "2.25", group="save", attributes={"source": "launcher"})

# ---- groups

SpanRegistry.register("mine", {"step", "save"}, {"default": ["step"]}, allow_override=True)
SpanRegistry.register("mine")  # type: ignore[call-arg]
SpanRegistry.unregister("mine")
assert_type(is_span_group_enabled("step"), bool)
assert_type(enabled_span_groups(), frozenset[str])
assert_type(pending_span_groups(), tuple[str, ...])
set_enabled_span_groups(["step"])
set_span_group_spec("default,save")
set_span_group_spec(["default"])  # type: ignore[arg-type]

# ---- context

carrier: dict[str, str] = {}
assert_type(inject_context(carrier), MutableMapping[str, str])
extract_context(carrier)


def in_thread(x: int, *, scale: float) -> str:
    return str(x * scale)


bound: Callable[..., str] = bind_context(in_thread)
assert_type(bind_context(in_thread)(1, scale=2.0), str)
bind_context(in_thread)("1", scale=2.0)  # type: ignore[arg-type]
set_pp_trace_carrier(carrier)
assert_type(get_pp_trace_carrier(), dict[str, str] | None)
assert_type(broadcast_trace_context(0, src_rank=1, group=None), dict[str, str] | None)
broadcast_trace_context("0")  # type: ignore[arg-type]
create_linked_span(None, "stage", remote_carrier=carrier, attributes={"dl.microbatch": 1}, span_kind="consumer", x=1)
create_linked_span(None, "stage", remote_carrier="text")  # type: ignore[arg-type]

# ---- values and identity

redact_value("api_key", "x")
safe_set_span_attributes(None, {"k": object()}, redact_keys=DEFAULT_REDACT_KEYS)
assert_type(ensure_run_id("", {"SLURM_JOB_ID": "7"}), str)
assert_type(linux_process_create_time(), float | None)

# ---- metrics

spec = MetricSpec("loss", "my.loss", kind="histogram", unit="1", description="how wrong", buckets=(0.5, 1))
MetricSpec("free", "my.free", "observable_gauge", callback=lambda: [(1.5, {"gpu": 0})])
MetricSpec("loss")  # type: ignore[call-arg]
MetricSpec("loss", "my.loss", buckets="1, 2")  # type: ignore[arg-type]
MetricSpec("free", "my.free", "observable_gauge", callback=1.5)  # type: ignore[arg-type]
spec.name = "other"  # type: ignore[misc]
register_metric_group("mine", [spec], allow_override=True)
register_metric_group("mine", ["my.loss"])  # type: ignore[list-item]
register_metric_group("mine", [spec], True)  # type: ignore[call-arg]
unregister_metric_group("mine")
assert_type(registered_metric_groups(), dict[str, tuple[MetricSpec, ...]])
record_metrics(handle.meter, "mine", {"loss": 1}, attributes={"split": "train"}, steps=Decimal(2), meter=3, group=4)
record_metrics(handle.meter, "mine", values=5)
record_metrics(handle.meter)  # type: ignore[call-arg]
record_metrics(handle.meter, group="mine")  # type: ignore[call-arg]
record_metrics(handle.meter, "mine", [1])  # type: ignore[arg-type]
assert_type(create_metric_instruments(handle.meter, "mine"), dict[str, Any])
record_training_metrics(handle.meter, loss=0.5, skipped_iterations=1, attributes={"split": "train"})
record_training_metrics(handle.meter, loss="0.5")  # type: ignore[arg-type]
record_training_metrics(handle.meter, lsos=0.5)  # type: ignore[call-arg]
record_training_metrics(handle.meter, 0.5)  # type: ignore[call-arg]
record_rl_metrics(handle.meter, reward_mean=Fraction(1, 2), kl_divergence=None)
record_gym_metrics(handle.meter, active_servers=3)
record_inference_metrics(handle.meter, request_duration_s=0.5, model="m", input_tokens=3, provider_name=None)
record_inference_metrics(handle.meter, model=3)  # type: ignore[arg-type]
