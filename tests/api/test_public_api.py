"""The public surface: its names, what importing them loads, and how the wheels find each other.

Programs run in interpreters of their own that see the API's source and, where a test needs one, distributions laid out
in a folder: no site-packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from uuid import UUID

import pytest

import nemo_lens.api
from nemo_lens.api import instruments

PUBLIC_NAMES = [
    "DEFAULT_REDACT_KEYS",
    "NemoLensConfig",
    "SpanRegistry",
    "TelemetryHandle",
    "__version__",
    "bind_context",
    "broadcast_trace_context",
    "create_linked_span",
    "emit_span",
    "enabled_span_groups",
    "ensure_run_id",
    "extract_context",
    "get_meter",
    "get_pp_trace_carrier",
    "get_telemetry",
    "get_tracer",
    "inject_context",
    "instrument",
    "is_span_group_enabled",
    "linux_process_create_time",
    "managed_span",
    "mark",
    "pending_span_groups",
    "redact_value",
    "safe_set_span_attributes",
    "set_enabled_span_groups",
    "set_pp_trace_carrier",
    "set_span_group_spec",
    "setup_telemetry",
    "span_attributes",
    "span_cm",
    "trace_fn",
    "uninstrument",
]
INSTRUMENT_NAMES = [
    "MetricSpec",
    "create_metric_instruments",
    "record_gym_metrics",
    "record_inference_metrics",
    "record_metrics",
    "record_rl_metrics",
    "record_training_metrics",
    "register_metric_group",
    "registered_metric_groups",
    "unregister_metric_group",
]
MODULE_LIMIT = 25  # modules added to a bare interpreter; the target is 20
TOUCH = "import nemo_lens.api as a; a.managed_span, a.trace_fn, a.SpanRegistry, a.is_span_group_enabled"

# A backend that says what it is asked to do, and does nothing.
BACKEND = """
from nemo_lens.api.backend import NoopBackend
from nemo_lens.api.fallbacks import NullHandle

class Handle(NullHandle):
    is_exporting = True

class Recording(NoopBackend):
    def __init__(self, name):
        self.name = name
    def build(self, config, **options):
        print("built:", self.name)
        return Handle()

