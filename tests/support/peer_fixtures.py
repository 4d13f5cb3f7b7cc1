"""Fixtures of the real Collector and the real metrics database, for each area's ``conftest.py``.

Each is started once for the tests of an area.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.collector import Collector, running_collector
from support.needed import needed
from support.peer_programs import PeerUnavailableError, peer_binary
from support.victoria_metrics import VictoriaMetrics, running_database


def needed_binary(peer: str) -> Path:
    """Return a program, made now when the cache has none; skip, or fail, where it cannot be had."""
    with needed(peer, PeerUnavailableError):
        return peer_binary(peer)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Run a Collector for the session."""
    folder = tmp_path_factory.mktemp("collector")
    with needed("OpenTelemetry Collector", PeerUnavailableError), running_collector(folder) as started:
        yield started


@pytest.fixture
def collector(running: Collector) -> Collector:
    """Give the running Collector with nothing forwarded yet."""
    running.clear()
    return running


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    """Run a metrics database for the session."""
    folder = tmp_path_factory.mktemp("victoria-metrics")
    with needed("VictoriaMetrics", PeerUnavailableError), running_database(folder) as started:
        yield started
