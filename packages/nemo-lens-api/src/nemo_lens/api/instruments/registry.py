"""The registry of metric groups: which metrics a library records, by group and key.

Content is copied on write, as that of the span groups is: a reader takes no lock, and a fork in the middle of a
registration leaves the child the old content or the new, whole.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Iterable

from nemo_lens.api._diagnostics import nearest
from nemo_lens.api.instruments.spec import MetricSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Group to key to spec. Replaced as a whole; read by each recording.
groups: Mapping[str, Mapping[str, MetricSpec]] = {}
_subscribers: tuple[Callable[[], None], ...] = ()
# Reentrant: a signal handler may interrupt the thread that holds it.
_lock = RLock()


def register_metric_group(group: str, specs: Iterable[MetricSpec], *, allow_override: bool = False) -> None:
    """Declare the metrics of a group, to be recorded by ``record_metrics``.

    The same content again is a no-op.

    Args:
        group: name of the group, usually the library's.
        specs: its metrics, each under a key and a name of its own.
        allow_override: replace what the group held before.

    Raises:
        TypeError: a group that is no str, or something that is no MetricSpec among the specs.
        ValueError: an empty name, no metrics, a key or name used twice, or a group registered again with other content
            and without ``allow_override``.
    """
    if not isinstance(group, str):
        raise TypeError(f"group must be a str and not {type(group).__name__}")
    if not group.strip():
        raise ValueError("the name of a metric group is empty")
    content = _checked(group, specs)
    global groups
    with _lock:
        known = groups.get(group)
        if known == content:
            return
        if known is not None and not allow_override:
            raise ValueError(
                f"metric group {group!r} is registered already, with other metrics: {', '.join(sorted(known))}; "
                "choose another name, or pass allow_override=True to replace it"
            )
        groups = {**groups, group: content}
    for callback in _subscribers:
        callback()


def unregister_metric_group(group: str) -> None:
    """Forget a group: recording into it is a problem from now on, and its callbacks give nothing.

    Args:
        group: its name; one that is not registered is no error.
    """
    global groups
    with _lock:
        if group in groups:
            groups = {name: content for name, content in groups.items() if name != group}


def registered_metric_groups() -> dict[str, tuple[MetricSpec, ...]]:
    """Return the metrics of each registered group, those shipped with this library included."""
    return {name: tuple(content.values()) for name, content in groups.items()}


def subscribe(callback: Callable[[], None]) -> None:
    """Call ``callback`` after every registration, in the thread that made it and with no lock held."""
    global _subscribers
    _subscribers = (*_subscribers, callback)


def as_registered(group: str, instrument: tuple[str, ...]) -> MetricSpec | None:
    """Return the metric of a group that is this instrument; None when the group has it no more."""
    for known in groups.get(group, {}).values():
        if known.instrument == instrument:
            return known
    return None


def replace_groups(content: Mapping[str, Mapping[str, MetricSpec]]) -> None:
    """Put back what ``groups`` was before, for tests."""
    global groups
    with _lock:
        groups = content


def _checked(group: str, specs: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    if not isinstance(specs, Iterable):
        raise TypeError(f"metric group {group!r} takes an iterable of MetricSpec and not a {type(specs).__name__}")
    content: dict[str, MetricSpec] = {}
    names: set[str] = set()
    for spec in specs:
        if not isinstance(spec, MetricSpec):
            raise TypeError(f"metric group {group!r} takes MetricSpec objects and not {type(spec).__name__}")
        if spec.key in content:
            raise ValueError(f"metric group {group!r} has two metrics with the key {spec.key!r}")
        # Instrument names are the same whatever their case.
        if spec.name.lower() in names:
            raise ValueError(f"metric group {group!r} has two metrics with the name {spec.name!r}")
        content[spec.key] = spec
        names.add(spec.name.lower())
    if not content:
        raise ValueError(f"metric group {group!r} has no metrics")
    return content


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return what a message about an unknown name adds: what there is, and the nearest."""
    there = sorted(known)
    # The str() of a key may raise anything.
    similar = nearest(str.__str__(name), there) if issubclass(type(name), str) else ""
    return f"there are: {', '.join(there) or 'none'}{similar}"


def _renew_lock_in_child() -> None:
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)
