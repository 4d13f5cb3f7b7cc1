"""List the span groups and presets of every installed library that declares them."""

from __future__ import annotations

import contextlib
import json
import sys

from nemo_lens.api.groups import SpanRegistry
from nemo_lens.api.lifecycle import load_span_group_entry_points
from nemo_lens.sdk.cli._terminal import Terminal, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_HOW_TO_REGISTER = """\
No installed library declares span groups.

A library declares them in its pyproject.toml, under its own name,

    [project.entry-points."nemo_lens.span_groups"]
    my_library = "my_library.telemetry:SPAN_GROUPS"

as a mapping, or a callable that returns one:

    SPAN_GROUPS = {"groups": ["step", "checkpoint"], "presets": {"default": ["step"]}}"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens groups``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the groups; a library that fails to load is reported on standard error and skipped."""
    # A library may print while it is imported: standard output is the answer's alone.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_span_group_entry_points()
    distributions = {namespace.strip().lower(): name for namespace, name, problem in loaded if problem is None}
    if arguments.json:
        sys.stdout.write(json.dumps(_as_object(distributions, loaded), indent=2) + "\n")
    else:
        _print(distributions)
    return 0


def _as_object(distributions: dict[str, str], loaded: list[tuple[str, str, str | None]]) -> dict[str, object]:
    return {
        "namespaces": {
            namespace: {
                "distribution": distributions.get(namespace),
                "groups": sorted(SpanRegistry.groups(namespace)),
                "presets": _sorted_presets(namespace),
            }
            for namespace in SpanRegistry.namespaces()
        },
        "presets": _sorted_presets(None),
        "errors": [
            {"namespace": namespace, "distribution": distribution, "error": problem}
            for namespace, distribution, problem in loaded
            if problem is not None
        ],
    }


def _print(distributions: dict[str, str]) -> None:
    terminal = Terminal(sys.stdout)
    namespaces = SpanRegistry.namespaces()
    if not namespaces:
        for line in _HOW_TO_REGISTER.splitlines():
            terminal.line(line)
        return
    for namespace in namespaces:
        origin = distributions.get(namespace)
        terminal.line(terminal.paint(printable(namespace), "bold") + (f"  from {printable(origin)}" if origin else ""))
        _print_listing("groups", sorted(SpanRegistry.groups(namespace)), terminal)
        for preset, members in _sorted_presets(namespace).items():
            _print_listing(f"preset {preset}", members, terminal)
        terminal.line()
    merged = _sorted_presets(None)
    if merged:
        terminal.line(terminal.paint("NEMO_LENS_SPAN_GROUPS takes any of the groups, and:", "bold"))
        for preset, members in merged.items():
            _print_listing(preset, members, terminal)
        terminal.line(f"  {'all':<18} every group above")


def _print_listing(title: str, names: list[str], terminal: Terminal) -> None:
    listed = ", ".join(printable(name) for name in names) or "(none registered)"
    terminal.line(f"  {printable(title):<18} {listed}")


def _sorted_presets(namespace: str | None) -> dict[str, list[str]]:
    return {preset: sorted(members) for preset, members in SpanRegistry.presets(namespace).items()}
