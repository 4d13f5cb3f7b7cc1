"""Integrations without the packages they need, found by name, and switched on by the environment."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from nemo_lens.api import instrument, uninstrument
from support.all_signals import clean_environ

# module of the integration, its function, an argument for it, its extra, and what is missing
WITHOUT = [
    ("fastapi", "instrument_fastapi", "fastapi", "fastapi"),
    ("fastapi", "instrument_fastapi", "fastapi", "opentelemetry.instrumentation.fastapi"),
    ("aiohttp", "instrument_aiohttp_client", "aiohttp", "aiohttp"),
    ("aiohttp", "instrument_aiohttp_client", "aiohttp", "opentelemetry.instrumentation.aiohttp_client"),
]

_BLOCKED = """
import importlib, json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r} or name.startswith({missing!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
module = importlib.import_module("nemo_lens.contrib.{module}")
foreign = sorted(set(sys.modules) & {{"fastapi", "aiohttp", "starlette", "opentelemetry", "ray", "torch"}})
errors = []
from nemo_lens.api import instrument
for call in (module.{function}, lambda: instrument("{module}")):
    try:
        call()
    except ImportError as error:
        errors.append(str(error))
print(json.dumps([foreign, errors]))
"""


@pytest.mark.parametrize(("module", "function", "extra", "missing"), WITHOUT)
def test_calling_without_the_package(module: str, function: str, extra: str, missing: str) -> None:
    """Importing an integration loads nothing that it integrates; calling it says which package to install."""
    code = _BLOCKED.format(module=module, function=function, missing=missing)
    foreign, errors = json.loads(_run(code))
    assert foreign == []
    assert len(errors) == 2
    for error in errors:
        assert f"pip install 'nemo-lens-contrib[{extra}]'" in error
        assert "opentelemetry.instrumentation" in error


def test_an_integration_nobody_provides() -> None:
    """The error lists what is installed, and what may have been meant."""
    with pytest.raises(ValueError, match="no installed integration is named 'fastapy'") as caught:
        instrument("fastapy")
    assert "installed: aiohttp, fastapi, nccl, ray" in str(caught.value)
    assert "did you mean 'fastapi'" in str(caught.value)
    with pytest.raises(ValueError, match="no installed integration is named 'fastapy'"):
        uninstrument("fastapy")


_FROM_ENVIRONMENT = """
import json, logging, sys
logging.basicConfig(level=logging.WARNING)
from nemo_lens.api import setup_telemetry
handle = setup_telemetry()
import aiohttp, fastapi
names = [aiohttp.ClientSession.__init__.__module__, hasattr(fastapi.FastAPI.__call__, "_instrumentation")]
print(json.dumps(names))
handle.shutdown()
handle = setup_telemetry()
handle.shutdown()
"""


def test_integrations_switched_on_by_the_environment() -> None:
    """``NEMO_LENS_INSTRUMENT`` switches on what it names, once however often telemetry is set up, and warns of a name
    that nobody provides, and the job runs on."""
    for needed in ("opentelemetry.instrumentation.fastapi", "opentelemetry.instrumentation.aiohttp_client"):
        pytest.importorskip(needed)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FROM_ENVIRONMENT],
        env=clean_environ(
            {
                "NEMO_LENS_ENABLED": "1",
                "NEMO_LENS_EXPORTER": "console",
                "NEMO_LENS_METRICS_ENABLED": "0",
                "NEMO_LENS_RUN_ID": "r",
                "NEMO_LENS_SPAN_GROUPS": "all",
                "RANK": "0",
                "TORCHELASTIC_RUN_ID": "t",
                "NEMO_LENS_INSTRUMENT": "aiohttp, fastapi,nothing",
            }
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    module, every_application = json.loads(run.stdout.splitlines()[0])
    assert every_application
    assert module in ("nemo_lens.contrib.aiohttp", "aiohttp.client")
    warnings = [line for line in run.stderr.splitlines() if "instrument" in line.lower()]
    assert len(warnings) == 2, run.stderr  # one a set-up
    assert all("'nothing' could not be switched on" in line for line in warnings)


def _run(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=clean_environ({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
