"""The budgets of recording numbers and of the logging bridge, as ratios to bare OpenTelemetry in one run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from _timing import Budget, ratio, settled
from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk._logs import LoggingHandler
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from nemo_lens.api import NemoLensConfig, get_meter, get_telemetry, setup_telemetry
from nemo_lens.api.instruments import (
    MetricSpec,
    record_metrics,
    record_training_metrics,
    register_metric_group,
    unregister_metric_group,
)
from nemo_lens.sdk import _compat
from nemo_lens.sdk.logging_bridge import remove_logging_bridge, setup_logging_bridge

Report = Callable[[Budget, float, str], None]

ATTRIBUTES: dict[int, Mapping[str, Any] | None] = {0: None, 2: {"phase": "train", "micro_batch": 8}}
GAUGE = Budget("record_metrics, a cached gauge", "the gauge's own set() with the same attributes", 2.0, 3.0)
TRAINING = Budget("record_training_metrics, five values", "five calls of the instruments' own", 2.0, 3.0)
NO_OP = Budget("record_metrics, a meter that does nothing", "a plain call with the same arguments", 4.0, 10.0)
LOGGED = Budget("a log record through the bridge", "OpenTelemetry's LoggingHandler", 1.2, 1.4)


@pytest.fixture
def meter() -> Iterator[Any]:
    """Return a meter of a provider that nobody collects from meanwhile."""
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    yield provider.get_meter("benchmark")
    provider.shutdown()


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    register_metric_group("benchmark", [MetricSpec("loss", "benchmark.loss")])
    yield
    unregister_metric_group("benchmark")


def check(
    report: Report,
    budget: Budget,
    ours: Callable[[int], None],
    peer: Callable[[int], None],
    note: str,
    calls: int = 2_000,
    between: Callable[[], object] = lambda: None,
) -> None:
    def measure() -> tuple[float, str]:
        figure, mine, theirs = ratio(ours, peer, calls, between=between)
        return figure, f"{note}: {mine:.0f} ns against {theirs:.0f} ns"

    figure, detail = settled(budget, measure)
    report(budget, figure, detail)
    assert figure <= budget.limit, f"{budget.what}: {figure:.2f} is past the limit of {budget.limit}"


@pytest.mark.parametrize("number", ATTRIBUTES)
def test_gauge(report: Report, meter: Any, number: int) -> None:
    """Looking the instrument up, cleaning and redacting attributes and counting their sets costs what setting it does.

    Mostly less; more in the lowest OpenTelemetry, which does less with the attributes itself.
    """
    gauge = meter.create_gauge("benchmark.bare")
    attributes = ATTRIBUTES[number]

    def ours(calls: int) -> None:
        for step in range(calls):
            record_metrics(meter, "benchmark", loss=step, attributes=attributes)

    def peer(calls: int) -> None:
        for step in range(calls):
            gauge.set(step, attributes)

    check(report, GAUGE, ours, peer, f"{number} attributes")


@pytest.mark.parametrize("number", ATTRIBUTES)
def test_training_metrics(report: Report, meter: Any, number: int) -> None:
    """The values of a training step share the cleaning of their attributes."""
    duration, skipped = meter.create_histogram("bare.duration"), meter.create_counter("bare.skipped")
    loss, rate, norm = (meter.create_gauge(f"bare.{name}") for name in ("loss", "rate", "norm"))
    attributes = ATTRIBUTES[number]

    def ours(calls: int) -> None:
        for _ in range(calls):
            record_training_metrics(
                meter,
                step_duration_s=0.5,
                loss=2.5,
                learning_rate=1e-4,
                grad_norm=1.5,
                skipped_iterations=1,
                attributes=attributes,
            )

    def peer(calls: int) -> None:
        for _ in range(calls):
            duration.record(0.5, attributes)
            loss.set(2.5, attributes)
            rate.set(1e-4, attributes)
            norm.set(1.5, attributes)
            skipped.add(1, attributes)

    check(report, TRAINING, ours, peer, f"{number} attributes")


def plain(meter: Any, group: str, values: Any = None, /, *, attributes: Any = None, **kwargs: Any) -> None:
    """Take what ``record_metrics`` takes."""


METERS: dict[str, Callable[[], Any]] = {
    "the handle's without set-up": lambda: get_telemetry().meter,
    "get_meter() without set-up": lambda: get_meter("benchmark"),
    "OpenTelemetry's NoOpMeter": lambda: NoOpMeter("benchmark"),
}


@pytest.mark.parametrize("number", ATTRIBUTES)
@pytest.mark.parametrize("which", METERS)
def test_meter_that_does_nothing(report: Report, which: str, number: int) -> None:
    """Recording with nothing behind it costs a few plain calls, however much is recorded."""
    meter, attributes = METERS[which](), ATTRIBUTES[number]

    def ours(calls: int) -> None:
        for step in range(calls):
            record_metrics(meter, "benchmark", loss=step, attributes=attributes)

    def peer(calls: int) -> None:
        for step in range(calls):
            plain(meter, "benchmark", loss=step, attributes=attributes)

    check(report, NO_OP, ours, peer, f"{which}, {number} attributes")


class _Discard(_compat.InMemoryLogRecordExporter):
    def export(self, batch: Any) -> Any:
        answer = super().export(batch)
        self.clear()
        return answer


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, logging.Logger, logging.Logger]]:
    """Return the handle, and two loggers: the peer's handler writes to the provider that the bridge writes to."""
    for variable in ("OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_SCHEDULE_DELAY"):
        monkeypatch.setenv(variable, "100000")
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, traces_enabled=False, metrics_enabled=False, logs_enabled=True),
        log_exporter=_Discard(),
    )
    remove_logging_bridge()
    top, ours, peer = (logging.getLogger(f"benchmark{name}") for name in ("", ".ours", ".peer"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it moved to another package, and is the same one there
        handler = LoggingHandler(logger_provider=handle.logger_provider)
    console = logging.NullHandler()  # any job has one, and without one there is logging's last resort
    top.addHandler(console)
    peer.addHandler(handler)
    monkeypatch.setattr(top, "propagate", False)  # pytest's handlers
    monkeypatch.setattr(top, "level", logging.INFO)
    yield handle, ours, peer
    top.removeHandler(console)
    peer.removeHandler(handler)
    handle.shutdown()


RECORDS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "two fields": lambda: {"extra": {"step": 7, "path": "/checkpoints/7"}},
    "exception": lambda: {"exc_info": _caught()},
}


def _caught() -> ValueError:
    try:
        raise ValueError("loss is not finite")
    except ValueError as error:
        return error


@pytest.mark.parametrize("which", RECORDS)
def test_log_record(report: Report, loggers: tuple[Any, logging.Logger, logging.Logger], which: str) -> None:
    """The bridge, which cleans and redacts, and looks for who else exports the record, costs what the handler does."""
    handle, mine, others = loggers
    more = RECORDS[which]()

    def ours(calls: int) -> None:
        setup_logging_bridge("benchmark.ours")
        for step in range(calls):
            mine.info("step %d took %.1f s", step, 0.5, **more)
        remove_logging_bridge("benchmark.ours")  # so that the peer has nothing of it

    def peer(calls: int) -> None:
        for step in range(calls):
            others.info("step %d took %.1f s", step, 0.5, **more)

    check(report, LOGGED, ours, peer, which, calls=500, between=handle.force_flush)
