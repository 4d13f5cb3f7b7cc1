"""Attributes that every span started inside a block carries: ``span_attributes``."""

from __future__ import annotations

from contextvars import ContextVar

from nemo_lens.api.attributes import clean_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Clean attributes of the enclosing scopes, innermost already merged over outer. Read by every span that is on.
current_scope: ContextVar[Mapping[str, Any] | None] = ContextVar("nemo_lens_scope", default=None)


def span_attributes(mapping: Mapping[str, Any] | None) -> Scope:
    """Add ``mapping`` to every span started inside the block, in this thread or task and what it awaits.

    Explicit attributes of a span win; of nested scopes the innermost wins.

    Args:
        mapping: attributes, cleaned and redacted like any span's.

    Returns:
        A context manager, for ``with`` and ``async with``, which tasks and threads may share. It is no decorator.
    """
    return Scope(clean_attributes(mapping))


class Scope:
    """Context manager of one scope of attributes."""

    __slots__ = ("_attrs", "_entered")

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._attrs = attrs
        # By the id of what was made current, which is held so: that, and what was current before. Tasks and threads may
        # be inside at the same time, and each finds its own by what is current where it leaves.
        self._entered: dict[int, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}

    def __enter__(self) -> None:
        outer = current_scope.get()
        inner = {**outer, **self._attrs} if outer else {**self._attrs}
        self._entered[id(inner)] = inner, outer
        current_scope.set(inner)

    def __exit__(self, *exc_info: object) -> None:
        inner_and_outer = self._entered.pop(id(current_scope.get()), None)
        if inner_and_outer is not None:
            current_scope.set(inner_and_outer[1])
        # Else a block held over ``yield`` and closed by another task: its scope died with the context it was set in.

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *exc_info: object) -> None:
        self.__exit__()
