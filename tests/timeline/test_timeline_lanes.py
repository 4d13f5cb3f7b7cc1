"""Lanes of a thread and times of the trace, for any spans at all."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.sdk.cli._timeline.spool import Spool
from nemo_lens.sdk.cli._timeline.trace_events import Clock
from nemo_lens.sdk.cli._timeline.tracks import Lanes

BASE_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Laid:
    """A span and where it was laid."""

    number: int
    parent: int
    start: int
    end: int
    lane: int
    depth: int


@dataclass(frozen=True)
class Made:
    """A span to lay; it may name any parent, itself included, and 0 for none."""

    parent: int
    start: int
    duration: int
    elsewhere: bool


def made(most: int = 12) -> st.SearchStrategy[list[Made]]:
    """Return spans whose times and parents clash as much as they can."""
    one = st.builds(Made, st.integers(0, most + 1), st.integers(0, 9), st.integers(0, 9), st.booleans())
    return st.lists(one, max_size=most)


def key(number: int) -> bytes:
    return number.to_bytes(24, "big") if number else b""


def lay(spans: list[Made]) -> list[Laid]:
    """Lay the spans of one thread in the order of the picture; those of elsewhere are only somebody's parents."""
    parents = {key(number): key(span.parent) for number, span in enumerate(spans, 1)}
    lanes = Lanes(parents.get)
    laid = []
    numbered = [(span.start, -span.start - span.duration, -number) for number, span in enumerate(spans, 1)]
    for start, end, number in sorted(numbered):
        span = spans[-number - 1]
        if not span.elsewhere:
            lane, depth = lanes.place(key(-number), key(span.parent), start, -end)
            laid.append(Laid(-number, span.parent, start, -end, lane, depth))
    return laid


def above(laid: list[Laid]) -> dict[int, int]:
    """Return for each span the one that it is drawn under, 0 for none, by the rules of a viewer."""
    stacks: dict[int, list[Laid]] = {}
    found = {}
    for span in laid:
        stack = stacks.setdefault(span.lane, [])
        # Perfetto goes on with a span without length at its own time.
        while stack and stack[-1].end <= span.start and not stack[-1].start == stack[-1].end == span.start:
            stack.pop()
        assert len(stack) == span.depth
        found[span.number] = stack[-1].number if stack else 0
        stack.append(span)
    return found


@given(made())
def test_on_a_lane_spans_are_disjoint_or_nested(spans: list[Made]) -> None:
    """No two spans of a lane overlap without one being inside the other: a viewer would drop one."""
    laid = lay(spans)
    for number, first in enumerate(laid):
        for second in laid[number + 1 :]:
            if first.lane == second.lane:
                assert first.end <= second.start or second.end <= first.end


@given(made())
def test_a_span_is_drawn_under_an_ancestor_or_under_nothing(spans: list[Made]) -> None:
    """The nesting in the picture is that of the tree; only what a lost parent leaves open is taken for a descendant."""
    for number, drawn_under in above(lay(spans)).items():
        seen = []
        while number and number not in seen and number <= len(spans):
            seen.append(number)
            number = spans[number - 1].parent
        lost = number > len(spans)
        assert drawn_under == 0 or drawn_under in seen[1:] or lost or drawn_under == number


@given(st.recursive(st.just(()), lambda children: st.lists(children, max_size=3).map(tuple), max_leaves=20))
def test_what_is_nested_stays_on_one_lane(tree: tuple[object, ...]) -> None:
    """Spans of a program without asynchronous tasks are on one track, each at its depth in the tree."""
    spans: list[Made] = []
    depths: dict[int, int] = {}

    def build(node: object, parent: int, start: int, depth: int) -> int:
        assert isinstance(node, tuple)
        number = len(spans) + 1
        depths[number] = depth
        spans.append(Made(0, 0, 0, False))
        now = start + 1
        for child in node:
            now = build(child, number, now, depth + 1)
        spans[number - 1] = Made(parent, start, now - start, False)
        return now

    build(tree, 0, 0, 0)
    for span in lay(spans):
        assert (span.lane, span.depth) == (0, depths[span.number])


