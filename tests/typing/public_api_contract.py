"""What type checkers see of the public API. Checked, never run.

``assert_type`` states what a call returns; a ``type: ignore`` states what must be refused, and is an error when it is
not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
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