FIRST, SECOND = Recording("first"), Recording("second")
"""
SETUP = """
import logging; logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
from nemo_lens.api import *
handle = setup_telemetry(NemoLensConfig(enabled=True, span_groups=""))
print("exporting:", handle.is_exporting)
"""


class Site:
    """A folder with the API's source and made-up distributions; programs see nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        api = folder / "nemo_lens" / "api"
        source = Path(nemo_lens.api.__file__).parent
        shutil.copytree(source, api, ignore=shutil.ignore_patterns("__pycache__"))

    def add(self, name: str, entry_points: dict[str, dict[str, str]], modules: dict[str, str]) -> None:
        """Lay out one installed distribution."""
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, points in entry_points.items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, source in modules.items():
            (self.folder / f"{module}.py").write_text(textwrap.dedent(source))

    def run(self, program: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program; one that fails fails the test."""
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("NEMO_LENS", "OTEL", "PYTHON"))
        }
        done = subprocess.run(
            [sys.executable, "-S", "-W", "error", "-c", textwrap.dedent(program)],
            env={**clean, "PYTHONPATH": str(self.folder), **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def _warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.partition(" ")[2] for line in done.stderr.splitlines() if line.startswith("WARNING ")]


# ---- the names


def test_the_names_are_frozen() -> None:
    """A public name appears or goes only together with this list."""
    assert sorted(nemo_lens.api.__all__) == sorted(PUBLIC_NAMES)
    assert nemo_lens.api.__all__ == sorted(nemo_lens.api.__all__)


def test_the_names_of_the_instruments_are_frozen() -> None:
    """They live in a package of their own, so that nobody pays for metrics who records none."""
    assert list(instruments.__all__) == INSTRUMENT_NAMES
    for name in INSTRUMENT_NAMES:
        assert getattr(instruments, name) is not None
        assert name in dir(instruments)
        assert name not in nemo_lens.api.__all__
    with pytest.raises(AttributeError, match=r"'nemo_lens\.api\.instruments' has no attribute 'record_metric'"):
        instruments.record_metric  # type: ignore[attr-defined] # noqa: B018


def test_every_name_resolves_and_is_listed() -> None:
    """Each name can be had, ``dir`` shows it, and anything else is an AttributeError that names it."""
    for name in PUBLIC_NAMES:
        assert getattr(nemo_lens.api, name) is not None
        assert name in dir(nemo_lens.api)
    with pytest.raises(AttributeError, match=r"'nemo_lens\.api' has no attribute 'managed_spam'"):
        nemo_lens.api.managed_spam  # type: ignore[attr-defined] # noqa: B018


def test_every_name_is_documented() -> None:
    """Each public function and class has a docstring of its own."""
    public = [(name, getattr(nemo_lens.api, name)) for name in PUBLIC_NAMES]
    for name, value in public + [(name, getattr(instruments, name)) for name in INSTRUMENT_NAMES]:
        if callable(value):
            assert value.__doc__, name
            assert value.__doc__.strip().splitlines()[0].endswith("."), name


# ---- what importing loads


def test_importing_loads_little(site: Site) -> None:
    """Importing the API and touching the gate adds at most 25 modules to a bare interpreter, no third party's."""
    done = site.run(
        # `site` is what an interpreter has loaded that was started without -S, as jobs are.
        f"import site, sys; bare = set(sys.modules)\n{TOUCH}\nprint(*sorted(set(sys.modules) - bare))"
    )
    added = done.stdout.split()
    assert len(added) <= MODULE_LIMIT, added
    foreign = {name.partition(".")[0] for name in added} - {*sys.stdlib_module_names, "nemo_lens"}
    assert not foreign


@pytest.mark.parametrize(
    "touch",
    [
        "import nemo_lens.api",
        TOUCH,
        # What an instrumented library does while telemetry is off, calls included.
        """
        from nemo_lens.api import SpanRegistry, managed_span
        SpanRegistry.register("lib", ["lib.io"], {"default": ["lib.io"]})
        with managed_span("lib.io", "open", path="x"):
            pass
        """,
    ],
    ids=["import", "touch", "use"],
)
def test_importing_loads_nothing_expensive(site: Site, touch: str) -> None:
    """No metadata, logging, typing, dataclasses or inspect, and never OpenTelemetry, before they are needed."""
    program = f"""
import site, sys; bare = set(sys.modules)
{textwrap.dedent(touch)}
print(*sorted(set(sys.modules) - bare))
"""
    added = set(site.run(program).stdout.split())
    unwanted = {
        "importlib.metadata",
        "logging",
        "typing",
        "dataclasses",
        "inspect",
        "re",
        "enum",
        "asyncio",
        "opentelemetry",
    }
    assert not added & unwanted


def test_importing_the_instruments_loads_no_third_party(site: Site) -> None:
    """The API alone loads nothing of them; they load the standard library alone, and work where nothing else is."""
    done = site.run(
        f"""
import site, sys; bare = set(sys.modules)
{TOUCH}
assert not [name for name in sys.modules if name.startswith("nemo_lens.api.instruments")]
from nemo_lens.api.instruments import *
record_training_metrics(a.get_meter("m"), loss=1, attributes={{"split": "train"}})
record_inference_metrics(a.get_meter("m"), input_tokens=1, model="m")
print(*sorted(set(sys.modules) - bare))
"""
    )
    foreign = {name.partition(".")[0] for name in done.stdout.split()} - {*sys.stdlib_module_names, "nemo_lens"}
    assert not foreign
    assert not {"decimal", "fractions", "numpy", "asyncio"} & set(done.stdout.split())


def test_importing_touches_nothing_global(site: Site) -> None:
    """Import and a disabled setup change no environment, start no thread and leave no OpenTelemetry behind."""
    site.run(
        """
        import os, sys, threading, signal
        before = dict(os.environ), signal.getsignal(signal.SIGTERM), sys.excepthook
        from nemo_lens.api import *
        handle = setup_telemetry(NemoLensConfig())
        assert not handle.is_exporting and get_telemetry() is handle
        assert (dict(os.environ), signal.getsignal(signal.SIGTERM), sys.excepthook) == before
        assert threading.active_count() == 1
        foreign = {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names, "nemo_lens", "__main__"}
        assert not foreign, foreign
        """
    )


def test_the_version_survives_missing_metadata(site: Site) -> None:
    """Without distribution metadata the version is still a text, and with it the distribution's."""
    assert site.run("import nemo_lens.api as a; print(a.__version__)").stdout == "0+unknown\n"
    site.add("nemo_lens_api", {}, {})
    assert site.run("import nemo_lens.api as a; print(a.__version__)").stdout == "1.0\n"


# ---- backends


def test_no_backend_warns_and_goes_on(site: Site) -> None:
    """Enabled without a backend: one WARNING with the install command, a handle that does nothing, every call works."""
    done = site.run(
        SETUP
        + """
with handle, managed_span("any", "a") as span:
    assert span is None
with span_cm("b") as span:
    span.set_attribute("x", 1)
assert emit_span(None, "c", 1, 2) is None
get_meter("m").create_counter("n").add(1)
assert enabled_span_groups() == frozenset() and handle.force_flush() is True
print("ran on")
"""
    )
    assert done.stdout == "exporting: False\nran on\n"
    (message,) = _warnings(done)
    assert "pip install nemo-lens-sdk" in message


def test_one_backend_is_found_once_and_only_when_enabled(site: Site) -> None:
    """The one installed backend is loaded inside an enabled setup, not at import and not by a disabled one."""
    site.add("one", {"nemo_lens.backend": {"one": "backends:FIRST"}}, {"backends": BACKEND + "\nprint('loaded')"})
    done = site.run(
        """
        import sys
        from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry
        setup_telemetry(NemoLensConfig())
        assert "importlib.metadata" not in sys.modules and "backends" not in sys.modules
        handle = setup_telemetry(NemoLensConfig(enabled=True))
        assert handle.is_exporting and get_telemetry() is handle
        """
    )
    assert done.stdout == "loaded\nbuilt: first\n"


def test_two_backends(site: Site) -> None:
    """One WARNING names both with their distributions; ``otel`` is used unless NEMO_LENS_BACKEND says otherwise."""
    site.add("one", {"nemo_lens.backend": {"mine": "backends:FIRST"}}, {"backends": BACKEND})
    site.add("two", {"nemo_lens.backend": {"otel": "backends:SECOND"}}, {})
    done = site.run(SETUP)
    assert done.stdout == "built: second\nexporting: True\n"
    (message,) = _warnings(done)
    for word in ("'mine'", "one 1.0", "'otel'", "two 1.0", "NEMO_LENS_BACKEND"):
        assert word in message
    chosen = site.run(SETUP, NEMO_LENS_BACKEND=" mine ")
    assert chosen.stdout == "built: first\nexporting: True\n"
    assert _warnings(chosen) == []


def test_a_backend_that_is_not_installed(site: Site) -> None:
    """NEMO_LENS_BACKEND with an unknown name is a ValueError that names variable, value and nearest name."""
    site.add("two", {"nemo_lens.backend": {"otel": "backends:SECOND"}}, {"backends": BACKEND})
    done = site.run(
        """
        from nemo_lens.api import *
        try:
            setup_telemetry(NemoLensConfig(enabled=True))
        except ValueError as error:
            print(error)
        assert not get_telemetry().is_exporting
        """,
        NEMO_LENS_BACKEND="otle",
    )
    assert "NEMO_LENS_BACKEND='otle'" in done.stdout
    assert "did you mean 'otel'?" in done.stdout


@pytest.mark.parametrize(
    "fault", ["raise RuntimeError('broken on import')", "import missing_module", "raise SyntaxError"]
)
def test_a_broken_backend_is_skipped(site: Site, fault: str) -> None:
    """A backend that does not load is one WARNING with its name and distribution; another one is used."""
    site.add("bad", {"nemo_lens.backend": {"otel": "broken:BACKEND"}}, {"broken": fault})
    alone = site.run(SETUP)
    assert alone.stdout == "exporting: False\n"
    assert [line for line in _warnings(alone) if "'otel'" in line and "bad 1.0" in line]
    assert not [line for line in _warnings(alone) if "pip install" in line], "it is installed"
    site.add("good", {"nemo_lens.backend": {"other": "backends:FIRST"}}, {"backends": BACKEND})
    both = site.run(SETUP)
    assert both.stdout == "built: first\nexporting: True\n"
    assert len([line for line in _warnings(both) if "could not be loaded" in line]) == 1


def test_a_variable_that_keeps_a_backend_from_being_loaded(site: Site) -> None:
    """A ValueError of loading that names a variable of OpenTelemetry's is a ValueError of set-up, with its value."""
    fault = "raise ValueError('OTEL_LIMIT must be a number but got ' + __import__('os').environ.get('OTEL_LIMIT', ''))"
    site.add("bad", {"nemo_lens.backend": {"otel": "broken:BACKEND"}}, {"broken": fault})
    refused = site.run(
        """
        from nemo_lens.api import NemoLensConfig, setup_telemetry
        try:
            setup_telemetry(NemoLensConfig(enabled=True))
        except ValueError as error:
            print(error)
        """,
        OTEL_LIMIT="abc",
    )
    assert refused.stdout == "OTEL_LIMIT='abc' cannot be used: OTEL_LIMIT must be a number but got abc\n"
    skipped = site.run(SETUP)
    assert skipped.stdout == "exporting: False\n"
    assert len(_warnings(skipped)) == 2


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        ("OSError('no space')", False),
        ("ImportError('half of it')", False),
        ("RuntimeError('no thread')", False),
        ("ValueError('of a setting')", True),
        ("TypeError('of an argument')", True),
    ],
)
def test_a_backend_that_cannot_be_built(site: Site, fault: str, raised: bool) -> None:
    """What is wrong with a setting is raised; anything else is a WARNING with its traceback, and the job runs on."""
    failing = f"""
class Failing:
    def build(self, config, **options):
        raise {fault}

FIRST = Failing()
"""
    site.add("bad", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": failing})
    done = site.run(
        """
        import logging; logging.basicConfig(format="%(levelname)s %(message)s")
        from nemo_lens.api import NemoLensConfig, SpanRegistry, get_telemetry, managed_span, setup_telemetry
        SpanRegistry.register("mine", ["work"])
        try:
            handle = setup_telemetry(NemoLensConfig(enabled=True, span_groups="all"))
        except Exception as raised:
            print("raised", type(raised).__name__)
        else:
            with managed_span("work", "runs on") as span:
                print("exporting", handle.is_exporting, get_telemetry().is_exporting, span)
        """
    )
    if raised:
        assert done.stdout == f"raised {fault.partition('(')[0]}\n"
    else:
        assert done.stdout == "exporting False False None\n"
        (warning,) = _warnings(done)
        assert "telemetry could not be set up, so nothing is exported" in warning
        assert fault.partition("(")[0] in done.stderr


# ---- set-ups that meet

# A backend that lets whoever builds a handle wait until the others have come.
SLOW_BACKEND = BACKEND.replace(
    'print("built:", self.name)',
    """import nemo_lens.meet as meet
        meet.built.append(meet.os.getpid())
        meet.begun.set()
        if meet.os.getpid() == meet.first:
            meet.while_built()""",
)
MEET = """
import os, threading
first = os.getpid()
built, begun, go_on = [], threading.Event(), threading.Event()
while_built = go_on.wait
"""


@pytest.fixture
def slow_site(site: Site) -> Site:
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": SLOW_BACKEND})
    (site.folder / "nemo_lens" / "meet.py").write_text(MEET)
    return site


def test_of_several_threads_that_set_up_one_does(slow_site: Site) -> None:
    """Threads that set up at once wait for the first, build nothing and get the RuntimeError; then they can share."""
    done = slow_site.run(
        """
        import threading
        import nemo_lens.meet as meet
        from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry
        handles, refused, shared = [], [], []
        def set_up():
            try:
                handles.append(setup_telemetry(NemoLensConfig(enabled=True)))
            except RuntimeError as error:
                refused.append(str(error))
                shared.append(get_telemetry())
        threads = [threading.Thread(target=set_up) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert meet.begun.wait(30)
        meet.go_on.set()
        for thread in threads:
            thread.join()
        assert len(meet.built) == len(handles) == 1
        assert shared == handles * 7 and all("get_telemetry()" in each for each in refused)
        handles[0].is_shutdown = True
        set_up()
        print(len(handles))
        """
    )
    assert done.stdout == "2\n"


def test_a_signal_handler_that_sets_up_is_refused(slow_site: Site) -> None:
    """A handler that interrupts a set-up and sets up itself gets the RuntimeError at once; the set-up goes on."""
    done = slow_site.run(
        """
        import signal
        import nemo_lens.meet as meet
        from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry
        def handler(number, frame):
            assert not setup_telemetry(NemoLensConfig()).is_exporting  # disabled: it leaves the other alone
            try:
                setup_telemetry(NemoLensConfig(enabled=True))
            except RuntimeError as error:
                print(error)
        signal.signal(signal.SIGUSR1, handler)
        meet.while_built = lambda: signal.raise_signal(signal.SIGUSR1)
        handle = setup_telemetry(NemoLensConfig(enabled=True))
        assert handle.is_exporting and get_telemetry() is handle and len(meet.built) == 1
        """
    )
    assert "is being set up already" in done.stdout


def test_a_child_forked_beside_a_set_up_sets_up_itself(slow_site: Site) -> None:
    """The lock that another thread holds in the parent is not the child's; the parent's set-up comes to its end."""
    done = slow_site.run(
        """
        import os, signal, threading
        import nemo_lens.meet as meet
        from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry
        thread = threading.Thread(target=setup_telemetry, args=(NemoLensConfig(enabled=True),))
        thread.start()
        assert meet.begun.wait(30)
        import warnings; warnings.simplefilter("ignore")  # Python 3.12 warns of a fork beside threads
        child = os.fork()
        if not child:
            signal.alarm(20)
            setup_telemetry(NemoLensConfig(enabled=True))
            os._exit(7 if get_telemetry().is_exporting else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        meet.go_on.set()
        thread.join()
        print(status, get_telemetry().is_exporting, len(meet.built))
        """
    )
    assert done.stdout == "7 True 1\n"


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("config", [{"enabled": True}, True, "otlp"])
def test_what_is_no_configuration_is_refused(config: object, enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong argument is a TypeError that names what is accepted, whether telemetry is on or off."""
    monkeypatch.setenv("NEMO_LENS_ENABLED", str(enabled))
    with pytest.raises(TypeError, match=f"NemoLensConfig or None.* not a {type(config).__name__}"):
        nemo_lens.api.setup_telemetry(config)  # type: ignore[arg-type]
    for attributes in ([("a", 1)], "abc", 5, ()):
        with pytest.raises(TypeError, match=f"mapping such as .* not a {type(attributes).__name__}"):
            nemo_lens.api.setup_telemetry(resource_attributes=attributes)  # type: ignore[arg-type]
    assert not nemo_lens.api.get_telemetry().is_exporting


def test_a_run_id_among_the_attributes_is_the_configurations(site: Site) -> None:
    """What another process is started with has the run id that was given, whatever its type; a blank is not given."""
    tells = BACKEND.replace(
        '"built:", self.name', 'config.run_id, sorted((options["resource_attributes"] or {}).items())'
    )
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": tells})
    done = site.run(
        """
        import enum, uuid
        from nemo_lens.api import NemoLensConfig, setup_telemetry
        from nemo_lens.api.lifecycle import live_config
        mine = NemoLensConfig(enabled=True, run_id="mine")
        Run = enum.Enum("Run", {"FIRST": "first"}, type=str)
        for given in ("theirs ", 5, Run.FIRST, uuid.UUID(int=5), b"bytes", "  ", None):
            handle = setup_telemetry(mine, resource_attributes={"nemo.run.id": given, "a": 1})
            print(live_config().to_env()["NEMO_LENS_RUN_ID"], mine.run_id)
            handle.is_shutdown = True
        """
    )
    assert done.stdout.splitlines() == [
        "theirs [('a', 1)]",
        "theirs mine",
        "5 [('a', 1)]",
        "5 mine",
        "first [('a', 1)]",
        "first mine",
        f"{UUID(int=5)} [('a', 1)]",
        f"{UUID(int=5)} mine",
        "bytes [('a', 1)]",
        "bytes mine",
        "mine [('a', 1)]",
        "mine mine",
        "mine [('a', 1), ('nemo.run.id', None)]",
        "mine mine",
    ]


def test_a_run_id_among_the_attributes_that_no_process_could_inherit(site: Site) -> None:
    """It is refused as the configuration's is, and no set-up is left under way."""
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": BACKEND})
    done = site.run(
        """
        from nemo_lens.api import NemoLensConfig, setup_telemetry
        for given in ("a\\0b", "ab"):
            try:
                print(setup_telemetry(NemoLensConfig(enabled=True), resource_attributes={"nemo.run.id": given}) is None)
            except ValueError as fault:
                print(fault)
        """
    )
    refused, *_, taken = done.stdout.splitlines()
    assert "run_id='a\\x00b'" in refused
    assert taken == "False"


# ---- integrations

INTEGRATION = """
def switch_on(*args, **options):
    print("on:", args, options)
    return "instrumented"

switch_on.uninstrument = lambda *args: print("off:", args) or "restored"

def one_way():
    print("one way")
"""


def test_instrument_and_uninstrument(site: Site) -> None:
    """An integration is found by name, called and undone; an unknown one is a ValueError that helps."""
    site.add(
        "plugin",
        {
            "nemo_lens.instrumentation": {
                "mine": "integration:switch_on",
                "oneway": "integration:one_way",
                "broken": "integration:missing",
            }
        },
        {"integration": INTEGRATION},
    )
    done = site.run(
        """
        from nemo_lens.api import *
        assert instrument("mine", 1, key=2) == "instrumented"
        assert uninstrument("mine", 1) == "restored"
        unknown = [(instrument, name) for name in ("mien", "fastapi", "broken")]
        for call, name in (unknown[0], (uninstrument, "oneway"), *unknown[1:]):
            try:
                call(name)
            except (ValueError, ImportError) as error:
                print(type(error).__name__, error)
        for call in (instrument, uninstrument):
            for name in (None, [1]):
                try:
                    call(name)
                except TypeError as error:
                    print(error)
        """
    )
    lines = done.stdout.splitlines()
    refused = "name must be that of an integration, such as 'fastapi', and not "
    assert lines[6:] == [refused + "NoneType", refused + "list"] * 2
    assert lines[:2] == ["on: (1,) {'key': 2}", "off: (1,)"]
    assert "did you mean 'mine'?" in lines[2]
    assert "cannot be undone" in lines[3]
    assert "pip install 'nemo-lens-contrib[fastapi]'" in lines[4]
    assert lines[5].startswith("ImportError")
    assert "plugin 1.0" in lines[5]


def test_integrations_from_the_environment(site: Site) -> None:
    """NEMO_LENS_INSTRUMENT switches each named one on at an enabled setup; a missing or failing one is a WARNING."""
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": BACKEND})
    site.add(
        "plugin",
        {"nemo_lens.instrumentation": {"mine": "integration:switch_on", "bad": "integration:one_way"}},
        {"integration": INTEGRATION.replace('print("one way")', "raise RuntimeError('not today')")},
    )
    done = site.run(SETUP, NEMO_LENS_INSTRUMENT="bad, nobody,,mine ")
    assert done.stdout == "built: first\non: () {}\nexporting: True\n"
    bad, nobody = _warnings(done)
    assert "NEMO_LENS_INSTRUMENT: 'bad'" in bad
    assert "not today" in bad
    assert "NEMO_LENS_INSTRUMENT: 'nobody'" in nobody
    off = site.run(
        "from nemo_lens.api import *; setup_telemetry(NemoLensConfig())",
        NEMO_LENS_INSTRUMENT="mine",
        NEMO_LENS_ENABLED="0",
    )
    assert off.stdout == ""


def test_an_integration_that_ends_the_program_does_not(site: Site) -> None:
    """Whatever a plug-in raises while it is loaded or called, set-up is one WARNING with its name and distribution.

    ``instrument`` makes an ImportError with the distribution of any fault of loading.
    """
    modules = {
        "exits": "raise SystemExit(3)",
        "fails": "raise RuntimeError('boom')",
        "calls": """
            class Mute(Exception):
                def __str__(self):
                    raise ValueError
            def leave(): raise SystemExit(4)
            def mute(): raise Mute
            nothing = None
        """,
    }
    points = {
        "exits": "exits:x",
        "fails": "fails:x",
        "leave": "calls:leave",
        "mute": "calls:mute",
        "no": "calls:nothing",
    }
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": BACKEND})
    site.add("plugin", {"nemo_lens.instrumentation": points}, modules)
    done = site.run(SETUP, NEMO_LENS_INSTRUMENT=",".join(points))
    assert done.stdout == "built: first\nexporting: True\n"
    messages = _warnings(done)
    assert len(messages) == len(points)
    for name, message in zip(points, messages, strict=True):
        assert f"NEMO_LENS_INSTRUMENT: {name!r}" in message
        assert "plugin 1.0" in message
    assert [message.rpartition(": ")[0].rpartition(" ")[2] for message in messages[:3]] == [
        "SystemExit", "RuntimeError", "SystemExit"
    ]  # fmt: skip
    direct = site.run(
        """
        from nemo_lens.api import instrument
        for name in ("exits", "fails"):
            try:
                instrument(name)
            except ImportError as error:
                print(error)
        """
    )
    assert direct.stdout.splitlines() == [
        "integration 'exits' of plugin 1.0 could not be loaded: SystemExit: 3",
        "integration 'fails' of plugin 1.0 could not be loaded: RuntimeError: boom",
    ]


# ---- span groups of installed libraries


def test_span_groups_of_libraries_that_are_not_imported_yet(site: Site) -> None:
    """Pending names of the spec are looked up among entry points, mapping or callable; broken ones warn."""
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": BACKEND})
    site.add(
        "consumer",
        {"nemo_lens.span_groups": {"trainer": "trainer:GROUPS", "saver": "trainer:groups", "bad": "trainer:BAD"}},
        {
            "trainer": """
            print("imported")
            GROUPS = {"groups": ["Train.Step", "train.io"], "presets": {"quick": ["train.step"]}}
            BAD = {"group": []}
            def groups():
                return {"groups": ["save"]}
            """
        },
    )
    program = SETUP.replace('""', '"quick,save"') + "print(*sorted(enabled_span_groups()), pending_span_groups())"
    done = site.run(program)
    assert done.stdout.splitlines() == [
        "built: first",
        "imported",
        "exporting: True",
        "Train.Step save train.step ()",
    ]
    (message,) = _warnings(done)
    assert "'bad'" in message
    assert "consumer 1.0" in message

    own = """
from nemo_lens.api import SpanRegistry
SpanRegistry.register("own", ["quick", "save"])
"""
    settled = site.run(own + program)
    assert "imported" not in settled.stdout, "nothing was pending, so no library needed to be imported"


def test_a_library_replaces_what_its_entry_point_said(site: Site) -> None:
    """What an entry point registered is provisional: the library's own registration takes its place without a word."""
    site.add("one", {"nemo_lens.backend": {"otel": "backends:FIRST"}}, {"backends": BACKEND})
    site.add("lib", {"nemo_lens.span_groups": {"lib": "lib:GROUPS"}}, {"lib": 'GROUPS = {"groups": ["a", "b"]}'})
    done = site.run(
        SETUP.replace('""', '"a,b,c"')
        + """
print(*sorted(enabled_span_groups()))
SpanRegistry.register("lib", ["b", "c"])
print(*sorted(enabled_span_groups()))
"""
    )
    assert done.stdout.splitlines()[-2:] == ["a b", "b c"]
    assert [line for line in _warnings(done) if "lib" in line.split("registered so far")[0]] == []
