"""Where the tensors of a process group go, for backends that are not on this machine, and torch in odd states."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from nemo_lens.api import broadcast_trace_context
from nemo_lens.api.fallbacks import device_of, process_group

WORLD = SimpleNamespace(bound_device_id=None)
BOUND = SimpleNamespace(type="cuda", index=3)


def torch_with(monkeypatch: pytest.MonkeyPatch, config: Any, backend: str = "undefined") -> None:
    """Let a torch be imported whose process groups say this of themselves, and which has nothing else."""
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        group=SimpleNamespace(WORLD=WORLD),
        get_backend_config=lambda group: config,
        get_backend=lambda group: backend,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))


@pytest.mark.parametrize(
    ("config", "backend", "device"),
    [
        ("cpu:gloo,cuda:gloo", "gloo", "cpu"),
        ("cpu:gloo", "undefined", "cpu"),
        ("cpu:gloo,cuda:nccl", "undefined", "cpu"),
        ("cuda:nccl,cpu:gloo", "cuda:nccl,cpu:gloo", "cpu"),
        ("cpu:mpi,cuda:mpi", "mpi", "cpu"),
        ("cpu:ucc,cuda:ucc", "ucc", "cpu"),
        ("cuda:nccl", "nccl", "cuda"),
        ("xpu:xccl", "xccl", "xpu"),
        ("hpu:hccl", "hccl", "hpu"),
        ("None", "nccl", "cuda"),
        ("None", "gloo", "cpu"),
        ("None", "of somebody's", "cpu"),
    ],
)
def test_the_backend_decides(monkeypatch: pytest.MonkeyPatch, config: str, backend: str, device: str) -> None:
    """The CPU wherever the group takes it, else the device that it has; CUDA is never asked."""
    torch_with(monkeypatch, config, backend)
    assert device_of(None) == device
    assert device_of(SimpleNamespace()) == device  # a torch before groups were bound to devices


def test_a_group_that_is_bound_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU that the group was given is used, and not the current one, unless the group takes the CPU."""
    torch_with(monkeypatch, "cuda:nccl")
    assert device_of(SimpleNamespace(bound_device_id=BOUND)) is BOUND
    monkeypatch.setattr(WORLD, "bound_device_id", BOUND)
    assert device_of(None) is BOUND
    torch_with(monkeypatch, "cpu:gloo,cuda:nccl")
    assert device_of(None) == "cpu"
    torch_with(monkeypatch, "xpu:xccl")
    assert device_of(None) == "xpu"


@pytest.mark.parametrize(
    "torch",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(distributed=None),
        SimpleNamespace(distributed=SimpleNamespace()),
        SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: False)),
        SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)),
    ],
)
def test_torch_without_a_process_group(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """A torch that is half imported, built without distribution or not initialised has nothing to take part in."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert broadcast_trace_context() is None
    if torch is None or not hasattr(getattr(torch, "distributed", None), "is_available"):
        return
    assert process_group() is None
    assert device_of(None) == "cpu"
