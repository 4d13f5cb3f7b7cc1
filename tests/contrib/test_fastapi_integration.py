"""FastAPI: what is traced and when, what instrumenting leaves behind, and what it can never do to a request."""

from __future__ import annotations

import asyncio
import copyreg
import inspect
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

pytest.importorskip("opentelemetry.instrumentation.fastapi")

import fastapi
from fastapi import BackgroundTasks, FastAPI, HTTPException, WebSocket
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span
from starlette.background import BackgroundTask
from starlette.datastructures import State
from starlette.middleware import Middleware

from nemo_lens.api import (
    NemoLensConfig,
    extract_context,
    instrument,
    managed_span,
    set_enabled_span_groups,
    setup_telemetry,
    span_attributes,
    uninstrument,
)
from nemo_lens.contrib.fastapi import instrument_fastapi
from support.asgi import get, get_in_loop, talk
from support.recorded import Recorded, exceptions, recording

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
OTHER_TRACEPARENT = f"00-{'1' * 32}-{'2' * 16}-01"
SCOPE = "opentelemetry.instrumentation.fastapi"
Recording = Callable[..., AbstractContextManager[Recorded]]


class Counting:
    """Middleware that counts the requests each of its instances sees."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.requests = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests += 1
        scope.setdefault("seen_by", []).append(self)
        await self.app(scope, receive, send)


def make_app(*middleware: Any) -> FastAPI:
    app = FastAPI(middleware=[Middleware(kind) for kind in middleware])

    @app.get("/items/{item}")
    async def items(item: int, request: fastapi.Request) -> dict[str, Any]:
        with managed_span("g", "work"):
            return {"item": item, "tracestate": request.headers.get("tracestate", "")}

    @app.get("/later")
    async def later(tasks: BackgroundTasks) -> str:
        tasks.add_task(background)
        return "ok"

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("no such item")

    @app.get("/missing")
    async def missing() -> None:
        raise HTTPException(404)

    @app.get("/health")
    async def health() -> str:
        return "ok"

    @app.websocket("/chat")
    async def chat(socket: WebSocket) -> None:
        await socket.accept()
        for _ in range(3):
            await socket.send_text(await socket.receive_text())

    return app


def background() -> None:
    """Run after the response."""


@pytest.fixture
def app() -> Iterator[FastAPI]:
    """Give an application; undo what the test left."""
    made = make_app()
    yield made
    instrument_fastapi.uninstrument(made)
    instrument_fastapi.uninstrument()


@pytest.fixture
def record(caplog: pytest.LogCaptureFixture) -> Recording:
    """Give what sets telemetry up into memory with group ``g`` on."""
    return lambda *args, **options: recording(caplog, *args, **options)


def of_requests(recorded: Recorded) -> list[ReadableSpan]:
    return [span for span in recorded.spans() if span.instrumentation_scope.name == SCOPE]


def of_fastapi_itself(recorded: Recorded) -> list[str]:
    return [span.name for span in recorded.spans() if span.instrumentation_scope.name == "fastapi"]


def headers(**fields: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]


# ---- what is traced


def test_a_request_joins_the_trace_of_its_caller(app: FastAPI, record: Recording) -> None:
    """The server span is a child of the caller's span, and the parent of what the endpoint opens."""
    instrument_fastapi(app)
    with record() as recorded:
        assert get(app, "/items/7", headers(traceparent=TRACEPARENT)).body == b'{"item":7,"tracestate":""}'
        (server,) = of_requests(recorded)
        work = recorded.named("work")
    assert server.name == "GET /items/{item}"
    assert server.kind is trace.SpanKind.SERVER
    assert f"{server.context.trace_id:032x}" == TRACE
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == SPAN
    assert work.parent is not None
    assert work.parent.span_id == server.context.span_id


def test_a_request_without_a_caller_starts_a_trace(app: FastAPI, record: Recording) -> None:
    """No ``traceparent``, no parent."""
    instrument_fastapi(app)
    with record() as recorded:
        get(app, "/items/7")
        (server,) = of_requests(recorded)
    assert server.parent is None


