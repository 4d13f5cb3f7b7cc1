"""The pipe of spans or log records: a bounded queue in front of the thread, and counts of what was lost."""

from __future__ import annotations

import sys
import threading
from collections import deque
from itertools import count
from typing import Any

from nemo_lens.api._diagnostics import warn, warn_once
from nemo_lens.sdk import _compat
from nemo_lens.sdk.outgoing import Outgoing
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.pipe import ExportPipe, wait_for
from nemo_lens.sdk.settings import QueueSettings


class QueuePipe(ExportPipe):
    """The pipe of spans or log records."""

    def __init__(self, signal: str, exporter: PerProcessExporter, settings: QueueSettings, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._capacity = settings.max_queue_size
        self._batch = settings.max_export_batch_size
        super().__init__(signal, exporter, settings.schedule_delay_s)

    def _reset(self) -> None:
        super()._reset()
        self._queue: deque[Any] = deque()
        self._awake = False
        # Counted by the iterator, which is atomic; a plain += loses counts between threads.
        self._count_dropped = count().__next__
        self._dropped_reads = 0
        self._taken = 0
        self._confirmed = 0

    def put(self, item: Any) -> None:
        """Queue an item; drop and count it when the queue is full. Never waits."""
        queue = self._queue
        waiting = len(queue)
        if waiting >= self._capacity or self._closed:
            self._count_dropped()
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
        if threading.current_thread() is self._thread or sys.is_finalizing():
            return
        if not wait_for(self.begin_flush(), deadline):
            warn_once(("late", self.signal), "%s of the last moments of the process could not be exported", self.signal)

    def lost(self) -> int:
        """Return how many items were handed over and not confirmed by the exporter."""
        dropped = self._count_dropped() - self._dropped_reads
        self._dropped_reads += 1
        return self._taken - self._confirmed + len(self._queue) + dropped

    def _work(self) -> bool:
        self._awake = False
        confirmed = True
        remaining = len(self._queue)
        while remaining > 0:
            size = min(self._batch, remaining)
            remaining -= size
            confirmed = self._export(size) and confirmed
            if self._abandoned and not confirmed:
                break
        return confirmed

    def _export(self, size: int) -> bool:
        with self._exporting:
            queue = self._queue
            batch = [queue.popleft() for _ in range(size)]
            self._taken += size
            exporter = self.exporter.get()
            if exporter is None:
                return False
            confirmed = self._confirmed + size
            for part in self._outgoing.parts(batch):
                try:
                    if _compat.succeeded(exporter.export(part)):
                        self._confirmed += len(part)
                except Exception as fault:  # noqa: BLE001 - a plug-in's exporter may raise anything
                    self.report(fault)
            return self._confirmed == confirmed


def warn_of_loss(signal: str, lost: int) -> None:
    """Say at WARNING how much a finished run could not deliver."""
    if lost:
        warn("%d %s were dropped: the exporter did not confirm them", lost, signal)
