"""Handle, tracers, meters, groups, carriers and threads towards the caller: the same over every backend."""

from __future__ import annotations

import contextvars
import os
import re
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nemo_lens.api

GROUP = "contract"
CARRIER = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}
BAD_CARRIERS = [
    None,
    3,
    "text",
    [1],
    object(),
    {},
    {"traceparent": "x"},
    {"traceparent": None},
    {3: 4},
    {"a": "x" * 9000},
]


def test_every_public_name_is_under_the_contract() -> None:
    """Each name of ``__all__`` is used by this suite, so that a new one cannot be forgotten."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    used = set(re.findall(r"\b(?:lens|names)\.(\w+)", source))
    assert set(nemo_lens.api.__all__) - used == set()


def test_the_handle(lens: Any) -> None:
    """The handle has every part of the protocol, whatever is installed, and each returns its kind of thing."""
    handle = lens.handle
    assert isinstance(handle, lens.TelemetryHandle)
    assert isinstance(handle, nemo_lens.api.TelemetryHandle)
    assert handle.is_exporting is lens.case.exports
    assert handle.is_shutdown is False
    assert isinstance(handle.resource_attributes, Mapping)
    assert handle.force_flush(timeout_ms=10_000) is True
    assert handle.force_flush(10_000) is True
    assert isinstance(handle.force_flush(), bool)
    for tracer in (handle.tracer, handle.tracer_provider.get_tracer("a"), handle.tracer_provider.get_tracer("a", "1")):
        _use_tracer(tracer)
    for meter in (handle.meter, handle.meter_provider.get_meter("a"), handle.meter_provider.get_meter("a", "1")):
        _use_meter(meter)
    handle.logger_provider.get_logger("a")
    assert lens.get_telemetry() is handle


def test_leaving_the_handle_shuts_down(lens: Any) -> None:
    """As a context manager it gives itself and swallows nothing; shutting down and flushing again is harmless."""
    error = ValueError("x")

    def job() -> None:
        with lens.handle as entered:
            assert entered is lens.handle
            raise error

    with pytest.raises(ValueError, match="x") as caught:
        job()
    assert caught.value is error
    assert lens.handle.is_exporting is False
    assert lens.handle.shutdown() is None
    assert lens.handle.shutdown(timeout_ms=100) is None
    assert lens.handle.force_flush(100) is True
    assert lens.get_telemetry().is_exporting is False
    if lens.case.exports:
        assert not lens.is_span_group_enabled(GROUP)
        with lens.managed_span(GROUP, "a") as span:
            assert span is None
    with lens.span_cm("a") as span:
        assert not span.is_recording()
    assert lens.emit_span(None, "a", 1, 2) is None
    _use_tracer(lens.handle.tracer)
    _use_meter(lens.handle.meter)


def test_a_disabled_setup_gives_a_handle_that_does_nothing(lens: Any) -> None:
    """Set up disabled it returns a handle of the same protocol and leaves what is running as it is."""
    before = lens.enabled_span_groups()
    handle = lens.setup_telemetry(lens.NemoLensConfig(enabled=False), resource_attributes={"a": 1})
    assert isinstance(handle, lens.TelemetryHandle)
    assert handle.is_exporting is False
    assert handle.force_flush(1) is True
    with handle as entered:
        assert entered is handle
    if lens.case.exports:
        assert lens.enabled_span_groups() == before
        assert lens.handle.is_exporting


def test_no_signal_handler_is_installed_unasked(lens: Any) -> None:
    """``install_sigterm_handler`` is there, and returns nothing."""
    import signal

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert lens.handle.install_sigterm_handler(timeout_ms=100) is None
        assert (signal.getsignal(signal.SIGTERM) is not before) == lens.case.exports
        lens.handle.shutdown()
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- tracers and meters


def _use_tracer(tracer: Any) -> None:
    span = tracer.start_span("a", attributes={"x": 1})
    span.set_attribute("y", 2)
    span.end()
    with tracer.start_as_current_span("b", attributes={"x": 1}) as span:
        span.add_event("e")
    error = ValueError("x")
    with pytest.raises(ValueError, match="x") as caught, tracer.start_as_current_span("c"):
        raise error
    assert caught.value is error

    @tracer.start_as_current_span("d")
    def decorated(value: int) -> int:
        return value

    assert decorated(3) == decorated(2) + 1 == 3


def _use_meter(meter: Any) -> None:
    assert meter.create_counter("counter", unit="1", description="d").add(1, {"k": "v"}) is None
    assert meter.create_up_down_counter("up_down").add(-1) is None
    assert meter.create_histogram("histogram", "s").record(0.5, attributes={"k": "v"}) is None
    assert meter.create_gauge("gauge").set(2.5) is None
    for kind in ("counter", "up_down_counter", "gauge"):
        create = getattr(meter, f"create_observable_{kind}")
        assert create(f"observable_{kind}", callbacks=[lambda options: []], unit="1") is not None


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_tracers_and_meters_before_and_after_setup(lens: Any) -> None:
    """Obtained before setup or after, with a version or without, they can be used alike, also after shutdown."""
    for shut_down in (False, True):
        if shut_down:
            lens.handle.shutdown()
        for tracer in (
            lens.early_tracer,
            lens.get_tracer("a"),
            lens.get_tracer("a", "1"),
            lens.get_tracer("a", version="1"),
        ):
            _use_tracer(tracer)
        for meter in (
            lens.early_meter,
            lens.get_meter("a"),
            lens.get_meter("a", "1"),
            lens.get_meter("a", version="1"),
        ):
            _use_meter(meter)


# ---- groups


def test_the_gate(lens: Any) -> None:
    """Group functions return the same kinds of things everywhere; unknown groups are off."""
    assert lens.is_span_group_enabled(GROUP) is lens.case.opened
    assert lens.is_span_group_enabled("never on") is False
    assert isinstance(lens.enabled_span_groups(), frozenset)
    assert (GROUP in lens.enabled_span_groups()) == lens.case.opened
    assert lens.set_span_group_spec("nobody registered this") is None
    assert isinstance(lens.pending_span_groups(), tuple)
    assert lens.set_enabled_span_groups(()) is None
    assert lens.enabled_span_groups() == frozenset()
    assert lens.pending_span_groups() == ()


def test_the_registry(lens: Any) -> None:
    """A library registers, asks and unregisters; return types are the same when nothing is kept."""
    registry = lens.SpanRegistry
    assert registry.register("lib", ["a", "b"], {"default": ["a"]}) is None
    assert registry.register("lib", ["a"], presets=None, allow_override=True) is None
    assert isinstance(registry.groups(), frozenset)
    assert isinstance(registry.groups("lib"), frozenset)
    assert isinstance(registry.namespaces(), tuple)
    assert isinstance(registry.presets(), dict)
    assert registry.presets("nobody") == {}
    assert registry.resolve("nobody, Something ,nobody") == (frozenset(), ("nobody", "something"))
    for no_spec in (None, 5, ["a"]):
        assert registry.resolve(no_spec) == (frozenset(), ())
    assert registry.unregister("lib") is None
    assert registry.unregister("lib") is None
    assert registry.clear() is None
    assert registry.groups() == frozenset()


# ---- propagation


def test_injecting_returns_the_carrier(lens: Any) -> None:
    """The carrier that was given comes back, with what it held; none given is a new dict; no span adds nothing."""
    carrier = {"other": "kept"}
    assert lens.inject_context(carrier) is carrier
    assert carrier == {"other": "kept"}
    assert lens.inject_context() == {}
    with lens.span_cm("a"):
        found = lens.inject_context({})
        assert ("traceparent" in found) == lens.case.exports
    with lens.span_cm("b", context=found), lens.span_cm("c", context=lens.extract_context(found)):
        pass
    before = dict(os.environ)
    lens.inject_context(os.environ)
    assert dict(os.environ) == before


@pytest.mark.parametrize("bad", BAD_CARRIERS)
def test_bad_carriers(lens: Any, bad: Any) -> None:
    """What is read from and written to anything never raises, and gives a context that holds no span."""
    context = lens.extract_context(bad)
    assert lens.inject_context({}, context) == {}
    with lens.span_cm("a", context=context), lens.managed_span(GROUP, "b", context=bad):
        pass
    lens.emit_span(None, "a", 1, 2, context=context)
    if bad is not None:
        assert lens.inject_context(bad) is bad


def test_bound_functions(lens: Any) -> None:
    """A bound function sees the context variables of its binding, in any thread, and changes none outside."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def work(a: int, *, b: int = 0) -> tuple[int, str, bool]:
        """Say what is seen."""
        seen = variable.get()
        variable.set("changed inside")
        return a + b, seen, threading.current_thread() is threading.main_thread()

    token = variable.set("bound")
    bound = lens.bind_context(work)
    variable.reset(token)
    with ThreadPoolExecutor(1) as pool:
        assert [pool.submit(bound, 1, b=n).result() for n in range(2)] == [(1, "bound", False), (2, "bound", False)]
    assert bound(1) == (1, "bound", True)
    assert variable.get() == "unset"
    assert (bound.__name__, bound.__doc__) == ("work", "Say what is seen.")
    with pytest.raises(TypeError):
        bound()