@given(made(8))
def test_no_more_lanes_than_are_open_at_once(spans: list[Made]) -> None:
    """Lanes are used again: there are never more than spans that overlap at one time, touching ends not counted."""
    laid = lay(spans)
    for span in laid:
        lanes_then = {other.lane for other in laid if other.start <= span.start < other.end or other is span}
        open_then = sum(other.start <= span.start < other.end or other is span for other in laid)
        assert span.lane < len(laid)
        assert len(lanes_then) <= open_then
    if laid:
        most = max(sum(other.start <= time < max(other.end, other.start + 1) for other in laid) for time in range(20))
        assert max(span.lane for span in laid) < most


def test_many_tasks_at_a_time_are_laid_quickly() -> None:
    """The work for a span does not grow with the number of lanes: 20 000 open at once, then as many children."""
    count = 20_000
    lanes = Lanes(lambda _: b"")
    for number in range(1, count + 1):
        assert lanes.place(key(number), b"", number, 10 * count) == (number - 1, 0)
    order = random.Random(7).sample(range(1, count + 1), count)
    for at, number in enumerate(order):
        assert lanes.place(key(count + number), key(number), count + 1 + at, 9 * count) == (number - 1, 1)


def test_a_long_chain_of_ancestors_is_followed_only_so_far() -> None:
    """A chain of parents in other processes, a circle among them, ends."""
    steps = []

    def parent_of(span: bytes) -> bytes:
        steps.append(span)
        return key(int.from_bytes(span, "big") % 1000 + 1)

    lanes = Lanes(parent_of)
    lanes.place(key(5000), b"", 0, 100)
    assert lanes.place(key(6000), key(1), 10, 20) == (1, 0)
    assert len(steps) < 100


def test_in_a_chain_of_spans_each_is_looked_up_once() -> None:
    """A context that is never detached makes each span the child of the one before it, which has ended."""
    steps = []

    def parent_of(span: bytes) -> bytes:
        steps.append(span)
        return key(int.from_bytes(span, "big") - 1)

    lanes = Lanes(parent_of)
    for number in range(100, 1000):
        assert lanes.place(key(number), key(number - 1), 10 * number, 10 * number + 5) == (0, 0)
    assert len(steps) == len(set(steps))


@given(st.integers(0, 2**51 - 1) | st.integers(2**51 - 10_000, 2**51 - 1), st.integers(0, 2**51))
def test_times_are_exact_to_the_nanosecond_as_perfetto_reads_them(offset: int, duration: int) -> None:
    """Perfetto multiplies by 1000 as a double and cuts off: begin and duration are the nanoseconds that were meant."""
    duration = min(duration, 2**51 - 1 - offset)
    clock = Clock(BASE_NS, BASE_NS + offset + duration)
    assert int(json.loads(clock.at(BASE_NS + offset)) * 1000) == offset
    assert int(json.loads(clock.between(BASE_NS + offset, BASE_NS + offset + duration)) * 1000) == duration


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_trace_of_centuries_has_whole_microseconds_in_order(first: int, second: int, third: int) -> None:
    """Ends come out where starts of the same time do, and order is kept."""
    first, second, third = sorted((first, second, third))
    clock = Clock(0, 2**62)
    assert int(clock.at(first)) <= int(clock.at(second)) <= int(clock.at(third))
    assert int(clock.at(second)) + int(clock.between(second, third)) == int(clock.at(third))


@pytest.mark.timeout(120)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_the_spool_gives_back_all_spans_in_order(spans: list[tuple[int, int, int, int]]) -> None:
    """By process, thread and start; of those that start together the longest first, then the one written last."""
    with Spool() as spool:
        for number, (process, thread, start, duration) in enumerate(spans, 1):
            spool.add_span(process, thread, start, start + duration, key(number), b"", b"body", b"")
        spool.finish()
        rows = [(row.process, row.thread, row.start_ns, -row.end_ns, -row.seq) for row in spool.rows()]
    assert rows == sorted(rows)
    assert sorted(-row[4] for row in rows) == list(range(1, len(spans) + 1))
