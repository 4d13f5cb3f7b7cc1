"""A consumer's test suite, run by a pytest of its own with the plug-in as it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

# What a consumer has: names obtained when its module is imported, of Lens and of OpenTelemetry.
LIBRARY = """
import logging

from opentelemetry import metrics, trace

from nemo_lens.api import SpanRegistry, get_meter, get_tracer, managed_span, trace_fn
from nemo_lens.api.instruments import MetricSpec, create_metric_instruments, record_metrics, register_metric_group

SpanRegistry.register("lib", ["step", "io"], {"default": ["step"]})
register_metric_group("lib", [MetricSpec("loss", "lib.loss", "histogram")])
meter, tracer = get_meter("lib"), get_tracer("lib")
steps = meter.create_counter("lib.steps")
otel_steps = metrics.get_meter("lib.otel").create_counter("lib.otel.steps")
otel_tracer = trace.get_tracer("lib.otel")
log = logging.getLogger("lib")


@trace_fn("step", "train.step")
def step(fail=False):
    with managed_span("io", "load_batch", size=4):
        steps.add(1)
        otel_steps.add(1)
        record_metrics(meter, "lib", loss=0.5)
    tracer.start_span("lens").end()
    otel_tracer.start_span("otel").end()
    log.warning("stepped")
    if fail:
        raise ValueError("no batch")
"""


def run_suite(
    folder: Path, suite: str, *arguments: str, library: str = LIBRARY, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a suite, warnings as errors.

    Args:
        folder: empty folder to run in.
        suite: the test module's text.
        arguments: for pytest.
        library: text of the module ``lib``, the code under test.
        environment: variables on top of a shell without any for telemetry or launchers.
    """
    (folder / "lib.py").write_text(library, encoding="utf-8")
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    unwanted = ("NEMO_LENS_", "OTEL_", "PYTEST_", "COLUMNS", "COV")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:timeout", "-rA", "--tb=short", *arguments],
        cwd=folder,
        env={**variables, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return ``passed``, ``failed``, ``error`` or ``skipped`` by the name of each test that ran."""
    lines = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) test_suite\.py::(\S+)", done.stdout, flags=re.M)
    return {name: outcome.lower() for outcome, name in lines}


def assert_passed(done: subprocess.CompletedProcess[str], number: int) -> None:
    """Assert that this many tests ran, and all of them passed."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(outcomes(done).values()) == ["passed"] * number, done.stdout
