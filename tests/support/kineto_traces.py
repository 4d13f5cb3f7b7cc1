"""Traces of the PyTorch profiler made by hand, laid out as Kineto's writer lays them out (``output_json.cpp``).

The format: https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp. Times are given in nanoseconds
into the run, as in ``otlp_lines``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from support import otlp_lines

BASE_NS = 1_696_186_170_000_000_000  # the beginning of a quarter, as Kineto has it
STREAM = 7


@dataclass
class KinetoTrace:
    """One profile of a rank with one GPU.

    ``old`` is what versions before ``baseTimeNanoseconds`` wrote: microseconds since the epoch, and no labels.
    """

    rank: int | None = 0
    pid: int = 4711
    host: str = "gpu-a1"
    device: int = 0
    old: bool = False
    header: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def slice(
        self,
        name: str,
        start: int,
        duration: int,
        *,
        category: str = "cpu_op",
        pid: object = None,
        tid: object = None,
        **arguments: Any,
    ) -> KinetoTrace:
        """Add a slice, by default of the main thread."""
        pid, tid = self.pid if pid is None else pid, self.pid if tid is None else tid
        self.events.append(
            f'  {{\n    "ph": "X",\n    "cat": "{category}",\n    "name": {json.dumps(name)},'
            f'\n    "pid": {json.dumps(pid)},\n    "tid": {json.dumps(tid)},\n    "ts": {self._time(start)},'
            f'\n    "dur": {_micros(duration)}\n    ,'
            f'\n    "args": {{\n      {json.dumps(arguments)[1:-1]}\n    }}\n  }}'
        )
        return self

    def flow(self, begins: bool, number: int, time: int, *, kind: str, pid: int, tid: int) -> KinetoTrace:
        """Add one end of an arrow."""
        bind = "" if begins else ', "bp": "e"'
        self.events.append(
            f'  {{\n    "ph": "{"s" if begins else "f"}",\n    "id": {number},\n    "pid": {pid},\n    "tid": {tid},'
            f'\n    "ts": {self._time(time)},\n    "cat": "{kind}",\n    "name": "{kind}"\n    {bind}\n  }}'
        )
        return self

    def kernel(self, name: str, launch: int, start: int, duration: int, *, number: int) -> KinetoTrace:
        """Add a kernel on the GPU with its launch on the main thread, and the arrow between them."""
        self.slice("cudaLaunchKernel", launch, 4_000, category="cuda_runtime", correlation=number)
        self.flow(True, number, launch, kind="ac2g", pid=self.pid, tid=self.pid)
        self.slice(
            name,
            start,
            duration,
            category="kernel",
            pid=self.device,
            tid=STREAM,
            device=self.device,
            stream=STREAM,
            correlation=number,
            **{"est. achieved occupancy %": 50.5},
        )
        return self.flow(False, number, start, kind="ac2g", pid=self.device, tid=STREAM)

    def text(self) -> str:
        """Return the file."""
        header: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": []}
        if self.rank is not None:
            header["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": 8}
        if not self.old:
            header["host_name"] = self.host
        header["displayTimeUnit"] = "ms"
        if not self.old:
            header["baseTimeNanoseconds"] = BASE_NS
        members = ",\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in {**header, **self.header}.items()
        )
        events = ",\n".join([*self._metadata(), *self.events, *self._end()])
        return f' {{\n{members},\n    "traceEvents": [\n    \n{events}\n  ],\n"traceName": "trace.json" }}'

    def _metadata(self) -> list[str]:
        rows = [("thread_name", self.pid, self.pid, "name", f"thread {self.pid} (python)")]
        rows.append(("thread_name", self.device, STREAM, "name", f"stream {STREAM} "))
        if not self.old:
            rows.append(("process_labels", self.pid, 0, "labels", "CPU"))
            rows.append(("process_labels", self.device, 0, "labels", f"GPU {self.device}"))
        return [
            json.dumps({"ph": "M", "name": name, "ts": 0, "pid": pid, "tid": tid, "args": {key: value}}, indent=2)
            for name, pid, tid, key, value in rows
        ]

    def _end(self) -> list[str]:
        ends = (("Iteration Start: PyTorch Profiler", "Traces"), ("Record Window End", ""))
        return [
            f'  {{\n    "ph": "i",\n    \n    "s": "g",\n    "name": "{name}",\n    "pid": "{pid}",'
            f'\n    "tid": "{pid}",\n    "ts": {self._time(0)}\n    \n  }}'
            for name, pid in ends
        ]

    def _time(self, time_ns: int) -> str:
        time_ns += otlp_lines.BASE_NS
        return str(time_ns // 1000) if self.old else _micros(time_ns - BASE_NS)


def _micros(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03}"