def test_scoped_attributes_reach_the_server_span(app: FastAPI, record: Recording) -> None:
    """What ``span_attributes`` sets around the server is on its spans, as on every other."""
    instrument_fastapi(app)
    with record() as recorded:
        with span_attributes({"service.shard": 3}):
            get(app, "/items/7")
        (server,) = of_requests(recorded)
    assert server.attributes is not None
    assert server.attributes["service.shard"] == 3


def test_an_exception_is_recorded_and_goes_on(app: FastAPI, record: Recording) -> None:
    """An endpoint's exception answers 500, leaves the application as it was, and is on the span once."""
    instrument_fastapi(app)
    with record() as recorded:
        answer = get(app, "/broken")
        (server,) = of_requests(recorded)
    assert answer.status == 500
    assert isinstance(answer.error, RuntimeError)
    assert server.status.status_code is trace.StatusCode.ERROR
    assert exceptions(server) == [("RuntimeError", "no such item")]


def test_a_client_error_is_no_error_of_the_server(app: FastAPI, record: Recording) -> None:
    """A 404 leaves the status unset, as the semantic conventions say."""
    instrument_fastapi(app)
    with record() as recorded:
        assert get(app, "/missing").status == 404
        (server,) = of_requests(recorded)
    assert server.status.status_code is trace.StatusCode.UNSET


def test_a_websocket_is_one_span(app: FastAPI, record: Recording) -> None:
    """A connection is one span, not one for each message too, unless asked for."""
    instrument_fastapi(app)
    with record() as recorded:
        talk(app, "/chat", "a", "b", "c")
        (server,) = of_requests(recorded)
        assert server.name.endswith("/chat")
    uninstrument("fastapi", app)
    instrument_fastapi(app, exclude_spans=())
    with record() as recorded:
        talk(app, "/chat", "a", "b", "c")
        names = [span.name.partition(" websocket ")[2] for span in of_requests(recorded)]
    assert names.count("receive") >= 3
    assert names.count("send") >= 3


@pytest.mark.parametrize("urls", ["/health,/metrics", ["/metrics", "/health"]])
def test_excluded_urls_are_left_alone(app: FastAPI, record: Recording, urls: Any) -> None:
    """Health checks get no span when they are excluded; other requests do."""
    instrument_fastapi(app, excluded_urls=urls)
    with record() as recorded:
        assert get(app, "/health").status == 200
        get(app, "/items/7")
        assert [span.name for span in of_requests(recorded)] == ["GET /items/{item}"]
        assert of_fastapi_itself(recorded) == []


def test_background_tasks_belong_to_traced_requests(app: FastAPI, record: Recording) -> None:
    """A background task's span, where the official instrumentation makes one, is in its request's trace, and another
    application's tasks have none."""
    other = make_app()
    instrument_fastapi(app, group="g")
    with record() as recorded:
        get(app, "/later", headers(traceparent=TRACEPARENT))
        assert {f"{span.context.trace_id:032x}" for span in of_requests(recorded)} == {TRACE}
        before = len(of_requests(recorded))
        get(other, "/later", headers(traceparent=OTHER_TRACEPARENT))
        set_enabled_span_groups(())
        get(app, "/later", headers(traceparent=OTHER_TRACEPARENT))
        assert len(of_requests(recorded)) == before


def test_metrics_go_to_the_handle(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    """Request metrics are recorded with the handle's meter provider, and not while the group is off."""
    instrument_fastapi(app, group="g")
    reader = InMemoryMetricReader()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, traces_enabled=False, span_groups="", run_id="r"),
        metric_reader=reader,
        resource_attributes={"nv.dl.rank": 0},
    )
    try:
        get(app, "/items/7")
        assert requests_counted(reader) == 0
        set_enabled_span_groups(("g",))
        get(app, "/items/7")
        get(app, "/items/8")
        assert requests_counted(reader) == 2
    finally:
        handle.shutdown()


def requests_counted(reader: InMemoryMetricReader) -> int:
    data = reader.get_metrics_data()
    return sum(
        point.count
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        if scope.scope.name == SCOPE
        for metric in scope.metrics
        if metric.name in ("http.server.duration", "http.server.request.duration")
        for point in metric.data.data_points
    )


