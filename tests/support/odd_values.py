"""Values that break code which asks them anything, and stand-ins for those of libraries that may be absent."""

from __future__ import annotations

from typing import Any


class Row:
    """A row of a table of cases, which hides values that must not be touched from pytest."""

    def __init__(self, value: Any, sent: Any = None) -> None:
        self.value, self.sent = value, sent


class Hostile:
    """Everything that can be asked of it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("user code was called")

    def __repr__(self) -> str:
        raise RuntimeError("user code was called")

    __str__ = __repr__
    __class__ = property(__repr__)


class HostileType(type):
    """A metaclass that raises when its classes are asked anything."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("user code was called")

    def __hash__(cls) -> int:
        raise RuntimeError("user code was called")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("user code was called")


class OfHostileType(metaclass=HostileType):
    """An instance of what raises when it is asked anything."""


class Whole(int):
    """An int whose own methods must not be called."""

    def __int__(self) -> int:
        raise RuntimeError("user code was called")

    __repr__ = __str__ = __index__ = __le__ = __ge__ = __hash__ = __eq__ = bit_length = __int__  # type: ignore[assignment]


class Real(float):
    """A float whose own methods must not be called."""

    def __float__(self) -> float:
        raise RuntimeError("user code was called")

    __repr__ = __str__ = __hash__ = __eq__ = __float__  # type: ignore[assignment]


class FailingScalar:
    """Claims to be numpy's, and fails."""

    __module__ = "numpy"
    ndim = 0

    def item(self) -> object:
        raise RuntimeError("no item")


class Endless:
    """An array of one object that is itself."""

    __module__ = "numpy"
    ndim = 0

    def item(self) -> Endless:
        return self


def tensor(value: float, device: str = "cpu", dimensions: int = 0, kind: str = "Tensor", module: str = "torch") -> Any:
    """Return a stand-in with the names torch gives its types: what is read of a tensor does not depend on torch."""

    def item(self: object) -> float:
        if device != "cpu":
            raise AssertionError("a device was synchronised")
        return value

    body = {
        "__module__": module,
        "device": type("device", (), {"type": device}),
        "dim": lambda self: dimensions,
        "ndim": dimensions,
        "item": item,
    }
    return type(kind, (), body)()
