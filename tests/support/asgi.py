"""Requests to an ASGI application in this process, with headers as they are, also such as no client would send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Headers = Iterable[tuple[bytes, bytes]]


@dataclass
class Answer:
    """What the application sent, and the exception that left it."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    error: BaseException | None = None
    scope: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """Return the status of the response."""
        return next(item["status"] for item in self.messages if item["type"] == "http.response.start")

    @property
    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(item.get("body", b"") for item in self.messages if item["type"] == "http.response.body")


def get(app: Any, path: str, headers: Headers = ()) -> Answer:
    """Make one GET request in an event loop of its own."""
    return asyncio.run(get_in_loop(app, path, headers))


async def get_in_loop(app: Any, path: str, headers: Headers = ()) -> Answer:
    """Make one GET request."""
    path, _, query = path.partition("?")
    scope = _scope("http", path, headers, method="GET", query_string=query.encode())
    return await _run(app, scope, [{"type": "http.request", "body": b"", "more_body": False}])


def talk(app: Any, path: str, *texts: str) -> Answer:
    """Open a websocket, send texts and close it, in an event loop of its own."""
    received = [
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", "text": text} for text in texts),
        {"type": "websocket.disconnect", "code": 1000},
    ]
    return asyncio.run(_run(app, _scope("websocket", path, (), scheme="ws", subprotocols=[]), received))


def _scope(kind: str, path: str, headers: Headers, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"testserver"), *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
        **more,
    }


async def _run(app: Any, scope: dict[str, Any], received: list[dict[str, Any]]) -> Answer:
    answer = Answer(scope=scope)
    left = iter(received)

    async def receive() -> dict[str, Any]:
        message = next(left, None)
        if message is None:
            await asyncio.sleep(3600)  # nothing more comes
            raise AssertionError
        return message

    async def send(message: dict[str, Any]) -> None:
        answer.messages.append(dict(message))

    try:
        await app(scope, receive, send)
    except Exception as error:
        answer.error = error
    return answer
