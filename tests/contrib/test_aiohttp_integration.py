"""aiohttp's client: what is traced and when, what instrumenting leaves behind, what it can never do to a request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.instrumentation.aiohttp_client")

import aiohttp
from opentelemetry import trace
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span

from nemo_lens.api import (
    NemoLensConfig,
    instrument,
    managed_span,
    set_enabled_span_groups,
    setup_telemetry,
    span_attributes,
    uninstrument,
)
from nemo_lens.contrib.aiohttp import instrument_aiohttp_client
from support.recorded import Recorded, exceptions, recording

SCOPE = "opentelemetry.instrumentation.aiohttp_client"
Recording = Callable[..., AbstractContextManager[Recorded]]
INIT = aiohttp.ClientSession.__init__


class Server(ThreadingHTTPServer):
    """A server on loopback that answers with the status that the path says, and keeps the headers it got."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.headers: list[dict[str, str]] = []
        self.ending = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/slow":
            self.server.ending.wait(30)
        self.close_connection = self.path in ("/close", "/slow")
        if not self.close_connection:
            self.send_response(int(self.path[1:4]))
            if self.path == "/302":
                self.send_header("Location", "/200")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output to the test."""


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.ending.set()
        server.shutdown()


def in_session(work: Callable[[aiohttp.ClientSession, Server], Awaitable[None]]) -> Server:
    """Run ``work`` with a new session and a server, in an event loop of its own."""

    async def run(server: Server) -> None:
        async with aiohttp.ClientSession(base_url=server.url) as session:
            await work(session, server)

    with serving() as server:
        asyncio.run(run(server))
    return server


async def get(session: aiohttp.ClientSession, path: str = "/200") -> int:
    async with session.get(path) as response:
        assert await response.text() == "ok"
        return response.status


async def one(session: aiohttp.ClientSession, server: Server) -> None:
    await get(session)


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    instrument_aiohttp_client.uninstrument()
    assert aiohttp.ClientSession.__init__ is INIT


@pytest.fixture
def record(caplog: pytest.LogCaptureFixture) -> Recording:
    """Give what sets telemetry up into memory with group ``g`` on."""
    return lambda *args, **options: recording(caplog, *args, **options)


def of_requests(recorded: Recorded) -> list[ReadableSpan]:
    return [span for span in recorded.spans() if span.instrumentation_scope.name == SCOPE]


# ---- what is traced


def test_a_request_carries_the_trace(record: Recording) -> None:
    """The client span is a child of the span around the call, and the server is told of it."""
    instrument_aiohttp_client()
    with record() as recorded:
        with managed_span("g", "call"), span_attributes({"shard": 3}):
            server = in_session(one)
        (client,) = of_requests(recorded)
        call = recorded.named("call")
    assert client.kind is trace.SpanKind.CLIENT
    assert client.parent is not None
    assert client.parent.span_id == call.context.span_id
    assert client.attributes is not None
    assert client.attributes["shard"] == 3
    (seen,) = server.headers
    assert seen["traceparent"] == f"00-{client.context.trace_id:032x}-{client.context.span_id:016x}-{flags(client)}"


def flags(span: ReadableSpan) -> str:
    return f"{span.context.trace_flags:02x}"


def test_the_next_span_is_no_child_of_the_request(record: Recording) -> None:
    """A request's span is current until its response, and no longer, also when the request fails or is redirected."""
    instrument_aiohttp_client()

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        await get(session, "/302")
        with contextlib.suppress(aiohttp.ClientError):
            await get(session, "/close")
        with managed_span("g", "after"):
            pass

    with record() as recorded:
        in_session(work)
        assert recorded.named("after").parent is None
        assert len(of_requests(recorded)) == 2


def test_errors(record: Recording) -> None:
    """An answer of 500 and a broken connection are errors; the exception reaches the caller."""
    instrument_aiohttp_client()

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        assert await get(session, "/500") == 500
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await get(session, "/close")

    with record() as recorded:
        in_session(work)
        answered, broken = of_requests(recorded)
    assert answered.status.status_code is trace.StatusCode.ERROR
    assert broken.status.status_code is trace.StatusCode.ERROR
    assert exceptions(answered) == []
    ((kind, _),) = exceptions(broken)
    assert kind.endswith("ServerDisconnectedError")


