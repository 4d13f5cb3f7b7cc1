"""Profiles of PyTorch in the picture: each in the process it was recorded in, its threads right below their spans'.

The profiler's clock is the spans': both count nanoseconds of the system's real-time clock, Kineto by way of the
processor's cycle counter, which it compares with that clock at the profile's beginning and end.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_lens.sdk.cli._otlp_reader import expand
from nemo_lens.sdk.cli._terminal import printable
from nemo_lens.sdk.cli._timeline.profile.kineto_events import (
    ABSOLUTE_NS,
    Drawn,
    FlowEnd,
    Names,
    Place,
    place_of,
    read_event,
)
from nemo_lens.sdk.cli._timeline.profile.kineto_reader import KinetoReader
from nemo_lens.sdk.cli._timeline.profile.owner import Candidate, Identity, identity_of, owner, rank_in_name, resource_of
from nemo_lens.sdk.cli._timeline.profile.rows import Drawing, Row, row_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from nemo_lens.sdk.cli._progress import ProgressLine
    from nemo_lens.sdk.cli._timeline.profile.spool import ProfileSpool
    from nemo_lens.sdk.cli._timeline.spool import ThreadExtent
    from nemo_lens.sdk.cli._timeline.trace_events import Clock
    from nemo_lens.sdk.cli._timeline.tracks import Process, Processes

# What torch.profiler.tensorboard_trace_handler writes.
_FILE_NAME = re.compile(r"\.pt\.trace\.json(\.gz)?$")
_MAX_REPORTS = 5
_LATEST_NS = 2**62


@dataclass
class _Profile:
    """One file, as far as it has been read."""

    number: int
    path: Path
    tracks: dict[Place, int] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    first_ns: int = 0
    last_ns: int = 0
    base_ns: int = 0
    identity: Identity | None = None

    def epoch_ns(self, time_ns: int) -> int:
        """Return the time since the epoch, as far as the base is known."""
        return time_ns if time_ns >= ABSOLUTE_NS else self.base_ns + time_ns


def expand_profiles(paths: Iterable[str], report: Callable[[str], None]) -> list[Path]:
    """Return the files that ``paths`` name: files as they are, of directories what the profiler writes into them."""
    return expand(paths, report, _FILE_NAME, "*.pt.trace.json or *.pt.trace.json.gz")


class Profiles:
    """The profiles of a run: first all are read, then each gets its process, then they are drawn.

    Args:
        spool: holds the events in between.
        report: called with one line of text for each thing that could not be used.
    """

    def __init__(self, spool: ProfileSpool, report: Callable[[str], None]) -> None:
        self.spool = spool
        self.report = report
        self._profiles: list[_Profile] = []
        self._rows: dict[int, list[Row]] = {}
        self._next_track = 0
        self._files = 0

    def read(self, paths: Sequence[Path], progress: ProgressLine) -> None:
        """Read traces of the PyTorch profiler, plain or gzip, into the spool."""
        # A name may be too long, which the reader says.
        total = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))  # noqa: PTH113, PTH202
        what = f"reading {_count(len(paths), 'profile')}"
        done = 0
        for path in paths:
            reader = KinetoReader(path, self.report)
            for _ in self._read(path, reader):
                progress.bar(what, done + reader.bytes_read, total)
            done += reader.bytes_read

    def _read(self, path: Path, reader: KinetoReader) -> Iterator[None]:
        """Read a file; yields now and then."""
        self._files += 1
        profile = _Profile(self._files, path)
        skipped: dict[str, int] = {}
        untimed = ""
        for number, event in enumerate(reader.read()):
            if number % 1000 == 0:
                yield
            if event.get("ph") == "M":
                profile.names.learn(event)
                continue
            if event.get("ph") == "X":
                profile.names.see(place_of(event), event.get("cat"))
            if not profile.base_ns:
                profile.base_ns = _base_ns(reader.header)
            try:
                drawn = read_event(event)
            except ValueError as error:
                untimed = untimed or f"without a usable time, the first because {error}"
                skipped[untimed] = skipped.get(untimed, 0) + 1
                continue
            if drawn is not None:
                self._add(profile, drawn)
            elif event.get("ph") not in ("i", "C"):
                why = f"of phase {str(event.get('ph'))[:8]!r}, which is not drawn"
                skipped[why] = skipped.get(why, 0) + 1
        for why, count in list(skipped.items())[:_MAX_REPORTS]:
            self.report(f"{printable(path)}: skipped {_count(count, 'event')} {printable(why)}")
        self._close(profile, reader)

    def place(self, processes: Processes, extents: Sequence[ThreadExtent]) -> list[tuple[int, int, int]]:
        """Find the process of each profile; a profile of which there is none makes one.

        Args:
            processes: those of the spans.
            extents: when their threads had spans.

        Returns:
            For each profile the number of its process, and its first and last time in epoch nanoseconds.
        """
        self.spool.finish()
        placed = []
        known = list(processes.all)
        threads: dict[int, list[ThreadExtent]] = {}
        for extent in extents:
            threads.setdefault(extent.process, []).append(extent)
        for profile in self._profiles:
            identity = profile.identity
            assert identity is not None
            number = owner(
                identity, [_candidate(process, profile, threads.get(process.number, ())) for process in known]
            )
            if number is None:
                number = processes.of(resource_of(identity)).number
                if identity.rank is None and rank_in_name(identity.path) is None:
                    self.report(_of_nobody(identity))
            self._arrange(processes.all[number], profile)
            placed.append((number, profile.first_ns, profile.last_ns))
        for rows in self._rows.values():
            rows.sort(key=lambda row: row.key)
        return placed

    def below(
        self, process: Process, thread: int | None, clock: Clock, new_tid: Callable[[], int], first_arrow: int
    ) -> Iterator[bytes]:
        """Yield the rows that belong below a thread, as JSON; each row is drawn once.

        Args:
            process: the process.
            thread: the number of a thread of spans; None for all rows of the process that are left.
            clock: of the trace.
            new_tid: gives a track number.
            first_arrow: the number from which on arrows are free.
        """
        for row in self._rows.get(process.number, ()):
            if not row.is_drawn and (thread is None or row.thread == thread):
                row.is_drawn = True
                yield from Drawing(self.spool, process.pid, row, clock, new_tid, first_arrow).events()

    def _add(self, profile: _Profile, drawn: Drawn | FlowEnd) -> None:
        track = profile.tracks.get(drawn.place)
        if track is None:
            track = profile.tracks[drawn.place] = self._next_track
            self._next_track += 1
        if isinstance(drawn, FlowEnd):
            time_ns = profile.epoch_ns(drawn.time_ns)
            self.spool.add_flow(track, time_ns, drawn.begins, profile.number, drawn.kind, drawn.key)
            return
        start_ns, end_ns = profile.epoch_ns(drawn.start_ns), profile.epoch_ns(drawn.end_ns)
        profile.first_ns = min(profile.first_ns or start_ns, start_ns)
        profile.last_ns = max(profile.last_ns, end_ns)
        self.spool.add_event(track, drawn.kind, start_ns, end_ns, drawn.body)

    def _close(self, profile: _Profile, reader: KinetoReader) -> None:
        """Use what was learned at the end of the file, and keep the profile when there is something to draw."""
        if not profile.last_ns:
            if reader.is_trace:
                self.report(f"{printable(profile.path)}: no event to draw in it")
            return
        tracks = list(profile.tracks.values())
        if profile.last_ns < ABSOLUTE_NS:
            profile.base_ns = _base_ns(reader.header)
            if not profile.base_ns:
                self.spool.forget(tracks)
                self.report(
                    f"{printable(profile.path)}: not drawn: its times do not count from the epoch, and it has no "
                    "baseTimeNanoseconds. It takes a trace of torch.profiler.profile"
                )
                return
            self.spool.shift(tracks, profile.base_ns)
            profile.first_ns += profile.base_ns
            profile.last_ns += profile.base_ns
        profile.identity = identity_of(reader.header, profile.names.host_pid, profile.path)
        self._profiles.append(profile)

    def _arrange(self, process: Process, profile: _Profile) -> None:
        rows = self._rows.setdefault(process.number, [])
        for place, track in profile.tracks.items():
            new = row_of(place, profile.names, process)
            row = next((row for row in rows if row.key == new.key), None)
            if row is None:
                rows.append(new)
                row = new
            row.tracks.append(track)


def _candidate(process: Process, profile: _Profile, threads: Sequence[ThreadExtent]) -> Candidate:
    overlap_ns = sum(
        max(min(extent.last_ns, profile.last_ns) - max(extent.first_ns, profile.first_ns), 0) for extent in threads
    )
    return Candidate(process.number, process.resource, overlap_ns)


def _of_nobody(identity: Identity) -> str:
    return (
        f"{printable(identity.path)}: drawn by itself, for nothing says its rank: it has no distributedInfo.rank, its "
        f"name has no rank, no span is of process {identity.pid} on host {printable(identity.host) or '(not named)'}. "
        "Start the profiler after torch.distributed, or name the file like rank3.pt.trace.json"
    )


def _base_ns(header: Mapping[str, Any]) -> int:
    """Return what the trace counts from, 0 when it does not say."""
    base = header.get("baseTimeNanoseconds")
    return base if isinstance(base, int) and 0 < base < _LATEST_NS else 0


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
