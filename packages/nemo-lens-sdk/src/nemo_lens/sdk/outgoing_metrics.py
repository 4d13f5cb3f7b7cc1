"""The last look at metrics before they are sent, in the export thread: points are mended, large collections parted.

A point that cannot be sent, or a collection too large for one message, would spoil each collection after it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api._numbers import number
from nemo_lens.api.attributes import clean_text
from nemo_lens.sdk.sendable import (
    MAX_PART_CHARACTERS,
    OVERHEAD,
    UnsendableError,
    clean_mapping,
    in_parts,
    sound_scope,
    weigh,
    weigh_value,
)

_LARGEST_FLOAT_BITS = 1023
# Of a number or an exemplar, and of a histogram.
_NUMBERS = ("value", "sum", "min", "max")
# What a point or an exemplar takes beside its attributes and buckets: times, numbers, ids.
_POINT = 64
# What a bucket takes: its count and its bound.
_BUCKET = 16


def metric_parts(data: MetricsData, resource: Resource | None) -> list[MetricsData]:
    """Return a collection as it can be sent: in one part, unless it is too large for one message.

    Each part has whole data points, with the resource, scope and metric that they belong to.

    Args:
        data: what the SDK collected.
        resource: resource to put on it; None to leave what is there.
    """
    weight = 0
    resource_metrics = []
    for of_resource in data.resource_metrics:
        scope_metrics = []
        for of_scope in of_resource.scope_metrics:
            metrics = []
            for metric in of_scope.metrics:
                mended, size = _mended_metric(metric)
                metrics.append(mended)
                weight += size
            scope_metrics.append(replace(of_scope, scope=sound_scope(of_scope.scope), metrics=metrics))
        known = of_resource.resource if resource is None else resource
        resource_metrics.append(replace(of_resource, resource=known, scope_metrics=scope_metrics))
    whole = replace(data, resource_metrics=resource_metrics)
    return [whole] if weight <= MAX_PART_CHARACTERS else list(_parted(whole))


class _Placed(NamedTuple):
    """A data point and where it belongs."""

    of_resource: Any
    of_scope: Any
    metric: Any
    point: Any

    @property
    def name(self) -> str:
        return str(self.metric.name)


def _weighed(placed: _Placed) -> tuple[_Placed, int]:
    return placed, _weigh_metric(placed.metric) + _weigh_point(placed.point)


def _parted(data: MetricsData) -> Iterator[MetricsData]:
    points = (
        _Placed(of_resource, of_scope, metric, point)
        for of_resource in data.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    )
    for part in in_parts(points, _weighed, "data point of metric"):
        resource_metrics = [
            replace(
                in_resource[0].of_resource,
                scope_metrics=[
                    replace(in_scope[0].of_scope, metrics=[_metric_of(points) for points in _runs(in_scope, 2)])
                    for in_scope in _runs(in_resource, 1)
                ],
            )
            for in_resource in _runs(part, 0)
        ]
        yield replace(data, resource_metrics=resource_metrics)


def _runs(placed: list[_Placed], level: int) -> Iterator[list[_Placed]]:
    # By identity: to compare resources and metrics is to compare all that is in them.
    for _, run in groupby(placed, key=lambda each: id(each[level])):
        yield list(run)


def _metric_of(placed: list[_Placed]) -> Any:
    metric = placed[0].metric
    return _with_points(metric, [each.point for each in placed])


def _with_points(metric: Any, points: list[Any], **changes: Any) -> Any:
    return replace(metric, data=replace(metric.data, data_points=points), **changes)


def _mended_metric(metric: Any) -> tuple[Any, int]:
    """Return a metric as it can be sent, and about how many characters it takes."""
    points = []
    weight = 0
    for point in metric.data.data_points:
        try:
            try:
                weight += _weigh_point(point)
            except UnsendableError:
                point = _mended_point(point)
                weight += _weigh_point(point)
            points.append(point)
        except Exception as fault:  # noqa: BLE001 - one point must not take the others with it
            kind = type(fault).__name__
            warn_once(("point", metric.name, kind), "a value of metric %r cannot be sent: %s", metric.name, kind)
    mended = _with_points(metric, points, description=clean_text(metric.description or ""))
    return mended, weight + _weigh_metric(mended)


def _mended_point(point: Any) -> Any:
    changes: dict[str, Any] = {
        "attributes": clean_mapping(point.attributes),
        "exemplars": [exemplar for exemplar in point.exemplars if _is_sound(exemplar)],
    }
    for field in _NUMBERS:
        value = getattr(point, field, None)
        if value is not None:
            changes[field] = _sendable(value)
    return replace(point, **changes)


def _sendable(value: Any) -> int | float:
    if type(value) is int and value.bit_length() > _LARGEST_FLOAT_BITS:
        return float("inf") if value > 0 else float("-inf")
    return number(value)  # beyond 64 bits OTLP has floats only


def _is_sound(exemplar: Any) -> bool:
    try:
        _weigh_point(exemplar)
    except UnsendableError:
        return False
    return True


def _weigh_metric(metric: Any) -> int:
    """Return about how many characters a metric takes beside its points, once mended."""
    return len(metric.name) + len(metric.description) + len(metric.unit or "") + OVERHEAD


def _weigh_point(point: Any) -> int:
    """Return about how many characters a data point, or an exemplar of one, takes; raises ``UnsendableError``."""
    for field in _NUMBERS:
        value = getattr(point, field, None)
        # Any other, be it a bool or one of numpy, some version's exporter refuses.
        if type(value) is not float and value is not None and type(value) is not int:
            raise UnsendableError
        # Sums are floats in OTLP, whatever they are here.
        if type(value) is int and value.bit_length() > _LARGEST_FLOAT_BITS:
            raise UnsendableError
    weigh_value(getattr(point, "value", None))
    if not hasattr(point, "attributes"):
        return _POINT + weigh(point.filtered_attributes)
    weight = _POINT + weigh(point.attributes)
    for buckets in (point, getattr(point, "positive", None), getattr(point, "negative", None)):
        weight += _BUCKET * len(getattr(buckets, "bucket_counts", ()))
    for exemplar in point.exemplars:
        weight += _weigh_point(exemplar)
    return weight
