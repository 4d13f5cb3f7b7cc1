"""Runs an HTTP server of a test's own, whose handler says what it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], where: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[str]:
    """Serve for the length of a ``with`` block; give the URL.

    Args:
        handler: answers the requests, each in a daemon thread.
        where: host and port to listen at; port 0 for a free one.
    """
    server = ThreadingHTTPServer(where, handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://{where[0]}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
