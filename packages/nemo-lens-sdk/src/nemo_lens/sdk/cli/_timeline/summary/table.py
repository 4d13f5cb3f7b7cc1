"""The summary of a run in one screen of a terminal: the verdict, and a table of the span names."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from typing import NamedTuple

from nemo_lens.sdk.cli._terminal import columns_of, printable
from nemo_lens.sdk.cli._timeline.summary.comparison import MIN_SHARE
from nemo_lens.sdk.cli._timeline.summary.phases import ALL_WORK
from nemo_lens.sdk.cli._timeline.summary.straggler import phase_name
from nemo_lens.sdk.cli._tree_lines import duration_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nemo_lens.sdk.cli._terminal import Terminal
    from nemo_lens.sdk.cli._timeline.summary.comparison import Lag
    from nemo_lens.sdk.cli._timeline.summary.numbers import NameTimes, Summary
    from nemo_lens.sdk.cli._timeline.summary.span_table import Rank
    from nemo_lens.sdk.cli._timeline.summary.straggler import Straggler

_GAP = "  "
_MIN_NAME_COLUMNS = 20
_MAX_NAME_COLUMNS = 60
_NOTHING = "-"
# Where the table is too wide, columns go in this order.
_DISPENSABLE = ("total", "p95", "count", "ranks", "max", "self", "median", "of step")
_MIN_ROWS = 8
_MOST_TOLD = 4  # of a list in a sentence

_ORIGINS = {"given": "--step", "dl.iteration": "by dl.iteration", "name": "by its name"}


def summary_lines(summary: Summary, terminal: Terminal) -> Iterator[str]:
    """Yield the lines of the summary.

    Args:
        summary: the summary.
        terminal: what the lines are written to.
    """
    texts = _Texts(summary, terminal)
    above = [*texts.heading(), "", *texts.verdict(), ""]
    yield from above
    rows = len(summary.times)
    if terminal.is_tty:
        rows = max(_MIN_ROWS, shutil.get_terminal_size().lines - len(above) - 4)
    yield from texts.table(rows)


class _Column(NamedTuple):
    title: str
    cell: Callable[[NameTimes], str]


class _Texts:
    def __init__(self, summary: Summary, terminal: Terminal) -> None:
        self._summary, self._terminal = summary, terminal
        self._roles_matter = len({rank.number for rank in summary.ranks}) < len(summary.ranks)
        # What has other spans inside is compared, and blamed, without them.
        self._outer = {row.name for row in summary.times if row.self_ns < row.total_ns}
        self._slow_phases = {
            phase_name(lag.phase, summary.names)
            for straggler in summary.verdict.stragglers[:1]
            for lag in straggler.lags
        }

    def heading(self) -> Iterator[str]:
        """Yield the lines that say what was read."""
        summary = self._summary
        read = f"{summary.spans} spans, {len(summary.ranks)} rank{'' if len(summary.ranks) == 1 else 's'}"
        if len(summary.run_ids) > 1:
            read += f", {len(summary.run_ids)} run ids"
        if summary.step is None:
            yield from self._wrapped(read)
            return
        step = summary.step
        text = (
            f"{step.count} steps {printable(step.name)} ({_ORIGINS[step.origin]}), median {self._time(step.median_ns)}"
        )
        yield from self._wrapped(f"{read}, {text}")

    def verdict(self) -> Iterator[str]:
        """Yield the lines that say which rank is slow, or why none is named."""
        yield from self._slow_ranks()
        summary = self._summary
        if summary.missing:
            ranks = _listed([str(number) for number in summary.missing])
            yield from self._wrapped(f"Missing: there is no span of rank {ranks}.")
        if summary.short:
            ranks = _listed([f"{self._rank(rank)} has {own} of {most}" for rank, (own, most) in summary.short.items()])
            yield from self._wrapped(f"Far fewer steps than the others: {ranks}.")

    def _slow_ranks(self) -> Iterator[str]:
        verdict = self._summary.verdict
        if not verdict.stragglers:
            reason = verdict.reason or (
                f"none is longer than the others, in a phase or in all of them together, by "
                f"{self._time(MIN_SHARE * verdict.period_ns)} a step ({MIN_SHARE:.0%} of it), step after step"
            )
            yield from self._wrapped(f"No rank stands out: {printable(reason)}.", "green" if not verdict.reason else "")
            return
        slow, *more = verdict.stragglers
        yield from self._wrapped(
            f"R{self._rank(slow.rank)[1:]}{self._host(slow.rank)} is slow, in "
            f"{_listed([self._phase(lag.phase) for lag in slow.lags])}: {self._time(slow.lag_ns)} longer a step than "
            f"the other ranks, {slow.step_share:.0%} of a step.",
            "red",
        )
        for lag in slow.lags:
            yield from self._wrapped(self._comparison(lag), indent="  ")
        yield from self._consequence(slow)
        if more:
            yield from self._wrapped(f"Slow, too: {_listed(self._more(slow, more))}.")

    def _comparison(self, lag: Lag) -> str:
        phase, own = self._phase(lag.phase), self._time(lag.own_ns)
        others = f"and the others {self._time(lag.others_ns)}"
        if lag.phase >= 0 and not lag.others_ns and phase in self._summary.names:
            others = "and most others have no such span"
        takes = "take" if lag.phase == ALL_WORK else "takes"
        return f"{phase} {takes} it {own} a step {others}; it is longer in {lag.slower_steps} of {lag.steps} steps."

    def _more(self, slow: Straggler, more: list[Straggler]) -> list[str]:
        """Return the other slow ranks, all of a host in one where all of its ranks are slow."""
        hosts = self._summary.hosts
        on_host = Counter(hosts.get(rank) for rank in self._summary.ranks if rank.role == slow.rank.role)
        slow_on_host = Counter(hosts.get(each.rank) for each in (slow, *more) if each.rank.role == slow.rank.role)
        whole = {host for host, count in slow_on_host.items() if host and count == on_host[host] > 2}
        found = {}
        for each in more:
            host = hosts.get(each.rank)
            if host in whole and each.rank.role == slow.rank.role:
                others = f"the other {on_host[host] - 1}" if host == hosts.get(slow.rank) else f"all {on_host[host]}"
                found[host] = f"{others} ranks of {printable(host)}"
            else:
                found[str(each.rank)] = (
                    f"{self._rank(each.rank)}{self._host(each.rank)} {self._time(each.lag_ns)} in "
                    f"{self._phase(each.lags[0].phase)}"
                )
        return list(found.values())

    def _consequence(self, slow: Straggler) -> Iterator[str]:
        for wait in slow.waits:
            yield from self._wrapped(
                f"The others wait for it in {self._phase(wait.phase)}: {self._time(wait.others_ns)} a step, "
                f"itself {self._time(wait.own_ns)}.",
                indent="  ",
            )
        if slow.longer_step_ns >= slow.lag_ns / 2:
            yield from self._wrapped(f"Its steps are {self._time(slow.longer_step_ns)} longer.", indent="  ")
        elif not slow.waits:
            yield from self._wrapped(
                f"No span was found in which the others wait for it: if ranks wait for each other in "
                f"{self._phase(slow.lags[0].phase)}, it is early there, not slow.",
                indent="  ",
            )

    def table(self, rows: int) -> Iterator[str]:
        """Yield the table with this many rows, and what it does not show."""
        times = self._summary.times[:rows]
        if not times:
            return
        columns = self._columns()
        cells = {column.title: [column.cell(row) for row in times] for column in columns}
        widths = {
            column.title: max(columns_of(text) for text in (column.title, *cells[column.title])) for column in columns
        }
        names = [printable(row.name) or "(no name)" for row in times]
        name_width = min(max(columns_of(text) for text in ("name", *names)), _MAX_NAME_COLUMNS)
        width = self._terminal.width
        dropped: list[str] = []
        if width is not None:
            for title in (*_DISPENSABLE, ""):
                room = width - sum(len(_GAP) + size for size in widths.values())
                if room >= min(name_width, _MIN_NAME_COLUMNS) or not title:
                    name_width = max(min(name_width, room), 4)
                    break
                if widths.pop(title, None) is not None:
                    dropped.append(title)
            names = [self._terminal.fit(text, name_width) for text in names]
        titles = "".join(f"{_GAP}{title:>{size}}" for title, size in widths.items())
        yield self._terminal.paint(f"{'name':<{name_width}}{titles}", "bold")
        for at, text in enumerate(names):
            line = "".join(
                _GAP + " " * (size - columns_of(cells[title][at])) + cells[title][at] for title, size in widths.items()
            )
            colour = "red" if times[at].name in self._slow_phases else ""
            name = self._terminal.paint(text, colour) if colour else text
            yield name + " " * max(name_width - columns_of(text), 0) + line
        left = len(self._summary.times) - len(times)
        notes = [f"{left} more name{'' if left == 1 else 's'}"] if left else []
        notes += [f"for want of width: {', '.join(dropped)}"] if dropped else []
        if notes:
            for line in self._wrapped(f"Not shown: {'; '.join(notes)}. --json has all."):
                yield self._terminal.paint(line, "dim")

    def _columns(self) -> list[_Column]:
        columns = [
            _Column("ranks", lambda row: str(row.ranks) if row.ranks else _NOTHING),
            _Column("count", lambda row: str(row.count)),
            _Column("total", lambda row: self._time(row.total_ns)),
            _Column("median", lambda row: self._time(row.median_ns)),
            _Column("p95", lambda row: self._time(row.p95_ns)),
            _Column("max", lambda row: self._time(row.max_ns)),
            _Column("slowest", self._slowest),
        ]
        if self._summary.step is None:
            return [*columns, _Column("self", lambda row: self._time(row.self_ns))]
        return [
            *columns,
            _Column("of step", lambda row: _percent(row.share)),
            _Column("self", lambda row: _percent(row.self_share)),
        ]

    def _slowest(self, row: NameTimes) -> str:
        if row.slowest is None:
            return _NOTHING
        by = row.slowest.slower_by
        return self._rank(row.slowest.rank) + ("" if by is None else f" +{by:.0%}" if by < 10 else f" x{by + 1:.0f}")

    def _rank(self, rank: Rank) -> str:
        role = f" {printable(rank.role)}" if self._roles_matter and rank.role else ""
        return f"rank {rank.number}{role}"

    def _host(self, rank: Rank) -> str:
        host = self._summary.hosts.get(rank)
        return f" ({printable(host)})" if host else ""

    def _phase(self, phase: int) -> str:
        name = phase_name(phase, self._summary.names)
        return printable(name) + (" itself" if phase >= 0 and name in self._outer else "")

    def _time(self, nanoseconds: float) -> str:
        return duration_text(round(nanoseconds), self._terminal)

    def _wrapped(self, text: str, colour: str = "", indent: str = "") -> Iterator[str]:
        lines = [text]
        if self._terminal.width is not None:
            lines = textwrap.wrap(
                text, max(self._terminal.width - len(indent), 20), break_long_words=True, subsequent_indent="  "
            )
        for line in lines:
            yield indent + (self._terminal.paint(line, colour) if colour else line)


def _listed(texts: list[str]) -> str:
    left = len(texts) - _MOST_TOLD
    if left > 0:
        return f"{', '.join(texts[:_MOST_TOLD])} and {left} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _percent(part: float | None) -> str:
    return _NOTHING if part is None else f"{part:.1%}"
