"""An exporter for each process: made at its first export, and none of a parent's used in a child."""

from __future__ import annotations

import os
from typing import Any

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.sdk.exporters import ExporterPlan

# Of this process, and of the children forked from it.
_grpc_is_off = False


class PerProcessExporter:
    """Builds an exporter at the first export of each process: a fork shares no channel, session or file."""

    def __init__(self, plan: ExporterPlan) -> None:
        self.plan = plan
        self._exporter: Any = None
        self._pid = 0
        # Exporters of parents: kept, because closing a parent's channel from a child can hang.
        self._inherited: list[Any] = []

    @property
    def disabled(self) -> bool:
        """Whether there can be no exporter in this process."""
        return _grpc_is_off and self.plan.transport == "grpc"

    @property
    def can_be_made_again(self) -> bool:
        """Whether there can be another exporter after ``close``: the caller's own is shut down for good."""
        return self.plan.transport != "given"

    def get(self) -> Any:
        """Return this process's exporter, None when there can be none here."""
        if self.disabled:
            return None
        if self._pid != os.getpid():
            if self._exporter is not None:
                self._inherited.append(self._exporter)
            self._exporter = self.plan.make()
            self._pid = os.getpid()
        return self._exporter

    def close(self) -> None:
        """Shut this process's exporter down, when one was built."""
        if self._exporter is not None and self._pid == os.getpid():
            exporter, self._exporter = self._exporter, None
            self._pid = 0
            exporter.shutdown()

    def after_unsafe_fork(self) -> None:
        """Give gRPC up, for all signals, in a child that was forked in the middle of an export over it."""
        global _grpc_is_off
        if self.plan.transport == "grpc":
            _grpc_is_off = True
            warn_once(
                "grpc after fork",
                "this process was forked while a gRPC export was in flight, so it exports nothing over gRPC: "
                "jobs that fork should set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
            )
