"""What is decided about an exporter before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemo_lens.api.config import NemoLensConfig

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")


@dataclass(frozen=True)
class ExporterPlan:
    """An exporter whose settings are checked and whose packages are imported, and of which nothing is built yet.

    Args:
        name: What the user asked for: ``otlp``, ``console``, ``file`` or a plug-in's name.
        transport: ``grpc``, ``http/protobuf``, ``console``, ``file`` or the plug-in's name.
        make: Builds the SDK exporter; to be called once in each process that exports, forked ones too.
        endpoint: URL or file pattern, for messages; empty when there is none.
        build: Builds the exporter as its own package has it, which raises and retries as it likes; takes that
            exporter's arguments. None for exporters of ours and of plug-ins.
        component: what metrics about the telemetry call it: a value of ``otel.component.type``, or a class's name.
    """

    name: str
    transport: str
    make: Callable[[], Any]
    endpoint: str = ""
    build: Callable[..., Any] | None = None
    component: str = ""


def class_name(kind: Any) -> str:
    """Return the full name of a class, or of what builds an exporter in place of one."""
    return f"{kind.__module__}.{getattr(kind, '__qualname__', type(kind).__qualname__)}"


def origin(config: NemoLensConfig, field: str) -> str:
    """Return what a message calls a field: the variable it was read from, else its name in code."""
    source = config.sources[field]
    return f"NemoLensConfig.{field}" if source in ("code", "default") else source
