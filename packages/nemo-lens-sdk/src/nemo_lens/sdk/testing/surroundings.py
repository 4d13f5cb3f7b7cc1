"""The environment variables of the developer's shell, hidden from a test, and put back as they were."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# What says how telemetry is to be, and nothing else.
_TELEMETRY = (("NEMO_LENS_", "OTEL_"), frozenset({"TRACEPARENT", "TRACESTATE", "BAGGAGE"}))
# What says where a process runs. Code under test may need it: under torchrun, for its process group.
_LAUNCHER = (
    ("TORCHELASTIC_", "SLURM_", "SLURMD_", "K8S_", "POD_"),
    frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_NAME"}),
)
# Tests assert what was recorded, and these nobody in the test recorded.
_NO_SELF_METRICS = {"OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": "false"}
# A test may record more, at once, than a queue holds; it would be dropped.
_QUEUES = {"OTEL_BSP_MAX_QUEUE_SIZE": "1000000", "OTEL_BLRP_MAX_QUEUE_SIZE": "1000000"}


@contextmanager
def hidden(shell: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the shell's variables for telemetry, and undo what is done to such variables meanwhile.

    Metrics about the telemetry itself are off. What a fixture has set before stays. Through ``monkeypatch``, because a
    test that uses it too may undo its changes after this has ended.

    Args:
        shell: the variables that the session started with.
        monkeypatch: pytest's fixture of this test.
    """
    known = {name: value for name, value in shell.items() if _is_one(name, _TELEMETRY)}
    for name, value in known.items():
        if os.environ.get(name) == value:
            monkeypatch.delenv(name)
    before = _present(_TELEMETRY)
    os.environ.update({**_NO_SELF_METRICS, **before})
    try:
        yield
    finally:
        for name, value in _present(_TELEMETRY).items():
            # One with the shell's value: monkeypatch.undo() was called.
            if name not in before and known.get(name) != value:
                del os.environ[name]
        os.environ.update(before)


@contextmanager
def bare(shell: Mapping[str, str]) -> Iterator[None]:
    """Hide the shell's variables for telemetry and those of launchers, while telemetry is set up for a test.

    Args:
        shell: the variables that the session started with.
    """
    before = {**_present(_TELEMETRY), **_present(_LAUNCHER)}
    for name, value in before.items():
        if shell.get(name) == value:
            del os.environ[name]
    os.environ.update(_QUEUES)
    try:
        yield
    finally:
        for name in _QUEUES:
            del os.environ[name]
        os.environ.update(before)


def _present(family: tuple[tuple[str, ...], frozenset[str]]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _is_one(name, family)}


def _is_one(name: str, family: tuple[tuple[str, ...], frozenset[str]]) -> bool:
    # Propagation fields are read in any case.
    return name.startswith(family[0]) or name.upper() in family[1]
