"""The ``file`` exporter: OTLP JSON lines, a file per process."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.sdk.exporters import file_names, otlp_json
from nemo_lens.sdk.exporters._plan import ExporterPlan, class_name, origin
from nemo_lens.sdk.exporters._sinks import sdk_exporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemo_lens.api.config import NemoLensConfig
    from nemo_lens.sdk.exporters._plan import Signal
    from nemo_lens.sdk.exporters.preferences import MetricPreferences


class FileSink:
    """Appends one line, or one gzip member with one line, a batch; the file is created with the first.

    A killed process leaves whole lines and whole members: nothing is buffered, and each goes out in one write to a
    descriptor opened for appending, which also keeps apart the lines of signals that share a file. Where the file was
    moved or removed meanwhile, the next batch begins a new one under its name.

    Args:
        path: The file; its folders are created. A name that ends in ``.gz`` is compressed.
        encode: Makes the line, empty when there is nothing to write.
    """

    def __init__(self, path: Path, encode: Callable[[Any], bytes]) -> None:
        self._path = path
        self._encode = encode
        self._compressed = path.suffix == ".gz"
        self._descriptor: int | None = None
        # Held while writing: closed under a write, the descriptor's number could be another file's by then.
        self._lock = threading.Lock()

    def send(self, batch: Any) -> bool:
        """Append the batch."""
        line = self._encode(batch)
        if not line:
            return True
        data = gzip.compress(line, 6) if self._compressed else line
        with self._lock:
            if self._descriptor is not None and not self._is_at_path(self._descriptor):
                other, self._descriptor = self._descriptor, None
                os.close(other)
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            _append(self._descriptor, data)
        return True

    def flush(self, timeout_ms: float) -> bool:
        """Return True: nothing is buffered."""
        return True

    def close(self, timeout_ms: float) -> None:
        """Close the file once nobody writes to it."""
        # A write that hangs (a stale network folder) keeps its descriptor: leaking it is the safe way out.
        if self._lock.acquire(timeout=timeout_ms / 1000):
            try:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None
            finally:
                self._lock.release()

    def _is_at_path(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            if os.path.samestat(ours, self._path.stat()):
                return True
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # nobody knows, and opening it anew would fail, too
            return True
        if ours.st_nlink == 0:  # who only moves it, as logrotate does, means to
            warn_once(("file removed", str(self._path)), "%s was removed: what comes goes to a new one", self._path)
        return False


def plan(
    signal: Signal, config: NemoLensConfig, preferences: MetricPreferences, *, run_id: str, rank: int | None
) -> ExporterPlan:
    """Plan the file exporter of a signal; see ``file_names`` for the pattern.

    Raises:
        ValueError: The pattern has a placeholder that is not known, or its folder cannot be created.
    """
    start = f"{origin(config, 'file_path')}={config.file_path!r}"
    planned_by = os.getpid()
    pattern = config.file_path.strip() or file_names.DEFAULT_PATTERN
    try:
        name_of = file_names.parse(pattern, signal=signal, run_id=run_id, rank=rank)
        file_names.check_writable(name_of(planned_by, False))
    except (ValueError, OSError, RuntimeError) as fault:
        raise ValueError(f"{start}: {fault}") from None
    encode = otlp_json.line_encoder(signal)

    def make() -> Any:
        pid = os.getpid()
        path = name_of(pid, pid != planned_by)
        return sdk_exporter(signal, FileSink(path, encode), f"exporter file of {signal} ({path})", preferences)

    return ExporterPlan(name="file", transport="file", make=make, endpoint=pattern, component=class_name(FileSink))


def _append(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    try:
        while written < len(data):  # a full disk, mostly: the second attempt raises and says what it is
            written += os.write(descriptor, data[written:])
    except OSError:
        # A torn line would spoil the next one, a torn gzip member all later ones. Nobody appended after us when the
        # file ends where our write did.
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size == end:
            os.ftruncate(descriptor, end - written)
        raise
