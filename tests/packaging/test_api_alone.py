"""The API wheel in an environment that holds nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.distributions import Built

MODULE_LIMIT = 25  # modules added to a bare interpreter; the target is 20
TOUCH = "import nemo_lens.api as api; api.managed_span, api.trace_fn, api.SpanRegistry, api.is_span_group_enabled"


@pytest.fixture(scope="module")
def python(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the API wheel and nothing else, not even pip; give its interpreter."""
    environment = tmp_path_factory.mktemp("api-alone")
    venv.create(environment, with_pip=False, symlinks=True)
    interpreter = environment / "bin" / "python"
    _pip(interpreter, "install", "--no-index", str(built["api"].wheel))
    return interpreter


def _pip(interpreter: Path, *words: str) -> str:
    return _checked([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(interpreter), *words])


def _checked(command: list[str]) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS", "OTEL_", "PYTHON"))}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def _program(python: Path, text: str) -> str:
    return _checked([str(python), "-c", text])


def test_it_brings_no_dependency(python: Path) -> None:
    """Installing the API wheel with its dependencies installs the API wheel."""
    assert [item["name"] for item in json.loads(_pip(python, "list", "--format=json"))] == ["nemo-lens-api"]


def test_importing_it_stays_within_the_budget(python: Path) -> None:
    """Importing it and touching the gate adds few modules to a bare interpreter, none that reads metadata or logs."""
    loaded = _program(
        python,
        f"import sys; before = set(sys.modules)\n{TOUCH}\nprint(*sorted(set(sys.modules) - before), sep='\\n')",
    ).split()
    assert len(loaded) <= MODULE_LIMIT, loaded
    assert not {"importlib.metadata", "logging", "typing", "dataclasses", "inspect", "opentelemetry"} & set(loaded)


def test_everything_it_imports_is_the_standard_library(python: Path) -> None:
    """Every module of the wheel imports with the standard library alone, and none brings OpenTelemetry."""
    _program(
        python,
        "import importlib, pkgutil, sys, nemo_lens.api\n"
        "for module in pkgutil.walk_packages(nemo_lens.api.__path__, 'nemo_lens.api.'):\n"
        "    importlib.import_module(module.name)\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "foreign = roots - set(sys.stdlib_module_names) - {'nemo_lens', '__main__', '__mp_main__'}\n"
        "assert not foreign, foreign\n",
    )


def test_every_public_name_can_be_had(python: Path) -> None:
    """Each name of ``__all__`` resolves, and the version is that of the wheel."""
    _program(
        python,
        "import nemo_lens.api as api, importlib.metadata as metadata\n"
        "missing = [name for name in api.__all__ if getattr(api, name, None) is None]\n"
        "assert not missing, missing\n"
        "assert api.__version__ == metadata.version('nemo-lens-api')\n",
    )


PUBLIC_CALLS = """
import asyncio, logging
import nemo_lens.api as api
from nemo_lens.api import *

logging.basicConfig(format="%(levelname)s %(message)s")
handle = setup_telemetry(NemoLensConfig(enabled=ENABLED, span_groups="all"))
assert not handle.is_exporting and get_telemetry() is not None
SpanRegistry.register("lib", {"step", "save"}, {"default": {"step"}})
set_span_group_spec("default,later")
assert pending_span_groups() == ("later",) and not pending_span_groups() == enabled_span_groups()
set_enabled_span_groups({"step", "save"})
assert is_span_group_enabled("step") and enabled_span_groups() >= {"step", "save"}

@trace_fn("step")
def step(x):
    return x + 1

@trace_fn("step")
async def astep(x):
    return x + 1

@trace_fn("step")
def steps():
    yield 1

assert step(1) == 2 and asyncio.run(astep(1)) == 2 and list(steps()) == [1]
with span_attributes({"phase": "train"}), managed_span("step", "a", n=1):
    with span_cm("b") as span:
        span.set_attribute("k", 1)
        span.add_event("e")
        safe_set_span_attributes(span, {"x": 1})
    mark("now", group="save")
emit_span(get_tracer("t"), "measured", 1.0, "2.5", group="save")
get_meter("m").create_counter("c").add(1)
carrier = {}
inject_context(carrier)
extract_context(carrier)
assert bind_context(step)(2) == 3
set_pp_trace_carrier(carrier); get_pp_trace_carrier()
assert redact_value("api_key", "s") == "[REDACTED]" and DEFAULT_REDACT_KEYS
assert ensure_run_id("r") == "r"
linux_process_create_time()
for switch in (instrument, uninstrument):
    try:
        switch("fastapi")
    except ValueError as error:
        assert "nemo-lens-contrib[fastapi]" in str(error)
with handle:
    assert handle.force_flush(100) in (True, False)
handle.shutdown(timeout_ms=100)
print("done")
"""


@pytest.mark.parametrize("enabled", [False, True])
def test_every_public_call_works(python: Path, enabled: bool) -> None:
    """Every public call works without a backend; enabled, one warning says what to install and the job runs on."""
    run = subprocess.run(
        [str(python), "-W", "error", "-c", PUBLIC_CALLS.replace("ENABLED", str(enabled))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout.strip()) == (0, "done"), run.stderr
    advice = [line for line in run.stderr.splitlines() if "pip install nemo-lens-sdk" in line]
    assert len(advice) == (1 if enabled else 0), run.stderr
