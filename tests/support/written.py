"""The telemetry that processes under test wrote to files of OTLP JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from support.otlp_decode import READERS, Record


class Written:
    """What processes wrote to files of OTLP JSON lines in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make a process write here."""
        pattern = self.folder / "{signal}-{pid}.jsonl"
        return {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": str(pattern)}

    def spans(self) -> list[Record]:
        """Return every span, in files' order."""
        return self._records("traces")

    def names(self) -> list[str]:
        """Return the sorted names of all spans: a span exported twice is there twice."""
        return sorted(span["name"] for span in self.spans())

    def span(self, name: str) -> Record:
        """Return the one span of this name."""
        found = [span for span in self.spans() if span["name"] == name]
        assert len(found) == 1, f"{len(found)} spans are named {name!r}; there are {self.names()}"
        return found[0]

    def logs(self) -> list[Record]:
        """Return every log record."""
        return self._records("logs")

    def points(self) -> list[Record]:
        """Return every metric data point."""
        return self._records("metrics")

    def totals(self, metric: str) -> dict[int, float]:
        """Return the last value of a metric in each process that wrote one."""
        points = [point for point in self.points() if point["name"] == metric]
        return {point["resource"]["process.pid"]: point["value"] for point in sorted(points, key=lambda p: p["time"])}

    def _records(self, signal_name: str) -> list[Record]:
        return [
            record
            for path in sorted(self.folder.glob(f"{signal_name}*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
            for record in READERS[signal_name](json.loads(line))
        ]
