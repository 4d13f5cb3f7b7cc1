"""Events of one trace file of the PyTorch profiler, read as a stream.

The format is Kineto's: a JSON object with facts about the run and a long list ``traceEvents`` of Trace Events, plain or
gzip. Such files have hundreds of megabytes, and are cut off when the job is killed while it writes: no more than one
event is held, and what is there is used. What cannot be read is reported with the file and the byte at which it is.
"""

from __future__ import annotations

import codecs
import json
import re
from decimal import Decimal

from nemo_lens.sdk.cli._byte_chunks import ByteChunks
from nemo_lens.sdk.cli._terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any, BinaryIO

# What is kept of the facts about the run. Older versions do not write all of them.
HEADER_KEYS = frozenset({"schemaVersion", "baseTimeNanoseconds", "distributedInfo", "host_name"})

# No event of a profiler is longer; more than this is not held in memory for a string that never ends.
_MAX_VALUE_CHARS = 16 * 1024 * 1024
# Broken events of one file that are reported one by one; the rest are counted.
_MAX_REPORTS = 5
# How much of a literal (`-Infinity`) may be missing at the end of what has been read so far.
_LITERAL_CHARS = 16
# No match of the patterns below is longer.
_MAX_MATCH_CHARS = 4096

_SPACE = re.compile(r"[ \t\r\n]*")
# Where the next event begins after a broken one: the events of a list, not objects inside an event.
_NEXT_EVENT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:)')
_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*(?=\[)')
_BASE_TIME = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d+)\s*,')


class _CutOffError(Exception):
    """The file ends in the middle of a value."""


class _BrokenError(ValueError):
    """Here is no JSON."""


