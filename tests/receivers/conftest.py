"""The real Collector, started once for all tests that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.collector import Collector, CollectorUnavailableError, running_collector


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Run a Collector for the session; skip when a package it is built from cannot be had."""
    try:
        with running_collector(tmp_path_factory.mktemp("collector")) as started:
            yield started
    except CollectorUnavailableError as reason:
        pytest.skip(f"no OpenTelemetry Collector: {reason}")


@pytest.fixture
def collector(running: Collector) -> Collector:
    """Give the running Collector with nothing forwarded yet."""
    running.clear()
    return running
