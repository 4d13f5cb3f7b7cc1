"""The lines of a span tree: one for each span, and below it its links and, on demand, its attributes and events."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_lens.sdk.cli._otlp_spans import STATUS_ERROR
from nemo_lens.sdk.cli._terminal import columns_of, counted, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nemo_lens.sdk.cli._forest import Forest, Node, Place, Trace
    from nemo_lens.sdk.cli._otlp_spans import Event, Link, Span
    from nemo_lens.sdk.cli._terminal import Terminal

_MIN_NAME_COLUMNS = 24
# Where the width has no limit: longer names are shown whole, and do not push the columns of the others.
_WIDE_NAME_COLUMNS = 60
_DURATION_COLUMNS = 8
_GAP = "  "

# Too long for a tree line; it stays in the file.
_HIDDEN_EVENT_ATTRIBUTES = frozenset({"exception.stacktrace"})


def tree_lines(trace: Trace, forest: Forest, terminal: Terminal, *, attributes: bool = False) -> Iterator[str]:
    """Yield the lines of one trace.

    Args:
        trace: the trace.
        forest: all traces of the input, in which links are looked up.
        terminal: what the lines are written to.
        attributes: whether attributes and events are shown below their span.
    """
    yield _heading(trace, terminal)
    rows = [_Row(node, *_prefixes(node, place, terminal)) for node, place in trace.walk()]
    where_columns = max(columns_of(row.where) for row in rows)
    name_columns = max(columns_of(row.first) + columns_of(row.name) for row in rows)
    if terminal.width is None:
        name_columns = min(name_columns, _WIDE_NAME_COLUMNS)
    else:
        room = terminal.width - where_columns - _DURATION_COLUMNS - 2 * len(_GAP)
        name_columns = min(name_columns, max(room, _MIN_NAME_COLUMNS))
    for row in rows:
        yield from _span_lines(row, name_columns, where_columns, terminal)
        for link in row.node.span.links:
            yield row.below + terminal.paint(_link_text(link, row.node.span, forest, terminal), "blue")
        if attributes:
            for text in _detail_texts(row.node.span, terminal):
                yield row.below + terminal.paint(text, "dim")


def duration_text(nanoseconds: int, terminal: Terminal) -> str:
    """Return a duration in the unit a person would use, three digits where there is a fraction."""
    if nanoseconds < 0:
        return f"-{duration_text(-nanoseconds, terminal)}"
    if nanoseconds < 1_000:
        return f"{nanoseconds} ns" if nanoseconds else "0 s"
    for limit, divisor, unit in (
        (999_500, 1e3, f"{terminal.sign('micro')}s"),
        (999_500_000, 1e6, "ms"),
        (59_950_000_000, 1e9, "s"),
    ):
        if nanoseconds < limit:
            value = nanoseconds / divisor
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    minutes, seconds = divmod(round(nanoseconds / 1e9), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {seconds:02}s"


def where_text(resource: Mapping[str, object]) -> str:
    """Return which process a resource is: rank, role and pid as far as they are known, else the service's name."""
    parts = []
    if "nv.dl.rank" in resource:
        parts.append(f"rank {resource['nv.dl.rank']}")
    if "nv.dl.role" in resource:
        parts.append(str(resource["nv.dl.role"]))
    if "process.pid" in resource:
        parts.append(f"pid {resource['process.pid']}")
    return printable(" ".join(parts) or resource.get("service.name", ""))


@dataclass
class _Row:
    node: Node
    first: str  # what is drawn left of the name
    below: str  # what is drawn left of the lines below the span

    def __post_init__(self) -> None:
        self.name = printable(self.node.span.name) or "(no name)"
        self.where = where_text(self.node.span.resource)


def _heading(trace: Trace, terminal: Terminal) -> str:
    resources = [node.span.resource for node in trace.nodes]
    services = sorted({str(resource["service.name"]) for resource in resources if "service.name" in resource})
    runs = sorted({str(resource["nemo.run.id"]) for resource in resources if "nemo.run.id" in resource})
    parts = [
        *([", ".join(services)] if services else []),
        *([f"run {', '.join(runs)}"] if runs else []),
        counted(len(trace.nodes), "span"),
        counted(len({where_text(resource) for resource in resources}), "process", "processes"),
        duration_text(trace.end_ns - trace.start_ns, terminal),
    ]
    errors = trace.errors
    text = terminal.paint(f"trace {printable(trace.trace_id)}", "bold") + f"{_GAP}{printable(', '.join(parts))}"
    return f"{text}, {terminal.paint(counted(errors, 'error'), 'red')}" if errors else text


