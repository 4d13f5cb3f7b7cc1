"""Spans as odd as OTLP allows, in the real Perfetto: all of them drawn, none moved, every arrow where it belongs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.sdk.cli import main
from support.otlp_lines import BASE_NS, event, line, link, span, write
from support.perfetto import Perfetto, PerfettoPage, thread_slices

COUNT = 1500
VALUES: dict[str, object] = {
    "a": "x",
    "a.b": "below a",
    "a.b.c": 1,
    "": "no key",
    "name": "x",
    "status": "mine",
    "links[0]": "x",
    "x[1]": "second without a first",
    "nan": float("nan"),
    "inf": float("inf"),
    "tiny": 5e-324,
    "max": 2**63 - 1,
    "min": -(2**63),
    "none": None,
    "flag": True,
    "list": [1, "x", None, [], {"a": []}],
    "map": {"q.r": 1, "q": {}},
    'control \x00\x1b\n"\\ é 中 😀': 'control \x00\x1b\n"\\ é 中 😀',
    "long": "x" * 100_000,
}


def odd_spans() -> Iterator[dict[str, Any]]:
    """Yield spans whose times touch, overlap and are upside down, and whose parents and links are anything."""
    chance = random.Random(20)
    for number in range(1, COUNT + 1):
        start = chance.randrange(2000) * 29 + chance.choice((0, 0, 1_000_003))
        fields: dict[str, Any] = {"links": [link(chance.randrange(1, COUNT + 50)) for _ in range(chance.randrange(3))]}
        if number % 50 == 0:
            fields["attributes"] = VALUES
        elif number % 5 == 0:
            fields["attributes"] = {"thread.id": number % 15, "thread.name": "worker"}
        if number % 7 == 0:
            fields["events"] = [event("e", chance.randrange(10_000), n=number), event("", start)]
        if number % 11 == 0:
            fields["status"] = {"code": 2, "message": "bad"}
        end = start + chance.choice((0, 1, 29, 58, 290, 2_900, -7))
        yield span(chance.choice(("a", "b", "", "c\x00")), number, chance.randrange(COUNT + 50), start, end, **fields)


@pytest.fixture(scope="module")
def given() -> list[dict[str, Any]]:
    return list(odd_spans())


@pytest.fixture(scope="module")
def page(
    given: list[dict[str, Any]], perfetto: Perfetto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PerfettoPage]:
    folder = tmp_path_factory.mktemp("odd")
    lines = [line(*given[rank::4], nv__dl__rank=rank, process__pid=rank) for rank in range(4)]
    trace: Path = folder / "odd.json.gz"
    assert main(["timeline", "--quiet", str(write(folder / "odd.jsonl", *lines)), "-o", str(trace)]) == 0
    with perfetto.open(trace) as opened:
        yield opened


def slices(page: PerfettoPage) -> dict[int, dict[str, Any]]:
    """Return the slices that are spans, by the span's number."""
    found = [row for row in thread_slices(page) if row["category"] != "event"]
    return {int(row["args"]["args.span_id"], 16): row for row in found}


def test_there_is_no_import_error(page: PerfettoPage) -> None:
    """Not one in thousands of events."""
    assert page.import_errors() == []
    assert not page.has_error_badge()


def test_every_span_is_drawn_where_it_was_recorded(given: list[dict[str, Any]], page: PerfettoPage) -> None:
    """Begin and duration to the nanosecond."""
    drawn = slices(page)
    assert len(drawn) == COUNT
    first = min(int(made["startTimeUnixNano"]) for made in given)
    offset = min(row["ts"] for row in drawn.values())
    for made in given:
        row = drawn[int(made["spanId"], 16)]
        start, end = int(made["startTimeUnixNano"]), int(made["endTimeUnixNano"])
        assert (row["ts"] - offset, row["dur"]) == (start - first, max(end - start, 0))


def test_what_is_drawn_under_a_span_descends_from_it(given: list[dict[str, Any]], page: PerfettoPage) -> None:
    """By the tree of the spans, as far as it is known."""
    parents = {int(made["spanId"], 16): int(made.get("parentSpanId", "0"), 16) for made in given}
    drawn = slices(page)
    by_id = {row["id"]: number for number, row in drawn.items()}
    under = {number: by_id[row["parent_id"]] for number, row in drawn.items() if row["parent_id"] in by_id}
    assert len(under) > 50
    for number, above in under.items():
        seen: list[int] = []
        ancestor = parents[number]
        while ancestor in parents and ancestor not in seen and ancestor != above:
            seen.append(ancestor)
            ancestor = parents[ancestor]
        assert ancestor == above or (ancestor and ancestor not in parents), (number, above)


def test_every_arrow_joins_the_spans_that_it_is_about(given: list[dict[str, Any]], page: PerfettoPage) -> None:
    """Links and parents in other processes, each between two slices with the right ids.

    Perfetto hangs an arrow on the innermost span at its nanosecond: spans that start together on a track are left out.
    """
    drawn = slices(page)
    starts = Counter((row["process"], row["thread"], row["ts"]) for row in drawn.values())
    alone = {number for number, row in drawn.items() if starts[row["process"], row["thread"], row["ts"]] == 1}
    expected: Counter[frozenset[int]] = Counter()
    for made in given:
        number, parent = int(made["spanId"], 16), int(made.get("parentSpanId", "0"), 16)
        if 0 < parent <= COUNT and parent % 4 != number % 4:
            expected[frozenset((number, parent))] += 1
        for linked in made["links"]:
            other = int(linked["spanId"], 16)
            if other <= COUNT and other != number:
                expected[frozenset((number, other))] += 1
    number_of = {row["id"]: number for number, row in drawn.items()}
    rows = page.query("SELECT slice_out, slice_in FROM flow")
    found = Counter(frozenset((number_of.get(row["slice_out"], 0), number_of.get(row["slice_in"], 0))) for row in rows)
    assert sum(found.values()) == sum(expected.values()) > COUNT
    assert {ends: times for ends, times in found.items() if ends <= alone} == {
        ends: times for ends, times in expected.items() if ends <= alone
    }
    assert len(alone) > COUNT / 2


def test_times_are_the_epoch_by_the_base(page: PerfettoPage) -> None:
    """Perfetto's own clock begins where the file says."""
    assert BASE_NS > 0
    assert page.query("SELECT min(ts) AS first FROM slice")[0]["first"] >= 0
