"""How the specs of the shipped groups are made: name, kind, unit and description from the tables of ``semconv``."""

from __future__ import annotations

from nemo_lens.api.instruments.spec import MetricSpec
from nemo_lens.api.semconv.descriptions import DESCRIPTIONS
from nemo_lens.api.semconv.metrics import METRIC_FIELDS


def shipped_spec(key: str, name: str, buckets: tuple[float, ...] | None = None) -> MetricSpec:
    """Return the spec of a metric that the tables of ``semconv`` know.

    Args:
        key: keyword under which it is recorded.
        name: its name.
        buckets: advice for the bounds of a histogram, in the unit of the metric.
    """
    kind, unit = METRIC_FIELDS[name]
    return MetricSpec(key, name, kind, unit, DESCRIPTIONS[name], buckets)


def doubling(first: float, last: float) -> tuple[float, ...]:
    """Return bucket bounds from ``first`` to ``last``, each twice the one before.

    As the GenAI conventions do it: few bounds cover a wide range, and a duration that doubles moves to another bucket.
    """
    bounds = [first]
    while bounds[-1] * 2 <= last:
        bounds.append(bounds[-1] * 2)
    return tuple(bounds)
