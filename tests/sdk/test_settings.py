"""Standard variables that the SDK wheel checks itself: one clear error each, before anything is built."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nemo_lens.sdk import settings
from support.all_signals import clean_environ


@pytest.mark.parametrize(
    ("variable", "value", "check", "says"),
    [
        ("OTEL_PROPAGATORS", "tracecontxt", settings.validate_propagators, "did you mean 'tracecontext'?"),
        ("OTEL_PROPAGATORS", "baggage,", settings.validate_propagators, "no propagator '' is installed"),
        (
            "OTEL_PYTHON_TRACER_PROVIDER",
            "sdk_tracer_provder",
            settings.validate_providers,
            "or the variable unset, did",
        ),
        ("OTEL_PYTHON_METER_PROVIDER", "", settings.validate_providers, "accepted: default_meter_provider, sdk_meter"),
        ("OTEL_PYTHON_LOGGER_PROVIDER", "x", settings.validate_providers, "accepted: sdk_logger_provider"),
        ("OTEL_TRACES_SAMPLER", "alwayson", settings.validate_sampler_and_limits, "did you mean 'always_on'?"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1", settings.validate_sampler_and_limits, "integer of 0 or more"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5s", lambda: settings.queue_settings("BSP"), "positive integer of milliseconds"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", lambda: settings.queue_settings("BSP"), "fit into the queue"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", settings.metric_interval_s, "positive integer of milliseconds"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "1e3", settings.metric_timeout_s, "positive integer of milliseconds"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always", settings.exemplar_filter, "trace_based, always_on, always_off"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, check, says: str) -> None:  # type: ignore[no-untyped-def]
    """The error names the variable, the value and what is accepted."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=variable) as raised:
        check()
    assert value in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("value", ["", " ", "none", "tracecontext , baggage"])
def test_installed_propagators_are_accepted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Blank, none and what is installed pass."""
    monkeypatch.setenv("OTEL_PROPAGATORS", value)
    settings.validate_propagators()


SET_UP = """
import os
from nemo_lens.api import setup_telemetry
telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
telemetry.shutdown()
from opentelemetry import propagate
print(sorted(propagate.get_global_textmap().fields), repr(os.environ["OTEL_PROPAGATORS"]))
"""


def set_up(**variables: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environ({"NEMO_LENS_ENABLED": "1", "NEMO_LENS_EXPORTER": "console", **variables})
    return subprocess.run(
        [sys.executable, "-c", SET_UP], env=environ, capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize("value", ["", " "])
def test_blank_propagators_are_unset(value: str) -> None:
    """Set-up has the default propagators, whatever OpenTelemetry takes a blank for, and leaves the variable alone."""
    done = set_up(OTEL_PROPAGATORS=value)
    assert done.stdout.splitlines()[-1:] == [f"['baggage', 'traceparent', 'tracestate'] {value!r}"], done.stderr


@pytest.mark.parametrize("kind", ["TRACER", "METER", "LOGGER"])
def test_a_provider_that_is_not_installed(kind: str) -> None:
    """Set-up raises one ValueError that names the variable, where OpenTelemetry raises a bare StopIteration."""
    done = set_up(**{f"OTEL_PYTHON_{kind}_PROVIDER": "foo", "OTEL_PROPAGATORS": ""})
    assert done.stderr.splitlines()[-1].startswith(f"ValueError: OTEL_PYTHON_{kind}_PROVIDER='foo' is no provider")
    assert "StopIteration" not in done.stderr


@pytest.mark.parametrize(
    ("value", "name"), [("", "trace_based"), (" ", "trace_based"), (" Always_Off ", "always_off"), ("always_on",) * 2]
)
def test_the_exemplar_filter(monkeypatch: pytest.MonkeyPatch, value: str, name: str) -> None:
    """Blank is unset, as for every variable, and case does not matter."""
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", value)
    assert settings.exemplar_filter() == name


def test_a_small_queue_makes_its_batches_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue below the default batch size is no error: the batch follows it."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    assert settings.queue_settings("BSP").max_export_batch_size == 10


@pytest.mark.parametrize("ratio", ["2", "x"])
def test_the_ratio_of_a_sampler_is_checked(monkeypatch: pytest.MonkeyPatch, ratio: str) -> None:
    """A ratio outside 0 to 1 is refused."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER_ARG"):
        settings.validate_sampler_and_limits()
