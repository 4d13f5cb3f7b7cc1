"""What others say while doctor asks them: their log records are kept, and what they print stays off standard output."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

from nemo_lens.sdk.cli.doctor.findings import WARNING, Finding

_OURS = "nemo_lens"
_GRPC = "GRPC_VERBOSITY"


class Overheard(logging.Handler):
    """Keeps what is logged at WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def take(self, code: str, remedy: str = "") -> list[Finding]:
        """Return as warnings what this library has logged since the last call.

        It is what set-up would log, and what it would do then is to go on.
        """
        records, self.records = self.records, []
        return [Finding(WARNING, code, record.getMessage(), remedy) for record in records if _is_ours(record)]


@contextlib.contextmanager
def overhear() -> Iterator[Overheard]:
    """Run a block with logging, warnings and prints under control; what was there before is there again after it."""
    # gRPC's core writes what goes wrong to stderr, where it would stand in the middle of the report.
    quiet = _GRPC not in os.environ
    if quiet:
        os.environ[_GRPC] = "NONE"
    overheard = Overheard()
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [overheard]
    try:
        # A plug-in may print while it is imported: standard output is the report's alone.
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield overheard
    finally:
        root.handlers = handlers
        if quiet:
            del os.environ[_GRPC]


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == _OURS or record.name.startswith(f"{_OURS}.")
