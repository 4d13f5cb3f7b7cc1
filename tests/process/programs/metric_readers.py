"""Jobs whose metrics go to a reader of their own."""

from __future__ import annotations

import os
import urllib.request
from typing import Any

import common
from common import say
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)

# ---- Prometheus


def served(reader: Any) -> Any:
    """Serve what a Prometheus registry holds on a free port of loopback; return what fetches it."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import REGISTRY

    registry: CollectorRegistry = getattr(reader, "_registry", REGISTRY)
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)[:2]
    port = server.server_address[1]

    def scrape() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        ours = ("target_info", "done_total", "duration_seconds", "depth", "observed_total")
        return [line for line in lines if line.startswith(ours)]

    return scrape


def measure(handle: Any, count: int) -> None:
    """Count, measure and observe."""
    from opentelemetry.metrics import Observation

    handle.meter.create_counter("done").add(count)
    handle.meter.create_histogram("duration", "s", explicit_bucket_boundaries_advisory=[1.0]).record(0.5)
    handle.meter.create_gauge("depth").set(4)
    handle.meter.create_observable_counter("observed", [lambda options: [Observation(7)]])


def scraped() -> None:
    """Scrape while the job runs, after flushes, and after the shutdown."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    reader = PrometheusMetricReader()
    handle = common.set_up(metric_reader=reader)
    scrape = served(reader)
    measure(handle, 3)
    say(running=scrape(), exporting=handle.is_exporting)
    measure(handle, 2)
    say(confirmed=[handle.force_flush(5000) for _ in range(5)], flushed=scrape(), again=scrape())
    handle.shutdown(5000)
    say(shut_down=scrape(), exporting=handle.is_exporting)


def scraped_in_child() -> None:
    """Fork; scrape the child and the parent."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    reader = PrometheusMetricReader()
    handle = common.set_up(metric_reader=reader)
    measure(handle, 3)
    child = os.fork()
    if child == 0:
        scrape = served(reader)
        measure(handle, 2)
        say(child=scrape(), child_pid=os.getpid())
        handle.shutdown(5000)
        say(child_shut_down=scrape())
        os._exit(0)
    os.waitpid(child, 0)
    measure(handle, 1)
    say(parent=served(reader)(), parent_pid=os.getpid())
    handle.shutdown(5000)


# ---- in memory, and by hand


def points(data: MetricsData | None) -> list[Any]:
    """Return the values of the counter ``done`` in a collection."""
    return [
        point.value
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "done"
        for point in metric.data.data_points
    ]


def in_memory() -> None:
    """Read deltas from memory: after flushes, and after the shutdown."""
    reader = InMemoryMetricReader(preferred_temporality={Counter: AggregationTemporality.DELTA})
    handle = common.set_up(metric_reader=reader)
    counter = handle.meter.create_counter("done")
    counter.add(3)
    confirmed = handle.force_flush(5000)
    counter.add(2)
    say(confirmed=confirmed, first=points(reader.get_metrics_data()))
    counter.add(4)
    handle.shutdown(5000)
    say(last=points(reader.get_metrics_data()))


class ManualReader(MetricReader):
    """A reader that pushes what it is made to collect, and collects nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[list[Any]] = []

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        self.received.append(points(metrics_data))

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self.received.append(["shut down"])


def by_hand() -> None:
    """A flush collects, and the end collects once more."""
    reader = ManualReader()
    handle = common.set_up(metric_reader=reader)
    counter = handle.meter.create_counter("done")
    counter.add(3)
    confirmed = handle.force_flush(5000)
    counter.add(2)
    handle.shutdown(5000)
    say(confirmed=confirmed, received=reader.received)


# ---- a periodic reader of the job's own


def periodic(url: str, interval_ms: str) -> None:
    """Export over OTLP by a periodic reader, in the parent and in a forked child; nobody flushes."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics"), float(interval_ms))
    handle = common.set_up(metric_reader=reader)
    counter = handle.meter.create_counter("done")
    counter.add(3)
    child = os.fork()
    if child == 0:
        counter.add(2)
        handle.shutdown(5000)
        os._exit(0)
    os.waitpid(child, 0)
    counter.add(4)
    say(pid=os.getpid(), child=child)
    handle.shutdown(5000)


# ---- one run after another


def again() -> None:
    """Set up with a reader, with another, with that one again, with the first again, and with none."""
    first, other = InMemoryMetricReader(), InMemoryMetricReader()
    handle = common.set_up(metric_reader=first)
    inherited = handle.meter.create_counter("done")
    inherited.add(1)
    say(first=points(first.get_metrics_data()))
    handle.shutdown()

    handle = common.set_up(metric_reader=other)
    inherited.add(1)
    handle.meter.create_counter("done").add(5)
    say(other=points(other.get_metrics_data()))
    handle.shutdown()

    try:
        common.set_up(metric_reader=other)
    except ValueError as fault:
        say(refused=str(fault))

    handle = common.set_up(metric_reader=first)
    inherited.add(7)
    say(first_again=points(first.get_metrics_data()))
    handle.shutdown()

    for number in (2, 3):
        handle = common.set_up()
        handle.meter.create_counter("done").add(10 * number)
        handle.shutdown()


def many_sets() -> None:
    """Give a metric more attribute sets than are kept, and in the next run a new one."""
    from nemo_lens.api.instruments import MetricSpec, record_metrics, register_metric_group

    register_metric_group("readers", [MetricSpec("requests", "requests", "counter")])
    for run_id, numbers in (("run-1", range(2500)), ("run-2", range(5000, 5001))):
        handle = common.set_up(run_id=run_id)
        for number in numbers:
            record_metrics(handle.meter, "readers", requests=1, attributes={"id": number})
        handle.shutdown(5000)


def shut_down_reader() -> None:
    """Give a reader to a second run whose first run has shut it down."""
    reader = ManualReader()
    for _ in range(2):
        common.set_up(metric_reader=reader).shutdown()


def taken() -> None:
    """Give what is no reader, and a reader that another provider has; then set up after all."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    for wrong in (reader, 7):
        try:
            common.set_up(metric_reader=wrong)
        except ValueError as fault:
            say(refused=str(fault))
    provider.shutdown()
    handle = common.set_up()
    handle.meter.create_counter("done").add(1)
    handle.shutdown()


def changed_settings() -> None:
    """Change what only the first set-up can choose."""
    common.set_up().shutdown()
    os.environ["OTEL_METRICS_EXEMPLAR_FILTER"] = "always_on"
    os.environ["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"] = "delta"
    handle = common.set_up()
    handle.meter.create_counter("done").add(1)
    handle.shutdown()


def bad_settings() -> None:
    """Set up with a preference that there is not, correct it, and set up."""
    variable = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    os.environ[variable] = "deltas"
    try:
        common.set_up()
    except ValueError as fault:
        say(refused=str(fault))
    os.environ[variable] = "delta"
    handle = common.set_up()
    handle.meter.create_counter("done").add(1)
    handle.shutdown()


SCENARIOS = (
    *(scraped, scraped_in_child, in_memory, by_hand, periodic),
    *(again, many_sets, shut_down_reader, taken, changed_settings, bad_settings),
)

if __name__ == "__main__":
    common.main({scenario.__name__: scenario for scenario in SCENARIOS})
