"""Where the picture goes: a file that appears when it is complete, plain or gzip, or a stream."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

_GZIP_LEVEL = 4
_BUFFER_BYTES = 1 << 20


class OutputError(Exception):
    """The output cannot be written; the text names it and says why."""


def check_output(out: str, inputs: Iterable[Path]) -> None:
    """Raise ``OutputError`` when ``out`` cannot be what is written, before anything is read.

    Args:
        out: a file, or ``-`` for standard output.
        inputs: the files that are read.
    """
    if out == "-":
        return
    path = Path(out)
    if not out or os.path.isdir(out):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise OutputError(f"{out!r} is a folder: -o takes a file")
    if not os.path.isdir(path.parent):  # noqa: PTH112 - as above
        raise OutputError(f"{out}: the folder {str(path.parent)!r} does not exist")
    if os.path.exists(out):  # noqa: PTH110 - as above
        for item in inputs:
            if str(item) != "-" and os.path.exists(item) and item.samefile(path):  # noqa: PTH110 - as above
                raise OutputError(f"{out} is one of the files that are read: choose another name with -o")
        if not os.access(path, os.W_OK):
            raise OutputError(f"{out} cannot be written: it is read-only")
        if not path.is_file():
            return
    if not os.access(Path(os.path.realpath(path)).parent, os.W_OK):
        raise OutputError(f"{out} cannot be written: the folder {str(path.parent)!r} is read-only")


def is_stream(out: str) -> bool:
    """Return whether ``out`` is written as it comes: standard output, a pipe, a device."""
    return out == "-" or (os.path.exists(out) and not os.path.isfile(out))  # noqa: PTH110, PTH113 - as above


@contextlib.contextmanager
def open_output(out: str) -> Iterator[IO[bytes]]:
    """Open ``out`` for writing; a file is put in its place at the end and left as it was after an error.

    Raises:
        OutputError: it cannot be written.
    """
    if out == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    direct = is_stream(out)
    # Else the file that a link stands for, not the link. Its temporary one is this process's alone, also where several
    # hosts or containers, which share process ids, write into one folder.
    path = Path(out if direct else os.path.realpath(out))
    temporary = path if direct else path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # In this order: a signal may come as soon as the file is there.
        with _removed_on_error(None if direct else temporary), temporary.open("wb" if direct else "xb") as raw:
            with (
                gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
                if _is_gzip(path)
                else contextlib.nullcontext(raw) as file
            ):
                yield file  # type: ignore[misc]  # GzipFile is a binary file
            raw.close()  # where a full disk may show
            if not direct:
                temporary.replace(path)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _removed_on_error(path: Path | None) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if path is not None and not isinstance(error, FileExistsError):  # which is somebody else's file
            with contextlib.suppress(OSError):
                path.unlink()
        raise


def _is_gzip(path: Path) -> bool:
    return path.suffix == ".gz"
