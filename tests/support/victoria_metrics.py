"""VictoriaMetrics, a real metrics database, run on a free loopback port: it takes OTLP and answers PromQL."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.peer_programs import free_port, peer_binary, running_peer, wait_for

Labels = dict[str, str]


class VictoriaMetrics:
    """A running database: where it listens, and what it answers."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def environ(self, compression: str = "none") -> dict[str, str]:
        """Return the ``OTEL_*`` variables that send metrics here."""
        return {
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{self._url}/opentelemetry/v1/metrics",
            "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": compression,
        }

    def query(self, promql: str) -> list[tuple[Labels, float]]:
        """Return labels and value of each series that an instant query finds now."""
        data = self._get("api/v1/query", query=promql)["data"]
        return [(found["metric"], float(found["value"][1])) for found in data["result"]]

    def value(self, promql: str) -> float:
        """Return the value of the one series that an instant query finds now."""
        found = self.query(promql)
        assert len(found) == 1, f"{promql} finds {found}"
        return found[0][1]

    def by(self, label: str, promql: str) -> dict[str, float]:
        """Return the values that an instant query finds now, by one of their labels."""
        found = self.query(promql)
        values = {labels.get(label, ""): value for labels, value in found}
        assert len(values) == len(found), f"{promql} finds several for one {label}: {found}"
        return values

    def wait_for(self, promql: str, value: float, timeout_s: float = 10.0) -> None:
        """Wait until an instant query finds one series of this value: what is received can be read a little later."""

        def found() -> bool:
            self._flush()
            return [each for _, each in self.query(promql)] == [value]

        assert wait_for(found, timeout_s), f"{promql} finds {self.query(promql)} and not {value}"

    def api(self, path: str, **parameters: str) -> Any:
        """Return what Prometheus' HTTP API answers, such as to ``query_range``."""
        self._flush()
        return self._get(f"api/v1/{path}", **parameters)["data"]

    def exported(self, selector: str) -> list[str]:
        """Return all samples of the series that a selector finds, a JSON object for each series."""
        self._flush()
        query = urllib.parse.urlencode({"match[]": selector})
        with urllib.request.urlopen(f"{self._url}/api/v1/export?{query}", timeout=10) as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return lines

    def take(self, lines: Iterable[str]) -> None:
        """Store samples, given as ``exported`` returns them."""
        body = "\n".join(lines).encode()
        urllib.request.urlopen(f"{self._url}/api/v1/import", body, timeout=10).close()

    def own_metrics(self) -> str:
        """Return what the database says of itself, in Prometheus' text format."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def _flush(self) -> None:
        urllib.request.urlopen(f"{self._url}/internal/force_flush", timeout=10).close()

    def _get(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def running_database(folder: Path) -> Iterator[VictoriaMetrics]:
    """Run the database with its data and log in ``folder``.

    Raises:
        PeerUnavailableError: It has to be fetched and its package cannot be had.
    """
    port = free_port()
    command = [
        peer_binary("victoria_metrics"),
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-storageDataPath={folder / 'data'}",
        "-search.latencyOffset=0s",  # else what is younger than 30 s is not found
        "-search.disableCache",
        "-opentelemetry.usePrometheusNaming",
        "-memory.allowedBytes=64MB",
    ]
    with running_peer(command, (port,), folder / "victoria-metrics.log"):
        yield VictoriaMetrics(port)
