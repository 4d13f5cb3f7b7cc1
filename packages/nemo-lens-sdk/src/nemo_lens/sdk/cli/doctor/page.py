"""The report as a person reads it: sections of aligned rows, then the findings, the worst last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nemo_lens.sdk.cli._terminal import Terminal, columns_of, printable
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.installation import WHEELS
from nemo_lens.sdk.cli.doctor.report import Report

_OPENTELEMETRY = "opentelemetry-"
# Columns that a label, and a value with a note behind it, take at most; what is longer pushes the rest to the right.
_MAX_LABEL = 34
_MAX_VALUE = 36
_MIN_TEXT = 24
_FINDING_INDENT = 13  # blanks, the sign and the longest level

_COLOURS = {OK: "green", WARNING: "yellow", PROBLEM: "red"}

# Label, value, where it comes from.
_Row = tuple[str, str, str]


class Page:
    """Writes the report to a terminal or a file."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._width = terminal.width or 0
        self._signs = {OK: terminal.sign("good"), WARNING: "!", PROBLEM: terminal.sign("bad")}

    def show(self, report: Report) -> None:
        """Write everything."""
        for title, rows in _sections(report, self._signs):
            self._section(title, list(rows))
        self._terminal.line(self._terminal.paint("Findings", "bold"))
        for finding in report.findings:
            self._finding(finding)
        self._terminal.line()
        self._verdict(report)

    def _section(self, title: str, rows: list[_Row]) -> None:
        if not rows:
            return
        self._terminal.line(self._terminal.paint(title, "bold"))
        labels = min(_MAX_LABEL, max(columns_of(label) for label, _, _ in rows))
        values = min(_MAX_VALUE, max((columns_of(value) for _, value, note in rows if note), default=0))
        for label, value, note in rows:
            self._row(printable(label), printable(value), printable(note), labels, values)
        self._terminal.line()

    def _row(self, label: str, value: str, note: str, labels: int, values: int) -> None:
        start = f"  {_padded(label, labels)}  "
        if self._width and self._width - columns_of(start) < _MIN_TEXT:
            # Too narrow for anything beside the label: it stands below.
            self._terminal.line(f"  {label}")
            start = " " * 4
        indent = columns_of(start)
        first, *more = self._value_lines(value, note, values, indent)
        self._terminal.line(f"{start}{first}".rstrip())
        for line in more:
            self._terminal.line(" " * indent + line)

    def _value_lines(self, value: str, note: str, values: int, indent: int) -> list[str]:
        if not note:
            return self._wrapped(value, indent)
        room = self._width - indent if self._width else None
        # Out of line with the rows around it rather than below, and below rather than cut.
        for text in (_padded(value, values), value):
            if room is None or columns_of(text) + 2 + columns_of(note) <= room:
                return [f"{text}  {self._terminal.paint(note, 'dim')}"]
        below = [self._terminal.paint(line, "dim") for line in self._wrapped(note, indent)]
        return [*self._wrapped(value, indent), *below]

    def _finding(self, finding: Finding) -> None:
        sign, colour = self._signs[finding.level], _COLOURS[finding.level]
        about = f"{', '.join(finding.signals)}: " if finding.signals else ""
        first, *more = self._wrapped(printable(f"{about}{finding.message}"), _FINDING_INDENT)
        level = self._terminal.paint(f"{sign} {finding.level:<8}", colour)
        self._terminal.line(f"  {level} {first}".rstrip())
        for line in more:
            self._terminal.line(" " * _FINDING_INDENT + line)
        if finding.remedy:
            arrow = self._terminal.sign("arrow")
            indent = _FINDING_INDENT + len(arrow) + 1
            first, *more = self._wrapped(printable(finding.remedy), indent)
            self._terminal.line(" " * _FINDING_INDENT + f"{self._terminal.paint(arrow, 'blue')} {first}")
            for line in more:
                self._terminal.line(" " * indent + line)

    def _verdict(self, report: Report) -> None:
        counts = [_counted(report.count(level), level) for level in (PROBLEM, WARNING) if report.count(level)]
        tail = f": {', '.join(counts)}" if counts else ""
        text = f"Telemetry would {'' if report.arrives else 'not '}arrive{tail}."
        self._terminal.line(self._terminal.paint(text, "green" if report.arrives else "red"))

    def _wrapped(self, text: str, indent: int) -> list[str]:
        if not self._width or not text:
            return [text]
        # Names and URLs stay whole, so that they can be copied.
        width = max(self._width - indent, _MIN_TEXT)
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]


