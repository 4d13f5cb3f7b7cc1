"""Null objects and do-nothing versions of the API, in one file that a library may vendor.

This file imports the standard library only and nothing else of NeMo Lens. A library that wants no dependency at all
copies it and falls back to the copy when ``nemo_lens`` is not installed. NeMo Lens itself uses the same null
objects whenever telemetry is off, so the two behave alike.
"""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    _T = TypeVar("_T")

__version__ = "0+fallback"

REDACTED = "[REDACTED]"

DEFAULT_REDACT_KEYS: frozenset[str] = frozenset(
    {
        "access_key",
        "access_token",
        "api_key",
        "apikey",
        "auth_token",
        "authorization",
        "cookie",
        "credential",
        "credentials",
        "input_text",
        "key",
        "output_text",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "prompt",
        "secret",
        "secret_key",
        "set_cookie",
        "text",
        "token",
    }
)
"""Attribute keys whose strings are redacted unless the caller says otherwise; see ``redact_value``."""
# Redact keys that match as the end of a longer word too: hf_token, x-api-key.
CREDENTIAL_KEYS = frozenset({"access_key", "api_key", "authorization", "password", "secret", "token"})


class NullSpanContext:
    """The context of no span: all ids zero, never valid."""

    __slots__ = ()
    trace_id = 0
    span_id = 0
    is_remote = False
    is_valid = False
    trace_flags = 0

    @property
    def trace_state(self) -> dict[str, str]:
        """Return an empty trace state."""
        return {}


NULL_SPAN_CONTEXT = NullSpanContext()


class NullSpan:
    """The whole surface of an OpenTelemetry span, doing nothing."""

    __slots__ = ()

    def get_span_context(self) -> Any:
        """Return the invalid context."""
        return NULL_SPAN_CONTEXT

    def is_recording(self) -> bool:
        """Return False."""
        return False

    def set_attribute(self, key: str, value: Any) -> None:
        """Do nothing."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Do nothing."""

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        """Do nothing."""

    def add_link(self, context: Any, attributes: Mapping[str, Any] | None = None) -> None:
        """Do nothing."""

    def update_name(self, name: str) -> None:
        """Do nothing."""

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Do nothing."""

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Do nothing."""

    def end(self, end_time: int | None = None) -> None:
        """Do nothing."""

    def __enter__(self) -> NullSpan:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


NULL_SPAN = NullSpan()


class NullTracer:
    """A tracer whose spans are the null span."""

    __slots__ = ()

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the null span."""
        return NULL_SPAN

    @contextlib.contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield the null span; usable as a decorator, as OpenTelemetry's is."""
        yield NULL_SPAN


class NullInstrument:
    """Every metric instrument, doing nothing."""

    __slots__ = ()

    def add(self, amount: float, attributes: Mapping[str, Any] | None = None, context: Any = None) -> None:
        """Do nothing."""

    def record(self, amount: float, attributes: Mapping[str, Any] | None = None, context: Any = None) -> None:
        """Do nothing."""

    def set(self, amount: float, attributes: Mapping[str, Any] | None = None, context: Any = None) -> None:
        """Do nothing."""


NULL_INSTRUMENT = NullInstrument()


