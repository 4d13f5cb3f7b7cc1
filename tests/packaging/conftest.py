"""The three projects, built once: wheels and source distributions."""

from __future__ import annotations

import pytest

from support.distributions import NAMES, ROOT, Built, build

pytest.importorskip("hatchling", reason="hatchling builds the wheels: run `nox -s packaging`")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """Build each project from the tree; give wheel and source distribution by the project's short name."""
    output = tmp_path_factory.mktemp("dist")
    return {name: build(name, ROOT / "packages" / f"nemo-lens-{name}", output) for name in NAMES}
