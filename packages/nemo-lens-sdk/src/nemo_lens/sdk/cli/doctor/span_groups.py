"""Span groups by namespace: what the spec opens of what installed libraries declare, and what is pending."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from nemo_lens.api._diagnostics import nearest
from nemo_lens.api.groups import SpanRegistry
from nemo_lens.api.lifecycle import load_span_group_entry_points
from nemo_lens.sdk.cli.doctor.findings import OK, WARNING, Finding
from nemo_lens.sdk.cli.doctor.overheard import Overheard


@dataclass(frozen=True)
class Namespace:
    """What one library declares."""

    name: str
    distribution: str
    groups: tuple[str, ...]
    presets: dict[str, list[str]]


@dataclass
class SpanGroups:
    """The spec and what it means here."""

    spec: str
    origin: str
    enabled: tuple[str, ...]
    pending: tuple[str, ...]
    namespaces: list[Namespace]
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return the section as it stands in the JSON."""
        return {
            "spec": self.spec,
            "origin": self.origin,
            "enabled": list(self.enabled),
            "pending": list(self.pending),
            "namespaces": {
                each.name: {
                    "distribution": each.distribution,
                    "groups": list(each.groups),
                    "presets": each.presets,
                }
                for each in self.namespaces
            },
        }


def look(spec: str, origin: str, variable: str, broken: Container[str], overheard: Overheard) -> SpanGroups:
    """Ask every installed library for its groups and resolve the spec.

    Args:
        spec: Comma list of presets and groups.
        origin: Where the spec came from.
        variable: What sets it.
        broken: Namespaces whose entry points do not load, which is reported elsewhere.
        overheard: Where the library's log records arrive.
    """
    loaded = load_span_group_entry_points()
    distributions = {name.strip().lower(): distribution for name, distribution, _ in loaded}
    overheard.take("")  # that some are skipped, which is in ``loaded``
    said = [_nonsense(*each) for each in loaded if each[2] is not None and each[0] not in broken]
    registered = SpanRegistry.groups()
    opened, pending = SpanRegistry.resolve(spec)
    # The resolved set also holds each group as its library spells it.
    enabled = tuple(sorted(opened & registered))
    namespaces = [
        Namespace(
            name,
            distributions.get(name, ""),
            tuple(sorted(SpanRegistry.groups(name))),
            {preset: sorted(members) for preset, members in SpanRegistry.presets(name).items()},
        )
        for name in SpanRegistry.namespaces()
    ]
    found = SpanGroups(spec, origin, enabled, pending, namespaces, said)
    known = [*SpanRegistry.presets(), *sorted(registered)]
    if not enabled:
        found.findings.append(
            Finding(
                WARNING,
                "no_span_groups",
                f"span groups {spec!r} open nothing that an installed library declares, so managed_span and trace_fn "
                "record nothing but for groups that the application registers itself",
                f"set {variable} to some of: {', '.join([*known, 'all'])}"
                if known
                else "nemo-lens groups says how a library declares its groups",
                ("traces",),
            )
        )
    else:
        found.findings.append(Finding(OK, "span_groups", f"span groups {spec!r} open {', '.join(enabled)}"))
        found.findings += [
            Finding(
                WARNING,
                "span_group_pending",
                f"span groups {spec!r}: nothing that is installed declares {name!r}{nearest(name, known)}",
                "correct the name, unless the application registers it itself",
                ("traces",),
            )
            for name in pending
        ]
    return found


def _nonsense(name: str, distribution: str, problem: str | None) -> Finding:
    text = f"the span groups that {distribution} declares as {name!r} cannot be used and are skipped: {problem}"
    remedy = f"upgrade or remove {distribution.partition(' ')[0]}; nemo-lens groups says how groups are declared"
    return Finding(WARNING, "plugin_broken", text, remedy)
