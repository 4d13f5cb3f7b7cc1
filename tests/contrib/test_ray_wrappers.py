"""What of the Ray integration needs no Ray: the wrappers, the carrier, the runtime environment."""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib.util
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nemo_lens.api import NemoLensConfig, SpanRegistry, get_telemetry, inject_context, instrument, managed_span
from nemo_lens.contrib.ray import (
    extract_ray_context,
    flush_actors,
    inject_ray_context,
    instrument_ray,
    ray_dispatch_with_context,
    ray_runtime_env,
    trace_actor,
    traced_remote_call,
)
from support.recorded import Recorded, recording

REMOTE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
REMOTE_TRACE, REMOTE_SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


@traced_remote_call("g")
def add(x: int, y: int = 1, *, z: int = 0) -> int:
    return x + y + z


@traced_remote_call("g")
async def add_later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@traced_remote_call("g")
def count(n: int) -> Iterator[int]:
    for i in range(n):
        with managed_span("g", "counted"):
            yield i
    return


@traced_remote_call("g")
async def count_later(n: int) -> Any:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def collected(generator: Any) -> list[Any]:
    return [item async for item in generator]


def call_all(**carrier: Any) -> list[Any]:
    """Call one of each kind."""
    return [
        add(1, 2, z=3, **carrier),
        asyncio.run(add_later(1, **carrier)),
        list(count(2, **carrier)),
        asyncio.run(collected(count_later(2, **carrier))),
    ]


RESULTS = [6, 2, [0, 1], [0, 1]]
NAMES = ["add", "add_later", "count", "count_later"]


@pytest.fixture
def on(caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    """Set telemetry up into memory, with the group on."""
    with recording(caplog) as recorded:
        yield recorded


def test_each_kind_of_function_keeps_its_kind() -> None:
    """Ray looks at these to decide how it runs a function."""
    assert inspect.iscoroutinefunction(add_later)
    assert inspect.isgeneratorfunction(count)
    assert inspect.isasyncgenfunction(count_later)
    assert inspect.isfunction(add)
    assert not any(is_kind(add) for is_kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction))
    assert (add.__name__, add.__module__, add.__doc__) == ("add", __name__, None)


def test_the_signature_shows_the_keyword_however_it_is_asked() -> None:
    """Also after ``inspect.unwrap``, which Ray calls; before ``**kwargs``, and only there as a keyword."""

    @traced_remote_call("g")
    def with_keywords(a: int, *args: int, b: int = 2, **kwargs: int) -> None: ...

    assert (
        str(inspect.signature(inspect.unwrap(add)))
        == "(x: 'int', y: 'int' = 1, *, z: 'int' = 0, _lens_carrier=None) -> 'int'"
    )
    assert [*inspect.signature(with_keywords).parameters] == ["a", "args", "b", "_lens_carrier", "kwargs"]
    with pytest.raises(TypeError, match="'x'"):
        inspect.signature(add).bind(q=1)


def test_a_call_is_the_same_when_the_group_is_off() -> None:
    """With a carrier and without, the function gets its own arguments."""
    assert call_all() == call_all(_lens_carrier=REMOTE) == call_all(_lens_carrier=object()) == RESULTS


def test_a_call_with_a_carrier_is_a_child_of_it(on: Recorded) -> None:
    """Every kind, whatever is current where it runs; what its body opens is its child."""
    with managed_span("g", "current"):
        assert call_all(_lens_carrier=dict(REMOTE)) == RESULTS
    for name in NAMES:
        span = on.named(name)
        assert (span.context.trace_id, span.parent.span_id if span.parent else 0) == (REMOTE_TRACE, REMOTE_SPAN), name
        assert span.kind.name == "CONSUMER"
    count_id = on.named("count").context.span_id
    assert {span.parent.span_id for span in on.spans() if span.name == "counted" and span.parent} == {count_id}


def test_a_call_without_one_is_a_child_of_what_is_current(on: Recorded) -> None:
    """A direct call is like any traced function's."""
    with managed_span("g", "current"):
        assert call_all() == RESULTS
    parents = on.parents()
    assert [parents[name] for name in NAMES] == ["current"] * 4
    assert on.named("add").kind.name == "INTERNAL"