def test_a_cancelled_request_ends_its_span(record: Recording) -> None:
    """A request that times out raises what it raises untraced, and its span ends."""
    instrument_aiohttp_client()

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(get(session, "/slow"), 0.2)

    with record() as recorded:
        in_session(work)
        assert len(of_requests(recorded)) == 1


def test_metrics_go_to_the_handle(caplog: pytest.LogCaptureFixture) -> None:
    """Request metrics are recorded with the handle's meter provider, not while the group is off."""
    instrument_aiohttp_client(group="g")
    reader = InMemoryMetricReader()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, traces_enabled=False, span_groups="", run_id="r"),
        metric_reader=reader,
        resource_attributes={"nv.dl.rank": 0},
    )
    try:
        in_session(one)
        assert requests_counted(reader) == 0
        set_enabled_span_groups(("g",))
        in_session(one)
        assert requests_counted(reader) == 1
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
        for point in metric.data.data_points
    )


# ---- when


def test_instrumented_and_opened_before_set_up(record: Recording) -> None:
    """A session from before set-up is traced from set-up to shutdown, and in the next run."""
    instrument("aiohttp")

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        await get(session)
        for _ in range(2):
            with record() as recorded:
                await get(session)
                assert len(of_requests(recorded)) == 1
            await get(session)

    server = in_session(work)
    assert ["traceparent" in seen for seen in server.headers] == [False, True, False, True, False]


