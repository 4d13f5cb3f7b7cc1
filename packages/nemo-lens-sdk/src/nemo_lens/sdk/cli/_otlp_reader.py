"""Spans and metric points of OTLP JSON lines files, read as a stream: plain or gzip, by content and not by name.

What cannot be read is reported with file and line number and skipped; what came before it is used.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from nemo_lens.sdk.cli._byte_chunks import ByteChunks
from nemo_lens.sdk.cli._otlp_metrics import MetricPoint, points_of
from nemo_lens.sdk.cli._otlp_spans import Span, spans_of
from nemo_lens.sdk.cli._terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_MAX_LINE_BYTES = 64 * 1024 * 1024
# Broken lines of one file that are reported one by one; the rest are counted.
_MAX_REPORTS = 20

# A lone half of a surrogate pair, escaped or not: JSON can spell it, no encoding has it.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")

# What a directory is searched for: .jsonl, .jsonl.gz, and the same with the process id of a forked child in it.
_FILE_NAME = re.compile(r"\.jsonl(\.\d+)?(\.gz)?(\.\d+)?$")


# Keys that make a line an OTLP message -> the signal's name when its lines are skipped.
_SIGNALS = {"resourceSpans": "span", "resourceMetrics": "metric", "resourceLogs": "log", "resourceProfiles": "profile"}


def expand(
    paths: Iterable[str],
    report: Callable[[str], None],
    names: re.Pattern[str] = _FILE_NAME,
    named: str = "*.jsonl or *.jsonl.gz",
) -> list[Path]:
    """Return the files that ``paths`` name: files as they are, directories searched for files of these names.

    A file that is named twice is returned once. A directory without such files is reported.

    Args:
        paths: files and directories.
        report: called with one line of text for a directory without such files.
        names: found in the names of the files to search for; default those of OTLP JSON lines files.
        named: how the report calls them.
    """
    files: dict[str, Path] = {}
    for text in paths:
        path = Path(text)
        found = [path]
        if os.path.isdir(text):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
            found = sorted(item for item in path.rglob("*") if names.search(item.name) and item.is_file())
            if not found:
                report(f"{printable(text)}: no {named} file in this directory")
        for item in found:
            # Path.resolve raises for links in a circle.
            files.setdefault(os.path.realpath(item), item)
    return list(files.values())


@dataclass
class OtlpReader:
    """Reads files one after the other and counts what it saw.

    Args:
        report: called with one line of text for each thing that could not be read.
    """

    report: Callable[[str], None]
    spans: int = 0
    points: int = 0
    broken_lines: int = 0
    # Of the files, before they are inflated.
    bytes_read: int = 0
    # Lines of other signals, by the name to show.
    skipped_lines: dict[str, int] = field(default_factory=dict)
    _broken_here: int = 0

    def read(self, files: Iterable[Path]) -> Iterator[Span]:
        """Yield the spans of all files in the order they are written; ``-`` is the standard input."""
        for item in self._read(files, ("resourceSpans",)):
            assert isinstance(item, Span)
            yield item

    def read_all(self, files: Iterable[Path]) -> Iterator[Span | MetricPoint]:
        """Yield the spans and the metric points of all files; ``-`` is the standard input."""
        return self._read(files, ("resourceSpans", "resourceMetrics"))

    def _read(self, files: Iterable[Path], wanted: Sequence[str]) -> Iterator[Span | MetricPoint]:
        for path in files:
            self._broken_here = 0
            name = printable(path)
            try:
                if str(path) == "-":
                    yield from self._read_file("standard input", sys.stdin.buffer, wanted)
                else:
                    with path.open("rb") as file:
                        yield from self._read_file(name, file, wanted)
            except OSError as error:
                self.report(f"{name}: {error.strerror or error}")
            if self._broken_here > _MAX_REPORTS:
                self.report(f"{name}: {self._broken_here - _MAX_REPORTS} more lines like these skipped")

    def _read_file(self, name: str, file: BinaryIO, wanted: Sequence[str]) -> Iterator[Span | MetricPoint]:
        source = _Source(file)
        read_before = self.bytes_read
        for number, line in source.lines():
            self.bytes_read = read_before + source.bytes_read
            yield from self._read_line(name, number, line, source, wanted)
        self.bytes_read = read_before + source.bytes_read
        if source.failure:
            self.report(f"{name}: {source.failure} after line {source.complete_lines}; what came before is used")

    def _read_line(
        self, name: str, number: int, line: bytes | None, source: _Source, wanted: Sequence[str]
    ) -> Sequence[Span | MetricPoint]:
        # A line is tens of thousands of objects and no circles: looking for some takes a fifth of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            if line is None:
                raise ValueError(f"longer than {_MAX_LINE_BYTES >> 20} MiB")
            message = _decoded(line)
        except (ValueError, RecursionError) as error:
            if not (source.failure and source.at_end):  # else the rest of a cut gzip file, reported at its end
                cut = " (the file ends in the middle of a line)" if source.at_end else ""
                self._broken(name, number, f"not JSON: {error}{cut}")
            return ()
        else:
            return self._read_message(name, number, message, wanted)
        finally:
            if collecting:
                gc.enable()

    def _read_message(
        self, name: str, number: int, message: object, wanted: Sequence[str]
    ) -> Sequence[Span | MetricPoint]:
        if not isinstance(message, dict) or not _SIGNALS.keys() & message.keys():
            self._broken(name, number, f"not an OTLP message (expected one of {', '.join(_SIGNALS)})")
            return ()
        for key, signal in _SIGNALS.items():
            if key in message and key not in wanted:
                self.skipped_lines[signal] = self.skipped_lines.get(signal, 0) + 1

        def skipped(why: str) -> None:
            self._broken(name, number, why)

        try:
            spans = list(spans_of(message.get("resourceSpans"), skipped))
            metrics = message.get("resourceMetrics") if "resourceMetrics" in wanted else None
            points = list(points_of(metrics, skipped))
        except (ValueError, RecursionError) as error:
            self._broken(name, number, str(error))
            return ()
        self.spans += len(spans)
        self.points += len(points)
        return [*spans, *points] if points else spans

    def _broken(self, name: str, number: int, why: str) -> None:
        self.broken_lines += 1
        self._broken_here += 1
        if self._broken_here <= _MAX_REPORTS:
            self.report(f"{name}:{number}: skipped: {printable(why)}")


def _decoded(line: bytes) -> object:
    message = json.loads(line)
    if (b"\\u" in line or b"\xed" in line) and _SURROGATE.search(line):
        content = json.dumps(message, ensure_ascii=False)
        try:
            content.encode()
        except UnicodeEncodeError:
            return json.loads(content.encode("utf-8", "replace"))
    return message


class _Source:
    """The lines of one open file; ``failure`` says after the last one why the compressed data ended early."""

    def __init__(self, file: BinaryIO) -> None:
        self._chunks = ByteChunks(file)
        self.at_end = False  # the line just given is the last and has no line end
        self.complete_lines = 0

    @property
    def failure(self) -> str:
        return self._chunks.failure

    @property
    def bytes_read(self) -> int:
        return self._chunks.bytes_read

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield line number and line, without empty lines; None for one that is too long."""
        rest: list[bytes] = []
        size = 0
        for chunk in self._chunks:
            first, *more = chunk.split(b"\n")
            size += len(first)
            if size <= _MAX_LINE_BYTES:
                rest.append(first)
            else:
                rest.clear()
            for piece in more:
                self.complete_lines += 1
                line = b"".join(rest).strip() if size <= _MAX_LINE_BYTES else None
                if line != b"":
                    yield self.complete_lines, line
                rest, size = [piece], len(piece)
        line = b"".join(rest).strip() if size <= _MAX_LINE_BYTES else None
        if line != b"":
            self.at_end = True
            yield self.complete_lines + 1, line
