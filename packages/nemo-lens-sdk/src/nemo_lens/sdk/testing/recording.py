"""Setting telemetry up for one test, into memory, and the settings a test may choose."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import _diagnostics, lifecycle
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.semconv import NV_DL_RANK, SERVICE_INSTANCE_ID
from nemo_lens.sdk import _compat, logging_bridge
from nemo_lens.sdk.testing import surroundings
from nemo_lens.sdk.testing.metrics import InMemoryMetricExporter
from nemo_lens.sdk.testing.telemetry import RecordedTelemetry, open_groups

if TYPE_CHECKING:
    from nemo_lens.sdk.handle import OtelHandle

_SHUTDOWN_MS = 5000


@dataclass(frozen=True)
class Settings:
    """The arguments of the marker ``nemo_lens``."""

    groups: str | Iterable[str] = "all"
    resource_attributes: Mapping[str, Any] = field(default_factory=dict)
    service_name: str = "test"
    run_id: str = "test"


def settings_of(marks: Iterable[Any]) -> Settings:
    """Return the settings that a test's marks choose.

    Args:
        marks: the test's ``nemo_lens`` marks, the closest first, whose arguments win over those of the others.

    Raises:
        ValueError: an argument that is not known, or of a wrong type.
    """
    chosen: dict[str, Any] = {}
    known = {item.name: item for item in fields(Settings)}
    for mark in marks:
        if mark.args:
            raise ValueError(
                f"@pytest.mark.nemo_lens takes keywords only ({', '.join(known)}), such as groups={mark.args[0]!r}"
            )
        for name, value in mark.kwargs.items():
            if name not in known:
                raise ValueError(
                    f"@pytest.mark.nemo_lens has no argument {name!r}; it takes: {', '.join(known)}"
                    f"{_diagnostics.nearest(name, known)}"
                )
            chosen.setdefault(name, _checked(name, value))
    return Settings(**chosen)


def _checked(name: str, value: Any) -> Any:
    if name == "groups":
        if isinstance(value, Iterable) and all(isinstance(item, str) for item in value):
            return value if isinstance(value, str) else tuple(value)
        expected = "a spec such as 'default,io' or 'all', or names of span groups"
    elif name == "resource_attributes":
        if isinstance(value, Mapping):
            return value
        expected = "a mapping of names to values"
    else:
        if isinstance(value, str) and value.strip():
            return value
        expected = "a str that is not blank"
    raise ValueError(f"@pytest.mark.nemo_lens: {name}={value!r}: expected {expected}")


@contextmanager
def recording(settings: Settings, shell: Mapping[str, str]) -> Iterator[RecordedTelemetry]:
    """Set telemetry up for all signals, exported into memory, and shut it down at the end.

    Args:
        settings: what the test chooses.
        shell: the environment variables that the session started with, which have no effect.
    """
    spans, metrics = InMemorySpanExporter(), InMemoryMetricExporter()
    logs = _compat.InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]  # the SDK leaves it untyped
    attributes = dict(settings.resource_attributes)
    if NV_DL_RANK not in attributes:
        attributes.setdefault(SERVICE_INSTANCE_ID, settings.run_id)
    config = NemoLensConfig(
        enabled=True,
        service_name=settings.service_name,
        run_id=settings.run_id,
        logs_enabled=True,
        span_groups="",
        shutdown_timeout_ms=_SHUTDOWN_MS,
    )
    with surroundings.bare(shell):
        handle = cast(
            "OtelHandle",
            lifecycle.setup_telemetry(
                config,
                resource_attributes=attributes,
                span_exporter=spans,
                metric_reader=metrics,
                log_exporter=logs,
            ),
        )
    try:
        # After the set-up, which would say at WARNING that "all" opens nothing, in a test that registers no groups.
        config.span_groups = settings.groups if isinstance(settings.groups, str) else ",".join(settings.groups)
        open_groups(settings.groups)
        # Whatever its level: a logger's own level is what says which records there are.
        logging_bridge.setup_logging_bridge(level=logging.NOTSET)
        # What set-up said is nothing the code under test could say again.
        _diagnostics.forget_reported()
        yield RecordedTelemetry(handle, spans, metrics, logs)
    finally:
        handle.shutdown()
