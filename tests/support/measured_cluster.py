"""Real processes of a small cluster that measure themselves into a real database, for the queries of the dashboards.

A run of four ranks: rank 2 is slow, rank 1 is started again, rank 3 falls silent. Beside them a rank of
reinforcement learning, a server, and a rank that drops and whose exports fail. A real Collector whose stores are away
takes the spans and log records of reinforcement learning, and a copy of the metrics of the rank that drops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from support.collector_configs import Ports, load, runnable, running_config
from support.http_serving import serving
from support.otlp_receiver import running_receiver
from support.said import said_by
from support.victoria_metrics import VictoriaMetrics

TRAINING, RL, SERVING, LOSSY = "cluster-train", "cluster-rl", "cluster-serve", "cluster-lossy"
WORLD_SIZE, SLOW, RESTARTED, SILENT = 4, 2, 1, 3
STEP_S, SLOW_STEP_S = 0.1, 0.3
# A rank is silent when nothing came for this long: longer than it takes to start a process again on a busy machine.
SILENCE_S = 5
QUEUE = 16
COLLECTOR_NODE = "collector-0"

_PROGRAM = Path(__file__).resolve().parents[1] / "observability" / "programs" / "cluster_process.py"
_LIFE_S = 14.0
_SILENT_AFTER_S = 5.0
_RESTARTED_AFTER_S = 5.0
_REFUSED_AFTER_S = 0.2
_REFUSED_EXPORTS = (2, 3)

Counts = dict[str, int]


@dataclass(frozen=True)
class Cluster:
    """What ran.

    Args:
        database: where the metrics are.
        working: when all that are not silent still worked, in seconds since the epoch.
        ended: when all had ended.
        counts: what each process counted.
    """

    database: VictoriaMetrics
    working: float
    ended: float
    counts: Mapping[str, Counts]


def measured_cluster(database: VictoriaMetrics, folder: Path) -> Cluster:
    """Run the cluster with its files in ``folder``, and return when all its processes have ended.

    Raises:
        PeerUnavailableError: The Collector has to be built and a package cannot be had.
    """
    began = time.time()
    end = began + _LIFE_S
    with (
        running_receiver() as receiver,
        _overrun_collector(database, folder) as collector,
        _refusing(database, collector) as refusing,
        ThreadPoolExecutor(8) as pool,
    ):

        def run(role: str, run_id: str, rank: int | None, until: float, work_s: float, **more: str) -> Counts:
            environ = {
                **receiver.environ("http/protobuf"),
                **database.environ(),
                "OTEL_METRIC_EXPORT_INTERVAL": "500",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "OTEL_BLRP_SCHEDULE_DELAY": "200",
                "OTEL_RESOURCE_ATTRIBUTES": f"host.name=node-{(rank or 0) // 2}",
                **more,
            }
            return _run(role, run_id, rank, until, work_s, environ)

        lossy = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": refusing,
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{refusing}/v1/metrics",
            **{f"OTEL_{queue}_MAX_QUEUE_SIZE": str(QUEUE) for queue in ("BSP", "BLRP")},
            **{f"OTEL_{queue}_MAX_EXPORT_BATCH_SIZE": str(QUEUE // 2) for queue in ("BSP", "BLRP")},
        }
        started: dict[str, Future[Counts]] = {
            "rank 0": pool.submit(run, "train", TRAINING, 0, end, STEP_S),
            "rank 1, first": pool.submit(run, "train", TRAINING, RESTARTED, began + _RESTARTED_AFTER_S, STEP_S),
            "rank 2": pool.submit(run, "train", TRAINING, SLOW, end, SLOW_STEP_S),
            "rank 3": pool.submit(run, "train", TRAINING, SILENT, began + _SILENT_AFTER_S, STEP_S),
            "rl": pool.submit(run, "rl", RL, 0, end, STEP_S, OTEL_EXPORTER_OTLP_ENDPOINT=collector),
            "serve": pool.submit(run, "serve", SERVING, None, end, STEP_S / 2),
            "lossy": pool.submit(run, "lossy", LOSSY, 0, end, STEP_S, **lossy),
        }
        started["rank 1, first"].result()
        started["rank 1, second"] = pool.submit(run, "train", TRAINING, RESTARTED, end, STEP_S)
        counts = {name: future.result() for name, future in started.items()}
    return Cluster(database, end, time.time(), counts)


def _run(role: str, run_id: str, rank: int | None, until: float, work_s: float, environ: Mapping[str, str]) -> Counts:
    arguments = (role, run_id, "-" if rank is None else str(rank), str(WORLD_SIZE), str(until), str(work_s))
    (counts,), _ = said_by(str(_PROGRAM), *arguments, environ=environ)
    return counts


@contextmanager
def _overrun_collector(database: VictoriaMetrics, folder: Path) -> Iterator[str]:
    """Give the address of a Collector, documented for one machine, with small queues and no stores."""
    # Bytes: more than what comes in a second, so that it fits, and less than what comes while one batch is tried.
    queues = {"otlp/traces": 6_000, "file/logs": 6_000, "otlphttp/metrics": 12_000}
    stand_ins = {
        name: {
            "endpoint": "http://127.0.0.1:1",
            "sending_queue": {"sizer": "bytes", "queue_size": size, "num_consumers": 1},
            "retry_on_failure": {"initial_interval": "100ms", "max_interval": "500ms", "max_elapsed_time": "2s"},
        }
        for name, size in queues.items()
    }
    config = runnable(load("single"), stand_ins)
    environ = {
        "COLLECTOR_METRICS_STORE": database.environ()["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"],
        "COLLECTOR_NODE": COLLECTOR_NODE,
    }
    ports = Ports()
    with running_config(config, ports, environ, folder):
        yield ports.http_endpoint


@contextmanager
def _refusing(database: VictoriaMetrics, copied_to: str) -> Iterator[str]:
    """Give an address that refuses spans and log records, after a while, and two of the exports of metrics."""
    target = database.environ()["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
    exports = iter(range(1_000_000))

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = 400
            if not self.path.endswith("/metrics"):
                time.sleep(_REFUSED_AFTER_S)
            elif next(exports) not in _REFUSED_EXPORTS:
                with urlopen(Request(target, body, dict(self.headers)), timeout=10) as answer:
                    status = answer.status
                with suppress(HTTPError):  # what it says while its queue is full
                    urlopen(Request(f"{copied_to}/v1/metrics", body, dict(self.headers)), timeout=10).close()
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with serving(Receiver) as url:
        yield url
