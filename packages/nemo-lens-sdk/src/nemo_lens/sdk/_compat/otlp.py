"""What OpenTelemetry's OTLP exporters have no public way to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Heard:
    """A client of a collector's service, whose answers somebody hears."""

    def __init__(self, client: Any, hear: Callable[[Any], None]) -> None:
        self._client = client
        self._hear = hear

    def Export(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - the name of the service's method
        answer = self._client.Export(*args, **options)
        self._hear(answer)
        return answer


def hear_answers(exporter: Any, hear: Callable[[Any], None]) -> None:
    """Have ``hear`` called with the answer to each call of a gRPC exporter.

    An exporter that keeps its client elsewhere stays as it is, and nothing is heard.

    Args:
        exporter: the exporter, just made.
        hear: called in the exporting thread with the message; may not raise.
    """
    if not (hasattr(exporter, "_client") and hasattr(exporter, "_stub")):
        return
    make = exporter._stub
    # Later versions make a new client when the channel broke.
    exporter._stub = lambda channel: _Heard(make(channel), hear)
    exporter._client = _Heard(exporter._client, hear)
