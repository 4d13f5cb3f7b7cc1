"""What libraries register as span groups: checked names, one entry a namespace, and what a spec means against them.

Everything here is a plain function of immutable content; ``groups`` holds the content of this process.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALL = "all"


class Entry:
    """What one namespace registered; never changed once published.

    Args:
        groups: Group name to its spellings, the name itself among them.
        presets: Preset name to its members, whether anybody has registered them or not.
        provisional: An entry point said so, the library itself has not yet.
    """

    __slots__ = ("groups", "presets", "provisional")

    def __init__(
        self, groups: dict[str, frozenset[str]], presets: dict[str, frozenset[str]], provisional: bool = False
    ) -> None:
        self.groups = groups
        self.presets = presets
        self.provisional = provisional

    def same_content(self, other: Entry) -> bool:
        """Return whether both name the same groups and presets, however they spell them."""
        return self.groups.keys() == other.groups.keys() and self.presets == other.presets


def resolve(entries: Mapping[str, Entry], spec: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Resolve ``spec`` against one snapshot, as ``SpanRegistry.resolve`` does."""
    live = spellings(entries)
    presets = declared_presets(entries)
    matched: set[str] = set()
    pending: set[str] = set()
    for part in spec.split(","):
        name = part.strip().lower()
        if not name:
            continue
        found = set(live) if name == ALL else (presets.get(name, frozenset()) | {name}) & live.keys()
        # A preset declared empty means nothing on purpose; one whose groups are all missing is still awaited.
        if not found and presets.get(name) != frozenset():
            pending.add(name)
        matched |= found
    return frozenset(spelling for name in matched for spelling in live[name]), tuple(sorted(pending))


def spell(entries: Mapping[str, Entry], names: Iterable[str]) -> frozenset[str]:
    """Return ``names``, stripped and lower-cased, with every spelling given here or at registration."""
    live = spellings(entries)
    spelled: set[str] = set()
    for raw in names:
        name = raw.strip().lower()
        if name:
            spelled |= {raw, raw.strip(), name, *live.get(name, ())}
    return frozenset(spelled)


def checked_name(what: str, raw: object) -> str:
    """Return ``raw`` stripped and lower-cased; ``TypeError`` or ``ValueError`` begin with ``what`` it names."""
    if not isinstance(raw, str):
        raise TypeError(f"{what} must be a str, not {type(raw).__name__}")
    name = raw.strip().lower()
    if not name:
        raise ValueError(f"{what} is empty: {raw!r}")
    if name == ALL:
        raise ValueError(f"{what} {raw!r} is reserved: in a spec it means everything registered")
    if "," in name:
        raise ValueError(f"{what} {raw!r} holds a comma, which separates names in a spec")
    return name


def _checked_names(what: str, raw: Iterable[str]) -> dict[str, frozenset[str]]:
    if isinstance(raw, str):
        raise TypeError(f"{what}s must be several names, not the one str {raw!r}")
    names: dict[str, frozenset[str]] = {}
    for item in raw:
        name = checked_name(what, item)
        names[name] = names.get(name, frozenset()) | {item, item.strip(), name}
    return names


def checked_entry(
    groups: Iterable[str], presets: Mapping[str, Iterable[str]] | None, provisional: bool = False
) -> Entry:
    """Return what a namespace registers, every name checked as ``checked_name`` does."""
    members: dict[str, frozenset[str]] = {}
    for raw, listed in (presets or {}).items():
        name = checked_name("preset", raw)
        members[name] = members.get(name, frozenset()) | frozenset(_checked_names(f"preset {name!r}: group", listed))
    return Entry(_checked_names("group", groups), members, provisional)


def spellings(entries: Mapping[str, Entry]) -> dict[str, frozenset[str]]:
    """Return every registered group with its spellings."""
    return union(entry.groups for entry in entries.values())


def declared_presets(entries: Mapping[str, Entry]) -> dict[str, frozenset[str]]:
    """Return every preset with its members, registered or not."""
    return union(entry.presets for entry in entries.values())


def union(parts: Iterable[Mapping[str, frozenset[str]]]) -> dict[str, frozenset[str]]:
    """Return one mapping in which each name holds the values of all ``parts``."""
    merged: dict[str, frozenset[str]] = {}
    for part in parts:
        for name, values in part.items():
            merged[name] = merged.get(name, frozenset()) | values
    return merged
