"""A metric of each kind, what is recorded on it, and what a receiver should hold of it then."""

from __future__ import annotations

from typing import Any

from nemo_lens.api.instruments import MetricSpec, create_metric_instruments, record_metrics, register_metric_group

GROUP = "kinds"
ATTRIBUTES = {"phase": "train"}
BUCKETS = (1.0, 2.0)
DURATIONS_S = (0.5, 1.5, 4.0)

SPECS = (
    MetricSpec("depth", "kinds.queue.depth", "gauge", "{request}", "Requests that wait"),
    MetricSpec("duration", "kinds.step.duration", "histogram", "s", "Time of a step", BUCKETS),
    MetricSpec("samples", "kinds.samples", "counter", "{sample}", "Samples seen"),
    MetricSpec("workers", "kinds.workers", "up_down_counter", "{worker}", "Workers there are"),
    MetricSpec(
        "temperature",
        "kinds.temperature",
        "observable_gauge",
        "Cel",
        "Temperature of a GPU",
        callback=lambda: [(41.5, {"gpu": 0}), (43.0, {"gpu": 1})],
    ),
    MetricSpec("read", "kinds.read", "observable_counter", "By", "Bytes read", callback=lambda: 2500),
    MetricSpec("files", "kinds.open_files", "observable_up_down_counter", "{file}", "Open files", callback=lambda: 7),
)

# kind as OTLP has it, whether it only goes up, and attributes and value of each series.
Series = tuple[str, bool, list[tuple[dict[str, Any], float]]]
EXPECTED: dict[str, Series] = {
    "kinds.queue.depth": ("gauge", False, [(ATTRIBUTES, 4)]),
    "kinds.step.duration": ("histogram", False, [(ATTRIBUTES, sum(DURATIONS_S))]),
    "kinds.samples": ("sum", True, [(ATTRIBUTES, 5)]),
    "kinds.workers": ("sum", False, [(ATTRIBUTES, 2)]),
    "kinds.temperature": ("gauge", False, [({"gpu": 0}, 41.5), ({"gpu": 1}, 43.0)]),
    "kinds.read": ("sum", True, [({}, 2500)]),
    "kinds.open_files": ("sum", False, [({}, 7)]),
}


def record_every_kind(meter: Any) -> None:
    """Record what ``EXPECTED`` says."""
    register_metric_group(GROUP, SPECS)
    create_metric_instruments(meter, GROUP)
    record_metrics(meter, GROUP, attributes=ATTRIBUTES, depth=4, samples=5, workers=3)
    record_metrics(meter, GROUP, attributes=ATTRIBUTES, workers=-1)
    for seconds in DURATIONS_S:
        record_metrics(meter, GROUP, attributes=ATTRIBUTES, duration=seconds)
