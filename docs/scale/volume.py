"""From measured sizes to what a whole job sends: arithmetic, and nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from scale.workload import Job, spans_per_step

# Defaults of the export pipe: a batch goes out when it is full, or after a delay.
FULL_BATCH = 512
LOG_DELAY_S = 1.0
# Over HTTP, plain and compressed; by the file exporter, plain and compressed.
WAYS = ("plain", "gzip", "file", "file.gz")
# A gateway: a collector of so many cores, of which this part is planned with.
GATEWAY_CORES, GATEWAY_LOAD = 4, 0.5


@dataclass(frozen=True)
class Stream:
    """What one rank sends of one signal."""

    items_per_s: float
    requests_per_s: float

    @property
    def batch(self) -> float:
        """Return the number of items in a request."""
        return self.items_per_s / self.requests_per_s if self.requests_per_s else 0.0


class Part(NamedTuple):
    """Some of the ranks of a job, and how they are set up."""

    share: float
    preset: str | None
    ratio: float = 1.0


@dataclass(frozen=True)
class Volume:
    """What is sent in a second, by one rank or by all; bytes by way of delivery."""

    spans: float
    requests: float
    size: dict[str, float]
    cores: float

    def __add__(self, other: Volume) -> Volume:
        size = {way: self.size[way] + other.size[way] for way in WAYS}
        return Volume(self.spans + other.spans, self.requests + other.requests, size, self.cores + other.cores)

    def __mul__(self, times: float) -> Volume:
        size = {way: bytes_per_s * times for way, bytes_per_s in self.size.items()}
        return Volume(self.spans * times, self.requests * times, size, self.cores * times)


def of_job(job: Job, ranks: int, parts: Iterable[Part], sizes: Mapping[str, Any]) -> Volume:
    """Return what all ranks of a job send."""
    none = Volume(0.0, 0.0, dict.fromkeys(WAYS, 0.0), 0.0)
    return sum((of_rank(job, part, sizes) * (part.share * ranks) for part in parts), none)


def of_rank(job: Job, part: Part, sizes: Mapping[str, Any]) -> Volume:
    """Return what a rank sends of all three signals."""
    # What is sampled is whole steps, so requests become fewer and not smaller.
    rate = spans_per_step(job, part.preset) / job.step_time_s if part.preset else 0.0
    traces = _queued(rate, job.span_delay_s)
    logs = _queued(1 / (job.log_interval * job.step_time_s), LOG_DELAY_S)
    streams = [
        (part.ratio * traces.requests_per_s, traces.batch, sizes["traces"].get(part.preset), "traces"),
        (logs.requests_per_s, logs.batch, sizes["logs"], "logs"),
        (1 / job.metric_interval_s, 1, sizes["metrics"]["ways"], "metrics"),
    ]
    size = dict.fromkeys(WAYS, 0.0)
    cores = 0.0
    for requests, batch, curves, signal in streams:
        if requests:
            cores += requests * at(sizes["collector"]["us per request"][signal], batch) / 1e6
            for way in WAYS:
                beside = 0 if way.startswith("file") else sizes["overhead"]["http"]["request"]
                size[way] += requests * (at(curves[way], batch) + beside)
    return Volume(part.ratio * rate, sum(stream[0] for stream in streams), size, cores)


def gateways(cores: float) -> int:
    """Return the number of gateways for a load; two at least, so that one may fail."""
    return max(2, math.ceil(cores / (GATEWAY_CORES * GATEWAY_LOAD)))


def at(curve: Mapping[str, float], batch: float) -> float:
    """Return the size at ``batch`` items, between the measured ones on a line, beyond the last one in proportion."""
    known = sorted((int(size), value) for size, value in curve.items())
    batch = max(batch, known[0][0])
    for (low, small), (high, large) in itertools.pairwise(known):
        if batch <= high:
            return small + (large - small) * (batch - low) / (high - low)
    return known[-1][1] * batch / known[-1][0]


def _queued(items_per_s: float, delay_s: float) -> Stream:
    """Return the stream of a queue.

    A request holds one item where they are rare, else what came in a delay, and a full batch at most.
    """
    batch = min(max(items_per_s * delay_s, 1.0), FULL_BATCH)
    return Stream(items_per_s, items_per_s / batch)
