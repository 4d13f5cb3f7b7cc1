"""Metrics about the telemetry itself: what the pipes of the present run dropped, exported and failed to export.

Names and attributes follow https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/. All of it is observed: read
from the pipes' own counts when metrics are collected, without a lock. Like the provider they are made on, the
instruments stay; what they read changes from run to run.

A process that has nothing to export has nothing to report either: it would connect, or create a file, and with a
collector that does not answer wait at its end, for that alone. Workers that a job forks are many, and mostly such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from opentelemetry.metrics import CallbackOptions, Observation

from nemo_lens.api import semconv
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS
from nemo_lens.sdk.exporters import Signal, class_name
from nemo_lens.sdk.metric_pipes import OWN_SCOPE, CollectPipe
from nemo_lens.sdk.outlets import LogOutlet
from nemo_lens.sdk.pipe import ExportPipe
from nemo_lens.sdk.processor import LensSpanProcessor
from nemo_lens.sdk.queue_pipe import QueuePipe

# What hands over to the queue of a signal.
_PROCESSORS: dict[str, type] = {"traces": LensSpanProcessor, "logs": LogOutlet}

# Number, and the error.type of what failed.
_Counted = Iterable[tuple[int, str]]


def _processed(pipe: Any) -> _Counted:
    # queue_full from the beginning, so that the first drop is an increase; the other only where it happens.
    dropped = ((number, reason) for reason, number in pipe.dropped.items() if number or reason == "queue_full")
    return [(pipe.counts.taken, ""), *dropped]


def _exported(pipe: Any) -> _Counted:
    return [(pipe.counts.confirmed, ""), *((number, reason) for reason, number in pipe.counts.failed.items())]


def _inflight(pipe: Any) -> _Counted:
    return [(pipe.counts.inflight, "")]


def _queue_size(pipe: Any) -> _Counted:
    return [(pipe.waiting, "")]


def _queue_capacity(pipe: Any) -> _Counted:
    return [(pipe.capacity, "")]


class _Row(NamedTuple):
    metric: str
    signal: Signal
    of_processor: bool
    read: Callable[[Any], _Counted]


_ROWS = (
    _Row(semconv.OTEL_SDK_PROCESSOR_SPAN_PROCESSED, "traces", True, _processed),
    _Row(semconv.OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE, "traces", True, _queue_size),
    _Row(semconv.OTEL_SDK_PROCESSOR_SPAN_QUEUE_CAPACITY, "traces", True, _queue_capacity),
    _Row(semconv.OTEL_SDK_EXPORTER_SPAN_EXPORTED, "traces", False, _exported),
    _Row(semconv.OTEL_SDK_EXPORTER_SPAN_INFLIGHT, "traces", False, _inflight),
    _Row(semconv.OTEL_SDK_PROCESSOR_LOG_PROCESSED, "logs", True, _processed),
    _Row(semconv.OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE, "logs", True, _queue_size),
    _Row(semconv.OTEL_SDK_PROCESSOR_LOG_QUEUE_CAPACITY, "logs", True, _queue_capacity),
    _Row(semconv.OTEL_SDK_EXPORTER_LOG_EXPORTED, "logs", False, _exported),
    _Row(semconv.OTEL_SDK_EXPORTER_LOG_INFLIGHT, "logs", False, _inflight),
    _Row(semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED, "metrics", False, _exported),
    _Row(semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT, "metrics", False, _inflight),
)


class SelfMetrics:
    """The instruments of one meter provider.

    Args:
        provider: the SDK's meter provider.
        version: version of the instrumentation scope.
    """

    def __init__(self, provider: Any, version: str) -> None:
        # Replaced as a whole; empty between two runs.
        self._pipes: Mapping[str, QueuePipe | CollectPipe] = {}
        meter = provider.get_meter(OWN_SCOPE, version)
        create = {
            "counter": meter.create_observable_counter,
            "up_down_counter": meter.create_observable_up_down_counter,
        }
        for row in _ROWS:
            kind, unit = semconv.OTEL_SDK_METRIC_FIELDS[row.metric]
            create[kind](row.metric, [self._observer(row)], unit, DESCRIPTIONS[row.metric])

    def begin(self, pipes: Iterable[ExportPipe]) -> None:
        """Read these pipes from now on; a caller's own metric reader exports out of sight."""
        self._pipes = {pipe.signal: pipe for pipe in pipes if isinstance(pipe, (QueuePipe, CollectPipe))}

    def end(self, pipes: Iterable[ExportPipe]) -> None:
        """Read these pipes no more, unless another run has begun."""
        if any(pipe is self._pipes.get(pipe.signal) for pipe in pipes):
            self._pipes = {}

    def _observer(self, row: _Row) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            pipes = self._pipes
            pipe = pipes.get(row.signal)
            if pipe is None or not any(each.was_used for each in pipes.values()):
                return ()
            component = class_name(_PROCESSORS[row.signal]) if row.of_processor else pipe.exporter.plan.component
            return [Observation(number, _attributes(component, reason)) for number, reason in row.read(pipe)]

        return observe


def _attributes(component: str, reason: str) -> dict[str, str]:
    # One of each type in a process: the conventions number them.
    attributes = {semconv.OTEL_COMPONENT_TYPE: component, semconv.OTEL_COMPONENT_NAME: f"{component}/0"}
    return {**attributes, semconv.ERROR_TYPE: reason} if reason else attributes
