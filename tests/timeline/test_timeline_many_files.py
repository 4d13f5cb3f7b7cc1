"""``nemo-lens timeline`` over the files of a whole run, as the file exporter writes them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nemo_lens.sdk.cli import main
from support.span_files import SpanFiles, write_span_files
from support.timelines import loaded, of_phase, tracks

RANKS, SPANS = 5, 4500


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SpanFiles:
    return write_span_files(tmp_path_factory.mktemp("plain"), RANKS, SPANS)


def test_everything_of_a_run_is_drawn(files: SpanFiles, tmp_path: Path) -> None:
    """Every span, error, link and point is in the picture, on the tracks of its rank."""
    out = tmp_path / "out.json"
    assert main(["timeline", *map(str, files.paths), "-o", str(out)]) == 0
    trace = loaded(out)
    spans = of_phase(trace, "X")
    assert len(spans) == files.spans == SPANS
    assert sum(span.get("cname") == "terrible" for span in spans) == files.errors > 0
    assert len(of_phase(trace, "s")) == len(of_phase(trace, "f")) == files.links > 0
    drawn = tracks(trace)
    assert [name.split()[:2] for name in drawn] == [["rank", str(rank)] for rank in range(RANKS)]
    for threads in drawn.values():
        assert set(threads) == {"main", "loader"}
        assert {span["name"] for span in threads["loader"]} == {"data.load"}
    counters = of_phase(trace, "C")
    assert {event["name"] for event in counters} == {
        "train.loss",
        "train.step.duration (s)",
        "train.step.duration measurements",
        "train.tokens (token)",
    }
    assert len(counters) == files.points // 3 * 4
    means = [event["args"]["mean"] for event in counters if "mean" in event["args"]]
    assert means == pytest.approx([0.2] * (files.points // 3))


def test_the_picture_does_not_depend_on_how_the_files_are_laid_out(files: SpanFiles, tmp_path: Path) -> None:
    """Compressed, in another order, or all in one file: the same spans on the same tracks."""
    mixed = [path.read_bytes() for path in files.paths]
    random.Random(1).shuffle(mixed)
    (tmp_path / "one.jsonl").write_bytes(b"".join(mixed))
    (tmp_path / "compressed").mkdir()
    compressed = write_span_files(tmp_path / "compressed", RANKS, SPANS, compress=True)
    pictures = []
    for number, paths in enumerate((files.paths, [tmp_path / "one.jsonl"], list(reversed(compressed.paths)))):
        out = tmp_path / f"{number}.json"
        assert main(["timeline", *map(str, paths), "-o", str(out)]) == 0
        drawn = tracks(loaded(out))
        # Tracks are numbered as they come; their names say which they are.
        pictures.append(
            {
                (process, track): [{**span, "tid": 0} for span in spans]
                for process, found in drawn.items()
                for track, spans in found.items()
            }
        )
    assert pictures[0] == pictures[1] == pictures[2]