@pytest.mark.parametrize(
    "carrier",
    [
        "traceparent",
        b"\xff" * 40,
        7,
        [("traceparent", REMOTE["traceparent"])],
        {},
        {"traceparent": REMOTE["traceparent"][:-6]},
        {"traceparent": REMOTE["traceparent"] + " " * 9000},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
        {**REMOTE, "baggage": "a=" + "b" * 100_000},
        {"traceparent": {"a": 1}, "tracestate": 3},
        {1: 2, None: "x"},
        {"traceparent": "\ud800" * 55},
        type("Hostile", (), {"items": lambda self: 1 / 0})(),
    ],
    ids=lambda carrier: type(carrier).__name__,
)
def test_a_hostile_carrier_is_an_empty_context(carrier: Any, on: Recorded) -> None:
    """The call runs; its span is a root, whatever is current."""
    assert dict(inject_context(context=extract_ray_context(carrier))) == {}
    with managed_span("g", "current"):
        assert add(1, _lens_carrier=carrier) == 2
    assert on.named("add").parent is None
    assert on.named("add").context.trace_id != on.named("current").context.trace_id


def test_a_carrier_is_a_plain_dict_of_the_current_context(on: Recorded) -> None:
    """It pickles, and it leads back to the span; without a span it is empty."""
    assert inject_ray_context() == {}
    with managed_span("g", "outer") as span:
        carrier = inject_ray_context()
    assert type(carrier) is dict
    with managed_span("g", "later", context=extract_ray_context(pickle.loads(pickle.dumps(carrier)))):
        pass
    assert on.parents()["later"] == "outer"
    assert f"{span.get_span_context().span_id:016x}" in carrier["traceparent"]


def test_attributes_and_kind_are_the_callers(on: Recorded) -> None:
    """A mapping or a function of the call's own arguments; one that fails costs the attributes and nothing else."""

    @traced_remote_call("g", "fixed", attributes={"a": 1}, span_kind="server")
    def fixed() -> None: ...

    @traced_remote_call("g", "computed", attributes=lambda x, **kwargs: {"x": x, "n": len(kwargs)})
    def computed(x: int, **kwargs: int) -> None: ...

    @traced_remote_call("g", "broken", attributes=lambda: {"never": 1})
    def broken(x: int) -> int:
        return x

    fixed(_lens_carrier=REMOTE)
    computed(3, k=4, _lens_carrier=REMOTE)
    assert broken(5) == 5
    assert (on.attributes("fixed"), on.named("fixed").kind.name) == ({"a": 1}, "SERVER")
    assert on.attributes("computed") == {"x": 3, "n": 1}
    assert on.attributes("broken") == {}


def test_wrappers_are_pickled_by_reference() -> None:
    """A module's function is pickled as its name, and what it was decorated with is no hindrance."""
    for function in (add, add_later, count, count_later):
        assert pickle.loads(pickle.dumps(function)) is function


def test_what_a_wrapper_holds_can_be_pickled() -> None:
    """Its closure and attributes are plain data: no tracer, no lock; Ray pickles them when it pickles by value."""

    def parts(value: Any) -> Iterator[Any]:
        for cell in value.__closure__ or ():
            if inspect.isfunction(cell.cell_contents):
                yield from parts(cell.cell_contents)
            else:
                yield cell.cell_contents
        yield from (item for key, item in vars(value).items() if key != "__signature__")

    held = [part for function in (add, add_later, count, count_later) for part in parts(function)]
    assert held
    for part in held:
        pickle.loads(pickle.dumps(part))


def test_a_class_is_traced_by_its_public_methods(on: Recorded) -> None:
    """Its own ones, class and static methods among them; neither private nor inherited ones, and none twice."""

    class Base:
        def inherited(self) -> None: ...

    @trace_actor("g")
    class Actor(Base):
        def __init__(self) -> None:
            self.value = 1

        def method(self) -> int:
            return self.value + self._private()

        def _private(self) -> int:
            return 1

        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

        @staticmethod
        def static() -> str:
            return "static"

        @traced_remote_call("g", "by name")
        async def named(self) -> None: ...

        attribute = len

    actor = Actor()
    assert (actor.method(), actor.of_class(), Actor.static(), actor.attribute([1])) == (2, "Actor", "static", 1)
    actor.inherited()
    asyncio.run(actor.named())
    assert [name.rpartition(".")[2] for name in on.names()] == ["method", "of_class", "static", "by name"]


