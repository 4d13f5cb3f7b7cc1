"""The sampler that ``OTEL_TRACES_SAMPLER`` names, the default one in one step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, get_current_span
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

SAMPLER_PLUGINS = "opentelemetry_traces_sampler"
_SAMPLED = 1
# What a sampled span without attributes and trace state gets; results are read only.
_PLAIN = SamplingResult(Decision.RECORD_AND_SAMPLE)


def configured_sampler() -> Sampler:
    """Return the sampler of the environment, whose name set-up has checked.

    The SDK alone, without its auto-configuration, does not know the samplers of plug-ins, and takes no name or ratio
    with blanks around it.

    Raises:
        ValueError: a plug-in that cannot be loaded or gives no sampler.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    argument = os.environ.get("OTEL_TRACES_SAMPLER_ARG")
    if name in _BUILT_IN:
        return _BUILT_IN[name](argument)
    plug = next(point for point in entry_points(group=SAMPLER_PLUGINS) if point.name.lower() == name)
    try:
        sampler = plug.load()(argument)
    except (Exception, SystemExit) as fault:
        raise ValueError(f"OTEL_TRACES_SAMPLER={name!r}: {plug.value} cannot be used: {fault!r}") from fault
    if not isinstance(sampler, Sampler):
        raise ValueError(f"OTEL_TRACES_SAMPLER={name!r}: {plug.value} gives a {type(sampler).__name__}, no Sampler")
    return sampler


class ParentBasedAlwaysOn(ParentBased):
    """Sample roots and children of sampled spans; leave the rest to ``ParentBased``.

    The decision is the SDK's own ``parentbased_always_on``; asking two samplers through their general signatures takes
    7 percent of the time of a whole span.
    """

    def __init__(self) -> None:
        super().__init__(ALWAYS_ON)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide as ``parentbased_always_on`` does."""
        parent = get_current_span(parent_context).get_span_context()
        if parent.is_valid:
            if not parent.trace_flags & _SAMPLED:
                return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
            if attributes or parent.trace_state:
                return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, parent.trace_state)
        elif attributes:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return _PLAIN


def _ratio(argument: str | None) -> float:
    return float((argument or "").strip() or 1)


# From OTEL_TRACES_SAMPLER_ARG to the sampler.
_BUILT_IN: dict[str, Callable[[str | None], Sampler]] = {
    "": lambda _: ParentBasedAlwaysOn(),
    "parentbased_always_on": lambda _: ParentBasedAlwaysOn(),
    "parentbased_always_off": lambda _: DEFAULT_OFF,
    "parentbased_traceidratio": lambda argument: ParentBasedTraceIdRatio(_ratio(argument)),
    "always_on": lambda _: ALWAYS_ON,
    "always_off": lambda _: ALWAYS_OFF,
    "traceidratio": lambda argument: TraceIdRatioBased(_ratio(argument)),
}
