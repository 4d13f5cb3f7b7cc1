"""The budgets of the gate and of a span that is on, as ratios in one run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from _timing import Budget, ratio, settled
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from nemo_lens.api import NemoLensConfig, managed_span, set_enabled_span_groups, setup_telemetry, trace_fn

Report = Callable[[Budget, float, str], None]

OFF = Budget("managed_span off, no attributes", "with on a shared null object", 1.8, 2.2)
OFF_TWO = Budget("managed_span off, two attributes", "with on a shared null object", 2.8, 3.4)
TRACE_FN = Budget("trace_fn off", "a pass-through (*args, **kwargs) wrapper", 1.15, 1.4)
ON = Budget("managed_span on, batch processor", "OpenTelemetry's start_as_current_span", 0.85, 1.0)
IMPORT = Budget("import nemo_lens.api and touching four names", "modules added to a bare interpreter", 20, 25)


@pytest.fixture(autouse=True)
def _groups_off() -> Iterator[None]:
    set_enabled_span_groups(())
    yield
    set_enabled_span_groups(())


def check(report: Report, budget: Budget, measure: Callable[[], tuple[float, str]]) -> None:
    figure, detail = settled(budget, measure)
    report(budget, figure, detail)
    assert figure <= budget.limit, f"{budget.what}: {figure:.2f} is past the limit of {budget.limit}"


def _in_ns(measured: tuple[float, float, float]) -> tuple[float, str]:
    figure, mine, theirs = measured
    return figure, f"{mine:.0f} ns against {theirs:.0f} ns"


def test_managed_span_off(report: Report) -> None:
    """A group that is off costs one call and one frozenset lookup over a null context."""
    null = contextlib.nullcontext()

    def ours(calls: int) -> None:
        for _ in range(calls):
            with managed_span("off", "step"):
                pass

    def peer(calls: int) -> None:
        for _ in range(calls):
            with null:
                pass

    check(report, OFF, lambda: _in_ns(ratio(ours, peer, 20_000)))


def test_managed_span_off_with_attributes(report: Report) -> None:
    """Attributes given to a span that is off are packed into a dict and nothing more."""
    null = contextlib.nullcontext()

    def ours(calls: int) -> None:
        for step in range(calls):
            with managed_span("off", "step", iteration=step, size=8):
                pass

    def peer(calls: int) -> None:
        for _ in range(calls):
            with null:
                pass

    check(report, OFF_TWO, lambda: _in_ns(ratio(ours, peer, 20_000)))


def test_trace_fn_off(report: Report) -> None:
    """A traced function that is off costs little over any decorator."""

    def work(a: int, b: int = 0) -> int:
        return a

    def pass_through(fn):  # type: ignore[no-untyped-def]
        def wrapper(*args, **kwargs):  # type: ignore[no-untyped-def]
            return fn(*args, **kwargs)

        return wrapper

    traced, wrapped = trace_fn("off")(work), pass_through(work)

    def ours(calls: int) -> None:
        for _ in range(calls):
            traced(1, b=2)

    def peer(calls: int) -> None:
        for _ in range(calls):
            wrapped(1, b=2)

    check(report, TRACE_FN, lambda: _in_ns(ratio(ours, peer, 20_000)))


class _Discard(SpanExporter):
    def export(self, spans):  # type: ignore[no-untyped-def]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize("attributes", [0, 2, 8])
def test_managed_span_on(report: Report, attributes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that is on, cleaned and tracked as it is, costs no more than OpenTelemetry's own."""
    for variable in ("OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_SCHEDULE_DELAY"):
        monkeypatch.setenv(variable, "100000")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Discard()))
    tracer = provider.get_tracer("peer")
    values = {f"key_{number}": (number if number % 2 else f"value {number}") for number in range(attributes)}
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, metrics_enabled=False),
        span_exporter=_Discard(),
        resource_attributes={"nv.dl.rank": 0},
    )
    set_enabled_span_groups(("on",))

    def ours(calls: int) -> None:
        for _ in range(calls):
            with managed_span("on", "step", **values):
                pass

    def peer(calls: int) -> None:
        for _ in range(calls):
            with tracer.start_as_current_span("step", attributes=values):
                pass

    def measure() -> tuple[float, str]:
        figure, mine, theirs = ratio(
            ours, peer, 500, rounds=61, between=lambda: (handle.force_flush(), provider.force_flush())
        )
        return figure, f"{attributes} attributes: {mine / 1000:.1f} us against {theirs / 1000:.1f} us"

    try:
        check(report, ON, measure)
    finally:
        handle.shutdown()
        provider.shutdown()


def test_import_budget(report: Report) -> None:
    """Importing the API and touching the names of the hot path loads few modules, none of a third party."""
    bare = _modules("")
    ours = _modules("import nemo_lens.api as a; a.managed_span, a.trace_fn, a.SpanRegistry, a.is_span_group_enabled")
    added = sorted(ours - bare)
    foreign = [name for name in added if name.partition(".")[0] not in {*sys.stdlib_module_names, "nemo_lens"}]
    assert not foreign
    check(report, IMPORT, lambda: (len(added), "none third-party"))


def _modules(code: str) -> set[str]:
    probe = f"import sys; {code or 'pass'}; names = list(sys.modules); import json; print(json.dumps(names))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))
