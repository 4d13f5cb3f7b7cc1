"""Runs where the extras fastapi and aiohttp are installed: one request through both integrations is one trace."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp import web
from fastapi import FastAPI
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, instrument, setup_telemetry, uninstrument


def main() -> None:
    """Switch both on, make a request, and look at the spans of the client and of the service."""
    exporter = InMemorySpanExporter()
    config = NemoLensConfig(enabled=True, run_id="r", service_name="s", metrics_enabled=False)
    telemetry = setup_telemetry(config, span_exporter=exporter)
    app = FastAPI()

    @app.get("/items/{item}")
    async def items(item: int) -> int:
        return item

    instrument("fastapi", app)
    instrument("aiohttp")
    try:
        status = asyncio.run(_request_to(app))
    finally:
        uninstrument("aiohttp")
        uninstrument("fastapi", app)
    telemetry.force_flush()
    spans = {span.kind.name: span for span in exporter.get_finished_spans() if span.kind.name in ("CLIENT", "SERVER")}
    telemetry.shutdown()
    if status != 200 or spans.keys() != {"CLIENT", "SERVER"}:
        raise SystemExit(f"web smoke: the answer was {status}, the spans {sorted(spans)}")
    if spans["SERVER"].parent is None or spans["SERVER"].parent.span_id != spans["CLIENT"].context.span_id:
        raise SystemExit("web smoke: the span of the service is no child of the client's")


async def _request_to(app: FastAPI) -> int:
    """Serve ``app`` on loopback with aiohttp, which the extras bring, and ask it for an item."""

    async def forward(request: web.Request) -> web.Response:
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        await app(scope, receive, send)
        return web.Response(status=sent[0]["status"], body=sent[1].get("body", b""))

    service = web.Application()
    service.router.add_get("/items/{item}", forward)
    runner = web.AppRunner(service)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            session.get(f"http://127.0.0.1:{port}/items/3") as response,
        ):
            await response.read()
            return response.status
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    main()
