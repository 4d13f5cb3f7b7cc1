"""On a machine with an NVIDIA GPU and torch: neither a span nor a metric makes the job wait for the GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA GPU here", allow_module_level=True)

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402 - after the skip

from nemo_lens.api import NemoLensConfig, managed_span, set_enabled_span_groups, setup_telemetry  # noqa: E402 - same
from nemo_lens.api._diagnostics import forget_reported  # noqa: E402 - same
from nemo_lens.api.instruments import (  # noqa: E402 - same
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    register_metric_group,
    unregister_metric_group,
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def test_a_scalar_on_the_gpu_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A number that is still on the GPU is dropped without a wait, with one hint in all; the span is whole."""
    exporter = InMemorySpanExporter()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, metrics_enabled=False),
        span_exporter=exporter,
        resource_attributes={"nv.dl.rank": 0},
    )
    set_enabled_span_groups(("step",))
    loss: Any = torch.full((), 1.5, device="cuda") * 2
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError):
            loss.item()  # else this test would show nothing
        for _ in range(3):
            with managed_span("step", "train", loss=loss, grad_norm=loss, iteration=7) as span:
                span.set_attribute("late", "value")
    finally:
        torch.cuda.set_sync_debug_mode("default")
        set_enabled_span_groups(())
    assert handle.force_flush(10_000)
    handle.shutdown()
    spans = exporter.get_finished_spans()
    assert [dict(span.attributes) for span in spans] == [{"iteration": 7, "late": "value"}] * 3
    hints = [record for record in caplog.records if "on a device" in record.getMessage()]
    assert len(hints) == 1


def test_a_metric_on_the_gpu_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Recorded or observed, a number that is still on the GPU is not read: one hint per metric, the others arrive."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    forget_reported()
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("gpu")
    loss: Any = torch.full((), 1.5, device="cuda") * 2
    torch.cuda.synchronize()
    register_metric_group(
        "on the gpu",
        [
            MetricSpec("loss", "my.loss"),
            MetricSpec("steps", "my.steps", "counter"),
            MetricSpec("seen", "my.seen", "observable_gauge", callback=lambda: [loss, (loss, {"gpu": 0})]),
        ],
    )
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError):
            loss.item()  # else this test would show nothing
        create_metric_instruments(meter, "on the gpu")
        for _ in range(3):
            record_metrics(meter, "on the gpu", loss=loss, steps=1)
        data = reader.get_metrics_data()
    finally:
        torch.cuda.set_sync_debug_mode("default")
        unregister_metric_group("on the gpu")
        provider.shutdown()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    assert [(metric.name, metric.data.data_points[0].value) for metric in metrics] == [("my.steps", 3)]
    hints = [record.getMessage() for record in caplog.records if "on a device" in record.getMessage()]
    assert [("'loss'" in hint, "'my.seen'" in hint) for hint in hints] == [(True, False), (False, True)]
