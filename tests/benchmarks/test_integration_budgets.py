"""The budget of an instrumented FastAPI application whose span group is off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from _timing import Budget, Loop, ratio, settled

pytest.importorskip("opentelemetry.instrumentation.fastapi")

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import Span
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, set_enabled_span_groups, setup_telemetry
from nemo_lens.contrib.fastapi import instrument_fastapi
from support.asgi import get_in_loop

OFF = Budget("a FastAPI request, instrumented, group off", "the bare application", 1.03, 1.1)
BESIDE = Budget("the same with FastAPI's own telemetry left on", "the bare application, without", inf, inf)
TRACEPARENT = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def _application(**options: Any) -> FastAPI:
    app = FastAPI(**options)

    @app.get("/items/{item}")
    async def items(item: int) -> dict[str, int]:
        return {"item": item}

    return app


def test_an_instrumented_application_with_its_group_off(
    report: Callable[..., None], loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request costs what it costs the bare application, and makes no span object; with the group on, it makes one."""
    # Recent versions trace by themselves, off in both: the bare application would make spans, and be slower by far.
    bare, instrumented = (
        _application(telemetry=dict.fromkeys(("tracing", "metrics", "logs"), False)) for _ in range(2)
    )
    instrument_fastapi(instrumented, group="web")
    # Left on, FastAPI's own telemetry finds at each request that it is to step aside.
    beside = _application()
    instrument_fastapi(beside, group="web")
    exporter = InMemorySpanExporter()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, metrics_enabled=False, span_groups=""),
        span_exporter=exporter,
        resource_attributes={"nv.dl.rank": 0},
    )

    def requests_to(app: FastAPI) -> Loop:
        async def make(calls: int) -> None:
            for _ in range(calls):
                answer = await get_in_loop(app, "/items/7", (TRACEPARENT,))
                assert answer.status == 200

        return lambda calls: loop.run_until_complete(make(calls))

    def measure() -> tuple[float, str]:
        figure, ours, theirs = ratio(requests_to(instrumented), requests_to(bare), 40, rounds=61)
        return figure, f"{ours / 1000:.0f} us against {theirs / 1000:.0f} us"

    try:
        made: list[str] = []
        with monkeypatch.context() as counting:
            for kind in (Span, trace.NonRecordingSpan):
                _count_instances(counting, kind, made)
            requests_to(instrumented)(3)
            assert made == []
            set_enabled_span_groups(("web",))
            requests_to(instrumented)(3)
            assert made.count("Span") == 3
        set_enabled_span_groups(())
        figure, detail = settled(OFF, measure)
        report(OFF, figure, detail)
        assert figure <= OFF.limit
        if hasattr(beside, "_native_telemetry"):
            figure, ours, theirs = ratio(requests_to(beside), requests_to(bare), 40, rounds=21)
            report(BESIDE, figure, f"{ours / 1000:.0f} us against {theirs / 1000:.0f} us, for information")
    finally:
        handle.shutdown()
        instrument_fastapi.uninstrument(beside)
        instrument_fastapi.uninstrument(instrumented)


def _count_instances(monkeypatch: pytest.MonkeyPatch, kind: Any, made: list[str]) -> None:
    original = kind.__init__

    def counted(self: Any, *args: Any, **options: Any) -> None:
        made.append(kind.__name__)
        original(self, *args, **options)

    monkeypatch.setattr(kind, "__init__", counted)
