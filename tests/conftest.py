"""Fixtures that more than one area uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.otlp_receiver import OtlpReceiver


@pytest.fixture(scope="session")
def _running_receiver() -> Iterator[OtlpReceiver]:
    from support.otlp_receiver import running_receiver  # the API wheel is tested where gRPC is absent

    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def otlp_receiver(_running_receiver: OtlpReceiver) -> Iterator[OtlpReceiver]:
    """Give the OTLP receiver on 127.0.0.1, accepting, with nothing received yet."""
    _running_receiver.accept()
    _running_receiver.clear()
    yield _running_receiver
    _running_receiver.accept()
