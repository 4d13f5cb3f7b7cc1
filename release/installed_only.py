"""pytest plug-in for the contract suite: refuses to run when ``nemo_lens`` comes from anywhere but the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look at every folder of the namespace, once the tests have imported it."""
    import nemo_lens

    foreign = [path for path in nemo_lens.__path__ if not Path(path).is_relative_to(sys.prefix)]
    if foreign or not list(nemo_lens.__path__):
        raise pytest.UsageError(f"nemo_lens is not the installed one: {foreign}")
