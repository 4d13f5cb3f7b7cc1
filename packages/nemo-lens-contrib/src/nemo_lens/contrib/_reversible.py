"""An integration that can be undone: its function carries the function that undoes it, for ``nemo_lens.api``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, Protocol, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class Reversible(Protocol[_P, _R]):
        """A function that switches an integration on."""

        uninstrument: Callable[..., None]

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...


def undone_by(undo: Callable[..., None]) -> Callable[[Callable[_P, _R]], Reversible[_P, _R]]:
    """Give a function the attribute ``uninstrument``, which :func:`nemo_lens.api.uninstrument` calls.

    Args:
        undo: undoes what the function does.

    Returns:
        A decorator that returns its function.
    """

    def decorator(function: Any) -> Any:
        function.uninstrument = undo
        return function

    return decorator
