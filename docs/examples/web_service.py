"""A service and its client, one trace from the call to the work behind it.

    pip install nemo-lens-sdk 'nemo-lens-contrib[fastapi,aiohttp]' uvicorn
    NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file python web_service.py
    nemo-lens tree nemo-lens/*/traces-*.jsonl

    ask
    └─ GET                      the client's span
       └─ GET /rewards/{item}   the server's span
          └─ score

The service has a process of its own. It is instrumented before telemetry is set up, which happens when it starts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI

from nemo_lens.api import SpanRegistry, instrument, managed_span, setup_telemetry

SpanRegistry.register("web_example", ["ask", "web", "score"], {"default": ["ask", "web", "score"]})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Set telemetry up in each process that serves, and flush what is left when it ends."""
    with setup_telemetry():
        yield


app = FastAPI(lifespan=lifespan)
instrument("fastapi", app, group="web", excluded_urls="/health")


@app.get("/rewards/{item}")
async def rewards(item: int) -> float:
    """Return what an item is worth."""
    with managed_span("score", "score", item=item):
        return 1 / (1 + item)


@app.get("/health")
async def health() -> str:
    """Answer, untraced."""
    return "ok"


def serve(listening: socket.socket) -> None:
    """Run the service until SIGTERM."""
    with listening:
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


async def ask(url: str) -> float:
    """Return a reward, in a span of its own."""
    async with aiohttp.ClientSession(url) as session:
        with managed_span("ask", "ask"):
            async with session.get("/rewards/3") as response:
                reward: float = await response.json()
    return reward


def main() -> None:
    """Start the service and ask it something."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        service = multiprocessing.get_context("spawn").Process(target=serve, args=(listening,))
        service.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with setup_telemetry():
        instrument("aiohttp")
        print("reward", asyncio.run(ask(url)))
    service.terminate()
    service.join()


if __name__ == "__main__":
    main()
