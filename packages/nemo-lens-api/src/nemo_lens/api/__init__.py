"""Public names of the NeMo Lens API wheel, loaded when they are first touched (PEP 562).

``__all__`` is the contract: a name that is not in it is private. Importing this package loads no third-party
module and no ``importlib.metadata``; nothing global is touched until :func:`setup_telemetry` is called.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nemo_lens.api._proxies import get_meter as get_meter
    from nemo_lens.api._proxies import get_tracer as get_tracer
    from nemo_lens.api.attributes import DEFAULT_REDACT_KEYS as DEFAULT_REDACT_KEYS
    from nemo_lens.api.attributes import redact_value as redact_value
    from nemo_lens.api.attributes import safe_set_span_attributes as safe_set_span_attributes
    from nemo_lens.api.backend import TelemetryHandle as TelemetryHandle
    from nemo_lens.api.config import NemoLensConfig as NemoLensConfig
    from nemo_lens.api.distributed import broadcast_trace_context as broadcast_trace_context
    from nemo_lens.api.distributed import create_linked_span as create_linked_span
    from nemo_lens.api.emission import emit_span as emit_span
    from nemo_lens.api.emission import mark as mark
    from nemo_lens.api.groups import SpanRegistry as SpanRegistry
    from nemo_lens.api.identity import ensure_run_id as ensure_run_id
    from nemo_lens.api.identity import linux_process_create_time as linux_process_create_time
    from nemo_lens.api.lifecycle import get_telemetry as get_telemetry
    from nemo_lens.api.lifecycle import instrument as instrument
    from nemo_lens.api.lifecycle import setup_telemetry as setup_telemetry
    from nemo_lens.api.lifecycle import uninstrument as uninstrument
    from nemo_lens.api.propagation import bind_context as bind_context
    from nemo_lens.api.propagation import extract_context as extract_context
    from nemo_lens.api.propagation import inject_context as inject_context
    from nemo_lens.api.scopes import span_attributes as span_attributes
    from nemo_lens.api.spans import managed_span as managed_span
    from nemo_lens.api.spans import span_cm as span_cm
    from nemo_lens.api.spans import trace_fn as trace_fn
    from nemo_lens.api.state import enabled_span_groups as enabled_span_groups
    from nemo_lens.api.state import get_pp_trace_carrier as get_pp_trace_carrier
    from nemo_lens.api.state import is_span_group_enabled as is_span_group_enabled
    from nemo_lens.api.state import pending_span_groups as pending_span_groups
    from nemo_lens.api.state import set_enabled_span_groups as set_enabled_span_groups
    from nemo_lens.api.state import set_pp_trace_carrier as set_pp_trace_carrier
    from nemo_lens.api.state import set_span_group_spec as set_span_group_spec

    __version__: str
    """The version of the API wheel; that of the other wheels is the same."""

# Public name -> module that defines it.
_HOME = {
    "DEFAULT_REDACT_KEYS": "attributes",
    "NemoLensConfig": "config",
    "SpanRegistry": "groups",
    "TelemetryHandle": "backend",
    "bind_context": "propagation",
    "broadcast_trace_context": "distributed",
    "create_linked_span": "distributed",
    "emit_span": "emission",
    "enabled_span_groups": "state",
    "ensure_run_id": "identity",
    "extract_context": "propagation",
    "get_meter": "_proxies",
    "get_pp_trace_carrier": "state",
    "get_telemetry": "lifecycle",
    "get_tracer": "_proxies",
    "inject_context": "propagation",
    "instrument": "lifecycle",
    "is_span_group_enabled": "state",
    "linux_process_create_time": "identity",
    "managed_span": "spans",
    "mark": "emission",
    "pending_span_groups": "state",
    "redact_value": "attributes",
    "safe_set_span_attributes": "attributes",
    "set_enabled_span_groups": "state",
    "set_pp_trace_carrier": "state",
    "set_span_group_spec": "state",
    "setup_telemetry": "lifecycle",
    "span_attributes": "scopes",
    "span_cm": "spans",
    "trace_fn": "spans",
    "uninstrument": "lifecycle",
}

__all__ = [
    "DEFAULT_REDACT_KEYS",
    "NemoLensConfig",
    "SpanRegistry",
    "TelemetryHandle",
    "__version__",
    "bind_context",
    "broadcast_trace_context",
    "create_linked_span",
    "emit_span",
    "enabled_span_groups",
    "ensure_run_id",
    "extract_context",
    "get_meter",
    "get_pp_trace_carrier",
    "get_telemetry",
    "get_tracer",
    "inject_context",
    "instrument",
    "is_span_group_enabled",
    "linux_process_create_time",
    "managed_span",
    "mark",
    "pending_span_groups",
    "redact_value",
    "safe_set_span_attributes",
    "set_enabled_span_groups",
    "set_pp_trace_carrier",
    "set_span_group_spec",
    "setup_telemetry",
    "span_attributes",
    "span_cm",
    "trace_fn",
    "uninstrument",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _version()
    elif name in _HOME:
        module = __import__(f"nemo_lens.api.{_HOME[name]}", fromlist=[name])
        value = getattr(module, name)
    else:
        raise AttributeError(f"module 'nemo_lens.api' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # import budget

    try:
        return version("nemo-lens-api")
    except PackageNotFoundError:
        # A source tree on sys.path, or a frozen application without metadata.
        return "0+unknown"
