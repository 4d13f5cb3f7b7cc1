"""Hooks and fixtures of the pytest plug-in: ``nemo_lens_telemetry`` and ``nemo_lens_reset``.

pytest loads this module in every session where the SDK wheel is installed, so it imports nothing beside pytest. What a
test needs is imported when it asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from nemo_lens.sdk.testing import RecordedTelemetry

_MARKER = (
    "nemo_lens(groups='all', resource_attributes=None, service_name='test', run_id='test'): "
    "settings of the fixture nemo_lens_telemetry"
)
_SHELL = pytest.StashKey[Mapping[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and note the shell's environment variables, which tests are not to depend on."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_SHELL] = dict(os.environ)


@pytest.fixture
def nemo_lens_reset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with telemetry off, and undo afterwards all that the test did to it: for code that sets it up by itself."""
    from nemo_lens.sdk.testing.isolation import TelemetryIsOnError, isolated

    isolation = isolated(request.config.stash[_SHELL], monkeypatch)
    try:
        isolation.__enter__()
    except TelemetryIsOnError as error:
        pytest.fail(f"{request.fixturename}: {error}", pytrace=False)
    try:
        yield
    finally:
        isolation.__exit__(None, None, None)


@pytest.fixture
def nemo_lens_telemetry(request: pytest.FixtureRequest, nemo_lens_reset: None) -> Iterator[RecordedTelemetry]:
    """Telemetry that is on for this test and records into memory: spans, metrics, log records, span trees."""
    from nemo_lens.sdk.testing.recording import recording, settings_of

    try:
        settings = settings_of(request.node.iter_markers("nemo_lens"))
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    with recording(settings, request.config.stash[_SHELL]) as telemetry:
        yield telemetry
