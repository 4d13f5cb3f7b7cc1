"""Trace context between the ranks of a job: broadcast to all of them, or linked to from a span of one of them.

``fallbacks`` holds how a carrier is packed and broadcast, so that a rank whose library has only the vendored file takes
part in the same way.
"""

from __future__ import annotations

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api._live import open_span
from nemo_lens.api.fallbacks import broadcast_carrier, find_place
from nemo_lens.api.propagation import inject_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def broadcast_trace_context(rank: int | None = None, src_rank: int = 0, group: Any = None) -> dict[str, str] | None:
    """Give every rank of a process group the current trace context of one of them.

    Every rank of the group has to call it, as any collective, whatever its telemetry: the cost is one broadcast of 512
    bytes, a second one when baggage or the trace state is long, and none in a group of one. The tensors are on the CPU
    where the backend takes them there, as gloo does; with NCCL alone, the other ranks wait for their GPU.

    Args:
        rank: global rank of the caller, if it is at hand. torch's own is what counts; another one gets a WARNING.
        src_rank: global rank of the source, in a subgroup too.
        group: process group; default the whole one.

    Returns:
        The carrier of the source, the same on every rank, the source included: for the ``context`` or ``links`` of a
        span. It is empty when the source has no span or its telemetry is off. None without torch, without an
        initialised process group, and on a rank outside ``group``, none of which sends anything; and, with a WARNING,
        when ``src_rank`` is no member of the group.

    Raises:
        Exception: what torch raises when the collective itself fails: a peer that is gone, a timeout. It is not
            swallowed, because a rank that went on would meet the others in the middle of another collective.
    """
    try:
        place = find_place(src_rank, group)
    except Exception as fault:  # noqa: BLE001 - every rank finds the same, and none enters
        warn_once(("broadcast", str(fault)), "the trace context is not broadcast: %s", fault)
        return None
    if place is None:
        return None
    own = place[0]
    if rank is not None and rank != own:
        warn_once(
            ("broadcast rank", rank), "broadcast_trace_context(rank=%r): this process has the global rank %d", rank, own
        )
    carrier = _own_carrier() if own == src_rank else {}
    received = broadcast_carrier(carrier, place, src_rank, group)
    if own == src_rank and received != carrier:
        debug_once("broadcast size", "baggage or trace state left out of a broadcast: beyond 8 KiB, or not text")
    return received


def create_linked_span(
    tracer: Any,
    name: str,
    remote_context: Any = None,
    remote_carrier: Mapping[str, str] | None = None,
    *,
    attributes: Mapping[str, Any] | None = None,
    span_kind: Any = None,
    context: Any = None,
    **attrs: Any,
) -> Any:
    """Start a span that links to one in another process and is not its child.

    A parent waits for its child; a link says that the span was caused by another, or works on what it made. The span's
    parent is the current span, and without one it is the root of a trace.

    Args:
        tracer: tracer to use; None for the default one of scope ``nemo.lens.helpers``.
        name: span name.
        remote_context: the span to link to: what ``extract_context`` returned, a span, a span context or a carrier.
        remote_carrier: the same as a carrier, used when there is no ``remote_context``. One that is malformed, of
            another type or larger than 8 KiB gives a span without a link.
        attributes: span attributes, needed for keys that are no identifiers; keyword attributes win.
        span_kind: 'internal', 'server', 'client', 'producer', 'consumer' or an OpenTelemetry ``SpanKind``.
        context: the parent, as for ``managed_span``; default the current span.
        **attrs: span attributes.

    Returns:
        The span, started and not current, as of ``tracer.start_span``: the caller ends it, by ``with span:`` or
        ``span.end()``. One that does nothing when telemetry is off.
    """
    remote = remote_carrier if remote_context is None else remote_context
    options = {"attributes": attributes, "span_kind": span_kind, "context": context}
    if remote is not None:
        options["links"] = [remote]
    return open_span(None, name, tracer, {**attrs, **options}).start()


def _own_carrier() -> dict[str, str]:
    carrier: dict[str, str] = {}
    inject_context(carrier)
    return carrier
