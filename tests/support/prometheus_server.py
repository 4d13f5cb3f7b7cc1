"""A real Prometheus on a free loopback port, with the samples of another database.

Debian's has no receiver for OTLP: what it answers from was received, and named, by VictoriaMetrics.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.peer_programs import free_port, peer_binary, running_peer, wait_for


class Prometheus:
    """A running Prometheus: what it answers."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def api(self, path: str, **parameters: str) -> Any:
        """Return what its HTTP API answers, such as to ``query_range``."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        """Tell whether it answers queries."""
        try:
            urllib.request.urlopen(f"{self._url}/-/ready", timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def running_prometheus(folder: Path, exported: Iterable[str]) -> Iterator[Prometheus]:
    """Run Prometheus with its data and log in ``folder``.

    Args:
        folder: an empty one.
        exported: the samples, as lines of VictoriaMetrics' export.

    Raises:
        PeerUnavailableError: It has to be fetched and its package cannot be had.
    """
    programs, port = peer_binary("prometheus"), free_port()
    samples, config = folder / "samples.txt", folder / "prometheus.yml"
    samples.write_text("".join(f"{line}\n" for line in (*_open_metrics(exported), "# EOF")), encoding="utf-8")
    config.write_text("{}", encoding="utf-8")
    storing = (programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", samples, folder / "data")
    subprocess.run(storing, check=True, capture_output=True, timeout=30)
    command = (
        programs / "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with running_peer(command, (port,), folder / "prometheus.log"):
        running = Prometheus(port)
        assert wait_for(running.is_ready, 10), (folder / "prometheus.log").read_text(encoding="utf-8")
        yield running


def _open_metrics(exported: Iterable[str]) -> Iterator[str]:
    """Yield lines of the OpenMetrics text format, metric by metric."""
    for series in sorted(map(json.loads, exported), key=lambda series: str(series["metric"]["__name__"])):
        name = series["metric"].pop("__name__")
        labels = ",".join(f"{label}={_quoted(value)}" for label, value in series["metric"].items())
        for value, milliseconds in zip(series["values"], series["timestamps"], strict=True):
            yield f"{name}{{{labels}}} {value} {milliseconds / 1000:.3f}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
