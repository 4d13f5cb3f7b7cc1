"""Spans as a shell script writes them: one CSV record ``NAME,START,END[,PARENT]`` each, read and checked together."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from nemo_lens.api._diagnostics import nearest
from nemo_lens.api.emission import epoch_seconds

_FORM = "NAME,START,END or NAME,START,END,PARENT, a field with a comma in double quotes"
_TIME = "seconds since the epoch, such as 1750000000.123456789, from 0 to 18446744073.709551615"
_COMMA = "a decimal comma? ${EPOCHREALTIME/,/.} replaces the one of this locale by a point"

# What a shell gives in place of a time -> what to write instead.
_TIME_HINTS = (
    ("", "an empty variable? bash has $EPOCHREALTIME since version 5.0; $(date +%s.%N) is the same with GNU date"),
    (r"-?\d+,\d+", _COMMA),
    (r"\d+\.?%?[0-9]*N", "the date of this system knows no %N; $EPOCHREALTIME of bash has microseconds"),
    (r"\d{12,}", "milliseconds, microseconds or nanoseconds? $(date +%s.%N) has seconds, with a point"),
    (r"\d{4}-\d\d-\d\d.*", "a date? $(date -d 'DATE' +%s.%N) converts it"),
)
_SPLIT_TIME = re.compile(r"(?:^|,)\s*\d{9,11},\d{1,9}\s*(?:,|$)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LONGEST_SHOWN = 100


class SpanSpec(NamedTuple):
    """A span to emit: times in seconds since the epoch, to the nanosecond; ``parent`` is the name of another one."""

    name: str
    start: Decimal
    end: Decimal
    parent: str | None = None


class InvalidSpecsError(ValueError):
    """What is wrong with the records, one sentence each in ``problems``."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class _Record:
    """One record as far as it can be read, for what is said about the others: a bad time does not unname a span."""

    def __init__(self, number: int, text: str) -> None:
        self.label = f"--span {number} ({shown(text)})"
        self.name = ""
        self.parent: str | None = None
        self.spec: SpanSpec | None = None
        self.problems: list[str] = []
        try:
            # An unquoted line break, the only way to two records, is an error already.
            fields = [field.strip() for row in csv.reader([text], strict=True, skipinitialspace=True) for field in row]
        except csv.Error as fault:
            self._say(f"no CSV record, {str(fault).split(' - ')[0]}; expected {_FORM}")
            return
        self.name = fields[0] if fields else ""
        if not 3 <= len(fields) <= 4:
            hint = f"; {_COMMA}" if _SPLIT_TIME.search(text) else ""
            self._say(f"{len(fields)} field{'' if len(fields) == 1 else 's'}; expected {_FORM}{hint}")
            return
        if not self.name:
            self._say("NAME is blank; expected the span's name")
        start, end = self._time("START", fields[1]), self._time("END", fields[2])
        if len(fields) == 4:
            self.parent = fields[3]
            if not self.parent:
                self._say("PARENT is blank; expected the NAME of another --span, or no third comma for none")
        if start is not None and end is not None:
            self.spec = SpanSpec(self.name, start, end, self.parent)

    def _time(self, field: str, text: str) -> Decimal | None:
        try:
            return epoch_seconds(text)
        except ValueError:
            hint = next((hint for pattern, hint in _TIME_HINTS if re.fullmatch(pattern, text)), "")
            self._say(f"{field} is {shown(text)}; expected {_TIME}{'; ' if hint else ''}{hint}")
            return None

    def _say(self, problem: str) -> None:
        self.problems.append(f"{self.label}: {problem}")


def read_span_specs(texts: Sequence[str]) -> list[SpanSpec]:
    """Read the records of one call.

    Args:
        texts: one CSV record each (RFC 4180), blanks around a field ignored.

    Returns:
        The spans, parents before their children, else in the order given.

    Raises:
        InvalidSpecsError: naming every problem of every record: its form, its times, a name given twice, a parent
            that no record names, parents that go in a circle.
    """
    records = [_Record(number, text) for number, text in enumerate(texts, 1)]
    problems = [problem for record in records for problem in record.problems]
    problems += _repeated(records)
    problems += _orphaned(records)
    by_name = {record.name: record for record in reversed(records) if record.name}  # the first of a name wins
    order, cycles = _parents_first(by_name[name] for name in dict.fromkeys(record.name for record in records) if name)
    problems += [_described(cycle) for cycle in cycles]
    if problems:
        raise InvalidSpecsError(problems)
    return [record.spec for record in order if record.spec is not None]


def shown(text: str) -> str:
    """Return ``text`` quoted on one line, its middle left out when it is long."""
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[: _LONGEST_SHOWN - 20]}...{text[-17:]}"
    return repr(text)


def _repeated(records: Iterable[_Record]) -> Iterator[str]:
    first: dict[str, _Record] = {}
    for record in records:
        if record.name and first.setdefault(record.name, record) is not record:
            owner = first[record.name].label
            yield f"{record.label}: the name {shown(record.name)} is that of {owner}; expected another"


def _orphaned(records: Sequence[_Record]) -> Iterator[str]:
    names = {record.name: None for record in records if record.name}  # in order, for an answer that is always the same
    hints: dict[str, str] = {}  # one search for each parent: a typing error may be that of a thousand spans
    for record in records:
        parent = record.parent
        if not parent or parent in names:
            continue
        if parent not in hints:
            hints[parent] = f"; {_COMMA}" if _NUMBER.fullmatch(parent) else nearest(parent, names)
        yield f"{record.label}: no --span is named {shown(parent)}; expected the NAME of another --span{hints[parent]}"


def _parents_first(records: Iterable[_Record]) -> tuple[list[_Record], list[list[_Record]]]:
    """Return the records, each after its parent, and every circle, each of them beginning with the first given."""
    by_name = {record.name: record for record in records}
    places = {name: place for place, name in enumerate(by_name)}
    order: list[_Record] = []
    cycles: list[list[_Record]] = []
    seen: set[str] = set()
    for record in by_name.values():
        path: dict[str, _Record] = {}
        at: _Record | None = record
        while at is not None and at.name not in seen:
            seen.add(at.name)
            path[at.name] = at
            at = by_name.get(at.parent) if at.parent else None
        climbed = list(path.values())
        order += reversed(climbed)
        if at is not None and at.name in path:  # back on its own path, and not on one that has been climbed before
            cycle = climbed[climbed.index(at) :]
            first = cycle.index(min(cycle, key=lambda member: places[member.name]))
            cycles.append(cycle[first:] + cycle[:first])
    return order, cycles


def _described(cycle: Sequence[_Record]) -> str:
    first = cycle[0]
    if len(cycle) == 1:
        return f"{first.label}: it is its own parent; expected the NAME of another --span, or no PARENT"
    circle = " -> ".join(_bare(record.name) for record in (*cycle, first))
    return f"{first.label}: the parents go in a circle, {circle}; expected one of them without a PARENT"


def _bare(name: str) -> str:
    quoted = shown(name)
    return name if quoted == f"'{name}'" else quoted
