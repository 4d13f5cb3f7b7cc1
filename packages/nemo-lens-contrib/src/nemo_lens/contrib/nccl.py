"""Trace contexts as tensors, sent over torch.distributed alongside what the ranks compute.

A context is a uint8 tensor of a fixed size, on the device that the group's backend sends from: CUDA with NCCL, the CPU
with gloo. Sender and receiver agree on the size and on nothing else; with telemetry off, an empty context is sent, so
that the ranks of a job stay in step whatever each of them records.
"""

from __future__ import annotations

import sys

from nemo_lens.api import extract_context, inject_context
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.fallbacks import (
    CARRIER_BLOCK_BYTES,
    LONGEST_CARRIER_BYTES,
    carrier_tensor,
    pack_carrier,
    process_group,
    unpack_carrier,
)
from nemo_lens.contrib._requirement import require
from nemo_lens.contrib._reversible import undone_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

# Bytes of a context's tensor unless a caller says otherwise.
CONTEXT_BYTES = CARRIER_BLOCK_BYTES
# A traceparent, and some room for a short tracestate.
_FEWEST_BYTES = 128


def _uninstrument() -> None:
    """Do nothing: nothing was patched."""


@undone_by(_uninstrument)
def instrument_nccl() -> ModuleType:
    """Check that torch is there and return this module, whose functions are the integration.

    Nothing is patched. A collective wrapped in a span would not be the function that torch.compile knows, and code
    that has imported it by name would not see the wrapper.

    Raises:
        ImportError: when torch is not installed.
    """
    require("torch.distributed", "nccl")
    return sys.modules[__name__]


def serialize_context(context: Any = None, size: int = CONTEXT_BYTES, *, group: Any = None) -> Any:
    """Return a trace context as a tensor, to be sent by means of one's own.

    Args:
        context: what ``extract_context`` returned, or a carrier; default the current context.
        size: bytes of the tensor, 128 to 8192, the same at the receiver. What does not fit is left out, baggage first.
        group: process group that will send it, which decides the device; default the whole one, and the CPU while
            there is none.

    Returns:
        A contiguous uint8 tensor of one dimension. It holds an empty context when there is no span or telemetry is off.

    Raises:
        ValueError: for another ``size``.
        ImportError: when torch is not installed.
    """
    require("torch.distributed", "nccl")
    return carrier_tensor(_packed(context, size), group)


def deserialize_context(tensor: Any) -> dict[str, str]:
    """Return the carrier in a tensor that ``serialize_context`` made.

    Reading a tensor on a GPU waits for what the GPU still has to do.

    Args:
        tensor: the tensor as it was received.

    Returns:
        A carrier, for the ``context`` or ``links`` of a span. It is empty for a tensor of another type, shape or size,
        and for bytes that are cut, padded or somebody else's.

    Raises:
        ImportError: when torch is not installed.
    """
    torch = require("torch", "nccl")
    try:
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8 or tensor.dim() != 1:
            found = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            debug_once(("context tensor", str(found)), "no context in a %s: not a uint8 tensor of one dimension", found)
            return {}
        if tensor.numel() > LONGEST_CARRIER_BYTES:
            return {}
        return unpack_carrier(bytes(tensor.tolist()))
    except Exception as fault:  # noqa: BLE001 - whatever came from the other rank must not reach the caller
        debug_once(("context tensor", type(fault)), "could not read a context: %r", fault, exc_info=True)
        return {}


def extract_nccl_context(tensor: Any) -> Any:
    """Return the context in a tensor, as ``extract_context`` returns that of a carrier; an empty one for a bad tensor.

    Args:
        tensor: the tensor as it was received.

    Raises:
        ImportError: when torch is not installed.
    """
    return extract_context(deserialize_context(tensor))


def send_context(dst: int, context: Any = None, *, group: Any = None, size: int = CONTEXT_BYTES, tag: int = 0) -> None:
    """Send a trace context to one rank, which has to call ``recv_context``.

    It is one more message between the two ranks, in order with those of the activations: call it next to their
    ``send``, always, whatever the rank's own telemetry. Without an initialised process group, and on a rank outside
    ``group``, nothing is sent.

    Args:
        dst: global rank of the receiver.
        context: what ``extract_context`` returned, or a carrier; default the current context.
        group: process group; default the whole one.
        size: bytes of the message, the same at the receiver, as for ``serialize_context``.
        tag: tag of the message, for backends that have them.

    Raises:
        ValueError: for another ``size``.
        ImportError: when torch is not installed.
        Exception: what torch raises when the message cannot be sent, which the next activation could not either.
    """
    distributed = require("torch.distributed", "nccl")
    packed = _packed(context, size)
    if _takes_part(group):
        distributed.send(carrier_tensor(packed, group), dst, group, tag)


def recv_context(src: int, *, group: Any = None, size: int = CONTEXT_BYTES, tag: int = 0) -> dict[str, str]:
    """Receive the trace context that another rank sends by ``send_context``.

    Args:
        src: global rank of the sender.
        group: process group; default the whole one.
        size: bytes of the message, the same as at the sender.
        tag: tag of the message, for backends that have them.

    Returns:
        A carrier, for ``create_linked_span``, for the ``context`` or ``links`` of a span or for
        ``set_pp_trace_carrier``. It is empty when the sender had no span, and where nothing is received.

    Raises:
        ValueError: for a ``size`` that ``serialize_context`` does not take.
        ImportError: when torch is not installed.
        Exception: what torch raises when the message cannot be received, which the next activation could not either.
    """
    distributed = require("torch.distributed", "nccl")
    _check_size(size)
    if not _takes_part(group):
        return {}
    tensor = carrier_tensor(bytes(size), group)
    distributed.recv(tensor, src, group, tag)
    return deserialize_context(tensor)


def _takes_part(group: Any) -> bool:
    distributed = process_group()
    return distributed is not None and distributed.get_rank(group) >= 0


def _packed(context: Any, size: int) -> bytes:
    _check_size(size)
    carrier: dict[str, str] = {}
    inject_context(carrier, context)
    packed = pack_carrier(carrier, size, size)
    if unpack_carrier(packed) != carrier:
        debug_once("context size", "left out of a context of %d bytes: what is too long or no text", size)
    return packed


def _check_size(size: int) -> None:
    if not isinstance(size, int) or not _FEWEST_BYTES <= size <= LONGEST_CARRIER_BYTES:
        raise ValueError(
            f"size={size!r}: a context takes {_FEWEST_BYTES} to {LONGEST_CARRIER_BYTES} bytes, "
            f"the same at sender and receiver; {CONTEXT_BYTES} is the default"
        )
