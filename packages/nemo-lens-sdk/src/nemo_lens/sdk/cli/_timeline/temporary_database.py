"""A temporary SQLite file without a name: gone at the end, however that comes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

_CACHE_KIB = 16 * 1024


class SpoolFullError(Exception):
    """The temporary file cannot be written."""


class TemporaryDatabase:
    """Holds tables on disk. Use it as a context manager.

    Args:
        folder: where the file is, default ``TMPDIR``.
        schema: SQL that makes the tables.

    Raises:
        SpoolFullError: from any method, when the disk is full or the folder cannot be written.
    """

    def __init__(self, folder: Path | None, schema: str) -> None:
        self.folder = Path(tempfile.gettempdir()) if folder is None else folder
        with self._errors():
            try:
                handle, name = tempfile.mkstemp(prefix=".nemo-lens-", suffix=".spool", dir=self.folder)
            except OSError as error:
                raise SpoolFullError(f"no temporary file can be made in {self.folder}: {error.strerror}") from error
            os.close(handle)
            try:
                # Nobody else opens it, and some cluster file systems have no locks.
                self._db = sqlite3.connect(f"{Path(name).absolute().as_uri()}?nolock=1", uri=True, isolation_level=None)
                self._db.executescript(
                    f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
                    f"PRAGMA cache_size=-{_CACHE_KIB}; PRAGMA temp_store=FILE;{schema}"
                )
                # Deprecated, and left out of some builds; a folder's name may be no text, which Python 3.10 warns of.
                with contextlib.suppress(sqlite3.Error, sqlite3.Warning, UnicodeEncodeError):
                    quoted = str(self.folder.absolute()).replace("'", "''")
                    self._db.execute(f"PRAGMA temp_store_directory='{quoted}'")
            finally:
                Path(name).unlink()  # an open file lives on without a name
            self._db.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise SpoolFullError(
                f"the temporary file in {self.folder} cannot be written: {error} (TMPDIR names another folder)"
            ) from error