class NullMeter:
    """A meter whose instruments are the null instrument; observable callbacks are never called."""

    __slots__ = ()

    def create_counter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the null instrument."""
        return NULL_INSTRUMENT

    create_up_down_counter = create_counter
    create_histogram = create_counter
    create_gauge = create_counter
    create_observable_counter = create_counter
    create_observable_up_down_counter = create_counter
    create_observable_gauge = create_counter


class NullLogger:
    """A logger that drops every record."""

    __slots__ = ()

    def emit(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


NULL_TRACER = NullTracer()
NULL_METER = NullMeter()
NULL_LOGGER = NullLogger()


class NullProvider:
    """Tracer, meter and logger provider in one, handing out the null objects."""

    __slots__ = ()

    def get_tracer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the null tracer."""
        return NULL_TRACER

    def get_meter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the null meter."""
        return NULL_METER

    def get_logger(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the null logger."""
        return NULL_LOGGER

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Return True: nothing is waiting."""
        return True

    def shutdown(self) -> None:
        """Do nothing."""


NULL_PROVIDER = NullProvider()


class NullHandle:
    """What ``setup_telemetry`` returns when nothing is exported."""

    __slots__ = ()
    tracer: Any = NULL_TRACER
    meter: Any = NULL_METER
    tracer_provider: Any = NULL_PROVIDER
    meter_provider: Any = NULL_PROVIDER
    logger_provider: Any = NULL_PROVIDER
    is_exporting = False
    is_shutdown = False

    @property
    def resource_attributes(self) -> dict[str, Any]:
        """Return an empty mapping."""
        return {}

    def force_flush(self, timeout_ms: int | None = None) -> bool:
        """Return True: nothing is waiting."""
        return True

    def shutdown(self, timeout_ms: int | None = None) -> None:
        """Do nothing."""

    def install_sigterm_handler(self, timeout_ms: int = 2000) -> None:
        """Do nothing: SIGTERM keeps the action it has."""

    def __enter__(self) -> NullHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


NULL_HANDLE = NullHandle()
# Every handle of this file is the null one.
TelemetryHandle = NullHandle


class NemoLensConfig:
    """Settings, kept as they are given and never checked: nothing here can be switched on."""

    _defaults: tuple[tuple[str, Any], ...] = (
        ("enabled", False),
        ("service_name", None),
        ("traces_enabled", True),
        ("metrics_enabled", True),
        ("logs_enabled", False),
        ("span_groups", "default"),
        ("exporter", "otlp"),
        ("file_path", ""),
        ("run_id", ""),
        ("user", ""),
        ("wandb_entity", ""),
        ("wandb_project", ""),
        ("deployment_environment", ""),
        ("shutdown_timeout_ms", 5000),
        ("single_trace", False),
    )

    def __init__(self, *values: Any, **fields: Any) -> None:
        vars(self).update(self._defaults)
        vars(self).update({name: value for (name, _), value in zip(self._defaults, values, strict=False)})
        vars(self).update(fields)

    @property
    def sources(self) -> dict[str, str]:
        """Return ``default`` for every field."""
        return {name: "default" for name, _ in self._defaults}

    @classmethod
    def from_env(
        cls,
        prefix: str = "NEMO_LENS",
        fallback_prefix: str | None = None,
        known: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> NemoLensConfig:
        """Return the defaults, whatever the environment."""
        return cls()

    def to_env(self, prefix: str = "NEMO_LENS") -> dict[str, str]:
        """Return an empty mapping."""
        return {}

    def validate(self) -> None:
        """Do nothing."""


class SpanRegistry:
    """A registry that stays empty."""

    @classmethod
    def register(
        cls,
        namespace: str,
        groups: Iterable[str],
        presets: Mapping[str, Iterable[str]] | None = None,
        *,
        allow_override: bool = False,
    ) -> None:
        """Do nothing."""

    @classmethod
    def unregister(cls, namespace: str) -> None:
        """Do nothing."""

    @classmethod
    def clear(cls) -> None:
        """Do nothing."""

    @classmethod
    def groups(cls, namespace: str | None = None) -> frozenset[str]:
        """Return the empty set."""
        return frozenset()

    @classmethod
    def namespaces(cls) -> tuple[str, ...]:
        """Return the empty tuple."""
        return ()

    @classmethod
    def presets(cls, namespace: str | None = None) -> dict[str, frozenset[str]]:
        """Return an empty mapping."""
        return {}

    @classmethod
    def resolve(cls, spec: str) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the empty set, and every name of the spec as one that matches nothing."""
        names = {part.strip().lower() for part in (spec if isinstance(spec, str) else "").split(",")}
        return frozenset(), tuple(sorted(names - {""}))


# A plain nullcontext is what torch.compile can enter without a graph break.
NULL_CONTEXT: Any = contextlib.nullcontext()
_NULL_SPAN_CONTEXT_MANAGER: Any = contextlib.nullcontext(NULL_SPAN)


def managed_span(group: str, name: str, /, tracer: Any = None, **attrs: Any) -> Any:
    """Return the shared null context, which yields None."""
    return NULL_CONTEXT


def span_cm(name: str, /, tracer: Any = None, record_exception: bool = True, **attrs: Any) -> Any:
    """Return a context that yields the null span."""
    return _NULL_SPAN_CONTEXT_MANAGER


