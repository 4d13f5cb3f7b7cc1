"""torch.compile over instrumented code: whole graphs while groups are off, graph breaks while they are on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; nox -s compile installs it")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402 - after the skip

from nemo_lens.api import (  # noqa: E402 - after the skip
    NemoLensConfig,
    managed_span,
    set_enabled_span_groups,
    setup_telemetry,
    trace_fn,
)

# torch's own deprecations are not what is tested here.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


def with_span(x):  # type: ignore[no-untyped-def]
    with managed_span("step", "forward", size=8):
        y = x * 2
    return y + 1


@trace_fn("step")
def with_decorator(x):  # type: ignore[no-untyped-def]
    return x * 2 + 1


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    set_enabled_span_groups(())
    torch._dynamo.reset()
    yield
    set_enabled_span_groups(())


@pytest.mark.parametrize("function", [with_span, with_decorator])
def test_off_compiles_into_one_graph(function) -> None:  # type: ignore[no-untyped-def]
    """With its group off, an instrumented function compiles with fullgraph=True and computes the same."""
    x = torch.arange(4.0)
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), x * 2 + 1)


@pytest.mark.parametrize("function", [with_span, with_decorator])
def test_on_breaks_the_graph_and_traces(function) -> None:  # type: ignore[no-untyped-def]
    """With its group on, the graph breaks around the span, the result is the same and the span is there."""
    exporter = InMemorySpanExporter()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, metrics_enabled=False),
        span_exporter=exporter,
        resource_attributes={"nv.dl.rank": 0},
    )
    try:
        set_enabled_span_groups(("step",))
        x = torch.arange(4.0)
        compiled = torch.compile(function, backend="eager")
        assert torch.equal(compiled(x), x * 2 + 1)
        assert handle.force_flush(10_000)
        assert len(exporter.get_finished_spans()) == 1
    finally:
        handle.shutdown()


def test_rebinding_equal_groups_does_not_recompile() -> None:
    """Setting the groups to what they are keeps the compiled code."""
    graphs = []

    def count(graph, example_inputs):  # type: ignore[no-untyped-def]
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(with_span, fullgraph=True, backend=count)
    x = torch.arange(4.0)
    compiled(x)
    set_enabled_span_groups(())
    compiled(x)
    assert len(graphs) == 1
