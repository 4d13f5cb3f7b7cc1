"""The first use of anything, in whatever thread, imports nothing."""

from __future__ import annotations

import pytest
from process_runs import Written, run

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)


def test_a_first_use_imports_nothing(written: Written) -> None:
    """A child forked while another thread imports would wait for that import's lock for ever, at its own first use."""
    used = run("first_uses", "use", environ=written.environ)
    assert used.code == 0, used.stderr
    assert used.fact("flushed")
    assert used.fact("imported") == []


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_nor_does_the_first_export(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """The exporting thread is another one, too."""
    used = run("first_uses", "use", environ=otlp_receiver.environ(protocol))
    assert used.code == 0, used.stderr
    assert used.fact("flushed")
    assert used.fact("imported") == []
