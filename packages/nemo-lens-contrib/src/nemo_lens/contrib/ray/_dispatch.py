"""The caller's side of a remote call: the carrier goes with it where it is taken, and only there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from nemo_lens.contrib.ray._carrier import KEYWORD, inject_ray_context, ray_traces_itself

# What Ray hands to an invocation decorator: sends a call with these arguments.
_Invocation = Callable[[Any, dict[str, Any]], Any]


def ray_dispatch_with_context(target: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call ``target.remote(*args, **kwargs)``, with the current trace context where the target takes it.

    What ``traced_remote_call`` decorates takes it, by a plain ``.remote(...)`` as well; so does an actor class whose
    ``__init__`` is decorated, but only by way of this function, and so does all of it in Ray Client (``ray://``).
    Anything else is called as it stands.

    Args:
        target: remote function, actor class or method of an actor handle, or what their ``options(...)`` returned.
        *args: arguments of the call.
        **kwargs: keyword arguments of the call.

    Returns:
        What ``.remote(...)`` returns.

    Raises:
        TypeError: when ``target`` has no ``remote``, or Ray refuses the arguments.
    """
    if not callable(getattr(target, "remote", None)):
        raise TypeError(f"ray_dispatch_with_context takes what has a .remote(...); got {target!r}")
    if _takes_carrier_unasked(target):
        _add_carrier(kwargs)
    return target.remote(*args, **kwargs)


def with_carrier(inner: Callable[[_Invocation], _Invocation] | None) -> Callable[[_Invocation], _Invocation]:
    """Return the invocation decorator that adds the carrier, around one that is there already."""
    return carrying if inner is None else _Both(inner)


def carrying(invocation: _Invocation) -> _Invocation:
    """Decorate what sends a call, so that the call takes the carrier along."""

    def invoke(args: Any, kwargs: dict[str, Any]) -> Any:
        kwargs = dict(kwargs or {})
        _add_carrier(kwargs)
        return invocation(args, kwargs)

    return invoke


class _Both:
    """The invocation decorator of somebody else, and ours around it; picklable."""

    def __init__(self, inner: Callable[[_Invocation], _Invocation]) -> None:
        self._inner = inner

    def __call__(self, invocation: _Invocation) -> _Invocation:
        return carrying(self._inner(invocation))


def _add_carrier(kwargs: dict[str, Any]) -> None:
    if KEYWORD not in kwargs and not ray_traces_itself():
        carrier = inject_ray_context()
        if carrier:
            kwargs[KEYWORD] = carrier


def _takes_carrier_unasked(target: Any) -> bool:
    """Return whether the target takes the carrier, by what it is made of.

    Ray has no invocation decorator for constructors, and Ray Client calls those of functions and methods on its server,
    where there is no span.
    """
    # What options() returns holds what it was called on in a closure, and hands Ray Client's attributes on.
    remote = getattr(type(target), "remote", None)
    held = inspect.getclosurevars(remote).nonlocals.values() if inspect.isfunction(remote) else ()
    return any(KEYWORD in signature.parameters for each in (target, *held) for signature in _signatures(each))


def _signatures(candidate: Any) -> Iterator[inspect.Signature]:
    metadata = getattr(candidate, "__ray_metadata__", None)  # of an actor class
    made_of = getattr(getattr(metadata, "modified_class", None), "__init__", None)
    for function in (made_of, getattr(candidate, "_function", None)):
        if inspect.isfunction(function):
            yield inspect.signature(function)
    for name in ("_signature", "_init_signature"):  # of what Ray Client has in place of functions, methods and classes
        signature = getattr(candidate, name, None)
        if isinstance(signature, inspect.Signature):
            yield signature