def _prefixes(node: Node, place: Place, terminal: Terminal) -> tuple[str, str]:
    # The levels that are not drawn are told by number, so that a deep tree stays readable.
    hidden = place.depth - len(place.lasts)
    lines = f"({hidden})" if hidden else ""
    lines += "".join(" " * 3 if last else terminal.sign("pass") for last in place.lasts[:-1])
    if not place.lasts:
        first, own = "", ""
    else:
        first = lines + terminal.sign("last" if place.lasts[-1] else "branch")
        own = lines + (" " * 3 if place.lasts[-1] else terminal.sign("pass"))
    return first, own + (terminal.sign("pass") if node.children else " " * 3)


def _span_lines(row: _Row, name_columns: int, where_columns: int, terminal: Terminal) -> Iterator[str]:
    span = row.node.span
    name = row.name
    if terminal.width is not None:
        name = terminal.fit(name, max(name_columns - columns_of(row.first), 8))
    taken = columns_of(row.first) + columns_of(name)
    duration = duration_text(span.end_ns - span.start_ns, terminal) if span.start_ns and span.end_ns else "?"
    line = (
        row.first
        + (name if row.first else terminal.paint(name, "bold"))
        + " " * (name_columns - taken)
        + f"{_GAP}{duration:>{_DURATION_COLUMNS}}"
        + f"{_GAP}{terminal.paint(row.where, 'dim')}"
    )
    notes = _notes(row.node)
    if not notes:
        yield line.rstrip()
        return
    used = max(taken, name_columns) + _DURATION_COLUMNS + where_columns + 2 * len(_GAP)
    text = _GAP.join(terminal.paint(note, colour) for note, colour in notes)
    if terminal.width is None or used + sum(len(_GAP) + columns_of(note) for note, _ in notes) <= terminal.width:
        yield line + " " * (where_columns - columns_of(row.where)) + _GAP + text
        return
    yield line.rstrip()
    for note, colour in notes:
        yield row.below + terminal.paint(note, colour)


def _notes(node: Node) -> list[tuple[str, str]]:
    span = node.span
    notes = []
    if span.status_code == STATUS_ERROR:
        message = printable(span.status_message.strip())
        notes.append((f"ERROR {message}" if message else "ERROR", "red"))
    if "nemo.span.interrupted" in span.attributes:
        notes.append((f"interrupted by {printable(span.attributes['nemo.span.interrupted'])}", "yellow"))
    if span.attributes.get("nemo.span.truncated"):
        reasons = [event.attributes.get("nemo.span.truncated.reason") for event in span.events]
        reason = next((f" ({printable(reason)})" for reason in reasons if reason), "")
        notes.append((f"truncated{reason}", "yellow"))
    if not span.end_ns:
        notes.append(("no end", "yellow"))
    if node.problem:
        notes.append((printable(node.problem), "yellow"))
    return notes


def _link_text(link: Link, origin: Span, forest: Forest, terminal: Terminal) -> str:
    arrow = terminal.sign("arrow")
    target = forest.find(link.trace_id, link.span_id)
    if target is None:
        return f"{arrow} link to span {printable(link.span_id)} of trace {printable(link.trace_id)}, not in the input"
    name = printable(target.name)
    if target.trace_id != origin.trace_id:
        name = f"trace {printable(target.trace_id)} / {name}"
    where = where_text(target.resource)
    return f"{arrow} link to {name}" + (f" ({where})" if where else "")


def _detail_texts(span: Span, terminal: Terminal) -> Iterator[str]:
    for key, value in span.attributes.items():
        yield f"{printable(key)} = {_shown(value)}"
    for event in span.events:
        yield f"event {printable(event.name)} at {_offset(event, span, terminal)}"
        for key, value in event.attributes.items():
            if key not in _HIDDEN_EVENT_ATTRIBUTES:
                yield f"   {printable(key)} = {_shown(value)}"


def _offset(event: Event, span: Span, terminal: Terminal) -> str:
    return f"+{duration_text(event.time_ns - span.start_ns, terminal)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return printable(value)