def test_the_group_is_asked_at_each_request(record: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group switched off makes no span object and sends no header; switched on again, the next request has both."""
    instrument("aiohttp", group="web")
    made: list[str] = []

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        await get(session)
        set_enabled_span_groups(())
        for kind in (Span, trace.NonRecordingSpan):
            count_instances(monkeypatch, kind, made)
        await get(session)
        assert made == []
        set_enabled_span_groups(("web",))
        await get(session)
        assert "Span" in made

    with record(("web",)) as recorded:
        server = in_session(work)
        assert len(of_requests(recorded)) == 2
    assert ["traceparent" in seen for seen in server.headers] == [True, False, True]


def count_instances(monkeypatch: pytest.MonkeyPatch, kind: type, made: list[str]) -> None:
    original = kind.__init__  # type: ignore[misc]

    def counted(self: Any, *args: Any, **options: Any) -> None:
        made.append(kind.__name__)
        original(self, *args, **options)

    monkeypatch.setattr(kind, "__init__", counted)


def test_a_group_switched_off_in_the_middle(record: Recording) -> None:
    """A request that has begun to be traced is traced to its end."""
    instrument("aiohttp", group="web")

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        request = asyncio.ensure_future(get(session, "/slow"))
        await asyncio.sleep(0.2)
        set_enabled_span_groups(())
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    with record(("web",)) as recorded:
        in_session(work)
        assert len(of_requests(recorded)) == 1


# ---- twice, and undone


def test_twice_is_once(record: Recording) -> None:
    """A second call makes no second span and no noise; one that asks for something else says that it is ignored."""
    instrument_aiohttp_client(group="g")
    with record() as recorded:
        instrument_aiohttp_client(group="g")
        in_session(one)
        assert len(of_requests(recorded)) == 1
        assert recorded.logged(logging.WARNING) == []
        instrument_aiohttp_client()
        assert len(recorded.logged(logging.WARNING)) == 1


def test_undoing_reaches_open_sessions(record: Recording) -> None:
    """Undone, new sessions and open ones alike make plain requests; instrumented again, new ones are traced once."""
    instrument_aiohttp_client()

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        await get(session)
        uninstrument("aiohttp")
        uninstrument("aiohttp")
        await get(session)
        async with aiohttp.ClientSession(base_url=server.url) as plain:
            await get(plain)
        instrument("aiohttp")
        async with aiohttp.ClientSession(base_url=server.url) as again:
            await get(again)

    with record() as recorded:
        server = in_session(work)
        assert len(of_requests(recorded)) == 2
    assert ["traceparent" in seen for seen in server.headers] == [True, False, False, True]


def test_beside_the_official_instrumentor(record: Recording, caplog: pytest.LogCaptureFixture) -> None:
    """A client instrumented by OpenTelemetry's instrumentor too has one span a request, whoever came first."""
    official = AioHttpClientInstrumentor()
    instrument_aiohttp_client()
    official.instrument()
    assert "already instrumented" in caplog.text
    caplog.clear()
    with record() as recorded:
        in_session(one)
        assert len(of_requests(recorded)) == 1
    uninstrument("aiohttp")
    official.instrument()
    try:
        with record() as recorded:
            instrument_aiohttp_client()
            assert len(recorded.logged(logging.WARNING)) == 1
            in_session(one)
            assert len(of_requests(recorded)) == 1
    finally:
        official.uninstrument()


def test_undone_by_the_official_instrumentor(record: Recording) -> None:
    """When somebody calls the official ``uninstrument``, nothing new is traced until our next call."""
    instrument("aiohttp")
    with record() as recorded:
        AioHttpClientInstrumentor().uninstrument()
        in_session(one)
        assert len(of_requests(recorded)) == 0
        instrument("aiohttp", group="g")
        in_session(one)
        assert len(of_requests(recorded)) == 1
        assert recorded.logged(logging.WARNING) == []


@pytest.mark.parametrize("visible", [True, False])
def test_behind_the_wrapper_of_somebody(record: Recording, visible: bool) -> None:
    """A wrapper of somebody's around sessions, whether it shows what it wraps or not, changes none of it."""
    instrument("aiohttp")
    around = aiohttp.ClientSession.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        around(self, *args, **options)

    aiohttp.ClientSession.__init__ = functools.wraps(around)(init) if visible else init  # type: ignore[method-assign]
    try:
        with record() as recorded:
            instrument("aiohttp")
            in_session(one)
            assert len(of_requests(recorded)) == 1
            uninstrument("aiohttp")
            in_session(one)
            assert len(of_requests(recorded)) == 1
            instrument("aiohttp")
            in_session(one)
            assert len(of_requests(recorded)) == 2
            assert recorded.logged(logging.WARNING) == []
    finally:
        uninstrument("aiohttp")
        aiohttp.ClientSession.__init__ = INIT  # type: ignore[method-assign]


def test_taken_over_by_the_official_instrumentor(record: Recording) -> None:
    """What somebody instruments after undoing ours is theirs: traced whatever our group, and not undone with ours."""
    official = AioHttpClientInstrumentor()
    instrument("aiohttp", group="g")
    official.uninstrument()
    official.instrument()
    try:
        with record(()) as recorded:
            in_session(one)
            assert len(of_requests(recorded)) == 1
            instrument("aiohttp", group="g")
            assert len(recorded.logged(logging.WARNING)) == 1
            uninstrument("aiohttp")
            in_session(one)
            assert len(of_requests(recorded)) == 2
    finally:
        official.uninstrument()
        aiohttp.ClientSession.__init__ = INIT  # type: ignore[method-assign]  # under theirs, ours is left


def test_trace_configurations_of_the_user_stay(record: Recording) -> None:
    """A session's own trace configuration is called as before, in the traced session too."""
    instrument_aiohttp_client()
    seen: list[Any] = []

    async def note(session: Any, context: Any, params: Any) -> None:
        seen.append(context.trace_request_ctx)

    async def work(_: aiohttp.ClientSession, server: Server) -> None:
        config = aiohttp.TraceConfig()
        config.on_request_start.append(note)
        async with (
            aiohttp.ClientSession(server.url, trace_configs=[config]) as session,
            session.get("/200", trace_request_ctx={"attempt": 1}) as response,
        ):
            await response.read()

    with record() as recorded:
        in_session(work)
        assert len(of_requests(recorded)) == 1
    assert seen == [{"attempt": 1}]


# ---- refused, and never a failed request


def test_an_unknown_option_is_refused() -> None:
    """The error names the options there are."""
    with pytest.raises(TypeError, match="no option 'url_filer', did you mean 'url_filter'"):
        instrument_aiohttp_client(url_filer=str)
    with pytest.raises(TypeError, match="group must be the name of a span group"):
        instrument_aiohttp_client(group=1)


async def asynchronous(*args: Any) -> None:
    """Stand in for a hook that would have to be awaited."""


class Asynchronous:
    """A hook that is an object."""

    async def __call__(self, *args: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"trace_configs": 5}, "trace_configs=5 must be a list of aiohttp.TraceConfig"),
        ({"trace_configs": [5]}, r"trace_configs=\[5\] must be a list of aiohttp.TraceConfig"),
        ({"trace_configs": aiohttp.TraceConfig()}, "must be a list of aiohttp.TraceConfig"),
        ({"request_hook": 5}, "request_hook must be a function or None, not int"),
        ({"request_hook": asynchronous}, "request_hook must be a plain function: nobody awaits it"),
        ({"response_hook": functools.partial(asynchronous, 1)}, "response_hook must be a plain function"),
        ({"url_filter": Asynchronous()}, "url_filter must be a plain function"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], text: str) -> None:
    """An option that cannot work is refused by the call, not by the first session or request."""
    with pytest.raises(TypeError, match=text):
        instrument_aiohttp_client(**options)
    assert aiohttp.ClientSession.__init__ is INIT


