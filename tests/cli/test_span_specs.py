"""The records of ``emit-spans``: any forest in any order is read, and every problem of every record is told."""

from __future__ import annotations

import csv
import io
import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.sdk.cli._span_specs import InvalidSpecsError, SpanSpec, read_span_specs, shown

TIME = "seconds since the epoch, such as 1750000000.123456789, from 0 to 18446744073.709551615"
FORM = "NAME,START,END or NAME,START,END,PARENT, a field with a comma in double quotes"
COMMA = "a decimal comma? ${EPOCHREALTIME/,/.} replaces the one of this locale by a point"
MAX_NS = 2**64 - 1

# What a shell can pass: anything but NUL. Blanks around a name do not count, and one of blanks alone is none.
names = st.text(st.characters(exclude_characters="\0", exclude_categories=())).map(str.strip).filter(bool)


def record(*fields: str) -> str:
    """Return one CSV record, as RFC 4180 writes it."""
    out = io.StringIO()
    csv.writer(out).writerow(fields)
    return out.getvalue().removesuffix("\r\n")


def problems(*texts: str) -> list[str]:
    """Return what is said about the records, which must be something."""
    with pytest.raises(InvalidSpecsError) as caught:
        read_span_specs(texts)
    assert caught.value.problems
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


@st.composite
def parents(draw: st.DrawFn) -> dict[str, str | None]:
    """Return names and for each the name of its parent, without circles."""
    known = draw(st.lists(names, min_size=1, max_size=12, unique=True))
    return {name: draw(st.sampled_from([None, *known[:place]])) for place, name in enumerate(known)}


@given(parents(), st.data())
def test_any_order_of_a_forest_is_read_parents_first(forest: dict[str, str | None], data: st.DataObject) -> None:
    """Every permutation of a valid forest gives every span once, with its parent before it."""
    shuffled = data.draw(st.permutations(list(forest.items())))
    specs = read_span_specs([record(name, "1", "2", *([parent] if parent else [])) for name, parent in shuffled])
    assert {spec.name: spec.parent for spec in specs} == forest
    assert len(specs) == len(forest)
    seen: set[str | None] = {None}
    for spec in specs:
        assert spec.parent in seen
        seen.add(spec.name)


@given(parents(), st.data())
def test_any_cycle_is_found_and_named_once(forest: dict[str, str | None], data: st.DataObject) -> None:
    """Some roots, closed to a circle in any order and beside spans without fault, give one problem that walks it."""
    roots = [name for name, parent in forest.items() if parent is None]
    circle = data.draw(st.lists(st.sampled_from(roots), min_size=1, unique=True))
    closed = {**forest, **dict(zip(circle, [*circle[1:], circle[0]], strict=True))}
    shuffled = data.draw(st.permutations(list(closed.items())))
    (problem,) = problems(*(record(name, "1", "2", *([parent] if parent else [])) for name, parent in shuffled))
    first = next(name for name, _ in shuffled if name in circle)
    place = [name for name, _ in shuffled].index(first) + 1
    assert problem.startswith(f"--span {place} (")
    if len(circle) == 1:
        assert problem.endswith("): it is its own parent; expected the NAME of another --span, or no PARENT")
    else:
        begin = circle.index(first)
        walked = [*circle[begin:], *circle[:begin], first]
        bare = [name if shown(name) == f"'{name}'" else shown(name) for name in walked]
        assert problem.endswith(
            f"): the parents go in a circle, {' -> '.join(bare)}; expected one of them without a PARENT"
        )