class KinetoReader:
    """Reads one file once.

    Args:
        path: the file.
        report: called with one line of text for each thing that could not be read.

    Attributes:
        header: the facts about the run that were found, complete after the last event.
        is_trace: whether there was a list of events.
        events: how many events were read.
    """

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.is_trace = False
        self.events = 0
        self.broken = 0
        self._report = report
        self._name = printable(path)
        self._chunks: ByteChunks | None = None

    @property
    def bytes_read(self) -> int:
        """How much of the file was read, before it is inflated."""
        return 0 if self._chunks is None else self._chunks.bytes_read

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the events in the order they are written; numbers with a fraction are ``Decimal``, exact.

        A file that is not a trace is reported, and gives none.
        """
        try:
            with self.path.open("rb") as file:
                yield from self._read(file)
        except OSError as error:
            self._report(f"{self._name}: {error.strerror or error}")
        if self.broken > _MAX_REPORTS:
            self._report(f"{self._name}: {self.broken - _MAX_REPORTS} more broken events skipped")

    def _read(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        chunks = self._chunks = ByteChunks(file)
        window = _Window(chunks)
        try:
            opening = window.peek()
            if opening == "[":  # the format's other form, without facts about the run
                yield from self._list(window)
            elif opening == "{":
                window.skip()
                yield from self._object(window)
            else:
                why = "not JSON" if opening else chunks.failure or "empty"
                self._report(f"{self._name}: {why}: not a trace of the PyTorch profiler")
                return
            if not self.is_trace:
                self._report(f"{self._name}: no traceEvents in it: not a trace of the PyTorch profiler")
        except _CutOffError:
            why = chunks.failure or "the file is cut off"
            self._report(f"{self._name}: {why} at byte {window.offset}; {self.events:,} events before it are used")

    def _object(self, window: _Window) -> Iterator[dict[str, Any]]:
        """Read the members of the outermost object, up to its end."""
        while window.peek() not in ("}", ""):
            try:
                key = window.value()
                sign = window.peek()
                if not sign:
                    raise _CutOffError
                if sign != ":":
                    raise _BrokenError("a ':' is missing")
                window.skip()
                if key == "traceEvents" and window.peek() == "[":
                    yield from self._list(window)
                else:
                    value = window.value()
                    if key in HEADER_KEYS:
                        self.header.setdefault(key, value)
            except _BrokenError as error:
                self._report(f"{self._name}: broken at byte {window.offset}: {error}")
                # What a program added to the profile (`add_metadata_json`) may be anything: the events come after it.
                skipped = window.find(_EVENTS_KEY)
                if skipped is None:
                    return
                base = _BASE_TIME.search(skipped)
                if base:
                    self.header.setdefault("baseTimeNanoseconds", int(base[1]))
                yield from self._list(window)
            if window.peek() == ",":
                window.skip()
        if not window.peek():
            raise _CutOffError

    def _list(self, window: _Window) -> Iterator[dict[str, Any]]:
        """Read the events of a list, up to behind its end."""
        self.is_trace = True
        window.skip()
        while True:
            sign = window.peek()
            if sign == "]":
                window.skip()
                return
            if not sign:
                raise _CutOffError
            if sign == ",":
                window.skip()
                continue
            try:
                event = window.value()
            except _BrokenError as error:
                self._skipped(f"an event at byte {window.offset} is broken: {error}")
                if window.find(_NEXT_EVENT) is None:
                    return
                continue
            if isinstance(event, dict):
                self.events += 1
                yield event
            else:
                self._skipped(f"at byte {window.offset} ends what is not an event")

    def _skipped(self, why: str) -> None:
        self.broken += 1
        if self.broken <= _MAX_REPORTS:
            self._report(f"{self._name}: skipped: {why}")


class _Window:
    """A piece of JSON text that moves over a file."""

    def __init__(self, chunks: ByteChunks) -> None:
        self._chunks = iter(chunks)
        self._text_of = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        # Control characters inside strings are let through: names of kernels and functions are not always escaped.
        self._value_at = json.JSONDecoder(parse_float=Decimal, parse_constant=str, strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._dropped_bytes = 0
        self._ended = False

    @property
    def offset(self) -> int:
        """The byte of the (inflated) file at which the window stands."""
        return self._dropped_bytes + len(self._text[: self._at].encode("utf-8", "replace"))

    def peek(self) -> str:
        """Move over white space and return the character behind it, or nothing at the end of the file."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # matches nothing, too
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow():
                return ""

    def skip(self) -> None:
        """Move over the character that ``peek`` returned."""
        self._at += 1

    def value(self) -> Any:
        """Read the value that begins here.

        Raises:
            _BrokenError: there is none, and the window stands where it stood.
            _CutOffError: the file ends before the value does.
        """
        if not self.peek():
            raise _CutOffError
        while True:
            have = len(self._text) - self._at
            try:
                value, end = self._value_at(self._text, self._at)
            except RecursionError:
                raise _BrokenError("nested too deeply") from None
            except ArithmeticError:
                raise _BrokenError("a number is out of range") from None
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _LITERAL_CHARS
                if not unfinished:
                    raise _BrokenError(error.msg) from None
                if have > _MAX_VALUE_CHARS:
                    raise _BrokenError(f"longer than {_MAX_VALUE_CHARS >> 20} MiB") from None
            except ValueError as error:  # Python reads no number of more than 4300 digits
                raise _BrokenError(str(error)) from None
            else:
                # A number that reaches to the end of the window may go on behind it.
                if end < len(self._text) or isinstance(value, (dict, list, str)) or self._ended:
                    self._at = end
                    return value
            if self._ended:
                raise _CutOffError
            self._grow(have)  # at least twice as much, so that a long value is not scanned again and again

    def find(self, pattern: re.Pattern[str]) -> str | None:
        """Move behind the next match of ``pattern``, or to the end; return the last text that was moved over."""
        while True:
            match = pattern.search(self._text, self._at)
            if match:
                passed = self._text[self._at : match.end()]
                self._at = match.end()
                return passed
            if self._ended:
                self._at = len(self._text)
                return None
            self._at = max(self._at, len(self._text) - _MAX_MATCH_CHARS)
            self._grow()

    def _grow(self, by: int = 0) -> bool:
        """Read on by at least ``by`` characters, drop what lies behind, and say whether something was added."""
        passed = self._text[: self._at]
        self._dropped_bytes += len(passed.encode("utf-8", "replace"))
        pieces = [self._text[self._at :]]
        self._at = 0
        added = 0
        while added <= by and not self._ended:
            chunk = next(self._chunks, None)
            self._ended = chunk is None
            pieces.append(self._text_of(chunk or b"", self._ended))
            added += len(pieces[-1])
        self._text = "".join(pieces)
        return added > 0
