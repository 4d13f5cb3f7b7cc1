"""Fixtures that more than one area uses."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.otlp_receiver import OtlpReceiver

# A shell that starts the tests in the background has SIGINT ignored, and every process under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
