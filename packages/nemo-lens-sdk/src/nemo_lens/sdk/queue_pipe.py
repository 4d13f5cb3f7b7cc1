"""The pipe of spans or log records: a bounded queue in front of the thread, and counts of what was lost."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from nemo_lens.api._diagnostics import warn, warn_once
from nemo_lens.sdk import _compat
from nemo_lens.sdk.export_counts import AtomicCount, ExportCounts
from nemo_lens.sdk.exporters import fault_of, rejected_of
from nemo_lens.sdk.outgoing import Outgoing
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.pipe import ExportPipe, wait_for
from nemo_lens.sdk.settings import QueueSettings

_ITEMS = {"traces": "spans", "logs": "log records"}


class QueuePipe(ExportPipe):
    """The pipe of spans or log records."""

    def __init__(self, signal: str, exporter: PerProcessExporter, settings: QueueSettings, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.capacity = settings.max_queue_size
        self._batch = settings.max_export_batch_size
        super().__init__(signal, exporter, settings.schedule_delay_s)

    def _reset(self) -> None:
        super()._reset()
        self._queue: deque[Any] = deque()
        self._awake = False
        self._dropped_when_full = AtomicCount()
        self._dropped_when_closed = AtomicCount()
        self.counts = ExportCounts()

    def put(self, item: Any) -> None:
        """Queue an item; drop and count it when the queue is full. Never waits."""
        queue = self._queue
        waiting = len(queue)
        if waiting >= self.capacity or self._closed:
            (self._dropped_when_closed if self._closed else self._dropped_when_full).add()
            return
        queue.append(item)
        if self._thread is None:
            self.start()
        if waiting + 1 >= self._batch and not self._awake:
            self._awake = True
            self._wake.put(None)
        if self._lingers_until is not None:
            self._send_now(self._lingers_until)

    def _send_now(self, deadline: float) -> None:
        # The process ends, and nobody flushes any more. The exporter of this very thread may queue something, too.
        if self._is_at_work_here() or sys.is_finalizing():
            return
        if not wait_for(self.begin_flush(), deadline):
            warn_once(("late", self.signal), "%s of the last moments of the process could not be exported", self.signal)

    def lost(self) -> int:
        """Return how many items were handed over and not confirmed by the exporter."""
        return self.counts.taken - self.counts.confirmed + self.waiting + sum(self.dropped.values())

    def warn_of_loss(self) -> None:
        """Say at WARNING how much a finished run could not deliver."""
        lost = self.lost()
        if lost:
            warn("%d %s were dropped: the exporter did not confirm them", lost, _ITEMS[self.signal])

    @property
    def was_used(self) -> bool:
        """Whether anything was handed over in this process."""
        return bool(self.counts.taken or self._queue or any(self.dropped.values()))

    @property
    def waiting(self) -> int:
        """How many items wait in the queue."""
        return len(self._queue)

    @property
    def dropped(self) -> dict[str, int]:
        """How many items were not queued, by why, in the words of OpenTelemetry's conventions."""
        return {"queue_full": self._dropped_when_full.value, "already_shutdown": self._dropped_when_closed.value}

    def _work(self) -> bool:
        self._awake = False
        confirmed = True
        remaining = len(self._queue)
        while remaining > 0:
            confirmed = self._export(min(self._batch, remaining)) and confirmed
            remaining -= self._batch
            if self._abandoned and not confirmed:
                break
        return confirmed

    def _last_work(self) -> bool:
        # Twice: a span that another thread ended a moment ago may have come meanwhile.
        return self._work() and self._work()

    def _export(self, most: int) -> bool:
        with self._export_in_flight():
            queue, counts = self._queue, self.counts
            # Another thread may have exported meanwhile, where the pipe's own could not be started.
            size = min(most, len(queue))
            batch = [queue.popleft() for _ in range(size)]
            counts.taken += size
            confirmed = counts.confirmed + size
            reason = ""
            try:
                exporter = self.exporter.get()
                if exporter is not None:
                    self._send(exporter, batch)
            except BaseException as fault:
                reason = type(fault).__qualname__
                raise
            finally:
                # There was no exporter, or an item could not be prepared.
                counts.fail(counts.inflight, reason)
            return counts.confirmed == confirmed

    def _send(self, exporter: Any, batch: list[Any]) -> None:
        for part in self._outgoing.parts(batch):
            succeeded = False
            try:
                succeeded = _compat.succeeded(exporter.export(part))
                if succeeded:
                    self.counts.confirm(len(part), rejected_of(exporter))
                else:
                    self.counts.fail(len(part), fault_of(exporter))
            except Exception as fault:  # noqa: BLE001 - a plug-in's exporter may raise anything
                self.counts.fail(len(part), type(fault).__qualname__)
                self.report(fault)
            self._came_through(succeeded)