def test_a_cycle_reads_as_one_walks_it() -> None:
    """Two circles and what hangs on them: each circle is named once, from its first record on."""
    texts = ["hang,1,2,a", "c,1,2,a", "a,1,2,b", "b,1,2,c", "y,1,2,x", "x,1,2,y", "root,1,2", "leaf,1,2,root"]
    assert problems(*texts) == [
        "--span 2 ('c,1,2,a'): the parents go in a circle, c -> a -> b -> c; expected one of them without a PARENT",
        "--span 5 ('y,1,2,x'): the parents go in a circle, y -> x -> y; expected one of them without a PARENT",
    ]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=())))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Whatever a shell passes is a span or a list of problems, each on one line that any stream can show."""
    try:
        read_span_specs([text])
    except InvalidSpecsError as error:
        for problem in error.problems:
            assert len(problem.splitlines()) == 1
            assert problem.isprintable()


@given(st.lists(st.integers(0, MAX_NS), min_size=2, max_size=2))
def test_every_nanosecond_is_kept(times: list[int]) -> None:
    """Times of nine decimals come out as they went in, ordered or not."""
    start, end = (f"{ns // 10**9}.{ns % 10**9:09}" for ns in times)
    (spec,) = read_span_specs([f"a,{start},{end}"])
    assert [int(spec.start.scaleb(9)), int(spec.end.scaleb(9))] == times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,1,2", SpanSpec("a", Decimal(1), Decimal(2))),
        (" a b , 1.5 ,\t2\n", SpanSpec("a b", Decimal("1.5"), Decimal(2))),
        ('"load, parse",1,2', SpanSpec("load, parse", Decimal(1), Decimal(2))),
        ('b,1,2, "load, parse"', SpanSpec("b", Decimal(1), Decimal(2), "load, parse")),
        ('"say ""hi""",1,2', SpanSpec('say "hi"', Decimal(1), Decimal(2))),
        ('12" disk,1,2', SpanSpec('12" disk', Decimal(1), Decimal(2))),
        ('"two\nlines",1,2', SpanSpec("two\nlines", Decimal(1), Decimal(2))),
        ("a,1.75e9,1750000000.000000001", SpanSpec("a", Decimal("1.75e9"), Decimal("1750000000.000000001"))),
        ("a,2,1", SpanSpec("a", Decimal(2), Decimal(1))),
        ("-1,0,0", SpanSpec("-1", Decimal(0), Decimal(0))),
    ],
)
def test_forms(text: str, expected: SpanSpec) -> None:
    """Fields are CSV, blanks around them do not count, and an end before its start is no error of the record."""
    texts = [text] if expected.parent is None else [text, record(expected.parent, "1", "2")]
    assert expected in read_span_specs(texts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", f"0 fields; expected {FORM}"),
        ("a", f"1 field; expected {FORM}"),
        ("a,1", f"2 fields; expected {FORM}"),
        ("a,1,2,b,c", f"5 fields; expected {FORM}"),
        ("a,1750000000,123456,1750000001,654321", f"5 fields; expected {FORM}; {COMMA}"),
        ("a,1750000000,123456,1750000001,654321,run", f"6 fields; expected {FORM}; {COMMA}"),
        ('"a,1,2', f"no CSV record, unexpected end of data; expected {FORM}"),
        ('"a"b,1,2', f"no CSV record, ',' expected after '\"'; expected {FORM}"),
        ("a\nb,1,2", f"no CSV record, new-line character seen in unquoted field; expected {FORM}"),
        (" ,1,2", "NAME is blank; expected the span's name"),
        ('"",1,2', "NAME is blank; expected the span's name"),
        ("a,1,2,", "PARENT is blank; expected the NAME of another --span, or no third comma for none"),
        ("a,soon,2", f"START is 'soon'; expected {TIME}"),
        ("a,1,nan", f"END is 'nan'; expected {TIME}"),
        ("a,-Infinity,2", f"START is '-Infinity'; expected {TIME}"),
        ("a,-1,2", f"START is '-1'; expected {TIME}"),
        ("a,1,18446744073.709551616", f"END is '18446744073.709551616'; expected {TIME}"),
        (
            "a,1,1750000000123456789",
            (
                f"END is '1750000000123456789'; expected {TIME}; "
                "milliseconds, microseconds or nanoseconds? $(date +%s.%N) has seconds, with a point"
            ),
        ),
        (
            "a,1,",
            (
                f"END is ''; expected {TIME}; an empty variable? "
                "bash has $EPOCHREALTIME since version 5.0; $(date +%s.%N) is the same with GNU date"
            ),
        ),
        ('a,1,"1750000001,654321"', f"END is '1750000001,654321'; expected {TIME}; {COMMA}"),
        (
            "a,1750000000.N,1750000001",
            (
                f"START is '1750000000.N'; expected {TIME}; "
                "the date of this system knows no %N; $EPOCHREALTIME of bash has microseconds"
            ),
        ),
        (
            "a,2025-06-15T15:06:40Z,1750000001",
            f"START is '2025-06-15T15:06:40Z'; expected {TIME}; a date? $(date -d 'DATE' +%s.%N) converts it",
        ),
        ("a,1,2,b", "no --span is named 'b'; expected the NAME of another --span"),
        ("a,1750000000,123456,1750000001.654321", None),
        ("a,1,2,a", "it is its own parent; expected the NAME of another --span, or no PARENT"),
    ],
)
def test_what_is_said_about_a_record(text: str, problem: str | None) -> None:
    """One sentence: the record, what is there, what is expected, and what it often means."""
    if problem is None:
        problem = f"no --span is named '1750000001.654321'; expected the NAME of another --span; {COMMA}"
    assert problems(text) == [f"--span 1 ({text!r}): {problem}"]


def test_all_problems_are_told_at_once() -> None:
    """Each problem of each record is there; a record with a bad time still has its name, for its children's sake."""
    told = problems("run,1,x", "step,nan,-1,run", "load,1,2,rum", "step,1,2", "a,1", "kid,1,2,a", "b,1,2,b")
    starts = [
        "--span 1 ('run,1,x'): END is 'x';",
        "--span 2 ('step,nan,-1,run'): START is 'nan';",
        "--span 2 ('step,nan,-1,run'): END is '-1';",
        "--span 5 ('a,1'): 2 fields;",
        "--span 4 ('step,1,2'): the name 'step' is that of",
        "--span 3 ('load,1,2,rum'): no --span is named 'rum';",
        "--span 7 ('b,1,2,b'): it is its own parent;",
    ]
    assert len(told) == len(starts)
    for problem, start in zip(told, starts, strict=True):
        assert problem.startswith(start)
    assert told[4].endswith("is that of --span 2 ('step,nan,-1,run'); expected another")
    assert told[5].endswith("no --span is named 'rum'; expected the NAME of another --span, did you mean 'run'?")


def test_a_long_record_is_shown_by_its_ends() -> None:
    """A record of 100 kB makes a line that a person can read."""
    (problem,) = problems(f"{'x' * 100_000},1750000000,later")
    assert len(problem) < 300
    assert "...xxxx,1750000000,later'" not in problem
    assert problem.startswith("--span 1 ('xxxx")
    assert "1750000000,later')" in problem


def test_ten_thousand_spans_in_one_chain_or_one_circle() -> None:
    """Neither the depth of a chain nor the length of a circle has a limit."""
    count = 10_000
    texts = ["0,1,2", *(f"{place},1,2,{place - 1}" for place in range(1, count))]
    random.Random(7).shuffle(texts)
    assert [spec.name for spec in read_span_specs(texts)] == [str(place) for place in range(count)]
    (problem,) = problems(*(f"{place},1,2,{(place + 1) % count}" for place in range(count)))
    assert " 9998 -> 9999 -> 0;" in problem