def test_the_pipeline_parallel_carrier(lens: Any) -> None:
    """Setting and forgetting it returns nothing; what is read is a mapping or None."""
    assert lens.set_pp_trace_carrier(CARRIER) is None
    assert lens.get_pp_trace_carrier() in (CARRIER, None)
    assert lens.set_pp_trace_carrier(None) is None
    assert lens.get_pp_trace_carrier() is None


@pytest.mark.parametrize("bad", BAD_CARRIERS)
def test_linked_spans_of_bad_carriers(lens: Any, bad: Any) -> None:
    """Whatever the remote end sent, there is a span that can be used and ended."""
    for remote in ({"remote_carrier": bad}, {"remote_context": bad}, {"remote_context": bad, "remote_carrier": bad}):
        with lens.create_linked_span(None, "a", **remote) as span:
            assert span.is_recording() == lens.case.exports


def test_linked_spans(lens: Any) -> None:
    """Every form of a remote span, a tracer, a parent and any attributes are taken; the span is not made current."""
    with lens.span_cm("remote") as remote:
        carrier = lens.inject_context({})
    for end in (remote, remote.get_span_context(), carrier, lens.extract_context(carrier)):
        for tracer in (None, lens.get_tracer("mine"), lens.early_tracer, lens.handle.tracer, object()):
            span = lens.create_linked_span(
                tracer, "a", end, carrier, attributes={"x.y": 1}, span_kind="consumer", context=carrier, x=object(), y=2
            )
            assert lens.inject_context({}) == {}
            assert span.end() is None


