"""Spans arranged as one tree per trace, whatever their parents say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_lens.sdk.cli._otlp_spans import STATUS_ERROR, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Levels above a span that are drawn as lines; deeper ones are told by number.
_DRAWN_LEVELS = 24


class Place(NamedTuple):
    """Where a node is drawn: its depth, and for it and the levels above whether it is the last of its siblings."""

    depth: int
    lasts: tuple[bool, ...]


@dataclass(eq=False)
class Node:
    """A span and its children; ``problem`` says what is wrong with its place, empty when nothing is."""

    span: Span
    children: list[Node] = field(default_factory=list)
    problem: str = ""


@dataclass
class Trace:
    """The spans of one trace id; more than one root when parents are not in the input."""

    trace_id: str
    nodes: list[Node] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        """The earliest start, in epoch nanoseconds."""
        return min(node.span.start_ns for node in self.nodes)

    @property
    def end_ns(self) -> int:
        """The latest end, in epoch nanoseconds."""
        return max(node.span.end_ns for node in self.nodes)

    @property
    def errors(self) -> int:
        """How many spans have the status ERROR."""
        return sum(node.span.status_code == STATUS_ERROR for node in self.nodes)

    def walk(self) -> Iterator[tuple[Node, Place]]:
        """Yield each node in the order to print, and its place in the tree."""
        # A stack and no recursion: a trace may be deeper than Python's limit.
        stack = [(root, Place(0, ())) for root in reversed(self.roots)]
        while stack:
            node, place = stack.pop()
            yield node, place
            for index, child in enumerate(reversed(node.children)):
                stack.append((child, Place(place.depth + 1, (*place.lasts, index == 0)[-_DRAWN_LEVELS:])))


class Forest:
    """All traces of the input, sorted by start.

    Args:
        spans: in any order. The same span read twice counts once (``duplicates`` says how often that was).
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.duplicates = 0
        self._by_id: dict[tuple[str, str], Node] = {}
        traces: dict[str, Trace] = {}
        for span in spans:
            node = Node(span)
            first = self._by_id.setdefault((span.trace_id, span.span_id), node)
            if first is not node:
                if first.span == span:
                    self.duplicates += 1
                    continue
                node.problem = "another span has the same id"
            traces.setdefault(span.trace_id, Trace(span.trace_id)).nodes.append(node)
        for trace in traces.values():
            self._plant(trace)
        self.traces = sorted(traces.values(), key=lambda trace: (trace.start_ns, trace.trace_id))

    def find(self, trace_id: str, span_id: str) -> Span | None:
        """Return the span with these ids when it is in the input."""
        node = self._by_id.get((trace_id, span_id))
        return node.span if node else None

    def _plant(self, trace: Trace) -> None:
        trace.nodes.sort(key=_start)
        for node in trace.nodes:
            parent_id = node.span.parent_id
            parent = self._by_id.get((trace.trace_id, parent_id))
            if parent is not None:
                parent.children.append(node)
                continue
            if parent_id:
                node.problem = f"parent {parent_id} is not in the input"
            trace.roots.append(node)
        # What no root reaches hangs on a circle of parents: open each circle at its earliest span.
        reached = {id(node) for node, _ in trace.walk()}
        for node in trace.nodes:
            if id(node) not in reached:
                head = self._circle_head(node)
                parent = self._by_id[(trace.trace_id, head.span.parent_id)]
                parent.children.remove(head)
                head.problem = "its parents form a circle"
                trace.roots.append(head)
                reached.update(id(below) for below, _ in Trace(trace.trace_id, roots=[head]).walk())
        trace.roots.sort(key=_start)

    def _circle_head(self, node: Node) -> Node:
        path: dict[int, Node] = {}
        while id(node) not in path:
            path[id(node)] = node
            node = self._by_id[(node.span.trace_id, node.span.parent_id)]
        members = list(path.values())
        return min(members[list(path).index(id(node)) :], key=_start)


def _start(node: Node) -> tuple[int, str, str]:
    return node.span.start_ns, node.span.name, node.span.span_id
