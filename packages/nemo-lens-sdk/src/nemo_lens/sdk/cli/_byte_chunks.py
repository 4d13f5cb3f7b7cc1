"""The bytes of an open file, plain or gzip by content, as chunks: what can be inflated of broken data is given."""

from __future__ import annotations

import math
import os
import stat
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 64 * 1024
# Corrupt gzip data takes at most the good data of one such piece with it.
_INFLATE_BYTES = 1024


class ByteChunks:
    """The content of one file; ``failure`` says after the last chunk why compressed data ended early.

    A regular file is read as far as it is when the reading begins: one that grows meanwhile has an end.
    ``bytes_read`` counts what was read, before it is inflated.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure = ""
        self.bytes_read = 0
        self._left: float = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content, inflated where it is gzip data of one or several members."""
        self._left = self._size()
        chunk = self._read()
        if not chunk.startswith(_GZIP_MAGIC):
            while chunk:
                yield chunk
                chunk = self._read()
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
            chunk = self._read()
        if not decoder.eof:
            self.failure = "the gzip data is cut off"

    def _size(self) -> float:
        try:
            about = os.fstat(self._file.fileno())
            # What the kernel makes up while it is read (/proc) says 0.
            if stat.S_ISREG(about.st_mode) and about.st_size:
                return about.st_size - self._file.tell()
        except (OSError, AttributeError):  # not a file of the system
            pass
        return math.inf

    def _read(self) -> bytes:
        chunk = self._file.read(int(min(_READ_BYTES, max(0, self._left))))
        self._left -= len(chunk)
        self.bytes_read += len(chunk)
        return chunk