def trace_fn(
    group: str, name: str | None = None, tracer: Any = None, *, attributes: Any = None, span_kind: Any = None
) -> Callable[[_T], _T]:
    """Return a decorator that returns its function unchanged.

    Raises:
        TypeError: when it is applied to a class or to something that cannot be called, or used without its group.
    """
    check_group(group)
    return check_traceable


def check_group(group: object) -> None:
    """Raise ``TypeError`` for a decorator that was given its function in place of its span group."""
    if not isinstance(group, str):
        raise TypeError(f"trace_fn takes the span group first, as in @trace_fn('group'); got {group!r}")


def check_traceable(fn: _T) -> _T:
    """Return ``fn``; raise ``TypeError`` when it cannot be traced as a function."""
    called = fn.__func__ if isinstance(fn, (classmethod, staticmethod)) else fn
    if isinstance(called, type) or not callable(called):
        raise TypeError(f"trace_fn decorates functions, methods and callable objects; got {fn!r}. Decorate its methods")
    return fn


def span_attributes(mapping: Mapping[str, Any] | None) -> Any:
    """Return the shared null context."""
    return NULL_CONTEXT


def emit_span(
    tracer: Any,
    name: str,
    start_s: Any,
    end_s: Any,
    *,
    group: str | None = None,
    context: Any = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Emit nothing and return None."""
    return None


def mark(name: str, *, group: str | None = None, attributes: Mapping[str, Any] | None = None) -> None:
    """Emit nothing."""


def safe_set_span_attributes(
    span: Any, attrs: Mapping[str, Any] | None, redact_keys: Iterable[str] = DEFAULT_REDACT_KEYS
) -> None:
    """Do nothing."""


def redact_value(key: str, value: object, redact_keys: Iterable[str] = DEFAULT_REDACT_KEYS) -> object:
    """Return the value, or ``[REDACTED]`` when its key says that it must not leave the process.

    Args:
        key: attribute key.
        value: its value. Numbers, booleans and None stay; in a list or tuple each string is replaced.
        redact_keys: the keys that match, or whose ``_``-separated end matches if they name a credential; the default
            ones in place of what cannot be read.
    """
    if not isinstance(key, str) or not key:
        return value
    try:
        wanted = frozenset((redact_keys,) if isinstance(redact_keys, str) else redact_keys)
        keys = {_folded(name) for name in wanted if isinstance(name, str)}
    except Exception:  # noqa: BLE001 - it must neither raise nor switch redaction off
        keys = set(DEFAULT_REDACT_KEYS)
    folded = _folded(key)
    segment = folded.rpartition(".")[2]
    if folded in keys or segment in keys or segment.endswith(tuple(f"_{name}" for name in CREDENTIAL_KEYS & keys)):
        return _without_text(value)
    return value


def _folded(key: str) -> str:
    return key.casefold().replace("-", "_")


def _without_text(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        kept = [item if _is_number(item) else REDACTED for item in value]
        return kept if isinstance(value, list) else tuple(kept)
    return value if _is_number(value) else REDACTED


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def is_span_group_enabled(group: str) -> bool:
    """Return False."""
    return False


def enabled_span_groups() -> frozenset[str]:
    """Return the empty set."""
    return frozenset()


def set_enabled_span_groups(groups: Iterable[str]) -> None:
    """Do nothing."""


def set_span_group_spec(spec: str) -> None:
    """Do nothing."""


def pending_span_groups() -> tuple[str, ...]:
    """Return the empty tuple."""
    return ()


def set_pp_trace_carrier(carrier: dict[str, str] | None) -> None:
    """Do nothing."""


def get_pp_trace_carrier() -> dict[str, str] | None:
    """Return None."""
    return None


def get_tracer(name: str, version: str | None = None) -> Any:
    """Return the null tracer."""
    return NULL_TRACER


def get_meter(name: str, version: str | None = None) -> Any:
    """Return the null meter."""
    return NULL_METER


def setup_telemetry(
    config: Any = None,
    *,
    resource_attributes: Mapping[str, Any] | None = None,
    span_exporter: Any = None,
    metric_reader: Any = None,
    log_exporter: Any = None,
    _allow_reinit: bool = False,
) -> Any:
    """Return the null handle."""
    return NULL_HANDLE


def get_telemetry() -> Any:
    """Return the null handle."""
    return NULL_HANDLE


def instrument(name: str, *args: Any, **options: Any) -> Any:
    """Raise ``ValueError``: no integration is installed."""
    raise ValueError(f"no installed integration is named {name!r}; installed: none; pip install nemo-lens-contrib")


def uninstrument(name: str, *args: Any) -> Any:
    """Raise ``ValueError``: no integration is installed."""
    instrument(name)


_RANDOM_RUN_ID = os.urandom(6).hex()


def ensure_run_id(run_id: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Return the run id that is given or that the launcher set, else 12 random hex digits, the same for every call."""
    env = os.environ if environ is None else environ
    elastic = env.get("TORCHELASTIC_RUN_ID", "").strip()
    found = (
        run_id or "",
        env.get("NEMO_LENS_RUN_ID", ""),
        _inherited_run_id(env.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        env.get("SLURM_JOB_ID", ""),
        "" if elastic.lower() == "none" else elastic,  # torchrun's own default, the same for every run
    )
    return next(filter(None, map(str.strip, found)), _RANDOM_RUN_ID)


def _inherited_run_id(attributes: str) -> str:
    if not attributes:
        return ""
    import re  # kept out of the module, as urllib.parse, for a vendoring library's own import time
    from urllib.parse import unquote

    found = ""
    for pair in attributes.split(","):
        key, equals, value = map(str.strip, pair.partition("="))
        if equals and unquote(key) == "nemo.run.id" and not re.search("%(?![0-9A-Fa-f]{2})", pair):
            found = unquote(value)
    return found


def linux_process_create_time(pid: int | None = None) -> float | None:
    """Return None."""
    return None


def inject_context(carrier: Any = None, context: Any = None) -> Any:
    """Return the carrier as it came, or an empty one."""
    return {} if carrier is None else carrier


def extract_context(carrier: Any) -> Any:
    """Return None, the context of no span."""
    return None


def bind_context(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Bind a function to the context of now, for threads and executors: context variables are not only telemetry's."""
    import functools  # kept out of the module, as contextvars, for a vendoring library's own import time
    from contextvars import copy_context

    captured = copy_context()

    @functools.wraps(fn)
    def bound(*args: Any, **kwargs: Any) -> Any:
        return captured.copy().run(fn, *args, **kwargs)

    return bound


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
    """Return the null span."""
    return NULL_SPAN


def broadcast_trace_context(rank: int | None = None, src_rank: int = 0, group: Any = None) -> dict[str, str] | None:
    """Take part in the broadcast as a rank that has no span: a rank that stays away would hang the others.

    Args:
        rank: global rank of the caller; torch's own is what counts.
        src_rank: global rank of the one whose trace context is sent.
        group: process group; default the whole one.

    Returns:
        What ``src_rank`` sent; None outside the group, and without an initialised one.
    """
    try:
        place = find_place(src_rank, group)
    except Exception:  # noqa: BLE001 - the same on every rank, none of which enters
        return None
    return None if place is None else broadcast_carrier({}, place, src_rank, group)


# A carrier among the ranks of a process group: a block of bytes of a fixed size, so that no rank has to be told how
# much will come. It begins with these four, the size of the whole and the size of what it holds, four bytes each; zeros
# fill it up. What does not fit into the first block follows in a second, of a size that all ranks read in the first.
CARRIER_BLOCK_BYTES = 512
LONGEST_CARRIER_BYTES = 8 * 1024
_CARRIER_MAGIC = b"NLC1"
_CARRIER_HEADER_BYTES = 12


def pack_carrier(carrier: Mapping[str, str], shortest: int, longest: int = LONGEST_CARRIER_BYTES) -> bytes:
    """Return a carrier as ``shortest`` bytes, or as many as it needs up to ``longest``; what does not fit is left out.

    Baggage is the first to be left out: without it, the trace still holds together.
    """
    held = b""
    for key in sorted(carrier, key=lambda key: key == "baggage"):
        value = carrier[key]
        if key and isinstance(key, str) and isinstance(value, str) and "\0" not in key + value:
            field = f"{key}\0{value}\0".encode("utf-8", "surrogatepass")
            if _CARRIER_HEADER_BYTES + len(held) + len(field) <= longest:
                held += field
    size = max(shortest, _CARRIER_HEADER_BYTES + len(held))
    return b"".join((_CARRIER_MAGIC, size.to_bytes(4, "big"), len(held).to_bytes(4, "big"), held)).ljust(size, b"\0")


def packed_size(data: bytes) -> int:
    """Return of how many bytes in all these are the first; 0 when they are no packed carrier's."""
    size = int.from_bytes(data[4:8], "big")
    return size if data.startswith(_CARRIER_MAGIC) and len(data) <= size <= LONGEST_CARRIER_BYTES else 0


def unpack_carrier(data: bytes) -> dict[str, str]:
    """Return the carrier that ``pack_carrier`` packed; an empty one for bytes that are cut, padded or anything else."""
    end = _CARRIER_HEADER_BYTES + int.from_bytes(data[8:12], "big")
    if packed_size(data) != len(data) or end > len(data) or any(data[end:]):
        return {}
    try:
        words = data[_CARRIER_HEADER_BYTES:end].decode("utf-8", "surrogatepass").split("\0")
    except UnicodeDecodeError:
        return {}
    if words.pop() or len(words) % 2 or "" in words[::2]:
        return {}
    return dict(zip(words[::2], words[1::2], strict=True))


def process_group() -> Any:
    """Return ``torch.distributed`` while this process has a process group, else None; never import torch."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    there = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if there else None


def find_place(src_rank: int, group: Any) -> tuple[int, int] | None:
    """Return the caller's global rank and how many ranks ``group`` has; None where there is nothing to take part in.

    Nothing is sent, and every member of the group finds the same.

    Raises:
        ValueError: when ``src_rank`` is no int or no member.
    """
    distributed = process_group()
    if distributed is None or distributed.get_rank(group) < 0:
        return None
    if type(src_rank) is not int:
        raise ValueError(f"src_rank={src_rank!r} is no rank: an int is expected")
    size = distributed.get_world_size(group)
    if group is None or group is distributed.group.WORLD:
        if src_rank not in range(size):
            raise ValueError(f"src_rank={src_rank!r} is none of the ranks 0 to {size - 1}")
    else:
        distributed.get_group_rank(group, src_rank)  # raises
    return distributed.get_rank(), size


def broadcast_carrier(carrier: Mapping[str, str], place: tuple[int, int], src_rank: int, group: Any) -> dict[str, str]:
    """Return the carrier of ``src_rank`` on every rank: one broadcast, two when it is long, none among one rank.

    What torch raises is the caller's: a rank that went on after a broadcast that failed would meet the others in
    the middle of another collective.
    """
    rank, size = place
    packed = pack_carrier(carrier, CARRIER_BLOCK_BYTES) if rank == src_rank else b""
    if size > 1:
        block = _broadcast_bytes(packed[:CARRIER_BLOCK_BYTES], CARRIER_BLOCK_BYTES, src_rank, group)
        more = packed_size(block) - CARRIER_BLOCK_BYTES
        packed = block + _broadcast_bytes(packed[CARRIER_BLOCK_BYTES:], more, src_rank, group) if more > 0 else block
    return unpack_carrier(packed)


def _broadcast_bytes(data: bytes, size: int, src_rank: int, group: Any) -> bytes:
    tensor = carrier_tensor(data or bytes(size), group)
    sys.modules["torch"].distributed.broadcast(tensor, src_rank, group)
    return data or bytes(tensor.tolist())  # the source does not wait for its GPU to read back what it sent


def carrier_tensor(data: bytes, group: Any) -> Any:
    """Return a uint8 tensor of these bytes where the backend of ``group`` can send it."""
    torch: Any = sys.modules["torch"]
    return torch.tensor(list(data), dtype=torch.uint8, device=device_of(group))


def device_of(group: Any) -> Any:
    """Return the device whose tensors the backend of ``group`` sends: the CPU where it can, which waits for no GPU."""
    distributed = process_group()
    if distributed is None:
        return "cpu"
    # Such as "cpu:gloo,cuda:nccl". gloo is there for "cpu" and "cuda" alike.
    pairs = str(distributed.get_backend_config(group)).split(",")
    kinds = [kind for kind, _, backend in (pair.partition(":") for pair in pairs) if backend]
    if not kinds:
        return "cuda" if "nccl" in str(distributed.get_backend(group)).lower() else "cpu"
    if "cpu" in kinds:
        return "cpu"
    # The device that the process group was given, else the current one.
    bound = getattr(distributed.group.WORLD if group is None else group, "bound_device_id", None)
    return bound if bound is not None and bound.type == kinds[0] else kinds[0]
