"""When ``RANK`` is taken for this process's rank: under torchelastic, and when nobody says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_lens.api import NemoLensConfig
from nemo_lens.sdk.resources.precedence import build_resource

RANKS = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
# What real torchrun sets beside them, none of which is a rank in the world.
BESIDE = {"GROUP_RANK": "5", "ROLE_RANK": "6", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "4", "ROLE_NAME": "trainer"}
FOUND = {"nv.dl.rank": 3, "nv.dl.world_size": 8, "nv.dl.local_rank": 1}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANKS, *BESIDE, "TORCHELASTIC_RUN_ID", "OTEL_RESOURCE_ATTRIBUTES", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def ranks_of(caller: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a process of this environment says of its place among others."""
    attributes = build_resource(NemoLensConfig(), "run", caller).attributes
    return {key: value for key, value in attributes.items() if key.startswith("nv.dl.")}


@pytest.mark.parametrize("run_id", ["nightly", "none", " x "])
def test_under_torchelastic_the_ranks_are_found(monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    """Whatever its id, also the default that names no run, torchelastic has set the ranks; no other variable is one."""
    for name, value in {**RANKS, **BESIDE, "TORCHELASTIC_RUN_ID": run_id}.items():
        monkeypatch.setenv(name, value)
    assert ranks_of() == FOUND
    assert build_resource(NemoLensConfig(), "run", None).attributes["service.instance.id"] == "run-rank3"


@pytest.mark.parametrize("run_id", [None, "", "  "])
def test_elsewhere_rank_is_not_trusted(monkeypatch: pytest.MonkeyPatch, run_id: str | None) -> None:
    """Other launchers, and scripts that only mean to call torchrun, set RANK too: there the program says its rank."""
    for name, value in {**RANKS, **BESIDE, "TORCHELASTIC_RUN_ID": run_id, "SLURM_PROCID": "3"}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    assert ranks_of() == {}
    assert ranks_of({"nv.dl.rank": 0}) == {"nv.dl.rank": 0}


@pytest.mark.parametrize("rank", ["", "x", "-1", "1.0", "\u0663", "0x1", "1_0"])
def test_what_is_no_rank_is_left_out(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """A rank that cannot be one costs itself alone."""
    for name, value in {**RANKS, "RANK": rank, "TORCHELASTIC_RUN_ID": "nightly"}.items():
        monkeypatch.setenv(name, value)
    assert ranks_of() == {key: value for key, value in FOUND.items() if key != "nv.dl.rank"}


def test_anyone_else_knows_better_than_torchelastic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller wins, then what was inherited, then torchelastic, key by key."""
    for name, value in {**RANKS, "TORCHELASTIC_RUN_ID": "nightly"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "nv.dl.rank=30,nv.dl.world_size=80")
    assert ranks_of({"nv.dl.rank": 300}) == {"nv.dl.rank": 300, "nv.dl.world_size": 80, "nv.dl.local_rank": 1}
