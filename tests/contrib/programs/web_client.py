"""An aiohttp client whose telemetry, and whose instrumentation, the environment switches on."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import aiohttp

from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry

SpanRegistry.register("client", ["call"])


async def call(*urls: str) -> list[str]:
    """Fetch each URL inside one span."""
    answers = []
    async with aiohttp.ClientSession() as session:
        with managed_span("call", "call"):
            for url in urls:
                async with session.get(url) as response:
                    answers.append(await response.text())
    return answers


if __name__ == "__main__":
    with setup_telemetry():
        said = asyncio.run(call(*sys.argv[2:]))
    os.write(1, f"{json.dumps({'answers': said, 'pid': os.getpid()})}\n".encode())
