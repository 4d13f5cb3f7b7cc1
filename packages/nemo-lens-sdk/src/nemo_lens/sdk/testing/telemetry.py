"""What a test has recorded: spans, metrics and log records, looked up by name and drawn as a tree."""

from __future__ import annotations

import logging
from textwrap import indent
from typing import TYPE_CHECKING, Any

from nemo_lens.api import state
from nemo_lens.api._diagnostics import nearest
from nemo_lens.api.instruments import recorders
from nemo_lens.sdk.testing.logs import RecordedLog, recorded_logs
from nemo_lens.sdk.testing.metrics import InMemoryMetricExporter, RecordedMetric
from nemo_lens.sdk.testing.spans import RecordedSpan, recorded_spans
from nemo_lens.sdk.testing.tree import difference, expected_tree, in_any_order, text_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from nemo_lens.sdk.handle import OtelHandle

_FLUSH_MS = 10_000


class RecordedTelemetry:
    """Telemetry that is on for one test, and what it has recorded so far.

    Reading flushes first: what has ended is there. Spans and log records of child processes are not.

    Args:
        handle: the handle, which ``get_telemetry()`` returns too.
        spans: where spans are exported to.
        metrics: where metrics are exported to.
        logs: where log records are exported to.
    """

    def __init__(
        self, handle: OtelHandle, spans: InMemorySpanExporter, metrics: InMemoryMetricExporter, logs: Any
    ) -> None:
        self.handle = handle
        self._spans = spans
        self._metrics = metrics
        self._logs = logs

    @property
    def spans(self) -> list[RecordedSpan]:
        """The spans that have ended, in the order they started."""
        self._flush()
        return recorded_spans(self._spans.get_finished_spans())

    @property
    def metrics(self) -> list[RecordedMetric]:
        """Each series of each metric: one for each set of attributes."""
        self._flush()
        return self._metrics.recorded()

    @property
    def logs(self) -> list[RecordedLog]:
        """The log records in the order they were emitted."""
        self._flush()
        return list(recorded_logs(self._logs.get_finished_logs()))

    def set_groups(self, groups: str | Iterable[str]) -> None:
        """Open these span groups and close all others.

        Args:
            groups: a spec, such as ``"default,io"`` or ``"all"``; or the names of groups, registered or not.
        """
        open_groups(groups)

    def clear(self) -> None:
        """Forget what has been recorded so far; sums go on from zero."""
        self._flush()
        self._spans.clear()
        self._logs.clear()
        self._metrics.clear()
        self.handle.restart_metrics()
        recorders.forget_attribute_sets()

    def span(self, name: str, attributes: Mapping[str, Any] | None = None) -> RecordedSpan:
        """Return the one span of this name that has ended.

        Args:
            name: its name.
            attributes: attributes that it has, among others; to tell spans of one name apart.

        Raises:
            AssertionError: there is none, or more than one; the message shows those there are.
        """
        __tracebackhide__ = True
        spans = self.spans
        named = [span for span in spans if span.name == name]
        found = [span for span in named if _has(span.attributes, attributes)]
        if len(found) == 1:
            return found[0]
        what = f"named {name!r}" + (f" with attributes {dict(attributes)!r}" if attributes else "")
        if found:
            raise AssertionError(f"{len(found)} spans {what} have ended:\n{_spans_text(found, attributes=True)}")
        if named:
            raise AssertionError(f"no span {what} has ended; of that name:\n{_spans_text(named, attributes=True)}")
        near = nearest(name, [span.name for span in spans])
        there = f"\nEnded:\n{_spans_text(spans)}" if spans else ", nor any other"
        raise AssertionError(f"no span {what} has ended{near}{there}{self._open_spans()}{_groups_that_are_on()}")

    def tree(self, *, attributes: bool | Collection[str] = False) -> str:
        """Return the spans that have ended as text: one a line, children indented below their parent by two blanks.

        Roots and siblings are in the order they started; a span whose parent has not ended, or is not of this process,
        is a root. After its name comes ``ERROR``, if that is its status, then attributes as ``name=value``.

        Args:
            attributes: the names of attributes to show where they are there; True for all of them.
        """
        return text_of(tree_of(self.spans, attributes))

    def assert_tree(
        self, expected: str, *, attributes: bool | Collection[str] = False, any_order: bool = False
    ) -> None:
        """Assert that the spans that have ended form this tree.

        Args:
            expected: the tree as :meth:`tree` draws it; any indentation will do, and blank lines mean nothing.
            attributes: as for :meth:`tree`.
            any_order: whether roots and siblings may come in any order, as those of threads and tasks do.

        Raises:
            AssertionError: they form another tree; the message shows the difference.
            ValueError: ``expected`` is indented so that it is no tree.
        """
        __tracebackhide__ = True
        wanted, recorded = expected_tree(expected), tree_of(self.spans, attributes)
        if any_order:
            wanted, recorded = in_any_order(wanted), in_any_order(recorded)
        if wanted != recorded:
            raise AssertionError(
                "the span tree is not as expected (- expected, + recorded):\n"
                f"{difference(wanted, recorded)}{self._open_spans()}{'' if recorded else _groups_that_are_on()}"
            )

    def metric(self, name: str, attributes: Mapping[str, Any] | None = None) -> RecordedMetric:
        """Return the one series of a metric.

        Args:
            name: the metric's name.
            attributes: attributes of the series; of several that have them, the one that has no others. ``{}`` is the
                series without attributes.

        Raises:
            AssertionError: there is none, or more than one; the message shows those there are.
        """
        __tracebackhide__ = True
        recorded = self.metrics
        named = [metric for metric in recorded if metric.name == name]
        found = [metric for metric in named if _has(metric.attributes, attributes)]
        if attributes is not None and (len(found) > 1 or not attributes):
            found = [metric for metric in found if len(metric.attributes) == len(attributes)]
        if len(found) == 1:
            return found[0]
        if named:
            which = "" if attributes is None else f" with attributes {dict(attributes)!r}"
            raise AssertionError(f"metric {name!r} has {len(found)} series{which}; recorded:\n{_lines(named)}")
        near = nearest(name, [metric.name for metric in recorded])
        there = f"\nRecorded:\n{_lines(recorded)}" if recorded else ", nor any other"
        raise AssertionError(f"no metric {name!r} was recorded{near}{there}")

    def log(self, text: str) -> RecordedLog:
        """Return the one log record whose body contains a text.

        Args:
            text: the text.

        Raises:
            AssertionError: there is none, or more than one; the message shows those there are.
        """
        __tracebackhide__ = True
        recorded = self.logs
        found = [log for log in recorded if text in str(log.body)]
        if len(found) == 1:
            return found[0]
        if found:
            raise AssertionError(f"{len(found)} log records contain {text!r}:\n{_lines(found)}")
        there = f"\nRecorded:\n{_lines(recorded)}" if recorded else ", and none was recorded"
        raise AssertionError(
            f"no log record contains {text!r}{there}\n"
            f"The root logger lets {logging.getLevelName(logging.getLogger().level)} and above through; "
            "caplog.set_level(logging.INFO) lowers that for a test"
        )

    def _flush(self) -> None:
        __tracebackhide__ = True
        if not self.handle.force_flush(_FLUSH_MS):
            raise AssertionError("what was recorded could not be flushed; the log of 'nemo_lens' may say why")

    def _open_spans(self) -> str:
        names = self.handle.open_spans()
        return f"\nStill open: {', '.join(names)}" if names else ""


def open_groups(groups: str | Iterable[str]) -> None:
    """Open these span groups and close all others.

    Args:
        groups: as for :meth:`RecordedTelemetry.set_groups`.
    """
    if not isinstance(groups, str):
        state.set_enabled_span_groups(groups)
    elif groups.strip().lower() == "all":
        # It may be that nothing is registered yet, and that what is registered during the test is no surprise.
        state.open_everything()
    else:
        state.set_span_group_spec(groups)


def _has(attributes: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    # A list is recorded as a tuple.
    return all(
        name in attributes and attributes[name] == (tuple(value) if isinstance(value, list) else value)
        for name, value in (wanted or {}).items()
    )


def _spans_text(spans: list[RecordedSpan], *, attributes: bool = False) -> str:
    return indent(text_of(tree_of(spans, attributes)), "  ")


def _lines(items: Sequence[RecordedMetric | RecordedLog]) -> str:
    return "\n".join(sorted(f"  {item}" for item in items))


def _groups_that_are_on() -> str:
    return f"\nSpan groups that are on: {', '.join(sorted(state.enabled_span_groups())) or 'none'}"