@pytest.mark.parametrize("option", ["request_hook", "response_hook", "url_filter"])
def test_a_failing_hook_is_no_failed_request(record: Recording, option: str) -> None:
    """A hook of the user's that fails costs the request nothing, leaves no span current, and is one WARNING."""

    def hook(*args: Any) -> str:
        raise RuntimeError("a broken hook")

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        assert await get(session) == 200
        assert await get(session) == 200
        with managed_span("g", "after"):
            pass

    instrument_aiohttp_client(**{option: hook})
    with record() as recorded:
        in_session(work)
        assert recorded.named("after").parent is None
        assert len(of_requests(recorded)) == (0 if option == "url_filter" else 2)
        (warning,) = recorded.logged(logging.WARNING)
        assert f"{option} failed" in warning


def test_a_filter_that_returns_no_text(record: Recording) -> None:
    """A ``url_filter`` that gives the URL as it is, rather than its text, is told so."""
    instrument_aiohttp_client(url_filter=lambda url: url)
    with record() as recorded:
        in_session(one)
        assert of_requests(recorded) == []
        (warning,) = recorded.logged(logging.WARNING)
        assert "must return a str, and not URL" in warning


def test_a_failing_tracer_is_no_failed_request(record: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer that cannot start a span costs the request nothing."""

    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("a broken tracer")

    instrument_aiohttp_client()
    with record() as recorded:
        monkeypatch.setattr(type(recorded.handle.tracer), "start_span", fail)
        in_session(one)


def test_attributes_are_cleaned(record: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the official instrumentation puts on a client span passes the rules of attributes; secrets are redacted."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST", "x-api-key,x-shard")

    async def work(session: aiohttp.ClientSession, server: Server) -> None:
        headers = {"x-api-key": "abc", "x-shard": "3"}
        async with session.get("/200?q=" + "x" * 10_000, headers=headers) as response:
            await response.read()

    instrument_aiohttp_client()
    with record() as recorded:
        in_session(work)
        (client,) = of_requests(recorded)
    attributes = dict(client.attributes or {})
    assert len(str(attributes.get("http.url", attributes.get("url.full")))) == 8192
    if "http.request.header.x_shard" in attributes:  # since 0.60 or so
        assert attributes["http.request.header.x_shard"] == ("3",)
        assert attributes["http.request.header.x_api_key"] == ("[REDACTED]",)
