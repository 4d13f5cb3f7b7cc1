"""From nothing to the picture: ``nemo-lens demo``, ``timeline`` and the viewer, looked at in a real browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_lens.sdk.cli._forest import Forest
from nemo_lens.sdk.cli._otlp_reader import OtlpReader, expand
from support.perfetto import Perfetto, PerfettoPage, thread_slices

pytestmark = pytest.mark.timeout(180)

NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]
RANKS = 3


def environment(**more: str) -> dict[str, str]:
    """Return an environment without settings of the machine's own that telemetry, or a browser, heeds."""
    foreign = ("OTEL_", "NEMO_LENS_", "SLURM_", "TORCHELASTIC_", "SSH_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {**kept, **more}


def nemo_lens(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*NEMO_LENS, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def forest_of(folder: Path) -> Forest:
    problems: list[str] = []
    forest = Forest(OtlpReader(problems.append).read(expand([str(folder)], problems.append)))
    assert problems == []
    return forest


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished demo."""
    folder = tmp_path_factory.mktemp("demo")
    nemo_lens("demo", "--out", "run", "--ranks", str(RANKS), folder=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def page(run: Path, perfetto: Perfetto, screenshots: Path) -> Iterator[PerfettoPage]:
    """Open the picture of the demo; a screenshot of it stays."""
    nemo_lens("timeline", str(run), "-o", "timeline.json.gz", folder=run)
    with perfetto.open(run / "timeline.json.gz", height=1600) as opened:
        opened.screenshot(screenshots / "demo.png")
        yield opened


def test_the_page_shows_the_ranks_in_their_order(page: PerfettoPage) -> None:
    """Read from the page itself: a track for each rank, from the first to the last, then children's, then others'."""
    titles = [title for title in page.track_titles() if re.match(r"(rank \d+ )?(trainer|launcher)\b", title)]
    assert [title.split()[:3] for title in titles[:RANKS]] == [["rank", str(rank), "trainer"] for rank in range(RANKS)]
    assert titles[RANKS].startswith("rank 0 trainer")  # the forked writer of the checkpoint
    assert titles[RANKS + 1].startswith("launcher")


def test_perfetto_finds_no_error(page: PerfettoPage) -> None:
    """No import error in the engine, no badge on the page, no fault of the page's own."""
    assert page.import_errors() == []
    assert not page.has_error_badge()
    assert page.faults == []


def test_nothing_comes_from_outside(page: PerfettoPage) -> None:
    """The page lives on what the viewer serves on loopback; the one thing that it asks others for, it does not get."""
    assert page.outside_answers == []


def test_every_span_is_drawn_once(run: Path, page: PerfettoPage) -> None:
    """As many slices of each name as there are spans in the files."""
    spans = Counter(node.span.name for trace in forest_of(run).traces for node in trace.nodes)
    drawn = Counter(row["name"] for row in page.query("SELECT name FROM slice WHERE category != 'event'"))
    assert sum(spans.values()) == sum(drawn.values())
    assert {name: sum(count for text, count in drawn.items() if text.startswith(name)) for name in spans} == spans


def test_what_is_drawn_under_a_span_belongs_to_it(run: Path, page: PerfettoPage) -> None:
    """Whatever lies under another span on a track is a descendant of it, and nearly all children do."""
    forest = forest_of(run)
    parents = {node.span.span_id: node.span.parent_id for trace in forest.traces for node in trace.nodes}
    drawn = {row["id"]: row for row in thread_slices(page) if row["category"] != "event"}
    nested = [row for row in drawn.values() if row["parent_id"] is not None]
    assert len(nested) > len(drawn) / 2
    for row in nested:
        above = drawn[row["parent_id"]]["args"]["args.span_id"]
        ancestor: str | None = row["args"]["args.span_id"]
        while ancestor and ancestor != above:
            ancestor = parents.get(ancestor)
        assert ancestor == above, row


def test_links_and_remote_parents_are_arrows(page: PerfettoPage) -> None:
    """The broadcast has an arrow to each receiver, the run one to each rank."""
    rows = page.query(
        "SELECT source.name AS source, target.name AS target, count(*) AS number FROM flow "
        "JOIN slice source ON flow.slice_out = source.id JOIN slice target ON flow.slice_in = target.id GROUP BY 1, 2"
    )
    arrows = {(row["source"], row["target"]): row["number"] for row in rows}
    assert arrows[("weights.broadcast", "weights.receive")] == RANKS - 1
    assert arrows[("demo.run", "train.run")] == RANKS


def test_a_click_on_a_span_tells_all_about_it(page: PerfettoPage, screenshots: Path) -> None:
    """The attributes of the selected span are on the page."""
    (row,) = page.query("SELECT id FROM slice WHERE name GLOB 'train.microbatch*' AND dur > 0 ORDER BY ts LIMIT 1")
    page.select_slice(row["id"])
    details = page.page.locator(".pf-details-shell").inner_text()
    page.screenshot(screenshots / "demo-span.png")
    assert "microbatch_id" in details  # Perfetto draws a tree of names with dots
    assert "iteration" in details


def test_metrics_are_counters(page: PerfettoPage) -> None:
    """The histogram of the demo is a counter track of each rank."""
    rows = page.query("SELECT DISTINCT name FROM process_counter_track WHERE name GLOB 'demo.step.duration*'")
    assert rows != []


def test_demo_open_goes_from_nothing_to_the_picture(perfetto: Perfetto, tmp_path: Path) -> None:
    """One command runs, draws, serves and opens it in the browser that is set; Ctrl-C ends it, nothing is left."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > "{tmp_path}/opened.part"\nmv "{tmp_path}/opened.part" "{tmp_path}/opened"\n'
    )
    browser.chmod(0o755)
    with subprocess.Popen(
        [*NEMO_LENS, "demo", "--open", "--steps", "1"],
        cwd=tmp_path,
        env=environment(BROWSER=f"{browser} %s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            deadline = time.monotonic() + 90
            while not (tmp_path / "opened").exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            assert process.poll() is None
            address = (tmp_path / "opened").read_text().strip()
            assert address.startswith("http://127.0.0.1:")
            with perfetto.open_address(address) as opened:
                assert opened.import_errors() == []
                assert any(title.startswith("rank 2 trainer") for title in opened.track_titles())
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stdout is not None
        said = process.stdout.read()
    assert "Traceback" not in said
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(address).port), timeout=5).close()
