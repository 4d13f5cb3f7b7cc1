"""The registry of span groups: which library owns which groups, and what a spec opens.

Content is copied on write: a writer builds a new mapping and swaps one reference, so a reader takes no lock and a fork
in the middle of a registration leaves the child the old content or the new, whole. Whoever wants to follow the
registry subscribes; the registry knows nobody.
"""

from __future__ import annotations

import os
from _thread import RLock

from nemo_lens.api import _diagnostics, _span_groups
from nemo_lens.api._span_groups import Entry, checked_entry, checked_name, declared_presets, spellings, union

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_entries: Mapping[str, Entry] = {}
_subscribers: tuple[Callable[[str | None], None], ...] = ()
# Reentrant: a signal handler that shuts telemetry down may interrupt the thread that holds it.
_lock = RLock()


class SpanRegistry:
    """The span groups and presets of every library in this process.

    Names are stripped and lower-cased; ``all`` is reserved and means everything registered now.
    """

    @classmethod
    def register(
        cls,
        namespace: str,
        groups: Iterable[str],
        presets: Mapping[str, Iterable[str]] | None = None,
        *,
        allow_override: bool = False,
    ) -> None:
        """Declare the span groups of a library.

        The same content again is a no-op. A group owned by another namespace too and a preset member that nobody has
        registered yet are logged at WARNING.

        Args:
            namespace: The library's name.
            groups: Names of its span groups.
            presets: Preset name to the groups it stands for; presets of one name union across namespaces.
            allow_override: Replace what the namespace registered before.

        Raises:
            ValueError: An empty name, ``all`` or a comma used in a name, or a namespace registered again with other
                content and without ``allow_override``.
            TypeError: A name that is not a str, or one str where several names belong.
        """
        _put(checked_name("namespace", namespace), checked_entry(groups, presets), allow_override)

    @classmethod
    def unregister(cls, namespace: str) -> None:
        """Forget a namespace with its groups and presets; one that is not registered is no error."""
        name = namespace.strip().lower()
        while name in (before := _entries):
            if _swap(before, {key: entry for key, entry in before.items() if key != name}):
                _notify(None)
                return

    @classmethod
    def clear(cls) -> None:
        """Forget every namespace."""
        while not _swap(_entries, {}):
            pass
        _notify(None)

    @classmethod
    def groups(cls, namespace: str | None = None) -> frozenset[str]:
        """Return the registered groups, of one namespace when it is given."""
        return frozenset(spellings(_of(namespace)))

    @classmethod
    def namespaces(cls) -> tuple[str, ...]:
        """Return the registered namespaces, sorted."""
        return tuple(sorted(_entries))

    @classmethod
    def presets(cls, namespace: str | None = None) -> dict[str, frozenset[str]]:
        """Return each preset with those of its groups that somebody has registered, sorted by name."""
        live = cls.groups()
        return {name: members & live for name, members in sorted(declared_presets(_of(namespace)).items())}

    @classmethod
    def resolve(cls, spec: str) -> tuple[frozenset[str], tuple[str, ...]]:
        """Resolve a comma list of presets and groups against what is registered now; never raise.

        What is no str opens nothing.

        Returns:
            The enabled set, which also holds each group as it was spelled at registration, and the names that matched
            nothing, sorted.
        """
        return _span_groups.resolve(_entries, spec if isinstance(spec, str) else "")


def register_provisional(
    namespace: str, groups: Iterable[str], presets: Mapping[str, Iterable[str]] | None = None
) -> None:
    """Register what an entry point says of a library, until the library registers itself.

    Args:
        namespace: The entry point's name.
        groups: As in ``SpanRegistry.register``.
        presets: As in ``SpanRegistry.register``.

    Raises:
        ValueError: As ``SpanRegistry.register``, but never for a namespace that is registered already: that one stays.
        TypeError: As ``SpanRegistry.register``.
    """
    _put(checked_name("namespace", namespace), checked_entry(groups, presets, provisional=True), allow_override=False)


def subscribe(callback: Callable[[str | None], None]) -> None:
    """Call ``callback`` after every change, in the thread that made it and with no lock held.

    It receives the namespace a library has just registered, or None for a change nobody needs to hear of.
    """
    global _subscribers
    _subscribers = (*_subscribers, callback)


def snapshot() -> Mapping[str, Entry]:
    """Return the content now; a later one is another object."""
    return _entries


def restore(entries: Mapping[str, Entry]) -> None:
    """Put back what ``snapshot`` returned, for tests."""
    while not _swap(_entries, entries):
        pass
    _notify(None)


def _of(namespace: str | None) -> Mapping[str, Entry]:
    if namespace is None:
        return _entries
    entry = _entries.get(namespace.strip().lower())
    return {} if entry is None else {namespace: entry}


def _put(namespace: str, entry: Entry, allow_override: bool) -> None:
    while True:
        before = _entries
        held = before.get(namespace)
        new = entry
        quiet = entry.provisional
        if held is not None and held.provisional:
            quiet = True
        elif held is not None and entry.provisional:
            return
        elif held is not None and held.same_content(entry):
            new = Entry(union((held.groups, entry.groups)), held.presets)
            if new.groups == held.groups:
                return
            quiet = True
        elif held is not None and not allow_override:
            raise ValueError(
                f"namespace {namespace!r} is registered already with other content "
                f"(groups: {_listed(held.groups)}; presets: {_listed(held.presets)}); "
                "pass allow_override=True to replace it"
            )
        after = {**before, namespace: new}
        if _swap(before, after):
            break
    _warn_of_loose_ends(namespace, after)
    _notify(None if quiet else namespace)


def _swap(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> bool:
    global _entries
    with _lock:
        if _entries is not before:
            return False
        _entries = after
    return True


def _warn_of_loose_ends(namespace: str, entries: Mapping[str, Entry]) -> None:
    entry = entries[namespace]
    for group in sorted(entry.groups):
        owners = sorted(other for other in entries if other != namespace and group in entries[other].groups)
        if owners:
            _diagnostics.warn_once(
                ("shared span group", namespace, group),
                "span group %r of %r is registered by %s too: they open and close together",
                group,
                namespace,
                ", ".join(map(repr, owners)),
            )
    live = spellings(entries)
    for preset, members in sorted(entry.presets.items()):
        for member in sorted(members - live.keys()):
            _diagnostics.warn_once(
                ("unregistered preset member", namespace, preset, member),
                "preset %r of %r names span group %r, which nobody has registered yet%s",
                preset,
                namespace,
                member,
                _diagnostics.nearest(member, live),
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _notify(namespace: str | None) -> None:
    for callback in _subscribers:
        callback(namespace)


def _renew_lock_in_child() -> None:
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)
