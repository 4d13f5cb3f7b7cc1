"""Make the pictures of the guides anew: ``nox -s screenshots``. Needs a Chromium on this machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.perfetto import Perfetto, running_perfetto  # noqa: E402 - found by the line above

IMAGES = ROOT / "docs" / "images"
PROFILES = ROOT / "tests" / "timeline" / "profiles"
NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]
MAX_BYTES = 300_000


def main() -> None:
    """Write all pictures."""
    with running_perfetto() as perfetto, tempfile.TemporaryDirectory() as folder:
        made = [slow_run(perfetto, Path(folder)), profiler(perfetto, Path(folder))]
    for picture in made:
        sys.stdout.write(f"{picture.relative_to(ROOT)}: {picture.stat().st_size} bytes\n")
        assert picture.stat().st_size < MAX_BYTES


def slow_run(perfetto: Perfetto, folder: Path) -> Path:
    """Make the picture of the run with a slow rank: three steps from the middle."""
    run, trace = str(folder / "slow-run"), folder / "slow-run.json"
    options = ("--ranks", "4", "--steps", "20", "--slow-rank", "2", "--span-groups", "detailed")
    nemo_lens("demo", *options, "--out", run)
    nemo_lens("timeline", "-o", str(trace), run)
    picture = IMAGES / "slow-run.png"
    with perfetto.open(trace, height=1060) as page:
        steps = page.query("SELECT ts, dur FROM slice WHERE name = 'train.step' ORDER BY ts")
        start, end = steps[20]["ts"], steps[31]["ts"] + steps[31]["dur"]  # of four ranks: the sixth to the eighth
        page.show_time(start, end - start)
        page.screenshot(picture)
    return picture


def profiler(perfetto: Perfetto, folder: Path) -> Path:
    """Make the picture of recorded profiles: one step of two ranks of ``docs/examples/train_ddp.py``."""
    profiles = [str(PROFILES / f"ddp-rank{rank}.pt.trace.json.gz") for rank in (0, 1)]
    trace = folder / "profiler.json"
    nemo_lens("timeline", "-o", str(trace), str(PROFILES / "ddp-spans.jsonl"), "--with-profiler", *profiles)
    picture = IMAGES / "profiler.png"
    with perfetto.open(trace, height=800) as page:
        steps = page.query("SELECT ts, dur FROM slice WHERE name = 'step' ORDER BY ts")
        start, end = steps[2]["ts"], steps[3]["ts"] + steps[3]["dur"]  # of two ranks: the second
        page.show_time(start, end - start)
        page.screenshot(picture)
    return picture


def nemo_lens(*arguments: str) -> None:
    """Run a command of ours."""
    subprocess.run([*NEMO_LENS, *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