class Remote:
    """What Ray makes of a function, as far as the decorators look."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self._decorator = getattr(fn, "__ray_invocation_decorator__", None)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        def invocation(args: Any, kwargs: Any) -> Any:
            inspect.signature(self._fn).bind(*args, **kwargs)
            return args, kwargs

        return (self._decorator(invocation) if self._decorator else invocation)(args, kwargs)


def test_a_decorated_target_is_sent_the_context_and_another_is_not(on: Recorded) -> None:
    """By ``.remote`` and by dispatch; one that is given stays; an invocation decorator of the user's own runs too."""
    seen = []

    def users(invocation: Any) -> Any:
        def invoke(args: Any, kwargs: Any) -> Any:
            seen.append(args)
            return invocation(args, kwargs)

        return invoke

    def plain(x: int, **kwargs: Any) -> None: ...

    def own(x: int) -> None: ...

    own.__ray_invocation_decorator__ = users  # type: ignore[attr-defined]
    with managed_span("g", "outer"):
        carrier = inject_ray_context()
        assert Remote(add).remote(1) == ((1,), {"_lens_carrier": carrier})
        assert ray_dispatch_with_context(Remote(add), 1, y=2) == ((1,), {"y": 2, "_lens_carrier": carrier})
        assert Remote(add).remote(1, _lens_carrier=REMOTE) == ((1,), {"_lens_carrier": REMOTE})
        assert ray_dispatch_with_context(Remote(plain), 1, y=2) == ((1,), {"y": 2})
        assert Remote(traced_remote_call("g")(own)).remote(4) == ((4,), {"_lens_carrier": carrier})
    assert seen == [(4,)]
    assert Remote(add).remote(1) == ((1,), {})


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: traced_remote_call(add), "span group first"),
        (lambda: traced_remote_call("g")(add), "decorated twice"),
        (lambda: traced_remote_call("g")(Remote(add)), "below @ray.remote"),
        (lambda: traced_remote_call("g")(int), "decorates functions"),
        (lambda: trace_actor("g")(Remote(add)), "below @ray.remote"),
        (lambda: trace_actor(Remote), r"span group first, as in @trace_actor\('group'\)"),
        (lambda: trace_actor(5), "span group first"),  # type: ignore[arg-type]
        (lambda: ray_runtime_env(5), "takes a NemoLensConfig, .* got 5"),  # type: ignore[arg-type]
        (lambda: instrument("ray", 5), "takes a NemoLensConfig, .* got 5"),
        (lambda: ray_dispatch_with_context(add, 1), r"\.remote"),
    ],
)
def test_misuse_is_told_where_it_happens(use: Any, says: str) -> None:
    """Decorators in the wrong order or without their group, and targets that are no remote ones."""
    with pytest.raises(TypeError, match=says):
        use()


