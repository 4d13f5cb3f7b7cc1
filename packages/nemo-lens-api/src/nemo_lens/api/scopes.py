"""Attributes that every span started inside a block carries: ``span_attributes``."""

from __future__ import annotations

from contextvars import ContextVar

from nemo_lens.api.attributes import clean_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token
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

    __slots__ = ("_attrs", "_tokens")

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._attrs = attrs
        self._tokens: list[Token[Mapping[str, Any] | None]] = []

    def __enter__(self) -> None:
        outer = current_scope.get()
        self._tokens.append(current_scope.set({**outer, **self._attrs} if outer else self._attrs))

    def __exit__(self, *exc_info: object) -> None:
        # Several tasks or threads may be inside: a token is taken by the context that it was made in.
        for token in tuple(reversed(self._tokens)):
            try:
                current_scope.reset(token)
            except ValueError:
                continue
            self._tokens.remove(token)
            return
        # A block held over ``yield`` and closed by another task: its scope died with the context it was set in.
        self._tokens.pop()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *exc_info: object) -> None:
        self.__exit__()