def _sections(report: Report, signs: Mapping[str, str]) -> Iterator[tuple[str, Iterable[_Row]]]:
    yield "Installation", _installation(report)
    yield "Entry points", _entry_points(report)
    yield "Settings", _settings(report)
    yield "Variables", ((name, value, "") for name, value in report.configuration.variables.items())
    yield "Span groups", _span_groups(report)
    yield "Surroundings", _surroundings(report)
    yield "Resource", ((row.name, str(row.value), row.origin) for row in report.surroundings.attributes)
    yield "Endpoints", _endpoints(report, signs)


def _installation(report: Report) -> Iterator[_Row]:
    installed = report.installation.as_object()
    yield "Python", str(installed["python"]), str(installed["executable"])
    by_version: dict[str, list[str]] = {}
    others = []
    for package in report.installation.packages:
        if package.name in WHEELS:
            yield package.name, package.version, package.location
        elif package.name.startswith(_OPENTELEMETRY):
            by_version.setdefault(package.version, []).append(package.name.removeprefix(_OPENTELEMETRY))
        else:
            others.append(f"{package.name} {package.version}")
    for version, names in sorted(by_version.items(), reverse=True):
        yield f"opentelemetry {version}", ", ".join(names), ""
    if others:
        yield "libraries", ", ".join(others), ""
    yield "backend", report.plugins.backend or "none", ""


def _entry_points(report: Report) -> Iterator[_Row]:
    by_group: dict[str, list[str]] = {}
    for plugin in report.plugins.found:
        by_group.setdefault(plugin.group, []).append(f"{plugin.name}{' (does not load)' if plugin.error else ''}")
    for group, names in by_group.items():
        yield group, ", ".join(names), ""


def _settings(report: Report) -> Iterator[_Row]:
    for setting in report.configuration.settings:
        origin = setting.origin
        if origin == "default":
            origin = f"default ({' or '.join(setting.variables)})"
        yield setting.name, _shown(setting.value), f"{origin}, which cannot be read" if setting.error else origin


def _span_groups(report: Report) -> Iterator[_Row]:
    groups = report.span_groups
    yield "asked for", groups.spec or "none", groups.origin
    yield "opened", ", ".join(groups.enabled) or "none", ""
    if groups.pending:
        yield "pending", ", ".join(groups.pending), ""
    for namespace in groups.namespaces:
        yield namespace.name, ", ".join(namespace.groups) or "no groups", f"from {namespace.distribution}"
        for preset, members in namespace.presets.items():
            yield f"  preset {preset}", ", ".join(members) or "none registered", ""


def _surroundings(report: Report) -> Iterator[_Row]:
    found = report.surroundings
    yield "host", found.host or "unknown", ""
    yield "GPUs", "unknown" if found.gpu_count is None else str(found.gpu_count), found.gpu_origin
    yield "SLURM", _of_job(found.slurm, "slurm.job.id", "job", "slurm.cluster.name", "on"), ""
    yield "Kubernetes", _of_job(found.kubernetes, "k8s.pod.name", "pod", "k8s.namespace.name", "in"), ""
    yield "run id", found.run_id, found.run_id_origin
    rank = "none: the application gives it, or torchrun" if found.rank is None else str(found.rank)
    yield "rank", rank, found.rank_origin


def _of_job(attributes: dict[str, Any], key: str, kind: str, where: str, word: str) -> str:
    if not attributes:
        return "no"
    name = f"{kind} {attributes[key]}" if key in attributes else f"yes, {kind} unknown"
    return f"{name} {word} {attributes[where]}" if where in attributes else name


def _is_about(finding: Finding, signal: str, code: str) -> bool:
    return finding.code == code and signal in finding.signals


def _endpoints(report: Report, signs: Mapping[str, str]) -> Iterator[_Row]:
    if report.endpoints is None:
        yield "not tried", "no exporter of NeMo Lens would be used", ""
        return
    for way in report.endpoints.ways:
        if way.outcome == "off":
            yield way.signal, "off", ""
            continue
        level = next((each.level for each in report.findings if _is_about(each, way.signal, way.outcome)), OK)
        outcome = f"{signs[level]} {way.outcome.replace('_', ' ')}"
        if way.milliseconds is not None:
            outcome += f" ({way.milliseconds:.1f} ms)"
        place = (
            f"{way.transport} {way.endpoint}".strip() if way.transport not in ("file", way.endpoint) else way.endpoint
        )
        if way.endpoint_origin:
            place += f" ({way.endpoint_origin})"
        yield way.signal, outcome, place
        if way.headers:
            yield "  with headers", ", ".join(way.headers), ""
        if way.proxy:
            yield "  through", way.proxy, ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in (None, "") else str(value)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))
