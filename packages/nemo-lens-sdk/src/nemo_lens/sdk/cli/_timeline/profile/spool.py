"""Events of PyTorch profilers on disk, from where they come out row by row in the order they are drawn."""

from __future__ import annotations

from typing import NamedTuple

from nemo_lens.sdk.cli._timeline.temporary_database import TemporaryDatabase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BATCH = 2_000

_SCHEMA = """
CREATE TABLE events(seq INTEGER PRIMARY KEY, track INT, kind INT, start INT, "end" INT, body BLOB);
CREATE TABLE flows(seq INTEGER PRIMARY KEY, track INT, time INT, begins INT, file INT, kind TEXT, key TEXT);
"""

# An arrow goes from the first beginning of its key to each end: a CUDA graph has one launch and many kernels. One of
# which an end was not recorded, or whose end comes before its beginning, makes a viewer complain: it is left out.
_SLICE_AT = """(SELECT seq FROM events AS e WHERE e.track = {0}.track AND e.start = {0}.time AND e.kind = 0
                AND e."end" > e.start ORDER BY e."end", e.seq DESC LIMIT 1)"""
_ARROWS = f"""
CREATE INDEX by_track ON events(track, start, kind, "end" DESC, seq);
CREATE INDEX by_key ON flows(file, kind, key, begins, seq);
CREATE TABLE ends(event INT, arrow INT, kind TEXT, begins INT);
CREATE TEMP TABLE arrows(number INTEGER PRIMARY KEY, kind TEXT, cause INT, effect INT);
INSERT INTO arrows(kind, cause, effect)
  SELECT f.kind, {_SLICE_AT.format("b")}, {_SLICE_AT.format("f")}
  FROM (SELECT file, kind, key, track, time, min(seq) FROM flows WHERE begins GROUP BY file, kind, key) AS b
  JOIN flows AS f ON f.file = b.file AND f.kind = b.kind AND f.key = b.key AND NOT f.begins AND f.time > b.time;
DELETE FROM arrows WHERE cause IS NULL OR effect IS NULL;
INSERT INTO ends SELECT cause, number, kind, 1 FROM arrows UNION ALL SELECT effect, number, kind, 0 FROM arrows;
CREATE INDEX ends_of ON ends(event);
"""


class EventRow(NamedTuple):
    """An event as it is drawn. Times are epoch nanoseconds."""

    seq: int
    kind: int
    start_ns: int
    end_ns: int
    body: bytes
    has_arrows: int


class ArrowEnd(NamedTuple):
    """One end of a flow arrow."""

    number: int  # from 1
    kind: str
    begins: int  # whether the arrow begins here


class ProfileSpool(TemporaryDatabase):
    """Holds the events of all files. A track is a number that stands for a place in one file."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder, _SCHEMA)
        self.events = 0
        self.arrows = 0
        self._events: list[tuple[object, ...]] = []
        self._flows: list[tuple[object, ...]] = []

    def add_event(self, track: int, kind: int, start_ns: int, end_ns: int, body: bytes) -> None:
        """Add an event of a track."""
        self.events += 1
        self._events.append((track, kind, start_ns, end_ns, body))
        if len(self._events) >= _BATCH:
            self._write()

    def add_flow(self, track: int, time_ns: int, begins: bool, file: int, kind: str, key: str) -> None:
        """Add one end of an arrow; ``kind`` and ``key`` are the same at both ends in one file."""
        self._flows.append((track, time_ns, begins, file, kind, key))
        if len(self._flows) >= _BATCH:
            self._write()

    def finish(self) -> None:
        """Sort, and find the arrows; nothing is added after this."""
        self._write()
        with self._errors():
            self._db.execute("COMMIT")
            self._db.executescript(_ARROWS)
            self.arrows = self._db.execute("SELECT count(*) FROM arrows").fetchone()[0]

    def rows(self, tracks: Sequence[int]) -> Iterator[EventRow]:
        """Yield the events of some tracks by start; of those that start together the longest slice first."""
        marks = ",".join("?" * len(tracks))
        with self._errors():
            for row in self._db.execute(
                'SELECT seq, kind, start, "end", body, EXISTS(SELECT 1 FROM ends WHERE event = seq) '
                f'FROM events WHERE track IN ({marks}) ORDER BY start, kind, "end" DESC, seq',
                tracks,
            ):
                yield EventRow(*row)

    def arrow_ends(self, seq: int) -> list[ArrowEnd]:
        """Return the arrows that begin or end at an event."""
        with self._errors():
            return [
                ArrowEnd(*row)
                for row in self._db.execute(
                    "SELECT arrow, kind, begins FROM ends WHERE event = ? ORDER BY arrow", (seq,)
                )
            ]

    def shift(self, tracks: Sequence[int], by_ns: int) -> None:
        """Move all that was added so far of some tracks in time."""
        self._write()
        with self._errors():
            for track in tracks:
                self._db.execute(
                    'UPDATE events SET start = start + ?1, "end" = "end" + ?1 WHERE track = ?2', (by_ns, track)
                )
                self._db.execute("UPDATE flows SET time = time + ?1 WHERE track = ?2", (by_ns, track))

    def forget(self, tracks: Sequence[int]) -> None:
        """Drop all that was added of some tracks."""
        self._write()
        with self._errors():
            for track in tracks:
                self.events -= self._db.execute("DELETE FROM events WHERE track = ?", (track,)).rowcount
                self._db.execute("DELETE FROM flows WHERE track = ?", (track,))

    def _write(self) -> None:
        with self._errors():
            self._db.executemany('INSERT INTO events(track, kind, start, "end", body) VALUES(?,?,?,?,?)', self._events)
            self._db.executemany(
                "INSERT INTO flows(track, time, begins, file, kind, key) VALUES(?,?,?,?,?,?)", self._flows
            )
        self._events.clear()
        self._flows.clear()