def test_the_runtime_environment_sets_a_worker_up_alike(on: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration, run id, exporters and parent are in it; headers, keys and the node's own attributes are not."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1500")
    for secret in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CLIENT_KEY"):
        monkeypatch.setenv(secret, "secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=driver")
    monkeypatch.setenv("NEMO_LENS_INSTRUMENT", "aiohttp")
    config = NemoLensConfig(enabled=True, service_name="trainer", run_id="r7", span_groups="a,b")
    given = {"env_vars": {"MINE": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://mine:4318"}, "pip": ["x"]}
    with managed_span("g", "driver") as span:
        made = ray_runtime_env(config, given)
    variables = made["env_vars"]
    assert given == {"env_vars": {"MINE": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://mine:4318"}, "pip": ["x"]}
    assert made["pip"] == ["x"]
    assert callable(made["worker_process_setup_hook"])
    assert NemoLensConfig.from_env(environ=variables) == config
    assert (variables["MINE"], variables["OTEL_EXPORTER_OTLP_ENDPOINT"]) == ("1", "http://mine:4318")
    assert (variables["OTEL_BSP_SCHEDULE_DELAY"], variables["OTEL_BLRP_SCHEDULE_DELAY"]) == ("1500", "500")
    assert variables["NEMO_LENS_INSTRUMENT"] == "aiohttp"
    assert f"{span.get_span_context().span_id:016x}" in variables["TRACEPARENT"]
    assert "secret" not in variables.values()
    assert "OTEL_RESOURCE_ATTRIBUTES" not in variables


def test_a_submitted_jobs_runtime_environment_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses a driver that says otherwise than the job it was submitted as."""
    submitted = {"worker_process_setup_hook": "a.b", "env_vars": {"NEMO_LENS_ENABLED": "0"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": submitted}))
    made = ray_runtime_env(NemoLensConfig(enabled=True))
    assert "worker_process_setup_hook" not in made
    assert "NEMO_LENS_ENABLED" not in made["env_vars"]
    assert made["env_vars"]["NEMO_LENS_SPAN_GROUPS"] == "default"
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "no JSON")
    assert "worker_process_setup_hook" in ray_runtime_env(NemoLensConfig(enabled=True))


def test_only_secrets_of_exporters_are_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of headers to record are no secret; the headers and the key of any signal's exporter are."""
    kept_back = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY"]
    handed_on = ["OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"]
    for name in kept_back + handed_on:
        monkeypatch.setenv(name, "text")
    variables = ray_runtime_env(NemoLensConfig(enabled=True))["env_vars"]
    assert [name for name in kept_back + handed_on if name in variables] == handed_on


def test_a_url_with_credentials_is_kept_back_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING says which variable and where to set it, and shows nothing of it; one that the user gives stays."""
    secret = "http://somebody:hunter2@collector:4318"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", secret)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://collector:4318/v1/logs?of=a@b")
    own = {"env_vars": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://mine@collector:4318"}}
    assert ray_runtime_env(NemoLensConfig(), own)["env_vars"].items() >= own["env_vars"].items()
    assert caplog.messages == []
    for _ in range(2):
        variables = ray_runtime_env(NemoLensConfig())["env_vars"]
    assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" not in variables
    assert "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" in variables
    (message,) = caplog.messages
    assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. Set it where `ray start` runs" in message
    assert "hunter2" not in message


def test_the_configuration_that_is_live_is_the_default(on: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up in code with nothing in the environment, a driver's workers are still set up alike."""
    monkeypatch.delenv("NEMO_LENS_ENABLED", raising=False)
    assert NemoLensConfig.from_env().enabled is False
    assert ray_runtime_env()["env_vars"]["NEMO_LENS_ENABLED"] == "true"
    get_telemetry().shutdown()
    assert ray_runtime_env()["env_vars"]["NEMO_LENS_ENABLED"] == "false"


def test_the_hook_leaves_nothing_of_this_package_to_import() -> None:
    """It pickles as a function that has no importable name, which cloudpickle takes whole; groups go along."""
    SpanRegistry.register("ray_hook_test", ["g1"], {"default": ["g1"]})
    try:
        hook = ray_runtime_env(NemoLensConfig())["worker_process_setup_hook"]
    finally:
        SpanRegistry.unregister("ray_hook_test")
    assert hook.__name__ == "set_up_worker"
    assert copy.deepcopy(hook).__name__ == hook.__name__
    made, (function,), *_ = hook.__reduce__()
    assert made is functools.partial
    assert "<locals>" in function.__qualname__
    declared = inspect.getclosurevars(function).nonlocals["declared"]
    assert declared["ray_hook_test"] == (["g1"], {"default": frozenset({"g1"})})


@pytest.mark.parametrize(("own", "text"), [(None, "nemo_lens.contrib.ray.setup_worker"), ("a.b", "a.b")])
def test_the_runtime_environment_can_be_written_as_json(own: str | None, text: str) -> None:
    """As Ray Client and ``ray job submit`` do: the hook is then a name that Ray takes."""
    made = ray_runtime_env(NemoLensConfig(), {"worker_process_setup_hook": own})
    assert json.loads(json.dumps(made)) == {**made, "worker_process_setup_hook": text}


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: run `nox -s ray`")
@pytest.mark.parametrize(
    ("actors", "timeout_ms", "error", "says"),
    [
        (5, 1, TypeError, "an actor handle or an iterable of them; got 5"),
        ("actor", 1, TypeError, "an actor handle or an iterable of them; got 'actor'"),
        ([], "x", TypeError, "timeout_ms='x': expected a number"),
        ([], True, TypeError, "timeout_ms=True: expected a number"),
        ([], -1, ValueError, "timeout_ms=-1: expected 0 or more"),
        ([], float("nan"), ValueError, "timeout_ms=nan: expected 0 or more"),
    ],
)
def test_a_flush_says_what_it_takes(actors: Any, timeout_ms: Any, error: type[Exception], says: str) -> None:
    """Before anything is asked, and also when there is nothing to flush."""
    with pytest.raises(error, match=says):
        flush_actors(actors, timeout_ms)


@pytest.mark.parametrize("call", [instrument_ray, lambda: instrument("ray"), lambda: flush_actors([])])
def test_without_ray_a_call_says_what_to_install(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing has worked; what needs Ray raises ``ImportError`` with the extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'nemo-lens-contrib\[ray\]'"):
        call()


def test_importing_and_decorating_load_no_ray() -> None:
    """In a fresh interpreter, neither Ray nor OpenTelemetry nor the SDK is there after a decorated call."""
    program = (
        "import sys\n"
        "from nemo_lens.contrib.ray import *\n"
        "f = traced_remote_call('g')(lambda x: x)\n"
        "assert f(1, _lens_carrier={'traceparent': 'x'}) == 1 and inject_ray_context() == {}\n"
        "bad = [m for m in ('ray', 'opentelemetry', 'nemo_lens.sdk') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
