"""Sampling: what the environment names is in force, and the default in one step decides as the SDK's own does."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, ParentBasedTraceIdRatio
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from nemo_lens.sdk.sampling import ParentBasedAlwaysOn

CONTEXTS = [Context()] + [
    set_span_in_context(
        NonRecordingSpan(SpanContext(trace_id, 2, remote, TraceFlags(flags), TraceState(state))), Context()
    )
    for trace_id, remote, flags, state in itertools.product((0, 1), (True, False), (0, 1, 3), ((), (("a", "b"),)))
]


@pytest.mark.parametrize("attributes", [None, {}, {"a": 1}])
@pytest.mark.parametrize("context", CONTEXTS, ids=range(len(CONTEXTS)))
def test_it_decides_as_parentbased_always_on(context: Context, attributes: dict[str, int] | None) -> None:
    """Decision, attributes and trace state are the same for every parent."""
    theirs = ParentBased(ALWAYS_ON).should_sample(context, 1, "step", attributes=attributes)
    ours = ParentBasedAlwaysOn().should_sample(context, 1, "step", attributes=attributes)
    assert ours.decision is theirs.decision
    assert dict(ours.attributes) == dict(theirs.attributes)
    assert (ours.trace_state or {}) == (theirs.trace_state or {})
    assert ParentBasedAlwaysOn().get_description() == ParentBased(ALWAYS_ON).get_description()


PLUGIN = """
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased


def third_of(argument):
    return TraceIdRatioBased(float(argument))


def broken(argument):
    raise RuntimeError("no licence")


def no_sampler(argument):
    return argument
"""
PROGRAM = """
from nemo_lens.api import setup_telemetry

telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
print(telemetry.tracer_provider.sampler.get_description())
telemetry.shutdown()
"""


def set_up(site: Path, sampler: str) -> subprocess.CompletedProcess[str]:
    (site / "vendor_samplers.py").write_text(PLUGIN)
    metadata = site / "vendor_samplers-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-samplers\nVersion: 1.2\n")
    names = "".join(f"{name} = vendor_samplers:{name}\n" for name in ("third_of", "broken", "no_sampler"))
    (metadata / "entry_points.txt").write_text(f"[opentelemetry_traces_sampler]\n{names}")
    settings = {
        "NEMO_LENS_ENABLED": "1",
        "NEMO_LENS_EXPORTER": "console",
        "OTEL_TRACES_SAMPLER": sampler,
        "OTEL_TRACES_SAMPLER_ARG": " 0.25 ",
        "PYTHONPATH": str(site),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, env={**os.environ, **settings}
    )


@pytest.mark.parametrize(
    ("sampler", "description"),
    [
        ("third_of", "TraceIdRatioBased{0.25}"),
        (" Third_Of ", "TraceIdRatioBased{0.25}"),
        ("traceidratio", "TraceIdRatioBased{0.25}"),
        ("always_off", "AlwaysOffSampler"),
        (" Always_Off ", "AlwaysOffSampler"),
        ("always_on ", "AlwaysOnSampler"),
        (" ", ParentBased(ALWAYS_ON).get_description()),
        (" parentbased_always_off", ParentBased(ALWAYS_OFF).get_description()),
        (" parentbased_traceidratio\t", ParentBasedTraceIdRatio(0.25).get_description()),
    ],
)
def test_the_sampler_asked_for_is_in_force(tmp_path: Path, sampler: str, description: str) -> None:
    """``OTEL_TRACES_SAMPLER`` names a built-in sampler or an installed plug-in's, blanks around it or not."""
    done = set_up(tmp_path, sampler)
    assert done.stdout.strip() == description, done.stderr


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [("broken", "cannot be used: RuntimeError('no licence')"), ("no_sampler", "gives a str, no Sampler")],
)
def test_a_sampler_that_cannot_be_had_is_refused(tmp_path: Path, sampler: str, reason: str) -> None:
    """A plug-in that fails, or gives something else, is a configuration error that names the variable."""
    done = set_up(tmp_path, sampler)
    assert done.stderr.splitlines()[-1] == (
        f"ValueError: OTEL_TRACES_SAMPLER={sampler!r}: vendor_samplers:{sampler} {reason}"
    )