# ---- when


def test_instrumented_before_set_up(app: FastAPI, record: Recording) -> None:
    """What is instrumented at import time is traced from set-up to shutdown, and again in the next run."""
    instrument_fastapi(app)
    assert get(app, "/items/1").status == 200
    for _ in range(2):
        with record() as recorded:
            get(app, "/items/2")
            assert [span.name for span in of_requests(recorded)] == ["GET /items/{item}"]
        assert get(app, "/items/3").status == 200


def test_an_application_that_serves_already(record: Recording) -> None:
    """A started application is traced from its next request, by the same instances of its middleware."""
    app = make_app(Counting)
    with record() as recorded:
        (before,) = get(app, "/items/1").scope["seen_by"]
        instrument_fastapi(app, group="g")
        (during,) = get(app, "/items/2").scope["seen_by"]
        set_enabled_span_groups(())
        (off,) = get(app, "/items/2").scope["seen_by"]
        uninstrument("fastapi", app)
        (after,) = get(app, "/items/3").scope["seen_by"]
        assert before is during is off is after
        assert len(of_requests(recorded)) == 1


def test_the_group_is_asked_at_each_request(app: FastAPI, record: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group switched off makes no span object at all; switched on again, the next request has its span."""
    instrument("fastapi", app, group="web")
    with record(("web",)) as recorded:
        get(app, "/items/1")
        assert len(of_requests(recorded)) == 1
        set_enabled_span_groups(())
        made: list[str] = []
        for kind in (Span, trace.NonRecordingSpan):
            count_instances(monkeypatch, kind, made)
        assert get(app, "/items/2", headers(traceparent=TRACEPARENT)).status == 200
        assert get(app, "/later").status == 200
        assert made == []
        set_enabled_span_groups(("web",))
        get(app, "/items/3")
        assert "Span" in made
        assert len(of_requests(recorded)) == 2


def count_instances(monkeypatch: pytest.MonkeyPatch, kind: type, made: list[str]) -> None:
    original = kind.__init__  # type: ignore[misc]

    def counted(self: Any, *args: Any, **options: Any) -> None:
        made.append(kind.__name__)
        original(self, *args, **options)

    monkeypatch.setattr(kind, "__init__", counted)


def test_nothing_is_touched_while_telemetry_is_off(app: FastAPI) -> None:
    """Without set-up, an instrumented application is served as it is, and no provider becomes global."""
    before = (trace.get_tracer_provider(), BackgroundTask.__call__)
    instrument_fastapi(app)
    get(app, "/later")
    assert (trace.get_tracer_provider(), BackgroundTask.__call__) == before


def test_one_span_beside_the_telemetry_of_fastapi(app: FastAPI, record: Recording) -> None:
    """FastAPI's own spans, which recent versions make of every request, are not there beside the instrumentation's, on
    or off; they are back when it is undone."""
    native = hasattr(app, "_native_telemetry")
    child = make_app()
    app.mount("/child", child)
    instrument_fastapi(app, group="g")
    with record() as recorded:
        get(app, "/items/1")
        get(app, "/child/items/1")
        assert len(of_requests(recorded)) == 2
        set_enabled_span_groups(())
        get(app, "/items/1")
        get(app, "/child/items/1")
        assert len(of_requests(recorded)) == 2
        assert of_fastapi_itself(recorded) == []
        uninstrument("fastapi", app)
        get(app, "/items/1")
        assert ("GET /items/{item}" in of_fastapi_itself(recorded)) is native


# ---- inside other spans


def test_a_server_inside_a_span_joins_the_caller(app: FastAPI, record: Recording) -> None:
    """A span around the whole server hides no caller; requests without a caller are its children."""
    instrument_fastapi(app)
    with record() as recorded:
        with managed_span("g", "serving"):
            get(app, "/items/1", headers(traceparent=TRACEPARENT))
            get(app, "/items/2")
        joined, child = of_requests(recorded)
        serving = recorded.named("serving")
    assert f"{joined.context.trace_id:032x}" == TRACE
    assert joined.kind is trace.SpanKind.SERVER
    assert child.parent is not None
    assert child.parent.span_id == serving.context.span_id


@pytest.mark.parametrize("by", ["environment", "attached context"])
def test_a_server_with_a_parent_process(
    app: FastAPI, record: Recording, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The parent that a process was given is that of requests without a caller, and of no others."""
    if by == "environment":
        monkeypatch.setenv("TRACEPARENT", OTHER_TRACEPARENT)
    instrument_fastapi(app)
    with record() as recorded:
        if by == "attached context":
            token = otel_context.attach(extract_context({"traceparent": OTHER_TRACEPARENT}))
        try:
            get(app, "/items/1", headers(traceparent=TRACEPARENT))
            get(app, "/items/2")
        finally:
            if by == "attached context":
                otel_context.detach(token)
        joined, orphan = of_requests(recorded)
    assert f"{joined.context.trace_id:032x}" == TRACE
    assert f"{orphan.context.trace_id:032x}" == "1" * 32
    assert {joined.kind, orphan.kind} == {trace.SpanKind.SERVER}


def test_a_mounted_application(app: FastAPI, record: Recording) -> None:
    """A mounted application has a span of its own inside its parent's when it is instrumented too, and none when every
    application is."""
    child = make_app()
    app.mount("/child", child)
    instrument_fastapi(app)
    instrument_fastapi(child)
    with record() as recorded:
        get(app, "/child/items/1", headers(traceparent=TRACEPARENT))
        outer, inner = sorted(of_requests(recorded), key=lambda span: span.kind is trace.SpanKind.INTERNAL)
        assert inner.parent is not None
        assert inner.parent.span_id == outer.context.span_id
        assert f"{outer.context.trace_id:032x}" == TRACE
    uninstrument("fastapi", child)
    uninstrument("fastapi", app)
    again = make_app()
    again.mount("/child", make_app())
    instrument_fastapi()
    with record() as recorded:
        get(again, "/child/items/1")
        assert len(of_requests(recorded)) == 1
        assert of_fastapi_itself(recorded) == []


# ---- twice, and undone


def test_twice_is_once(app: FastAPI, record: Recording) -> None:
    """A second call makes no second span and no noise; one that asks for something else says that it is ignored."""
    instrument_fastapi(app, group="g")
    with record() as recorded:
        instrument_fastapi(app, group="g")
        get(app, "/items/1")
        assert len(of_requests(recorded)) == 1
        assert recorded.logged(logging.WARNING) == []
        instrument_fastapi(app, group="other")
        assert len(recorded.logged(logging.WARNING)) == 1
        get(app, "/items/1")
        assert len(of_requests(recorded)) == 2


def test_undoing_leaves_the_application_as_it_was(app: FastAPI, record: Recording) -> None:
    """Undone, before or after requests, the application and Starlette are what they were; twice is once."""
    before = dict(vars(app))
    run_task = BackgroundTask.__call__
    instrument_fastapi(app)
    uninstrument("fastapi", app)
    assert {**vars(app), "_is_instrumented_by_opentelemetry": None} == {
        **before,
        "_is_instrumented_by_opentelemetry": None,
    }
    instrument_fastapi(app)
    with record() as recorded:
        get(app, "/later")
        seen = len(of_requests(recorded))
        assert seen >= 1
        uninstrument("fastapi", app)
        uninstrument("fastapi", app)
        get(app, "/later")
        assert len(of_requests(recorded)) == seen
    assert BackgroundTask.__call__ is run_task
    assert "build_middleware_stack" not in vars(app)
    assert type(app.middleware_stack).__module__ == "starlette.middleware.errors"


def test_beside_the_official_instrumentor_from_before(app: FastAPI, record: Recording) -> None:
    """An application that OpenTelemetry's instrumentor has instrumented stays as it is, with one WARNING."""
    FastAPIInstrumentor.instrument_app(app)
    try:
        with record() as recorded:
            instrument_fastapi(app)
            assert len(recorded.logged(logging.WARNING)) == 1
            get(app, "/health")
            assert [span.name for span in of_requests(recorded)].count("GET /health") == 1
    finally:
        FastAPIInstrumentor.uninstrument_app(app)


def test_beside_the_official_instrumentor_from_after(
    app: FastAPI, record: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenTelemetry's instrumentor leaves an application alone that Lens has instrumented."""
    instrument_fastapi(app)
    FastAPIInstrumentor.instrument_app(app)
    assert "already instrumented" in caplog.text
    caplog.clear()
    with record() as recorded:
        get(app, "/health")
        assert [span.name for span in of_requests(recorded)] == ["GET /health"]
        assert of_fastapi_itself(recorded) == []


def test_every_application(record: Recording) -> None:
    """Without an application, all are traced, however they were made and also when they serve already, until undone;
    one that is instrumented by itself, by whomever, is traced as that says."""
    waiting, options, official, serving = make_app(), make_app(), make_app(), make_app(Counting)
    (before,) = get(serving, "/health").scope["seen_by"]
    FastAPIInstrumentor.instrument_app(official, excluded_urls="/items")
    call = FastAPI.__call__
    instrument("fastapi")
    try:
        made_later = make_app()
        instrument_fastapi(options, excluded_urls="/items")
        with record() as recorded:
            get(waiting, "/items/1")
            get(made_later, "/items/1")
            get(options, "/items/1")
            get(official, "/items/1")
            assert len(of_requests(recorded)) == 2
            uninstrument("fastapi", options)
            get(options, "/items/1")
            assert len(of_requests(recorded)) == 3
            (during,) = get(serving, "/items/1").scope["seen_by"]
            assert during is before
            assert len(of_requests(recorded)) == 4
            uninstrument("fastapi")
            for app in (waiting, serving, make_app()):
                get(app, "/items/1")
            assert len(of_requests(recorded)) == 4
            instrument("fastapi", group="g")
            get(waiting, "/items/1")
            get(serving, "/items/1")
            assert len(of_requests(recorded)) == 6
            set_enabled_span_groups(())
            get(serving, "/items/1")
            assert len(of_requests(recorded)) == 6
    finally:
        uninstrument("fastapi")
        FastAPIInstrumentor.uninstrument_app(official)
    assert FastAPI.__call__ is call


@pytest.mark.parametrize("first", ["ours", "official"])
def test_background_tasks_of_another_application(record: Recording, first: str) -> None:
    """An application under OpenTelemetry's instrumentor has the spans of its background tasks, whoever was first, and
    keeps them when ours is undone; a task of ours has one span."""
    ours, official = make_app(), make_app()
    run_task = BackgroundTask.__call__
    with record() as recorded:
        if first == "official":
            FastAPIInstrumentor.instrument_app(official)
        instrument_fastapi(ours)
        get(ours, "/later")
        if first == "ours":
            FastAPIInstrumentor.instrument_app(official)
        assert tasks_of(official, recorded) == SPANS_OF_A_TASK
        assert tasks_of(ours, recorded) == SPANS_OF_A_TASK
        uninstrument("fastapi", ours)
        assert tasks_of(official, recorded) == SPANS_OF_A_TASK
        instrument_fastapi(ours)
        assert tasks_of(ours, recorded) == SPANS_OF_A_TASK
        FastAPIInstrumentor.uninstrument_app(official)
        other = make_app()
        instrument_fastapi(other)
        assert tasks_of(other, recorded) == SPANS_OF_A_TASK
        uninstrument("fastapi", other)
        uninstrument("fastapi", ours)
        assert tasks_of(ours, recorded) == 0
    # What was under the official wrapper when we were undone is left, and does nothing.
    assert inspect.unwrap(BackgroundTask.__call__) is run_task
    BackgroundTask.__call__ = run_task


def makes_spans_of_tasks() -> bool:
    """Return whether this version of the official instrumentation makes spans of background tasks."""
    app, run_task = FastAPI(), BackgroundTask.__call__
    FastAPIInstrumentor.instrument_app(app)
    try:
        return BackgroundTask.__call__ is not run_task
    finally:
        FastAPIInstrumentor.uninstrument_app(app)


SPANS_OF_A_TASK = int(makes_spans_of_tasks())


def tasks_of(app: FastAPI, recorded: Recorded) -> int:
    before = len(of_tasks(recorded))
    get(app, "/later")
    return len(of_tasks(recorded)) - before


def of_tasks(recorded: Recorded) -> list[ReadableSpan]:
    return [span for span in of_requests(recorded) if span.name == "BackgroundTask background"]


# ---- refused


class Wrapper:
    """ASGI middleware around an application."""

    def __init__(self, app: Any) -> None:
        self.app = app


def test_a_wrapped_application_is_refused(app: FastAPI) -> None:
    """Middleware around an application is no application; the error names what to pass."""
    with pytest.raises(TypeError, match=r"not 'Wrapper': pass the application that it wraps, its attribute 'app\.app'"):
        instrument_fastapi(Wrapper(Wrapper(app)))
    with pytest.raises(TypeError, match="FastAPI is a class: pass an instance"):
        instrument_fastapi(FastAPI)
    with pytest.raises(TypeError, match="not 'str'"):
        instrument_fastapi("service:app")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"server_request_hok": print}, TypeError, "did you mean 'server_request_hook'"),
        ({"tracer_provider": None}, TypeError, "takes no option 'tracer_provider'"),
        ({"excluded_urls": "("}, ValueError, "excluded_urls='\\('"),
        ({"exclude_spans": ["recieve"]}, ValueError, "'recieve' is neither 'receive' nor 'send'"),
        ({"group": ["web"]}, TypeError, "group must be the name of a span group"),
        ({"excluded_urls": 5}, TypeError, "excluded_urls=5 must be regular expressions"),
        ({"excluded_urls": [1]}, TypeError, r"excluded_urls=\[1\] must be regular expressions"),
        ({"exclude_spans": 5}, TypeError, "exclude_spans=5 must be some of 'receive' and 'send'"),
        ({"exclude_spans": [[]]}, TypeError, r"exclude_spans=\[\[\]\] must be some of"),
        ({"server_request_hook": 5}, TypeError, "server_request_hook must be a function or None, not int"),
        ({"client_request_hook": get_in_loop}, TypeError, "client_request_hook must be a plain function"),
        ({"http_capture_headers_server_request": 5}, TypeError, "server_request=5 must be a list of regular expres"),
        ({"http_capture_headers_server_request": "x-a"}, TypeError, "server_request='x-a' must be a list"),
        (
            {"http_capture_headers_sanitize_fields": ["("]},
            ValueError,
            "'\\(' is no regular expression",
        ),
    ],
)
def test_bad_options_are_refused_at_once(
    app: FastAPI, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """An option that cannot work is refused by the call, not by the first request."""
    with pytest.raises(error, match=text):
        instrument_fastapi(app, **options)
    assert "build_middleware_stack" not in vars(app)


# ---- pickled


@pytest.mark.parametrize("moment", ["new", "started", "traced"])
def test_an_instrumented_application_pickles(record: Recording, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """What pickles before it is instrumented pickles after, as Ray Serve needs it to, and the copy is traced."""
    cloudpickle = pytest.importorskip("cloudpickle")
    # As Ray does: Starlette's own does not come back.
    monkeypatch.setitem(copyreg.dispatch_table, State, lambda state: (State, (state._state,)))
    app = FastAPI()

    @app.get("/plain", response_model=None)
    async def plain() -> str:
        return "ok"

    pickle.loads(cloudpickle.dumps(app))
    instrument_fastapi(app, group="g", excluded_urls="/excluded")
    with record() as recorded:
        if moment == "started":
            set_enabled_span_groups(())
        if moment != "new":
            get(app, "/plain")
        set_enabled_span_groups(("g",))
        before = len(of_requests(recorded))
        copy = pickle.loads(cloudpickle.dumps(app))
        assert get(copy, "/plain").status == 200
        get(copy, "/excluded")
        assert len(of_requests(recorded)) == before + 1
        uninstrument("fastapi", copy)
        get(copy, "/plain")
        assert len(of_requests(recorded)) == before + 1
    uninstrument("fastapi", app)


# ---- never a failed request

CARRIERS = {
    "truncated": headers(traceparent=TRACEPARENT[:-7]),
    "padded": headers(traceparent=TRACEPARENT + "0" * 40),
    "zero": headers(traceparent=f"00-{'0' * 32}-{'0' * 16}-01"),
    "a list": headers(traceparent=f"['{TRACEPARENT}']"),
    "no text": [(b"traceparent", bytes(range(256)))],
    "an escape that ends early": [(b"traceparent", b"\xff\\x")],
    "huge tracestate": headers(traceparent=TRACEPARENT, tracestate="a=" + "x" * 9 * 1024),
    "huge tracestate of many members": headers(
        traceparent=TRACEPARENT, tracestate=",".join(f"k{n}=" + "x" * 300 for n in range(31))
    ),
    "many tracestates": headers(traceparent=TRACEPARENT) + [(b"tracestate", b"a=" + b"x" * 200)] * 50,
    "huge baggage": headers(traceparent=TRACEPARENT, baggage="a=" + "x" * 9 * 1024),
    "no text beside it": [*headers(traceparent=TRACEPARENT), (b"baggage", b"\xff\\x")],
}


@pytest.mark.parametrize("case", CARRIERS)
def test_a_hostile_carrier_is_an_empty_context(app: FastAPI, record: Recording, case: str) -> None:
    """A carrier that is malformed or larger than 8 KiB starts a trace; the application sees the headers as sent."""
    instrument_fastapi(app)
    with record() as recorded:
        answer = get(app, "/items/7", CARRIERS[case])
        (server,) = of_requests(recorded)
    assert answer.status == 200
    assert list(answer.scope["headers"])[1:] == CARRIERS[case]
    assert server.parent is None
    tracestate = [value.decode() for name, value in CARRIERS[case] if name == b"tracestate"]
    assert answer.body.decode() == f'{{"item":7,"tracestate":"{tracestate[0] if tracestate else ""}"}}'


@pytest.mark.parametrize("name", [b"host", b"user-agent", b"content-length"])
def test_a_hostile_header_is_answered(app: FastAPI, record: Recording, name: bytes) -> None:
    """Headers that the official instrumentation cannot read, and fails at, cost the span and not the request."""
    instrument_fastapi(app)
    with record():
        answer = get(app, "/items/7", [(name, b"\xff\\x"), *headers(traceparent=TRACEPARENT)])
    assert answer.error is None
    assert answer.status == 200


def test_a_failing_hook_is_no_failed_request(app: FastAPI, record: Recording) -> None:
    """A hook of the user's that fails costs the request nothing, and the application runs once."""

    def hook(span: Any, scope: Any) -> None:
        raise RuntimeError("a broken hook")

    instrument_fastapi(app, server_request_hook=hook)
    with record() as recorded:
        assert get(app, "/items/7").status == 200
        assert recorded.names().count("work") == 1


def test_a_failing_sampler_is_no_failed_request(
    app: FastAPI, record: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracer that cannot start a span costs the request nothing."""
    instrument_fastapi(app)
    with record() as recorded:
        monkeypatch.setattr(type(recorded.handle.tracer), "start_span", fail)
        assert get(app, "/items/7").status == 200


def fail(*args: Any, **options: Any) -> None:
    raise RuntimeError("a broken tracer")


def test_a_cancelled_request_is_cancelled(app: FastAPI, record: Recording) -> None:
    """Cancelling a request reaches its endpoint, and its span ends."""
    reached: list[str] = []

    @app.get("/slow")
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            reached.append("cancelled")
            raise

    async def cancel() -> None:
        request = asyncio.ensure_future(get_in_loop(app, "/slow"))
        await asyncio.sleep(0.05)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    instrument_fastapi(app)
    with record() as recorded:
        asyncio.run(cancel())
        assert [span.name for span in of_requests(recorded)] == ["GET /slow"]
    assert reached == ["cancelled"]
