"""Fixtures of the real Collector and the real metrics database, for each area's ``conftest.py``.

Each is started once for the tests of an area.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.collector import Collector, running_collector
from support.peer_programs import PeerUnavailableError, peer_binary
from support.victoria_metrics import VictoriaMetrics, running_database


@contextmanager
def needed(program: str) -> Iterator[None]:
    """Skip where a package that a program is made of cannot be had; in continuous integration, fail."""
    try:
        yield
    except PeerUnavailableError as reason:
        if os.environ.get("CI", "").strip():
            pytest.fail(f"no {program}: {reason}", pytrace=False)
        pytest.skip(f"no {program}: {reason}")


def needed_binary(peer: str) -> Path:
    """Return a program, made now when the cache has none; skip, or fail, where it cannot be had."""
    with needed(peer):
        return peer_binary(peer)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Run a Collector for the session."""
    with needed("OpenTelemetry Collector"), running_collector(tmp_path_factory.mktemp("collector")) as started:
        yield started


@pytest.fixture
def collector(running: Collector) -> Collector:
    """Give the running Collector with nothing forwarded yet."""
    running.clear()
    return running


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    """Run a metrics database for the session."""
    with needed("VictoriaMetrics"), running_database(tmp_path_factory.mktemp("victoria-metrics")) as started:
        yield started
