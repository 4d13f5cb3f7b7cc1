"""What a test does where a program that it talks to cannot be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def needed(program: str, unavailable: type[Exception]) -> Iterator[None]:
    """Skip where ``unavailable`` says that a program cannot be had; in continuous integration (``CI`` set), fail."""
    try:
        yield
    except unavailable as reason:
        if os.environ.get("CI", "").strip():
            pytest.fail(f"no {program}: {reason}", pytrace=False)
        pytest.skip(f"no {program}: {reason}")
