"""The default sampler in one step decides as the SDK's own does."""

from __future__ import annotations

import itertools

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from nemo_lens.sdk.sampling import ParentBasedAlwaysOn

CONTEXTS = [Context()] + [
    set_span_in_context(
        NonRecordingSpan(SpanContext(trace_id, 2, remote, TraceFlags(flags), TraceState(state))), Context()
    )
    for trace_id, remote, flags, state in itertools.product((0, 1), (True, False), (0, 1, 3), ((), (("a", "b"),)))
]


@pytest.mark.parametrize("attributes", [None, {}, {"a": 1}])
@pytest.mark.parametrize("context", CONTEXTS, ids=range(len(CONTEXTS)))
def test_it_decides_as_parentbased_always_on(context: Context, attributes: dict[str, int] | None) -> None:
    """Decision, attributes and trace state are the same for every parent."""
    theirs = ParentBased(ALWAYS_ON).should_sample(context, 1, "step", attributes=attributes)
    ours = ParentBasedAlwaysOn().should_sample(context, 1, "step", attributes=attributes)
    assert ours.decision is theirs.decision
    assert dict(ours.attributes) == dict(theirs.attributes)
    assert (ours.trace_state or {}) == (theirs.trace_state or {})
    assert ParentBasedAlwaysOn().get_description() == ParentBased(ALWAYS_ON).get_description()
