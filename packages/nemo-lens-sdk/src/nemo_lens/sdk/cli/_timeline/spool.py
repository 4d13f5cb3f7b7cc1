"""A temporary SQLite file that spans are poured into as they are read and come out of in the order they are drawn.

Memory is bounded whatever the input's size and layout; a span read twice is found, and so are links and parents in
another process.
"""

from __future__ import annotations

from typing import NamedTuple

from nemo_lens.sdk.cli._timeline.temporary_database import TemporaryDatabase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH = 2_000

_SCHEMA = """
CREATE TABLE spans(seq INTEGER PRIMARY KEY, process INT, thread INT, start INT, "end" INT, id BLOB, parent BLOB,
                   body BLOB, events BLOB);
CREATE TABLE links(span INT, linked BLOB);
CREATE TABLE points(process INT, time INT, body BLOB);
"""

# Twice the same id and the same content: the earlier row stays.
_DUPLICATES = """
CREATE TEMP TABLE again AS
  SELECT b.seq AS seq FROM (SELECT id FROM spans GROUP BY id HAVING count(*) > 1) AS twice
  JOIN spans AS b ON b.id = twice.id
  WHERE EXISTS (SELECT 1 FROM spans AS a WHERE a.id = b.id AND a.seq < b.seq AND a.process = b.process
                AND a.thread = b.thread AND a.start = b.start AND a."end" = b."end" AND a.parent = b.parent
                AND a.body = b.body AND a.events = b.events);
DELETE FROM links WHERE span IN (SELECT seq FROM again);
DELETE FROM spans WHERE seq IN (SELECT seq FROM again);
"""

# An arrow begins at the span that starts first: a viewer goes by time, and loses one that ends before it has begun.
# At the same time, it begins at the one that is written first. Where processes have one random seed they have the same
# ids: a parent in the same process is the parent.
_DRAWN = 'start, process, thread, -"end", -seq'
_ARROWS = f"""
CREATE TABLE arrows(number INTEGER PRIMARY KEY, cause INT, effect INT, kind TEXT);
INSERT INTO arrows(cause, effect, kind)
  SELECT p.seq, c.seq, 'parent' FROM spans AS c JOIN spans AS p ON p.id = c.parent WHERE p.process <> c.process
  AND NOT EXISTS (SELECT 1 FROM spans AS own INDEXED BY by_id WHERE own.id = c.parent AND own.process = c.process);
INSERT INTO arrows(cause, effect, kind)
  SELECT t.seq, l.span, 'link' FROM links AS l JOIN spans AS t ON t.id = l.linked WHERE t.seq <> l.span;
CREATE TABLE ends(span INT, arrow INT, kind TEXT, begins INT, backwards INT);
INSERT INTO ends
  SELECT CASE side WHEN 0 THEN cause ELSE effect END, number, kind, (side = 0) <> backwards, backwards
  FROM (SELECT a.number, a.cause, a.effect, a.kind,
               (SELECT ({_DRAWN}) > (SELECT {_DRAWN} FROM spans WHERE seq = a.effect)
                FROM spans WHERE seq = a.cause) AS backwards
        FROM arrows AS a), (SELECT 0 AS side UNION ALL SELECT 1);
CREATE INDEX ends_of ON ends(span);
"""


class SpanRow(NamedTuple):
    """A span as it is drawn. Times are epoch nanoseconds."""

    seq: int
    process: int
    thread: int
    start_ns: int
    end_ns: int
    id: bytes
    parent: bytes  # empty for none
    body: bytes  # the part of the trace event that does not depend on the others
    events: bytes  # empty for none
    has_arrows: int


class ArrowEnd(NamedTuple):
    """One end of a flow arrow."""

    number: int
    kind: str  # "link" or "parent"
    begins: int  # whether the arrow begins here
    backwards: int  # whether the cause starts later than its effect


class ThreadExtent(NamedTuple):
    """When a thread had spans, in epoch nanoseconds."""

    process: int
    thread: int
    first_ns: int
    last_ns: int
    spans: int


