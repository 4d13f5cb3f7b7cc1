"""Checks of options on their way to OpenTelemetry's instrumentations, which would meet a wrong one at a request."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_hook(name: str, hook: Any) -> None:
    """Refuse a hook that cannot be called, or that would have to be awaited.

    Args:
        name: name of the option.
        hook: its value; None is no hook.

    Raises:
        TypeError: when it is no function, or a coroutine function.
    """
    if hook is None:
        return
    if not callable(hook):
        raise TypeError(f"{name} must be a function or None, not {type(hook).__name__}")
    # An object with an asynchronous __call__ is none to inspect.
    for called in (hook, getattr(hook, "__call__", None)):  # noqa: B004 - what it is, and not whether it is there
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(f"{name} must be a plain function: nobody awaits it, and {hook!r} is asynchronous")


def texts(name: str, value: Any, accepted: str) -> list[str]:
    """Return the strings of an option that takes several.

    Args:
        name: name of the option.
        value: its value.
        accepted: what the option takes, for the message.

    Raises:
        TypeError: when it is no iterable of strings.
    """
    if isinstance(value, Iterable) and not isinstance(value, str):
        found = list(value)
        if all(isinstance(item, str) for item in found):
            return found
    raise TypeError(f"{name}={value!r} must be {accepted}")


def patterns(name: str, value: Any) -> list[str] | None:
    """Return the regular expressions of an option that takes several; None stays None.

    Args:
        name: name of the option.
        value: its value.

    Raises:
        TypeError: when it is no iterable of strings.
        ValueError: when one of them is no regular expression.
    """
    if value is None:
        return None
    found = texts(name, value, "a list of regular expressions, or None")
    for pattern in found:
        try:
            re.compile(pattern)
        except re.error as fault:
            raise ValueError(f"{name}: {pattern!r} is no regular expression: {fault}") from fault
    return found
