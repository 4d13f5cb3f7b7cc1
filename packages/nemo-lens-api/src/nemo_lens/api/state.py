"""The gate: the set of enabled span groups, read without a lock at every span.

``enabled`` is rebound only when its content changes, because each rebinding recompiles what torch.compile made of the
code that reads it. Whoever changes the wish (a spec or a pinned set) or the registry settles the gate afterwards: it
resolves outside the lock and commits only if neither has moved on since.
"""

from __future__ import annotations

import os
from _thread import RLock

from nemo_lens.api import _diagnostics, _span_groups, groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nemo_lens.api._span_groups import Entry


class _Wish:
    """What shall be open: a spec, or a pinned set when there is none. Compared by identity.

    ``quiet``: nothing is logged about what the spec does not open, or opens late.
    """

    __slots__ = ("pinned", "quiet", "spec")

    def __init__(self, spec: str | None = None, pinned: frozenset[str] = frozenset(), quiet: bool = False) -> None:
        self.spec = spec
        self.pinned = pinned
        self.quiet = quiet

    def resolve(self, entries: Mapping[str, Entry]) -> tuple[frozenset[str], tuple[str, ...]]:
        if self.spec is None:
            return _span_groups.spell(entries, self.pinned), ()
        return _span_groups.resolve(entries, self.spec)


enabled: frozenset[str] = frozenset()
_pending: tuple[str, ...] = ()
_wish = _Wish()
_pp_trace_carrier: dict[str, str] | None = None
# Reentrant: a signal handler that shuts telemetry down may interrupt the thread that holds it.
_lock = RLock()


def is_span_group_enabled(group: str) -> bool:
    """Return whether spans of ``group`` are recorded now."""
    return group in enabled


def enabled_span_groups() -> frozenset[str]:
    """Return the enabled groups, each also as it was spelled at registration."""
    return enabled


def pending_span_groups() -> tuple[str, ...]:
    """Return the names of the spec that have matched nothing so far, sorted."""
    return _pending


def set_span_group_spec(spec: str) -> None:
    """Open what ``spec`` means now, and again after every later registration.

    Names that match nothing are logged once per distinct set, at WARNING.

    Args:
        spec: Comma list of presets and groups, or ``all``.

    Raises:
        TypeError: ``spec`` is not a str; nothing has changed.
    """
    global _wish
    if not isinstance(spec, str):
        raise TypeError(f"span group spec must be a str such as 'default,io', not {type(spec).__name__}")
    _wish = _Wish(spec=spec)
    _settle()


def set_enabled_span_groups(groups: Iterable[str]) -> None:
    """Open exactly ``groups``, registered or not, and forget the spec.

    Args:
        groups: Group names; presets and ``all`` belong in a spec.

    Raises:
        TypeError: A name is not a str; nothing has changed.
    """
    global _wish
    names = frozenset(groups.split(",") if isinstance(groups, str) else groups)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"span group must be a str, not {type(name).__name__}")
    _wish = _Wish(pinned=names)
    _settle()


def set_pp_trace_carrier(carrier: dict[str, str] | None) -> None:
    """Keep the trace context that the previous pipeline-parallel stage sent.

    Args:
        carrier: Propagation headers, or None to forget them; what is no mapping counts as None.
    """
    global _pp_trace_carrier
    try:
        _pp_trace_carrier = None if carrier is None else dict(carrier)
    except Exception:  # noqa: BLE001 - whatever came from the other stage must not reach the caller
        _pp_trace_carrier = None
        _diagnostics.debug_once(
            "pipeline-parallel carrier", "pipeline-parallel carrier ignored: a %s is no mapping", type(carrier).__name__
        )


def get_pp_trace_carrier() -> dict[str, str] | None:
    """Return a copy of the carrier of the previous pipeline-parallel stage, or None."""
    return None if _pp_trace_carrier is None else dict(_pp_trace_carrier)


def reset_state() -> None:
    """Close every group and forget spec, pinned set and carrier, for tests; the registry stays."""
    global _wish, _pp_trace_carrier
    _wish = _Wish()
    _pp_trace_carrier = None
    _settle()


def open_everything() -> None:
    """Open every group that is registered now or later, and log nothing about it, for tests."""
    global _wish
    _wish = _Wish(spec=_span_groups.ALL, quiet=True)
    _settle()


def snapshot_state() -> tuple[_Wish, dict[str, str] | None]:
    """Return what ``restore_state`` takes, for tests."""
    return _wish, _pp_trace_carrier


def restore_state(saved: tuple[_Wish, dict[str, str] | None]) -> None:
    """Put spec, pinned set and carrier back and open what they mean now, for tests."""
    global _wish, _pp_trace_carrier
    wish, _pp_trace_carrier = saved
    _wish = _Wish(wish.spec, wish.pinned, quiet=True)
    _settle()
    _wish = wish


def _settle() -> None:
    while True:
        wish, entries = _wish, groups.snapshot()
        opened, pending = wish.resolve(entries)
        with _lock:
            # Otherwise whoever changed one of them since may have committed already.
            if _is_current(wish, entries):
                _commit(opened, pending)
        # A signal handler may have changed one of them, and committed, in the middle of this commit.
        if _is_current(wish, entries):
            break
    if pending and not wish.quiet:
        _report_pending(wish.spec, pending)


def _is_current(wish: _Wish, entries: Mapping[str, Entry]) -> bool:
    return wish is _wish and entries is groups.snapshot()


def _commit(opened: frozenset[str], pending: tuple[str, ...]) -> None:
    global enabled, _pending
    if opened != enabled:
        enabled = opened
    _pending = pending


def _report_pending(spec: str | None, pending: tuple[str, ...]) -> None:
    registered = groups.SpanRegistry.groups()
    presets = groups.SpanRegistry.presets()
    known = [*presets, *sorted(registered)]
    names = ", ".join(f"{name!r}{_diagnostics.nearest(name, known)}" for name in pending)
    _diagnostics.warn_once(
        ("pending span groups", pending),
        "span groups %r: nothing registered so far matches %s%s "
        "Registered presets: %s; groups: %s; 'all' opens every group",
        spec,
        names,
        "" if names.endswith("?") else ".",
        ", ".join(presets) or "none",
        ", ".join(sorted(registered)) or "none",
    )


def _follow_registry(namespace: str | None) -> None:
    before, spec = enabled, _wish.spec
    _settle()
    if namespace is not None and spec is not None and not _wish.quiet:
        _diagnostics.warn_once(
            ("late registration", namespace),
            "span groups of %r were registered after telemetry was set up with span groups %r; opened now: %s. "
            "Spans of theirs before this moment were not recorded: register before setup_telemetry",
            namespace,
            spec,
            ", ".join(sorted(enabled - before)) or "none",
        )


def _renew_in_child() -> None:
    global _lock
    _lock = RLock()
    # A thread that is not in the child may have changed the registry and not yet settled the gate.
    _commit(*_wish.resolve(groups.snapshot()))


groups.subscribe(_follow_registry)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