class Spool(TemporaryDatabase):
    """Holds everything that is drawn.

    Args:
        folder: where the temporary file is, default ``TMPDIR``.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder, _SCHEMA)
        self.spans = 0
        self.points = 0
        self.duplicates = 0
        self.arrows = 0
        self._span_batch: list[tuple[object, ...]] = []
        self._link_batch: list[tuple[object, ...]] = []
        self._point_batch: list[tuple[object, ...]] = []

    def add_span(
        self,
        process: int,
        thread: int,
        start_ns: int,
        end_ns: int,
        span_id: bytes,
        parent: bytes,
        body: bytes,
        events: bytes,
        links: tuple[bytes, ...] = (),
    ) -> None:
        """Add a span. Ids are those of ``span_key``."""
        self.spans += 1
        self._span_batch.append((self.spans, process, thread, start_ns, end_ns, span_id, parent, body, events))
        for linked in links:
            self._link_batch.append((self.spans, linked))
        if len(self._span_batch) >= _BATCH:
            self._write_batches()

    def add_point(self, process: int, time_ns: int, body: bytes) -> None:
        """Add an event of a process that needs no lane (a counter), its body without process and time."""
        self.points += 1
        self._point_batch.append((process, time_ns, body))
        if len(self._point_batch) >= _BATCH:
            self._write_batches()

    def finish(self) -> None:
        """Sort, drop what was read twice and find the arrows; nothing is added after this."""
        self._write_batches()
        with self._errors():
            self._db.execute("COMMIT")
            self._db.execute("CREATE INDEX by_id ON spans(id, process, start)")
            self._db.executescript(_DUPLICATES)
            self.duplicates = self._number("SELECT count(*) FROM again")
            self.spans -= self.duplicates
            self._db.execute('CREATE INDEX by_thread ON spans(process, thread, start, "end" DESC, seq DESC)')
            self._db.execute("CREATE INDEX by_process ON points(process, time)")
            self._db.executescript(_ARROWS)
            self.arrows = self._number("SELECT count(*) FROM arrows")

    def threads(self) -> list[ThreadExtent]:
        """Return every thread that has spans."""
        with self._errors():
            return [
                ThreadExtent(*row)
                for row in self._db.execute(
                    'SELECT process, thread, min(start), max("end"), count(*) FROM spans GROUP BY process, thread'
                )
            ]

    def point_extents(self) -> list[tuple[int, int, int]]:
        """Return each process that has points, with the time of the first and of the last."""
        with self._errors():
            return list(self._db.execute("SELECT process, min(time), max(time) FROM points GROUP BY process"))

    def process_parents(self) -> set[tuple[int, int]]:
        """Return the pairs of processes of which the first has a span that is a child of one of the second."""
        with self._errors():
            return set(
                self._db.execute(
                    "SELECT DISTINCT c.process, p.process FROM arrows JOIN spans AS c ON c.seq = effect "
                    "JOIN spans AS p ON p.seq = cause WHERE kind = 'parent'"
                )
            )

    def rows(self) -> Iterator[SpanRow]:
        """Yield all spans: by process, thread and start, of those that start together the longest first.

        Of two with the same times the one written last comes first: a parent ends, and is written, after its child.
        """
        with self._errors():
            for row in self._db.execute(
                'SELECT seq, process, thread, start, "end", id, parent, body, events, '
                "EXISTS(SELECT 1 FROM ends WHERE span = seq) "
                'FROM spans INDEXED BY by_thread ORDER BY process, thread, start, "end" DESC, seq DESC'
            ):
                yield SpanRow(*row)

    def point_rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield process, time and body of all points, by process and time."""
        with self._errors():
            yield from self._db.execute("SELECT process, time, body FROM points ORDER BY process, time, rowid")

    def arrow_ends(self, seq: int) -> list[ArrowEnd]:
        """Return the arrows that begin or end at a span."""
        with self._errors():
            return [
                ArrowEnd(*row)
                for row in self._db.execute(
                    "SELECT arrow, kind, begins, backwards FROM ends WHERE span = ? ORDER BY arrow, begins", (seq,)
                )
            ]

    def parent_of(self, span_id: bytes) -> bytes | None:
        """Return the parent of a span, empty for none; None when the span is not in the input."""
        with self._errors():
            row = self._db.execute("SELECT parent FROM spans WHERE id = ? LIMIT 1", (span_id,)).fetchone()
        return None if row is None else row[0]

    def _write_batches(self) -> None:
        with self._errors():
            self._db.executemany("INSERT INTO spans VALUES(?,?,?,?,?,?,?,?,?)", self._span_batch)
            self._db.executemany("INSERT INTO links VALUES(?,?)", self._link_batch)
            self._db.executemany("INSERT INTO points VALUES(?,?,?)", self._point_batch)
        for batch in (self._span_batch, self._link_batch, self._point_batch):
            batch.clear()

    def _number(self, query: str) -> int:
        number: int = self._db.execute(query).fetchone()[0]
        return number


def span_key(trace_id: str, span_id: str) -> bytes:
    """Return the key under which the spool finds a span; empty when there is no span id."""
    if not span_id:
        return b""
    try:
        return bytes.fromhex(trace_id) + bytes.fromhex(span_id)
    except ValueError:
        return f"{trace_id} {span_id}".encode("utf-8", "surrogatepass")
