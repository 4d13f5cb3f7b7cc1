"""The devices that ``CUDA_VISIBLE_DEVICES`` leaves a process, read the way CUDA reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

VARIABLE = "CUDA_VISIBLE_DEVICES"

_DIGITS = "0123456789"
_LONG_MAX = 2**63 - 1

_Device = TypeVar("_Device", int, str)


def visible_devices(environ: Mapping[str, str]) -> tuple[int, ...] | tuple[str, ...] | None:
    """Return the entries of ``CUDA_VISIBLE_DEVICES`` that count; what hardware there is, is not looked at.

    The first entry decides the kind: numbers, ``GPU-`` or ``MIG-`` names, whole or shortened. The list ends before the
    first entry that is not of that kind (``-1`` and ``NoDevFiles`` are of none), and an entry named twice leaves no
    device at all. CUDA shows a process one MIG device, the first.

    Args:
        environ: environment to read.

    Returns:
        Numbers or names; None when the variable is not set, while set to nothing means no device.
    """
    text = environ.get(VARIABLE)
    if text is None:
        return None
    for read, most in ((_gpu_name, None), (_mig_name, 1)):
        if read(text):
            return _until_invalid(text, read)[:most]
    return _until_invalid(text, _number)


def _until_invalid(text: str, read: Callable[[str], _Device | None]) -> tuple[_Device, ...]:
    devices: list[_Device] = []
    for entry in text.split(","):
        device = read(entry)
        if device is None:
            break
        if device in devices:
            return ()
        devices.append(device)
    return tuple(devices)


def _gpu_name(entry: str) -> str | None:
    return entry if entry.startswith("GPU-") else None


def _mig_name(entry: str) -> str | None:
    return entry if entry.startswith("MIG-") else None


def _number(entry: str) -> int | None:
    # strtol: blanks, a sign, digits, and whatever follows is not looked at.
    text = entry.strip()
    digits = text[1:] if text[:1] in ("+", "-") else text
    digits = digits[: len(digits) - len(digits.lstrip(_DIGITS))]
    if not digits:
        return None
    significant = digits.lstrip("0")
    number = int(significant or "0") if len(significant) < 19 else _LONG_MAX
    return None if number and text.startswith("-") else number
