"""The real Collector and the real metrics database, each started once for all tests that want it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.collector import Collector, running_collector
from support.peer_programs import PeerUnavailableError
from support.victoria_metrics import VictoriaMetrics, running_database


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Run a Collector for the session; skip when a package it is built from cannot be had."""
    try:
        with running_collector(tmp_path_factory.mktemp("collector")) as started:
            yield started
    except PeerUnavailableError as reason:
        pytest.skip(f"no OpenTelemetry Collector: {reason}")


@pytest.fixture
def collector(running: Collector) -> Collector:
    """Give the running Collector with nothing forwarded yet."""
    running.clear()
    return running


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    """Run a metrics database for the session; skip where it cannot be had, except in continuous integration."""
    try:
        with running_database(tmp_path_factory.mktemp("victoria-metrics")) as started:
            yield started
    except PeerUnavailableError as reason:
        if os.environ.get("CI", "").strip():
            pytest.fail(f"no VictoriaMetrics: {reason}", pytrace=False)
        pytest.skip(f"no VictoriaMetrics: {reason}")