def test_broadcasting_without_a_process_group(lens: Any) -> None:
    """Where torch is not imported or has no process group, there is nothing to take part in; nobody imports it."""
    imported = "torch" in sys.modules
    assert lens.broadcast_trace_context() is None
    assert lens.broadcast_trace_context(0, src_rank=7, group=object()) is None
    with lens.span_cm("a"):
        assert lens.broadcast_trace_context(rank=0) is None
    assert ("torch" in sys.modules) == imported


# ---- what needs no backend


def test_run_ids(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The given run id wins, then the launcher's; else one is made up that stays the same."""
    for variable in (
        "NEMO_LENS_RUN_ID",
        "OTEL_RESOURCE_ATTRIBUTES",
        "SLURM_JOB_ID",
        "TORCHELASTIC_RUN_ID",
        "WORLD_SIZE",
    ):
        monkeypatch.delenv(variable, raising=False)
    assert lens.ensure_run_id(" mine ") == "mine"
    made_up = lens.ensure_run_id()
    assert re.fullmatch("[0-9a-f]{12}", made_up)
    assert lens.ensure_run_id("", {"TORCHELASTIC_RUN_ID": "none"}) == made_up
    assert lens.ensure_run_id(environ={"TORCHELASTIC_RUN_ID": "t", "SLURM_JOB_ID": "s"}) == "s"
    assert lens.ensure_run_id("", {"SLURM_JOB_ID": "s", "NEMO_LENS_RUN_ID": "r"}) == "r"
    assert lens.ensure_run_id(None, {"NEMO_LENS_RUN_ID": " none "}) == "none"
    for pairs, expected in (
        ("a=b, nemo.run.id = launched%2c1 ", "launched,1"),
        ("nemo.run.id=first,nemo.run.id=last", "last"),
        ("nemo.run.id=good,nemo.run.id=5%", "good"),
        ("nemo%2Erun.id=coded", "coded"),
        ("nemo.run.id=,x", "s"),
        ("nemo.run.id", "s"),
    ):
        environ = {"SLURM_JOB_ID": "s", "OTEL_RESOURCE_ATTRIBUTES": pairs}
        assert lens.ensure_run_id(environ=environ) == expected
        assert lens.ensure_run_id(environ={**environ, "NEMO_LENS_RUN_ID": "r"}) == "r"


def test_redaction_does_not_depend_on_a_backend(lens: Any) -> None:
    """A value under a secret's key is withheld everywhere, also by the vendored file."""
    assert lens.redact_value("my.api_key", "s") == "[REDACTED]"
    assert lens.redact_value("note", "s") == "s"
    assert lens.redact_value("note", "s", redact_keys=lens.DEFAULT_REDACT_KEYS | {"note"}) == "[REDACTED]"
    assert lens.redact_value("note", "s", redact_keys="note") == "[REDACTED]"
    for unreadable in (None, 5, [[1], "note"]):
        assert lens.redact_value("token", "s", redact_keys=unreadable) == "[REDACTED]"
        assert lens.redact_value("note", "s", redact_keys=unreadable) == "s"


def test_integrations_that_are_not_installed(lens: Any) -> None:
    """Unknown integrations are a ValueError that names what was asked for."""
    for call in (lens.instrument, lens.uninstrument):
        with pytest.raises(ValueError, match="'no such integration'"):
            call("no such integration")


def test_configuration_and_the_rest(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration has its fields and defaults; version and process start are what they say."""
    for name in [name for name in os.environ if name.startswith(("NEMO_LENS_", "OTEL_", "WANDB_"))]:
        monkeypatch.delenv(name)
    config = lens.NemoLensConfig.from_env(prefix="NEMO_LENS", fallback_prefix=None, known=())
    assert (config.enabled, config.exporter, config.span_groups, config.shutdown_timeout_ms) == (
        False,
        "otlp",
        "default",
        5000,
    )
    assert lens.NemoLensConfig(True, "svc", exporter="console").service_name == "svc"
    assert config.validate() is None
    assert isinstance(config.to_env("NEMO_LENS"), dict)
    assert set(config.sources.values()) == {"default"}
    assert isinstance(lens.__version__, str)
    started = lens.linux_process_create_time()
    assert started is None or isinstance(started, float)
