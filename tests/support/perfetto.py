"""Perfetto as a person opens it: served by the project's own viewer, run by a real Chromium without a network.

What Perfetto draws is on a canvas and cannot be read back. What can be is the text beside it (the titles of tracks, the
badge for import errors) and, through the page, its engine, which answers SQL about what it has imported:
https://perfetto.dev/docs/analysis/sql-tables.
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_lens.sdk.cli._timeline.viewer import ViewerMissingError, serving
from support.chromium import BrowserUnavailableError, running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Row = dict[str, Any]

_PATIENCE_MS = 30_000

# What Perfetto counts for its badge.
_ERRORS = "SELECT name, idx, severity, value FROM stats WHERE severity != 'info' AND value > 0"
_QUERY = """async sql => {
    const found = await window.app.trace.engine.query(sql);
    const rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) {
        const values = found.columns().map(name => [name, row.get(name)]);
        rows.push(Object.fromEntries(values.map(([name, value]) =>
            [name, typeof value === 'bigint' ? Number(value) : value])));
    }
    return rows;
}"""
# The second is said by the viewer's own script, at its end.
_LOADED_OR_FAILED = "() => window.failure !== undefined || window.inRankOrder"
# Perfetto's own detector of idleness may miss the moment, and then never comes back.
_IDLE = """() => Promise.race([
    window.waitForPerfettoIdle(300).then(() => true, () => false),
    new Promise(resolve => setTimeout(() => resolve(false), 3000)),
])"""


class TraceRefusedError(Exception):
    """Perfetto does not open the trace at all."""


class PerfettoPage:
    """One trace, open in Perfetto."""

    def __init__(self, page: Page, address: str) -> None:
        self._page = page
        self._address = urllib.parse.urlsplit(address)
        self._faults: list[str] = []
        self._answered: list[str] = []
        page.on("pageerror", lambda error: self._faults.append(str(error)))
        page.on("response", lambda response: self._answered.append(response.url))
        page.add_init_script(
            "window.addEventListener('unhandledrejection', e => { window.failure = String(e.reason) })"
        )
        page.goto(address)
        page.wait_for_function(_LOADED_OR_FAILED, timeout=_PATIENCE_MS)
        failure = page.evaluate("() => window.failure")
        if failure is not None:
            raise TraceRefusedError(failure)
        self.settle()

    @property
    def page(self) -> Page:
        """Return the page, to click in."""
        return self._page

    @property
    def faults(self) -> list[str]:
        """Return the errors of the page's own program."""
        return self._faults

    @property
    def outside_answers(self) -> list[str]:
        """Return what was loaded from anywhere but the viewer's address."""
        own = (self._address.scheme, self._address.netloc)
        split = [(url, urllib.parse.urlsplit(url)) for url in self._answered]
        return [
            url for url, parts in split if parts.scheme not in ("blob", "data") and (parts.scheme, parts.netloc) != own
        ]

    def settle(self) -> None:
        """Wait until everything is drawn."""
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        while not self._page.evaluate(_IDLE):
            if time.monotonic() > deadline:
                raise TimeoutError("Perfetto does not come to rest")

    def query(self, sql: str) -> list[Row]:
        """Return the rows of an SQL query; whole numbers are exact up to 2**53."""
        rows: list[Row] = self._page.evaluate(_QUERY, sql)
        return rows

    def import_errors(self) -> list[str]:
        """Return what Perfetto could not make sense of: empty for a sound trace."""
        rows = self.query(_ERRORS)
        return [f"{row['severity']} {row['name']} {row['idx'] or ''}: {row['value']:g}" for row in rows]

    def has_error_badge(self) -> bool:
        """Return whether the page shows the red badge of import errors."""
        return self._page.locator(".pf-topbar__error-box").count() > 0

    def track_titles(self) -> list[str]:
        """Return the titles of the tracks in view from top to bottom: Perfetto adds its pid or tid to each."""
        return self._page.locator(".pf-track__title-popup").all_text_contents()

    def select_slice(self, slice_id: int) -> None:
        """Click on a slice: its arguments are shown below, its arrows drawn."""
        self._page.evaluate(
            "id => window.app.trace.selection.selectSqlEvent('slice', id, {scrollToSelection: true})", slice_id
        )
        self.settle()

    def show_time(self, start_ns: int, duration_ns: int) -> None:
        """Zoom to a span of the trace's own time."""
        self._page.evaluate(
            "([start, duration]) => window.app.trace.timeline.setViewportTime("
            "BigInt(start), BigInt(start) + BigInt(duration))",
            [str(start_ns), str(duration_ns)],
        )
        self.settle()

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._page.screenshot(path=path)


class Perfetto:
    """A running browser that opens traces in Perfetto."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @contextmanager
    def open(self, trace: Path, *, width: int = 1280, height: int = 720) -> Iterator[PerfettoPage]:
        """Open a trace in a window of its own while the block runs.

        Raises:
            TraceRefusedError: Perfetto does not open it.
        """
        with serving(trace) as address, self.open_address(address, width=width, height=height) as page:
            yield page

    @contextmanager
    def open_address(self, address: str, *, width: int = 1280, height: int = 720) -> Iterator[PerfettoPage]:
        """Open the address of a viewer that runs already."""
        context = self._browser.new_context(viewport={"width": width, "height": height})
        try:
            yield PerfettoPage(context.new_page(), address)
        finally:
            context.close()

    def import_errors(self, trace: Path) -> list[str]:
        """Open a trace and return what Perfetto could not make sense of: empty for a sound trace."""
        with self.open(trace) as page:
            return page.import_errors()

    def query(self, trace: Path, sql: str) -> list[Row]:
        """Open a trace and return the rows of one SQL query."""
        with self.open(trace) as page:
            return page.query(sql)


@contextmanager
def running_perfetto() -> Iterator[Perfetto]:
    """Run a Chromium while the block runs.

    Raises:
        BrowserUnavailableError: Something that this needs is not installed.
    """
    try:
        with serving(Path(os.devnull)):
            pass
    except ViewerMissingError as error:
        raise BrowserUnavailableError(str(error)) from None
    with running_chromium() as browser:
        yield Perfetto(browser)


def thread_slices(page: PerfettoPage) -> list[Row]:
    """Return all slices with the process and thread they are on, by start; ``args`` is a dict of their arguments."""
    rows = page.query(
        "SELECT s.id, s.parent_id, s.name, s.category, s.ts, s.dur, s.depth, s.arg_set_id, "
        "t.name AS thread, p.name AS process FROM slice s "
        "JOIN thread_track tt ON s.track_id = tt.id JOIN thread t USING (utid) "
        "LEFT JOIN process p USING (upid) ORDER BY s.ts, s.dur DESC"
    )
    arguments: dict[int, dict[str, Any]] = {}
    for row in page.query("SELECT arg_set_id, key, display_value FROM args"):
        arguments.setdefault(row["arg_set_id"], {})[row["key"]] = row["display_value"]
    for row in rows:
        row["args"] = arguments.get(row.pop("arg_set_id"), {})
    return rows


def written_trace(path: Path, events: list[Row], **more: Any) -> Path:
    """Write a trace by hand."""
    path.write_text(json.dumps({"traceEvents": events, **more}), encoding="utf-8")
    return path
