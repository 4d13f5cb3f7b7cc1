"""Spans of OTLP JSON lines files, read as a stream: plain or gzip, by content and not by name.

What cannot be read is reported with file and line number and skipped; what came before it is used.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from nemo_lens.sdk.cli._otlp_spans import Span, spans_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 64 * 1024
# Corrupt gzip data takes at most the good data of one such piece with it.
_INFLATE_BYTES = 1024
_MAX_LINE_BYTES = 64 * 1024 * 1024
# Broken lines of one file that are reported one by one; the rest are counted.
_MAX_REPORTS = 20

# What a directory is searched for: .jsonl, .jsonl.gz, and the same with the process id of a forked child in it.
_FILE_NAME = re.compile(r"\.jsonl(\.\d+)?(\.gz)?(\.\d+)?$")


# Keys that make a line an OTLP message -> the signal's name when its lines are skipped.
_SIGNALS = {"resourceSpans": "", "resourceMetrics": "metric", "resourceLogs": "log", "resourceProfiles": "profile"}


def expand(paths: Iterable[str], report: Callable[[str], None]) -> list[Path]:
    """Return the files that ``paths`` name: files as they are, directories searched for OTLP JSON lines files.

    A file that is named twice is returned once. A directory without such files is reported.
    """
    files: dict[Path, Path] = {}
    for text in paths:
        path = Path(text)
        found = [path]
        if path.is_dir():
            found = sorted(item for item in path.rglob("*") if _FILE_NAME.search(item.name) and item.is_file())
            if not found:
                report(f"{text}: no *.jsonl or *.jsonl.gz file in this directory")
        for item in found:
            files.setdefault(item.resolve(), item)
    return list(files.values())


@dataclass
class OtlpReader:
    """Reads files one after the other and counts what it saw.

    Args:
        report: called with one line of text for each thing that could not be read.
    """

    report: Callable[[str], None]
    spans: int = 0
    broken_lines: int = 0
    # Lines of other signals, by the name to show.
    skipped_lines: dict[str, int] = field(default_factory=dict)
    _broken_here: int = 0

    def read(self, files: Iterable[Path]) -> Iterator[Span]:
        """Yield the spans of all files in the order they are written; ``-`` is the standard input."""
        for path in files:
            self._broken_here = 0
            try:
                if str(path) == "-":
                    yield from self._read_file("standard input", sys.stdin.buffer)
                else:
                    with path.open("rb") as file:
                        yield from self._read_file(str(path), file)
            except OSError as error:
                self.report(f"{path}: {error.strerror or error}")
            if self._broken_here > _MAX_REPORTS:
                self.report(f"{path}: {self._broken_here - _MAX_REPORTS} more lines like these skipped")

    def _read_file(self, name: str, file: BinaryIO) -> Iterator[Span]:
        source = _Source(file)
        for number, line in source.lines():
            try:
                if len(line) > _MAX_LINE_BYTES:
                    raise ValueError(f"longer than {_MAX_LINE_BYTES >> 20} MiB")
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                if source.failure and source.at_end:
                    continue  # the rest of a cut gzip file, reported below
                cut = " (the file ends in the middle of a line)" if source.at_end else ""
                self._broken(name, number, f"not JSON: {error}{cut}")
                continue
            yield from self._read_message(name, number, message)
        if source.failure:
            self.report(f"{name}: {source.failure} after line {source.complete_lines}; what came before is used")

    def _read_message(self, name: str, number: int, message: object) -> Iterator[Span]:
        if not isinstance(message, dict) or not _SIGNALS.keys() & message.keys():
            self._broken(name, number, f"not an OTLP message (expected one of {', '.join(_SIGNALS)})")
            return
        for key, signal in _SIGNALS.items():
            if signal and key in message:
                self.skipped_lines[signal] = self.skipped_lines.get(signal, 0) + 1
        try:
            spans = list(spans_of(message.get("resourceSpans"), lambda why: self._broken(name, number, why)))
        except (ValueError, RecursionError) as error:
            self._broken(name, number, str(error))
            return
        self.spans += len(spans)
        yield from spans

    def _broken(self, name: str, number: int, why: str) -> None:
        self.broken_lines += 1
        self._broken_here += 1
        if self._broken_here <= _MAX_REPORTS:
            self.report(f"{name}:{number}: skipped: {why}")


class _Source:
    """The lines of one open file; ``failure`` says after the last one why the compressed data ended early."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure = ""
        self.at_end = False  # the line just given is the last and has no line end
        self.complete_lines = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line number and line, without empty lines."""
        rest: list[bytes] = []
        size = 0
        for chunk in self._chunks():
            first, *more = chunk.split(b"\n")
            if size <= _MAX_LINE_BYTES:  # of a line that is too long no more is kept than shows that it is
                rest.append(first)
                size += len(first)
            for piece in more:
                self.complete_lines += 1
                line = b"".join(rest).strip()
                if line:
                    yield self.complete_lines, line
                rest, size = [piece], len(piece)
        line = b"".join(rest).strip()
        if line:
            self.at_end = True
            yield self.complete_lines + 1, line

    def _chunks(self) -> Iterator[bytes]:
        chunk = self._file.read(_READ_BYTES)
        if not chunk.startswith(_GZIP_MAGIC):
            while chunk:
                yield chunk
                chunk = self._file.read(_READ_BYTES)
            return
        decoder = zlib.decompressobj(wbits=31)
        while chunk:
            for at in range(0, len(chunk), _INFLATE_BYTES):
                piece = chunk[at : at + _INFLATE_BYTES]
                while piece:
                    if decoder.eof:  # another member follows: each flush of a writer closes one
                        piece = piece.lstrip(b"\0")
                        if not piece:
                            break
                        decoder = zlib.decompressobj(wbits=31)
                    try:
                        yield decoder.decompress(piece)
                    except zlib.error as error:
                        self.failure = f"corrupt gzip data ({error})"
                        return
                    piece = decoder.unused_data
            chunk = self._file.read(_READ_BYTES)
        if not decoder.eof:
            self.failure = "the gzip data is cut off"
