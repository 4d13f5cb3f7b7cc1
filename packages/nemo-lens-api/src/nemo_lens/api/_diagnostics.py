"""The library's own log lines: once per kind where a fault could repeat on every call.

``logging`` is imported inside the functions to keep ``import nemo_lens.api`` inside its budget.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable, Iterable

# Kinds already reported. Bounded: past the limit a new kind is reported every time rather than never.
_MAX_KINDS = 4096
_reported: set[Hashable] = set()

_MAX_OF_A_FAMILY = 32
_families: dict[Hashable, set[Hashable]] = {}


def logger() -> logging.Logger:
    """Return the logger of the whole library, ``nemo_lens``."""
    import logging  # import budget

    return logging.getLogger("nemo_lens")


def warn(message: str, *args: object) -> None:
    """Log at WARNING."""
    logger().warning(message, *args)


def warn_once(kind: Hashable, message: str, *args: object) -> None:
    """Log at WARNING the first time ``kind`` is seen in this process."""
    if _first(kind):
        logger().warning(message, *args)


def debug_once(kind: Hashable, message: str, *args: object, exc_info: bool = False) -> None:
    """Log at DEBUG the first time ``kind`` is seen in this process."""
    if _first(kind):
        logger().debug(message, *args, exc_info=exc_info)


def is_news(family: Hashable, kind: Hashable) -> bool:
    """Return whether ``kind`` is new, and among the first of its family.

    For what a job can make up without end, such as a key with the number of the step in it: past the first few the
    family is known, and its messages need not be put together.
    """
    seen = _families.setdefault(family, set())
    if len(seen) >= _MAX_OF_A_FAMILY or kind in seen:
        return False
    seen.add(kind)
    return True


def forget_reported() -> None:
    """Let every kind be reported again, for tests."""
    _reported.clear()
    _families.clear()


def nearest(name: str, known: Iterable[object]) -> str:
    """Return ``", did you mean 'x'?"`` for the name in ``known`` closest to ``name``, else an empty string."""
    import difflib  # import budget; only on the way to an error message

    # A signal handler may find it half imported by the code it interrupted.
    if not hasattr(difflib, "get_close_matches"):
        return ""

    found = difflib.get_close_matches(name, [str(item) for item in known], n=1, cutoff=0.6)
    return f", did you mean {found[0]!r}?" if found else ""


def _first(kind: Hashable) -> bool:
    if kind in _reported:
        return False
    if len(_reported) < _MAX_KINDS:
        _reported.add(kind)
    return True
