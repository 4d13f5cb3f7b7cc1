"""What trainers do to the metric registry by mistake: nothing hangs, floods the log, or costs its neighbours."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nemo_lens.api import _diagnostics, backend, get_meter
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_inference_metrics,
    record_metrics,
    register_metric_group,
    registry,
    unregister_metric_group,
)
from support.meters import Adding, Meter
from support.odd_values import Hostile, tensor


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    before, installed = registry.groups, backend.snapshot_backend()
    _diagnostics.forget_reported()
    register_metric_group("mine", [MetricSpec("steps", "my.steps", "counter")])
    yield
    registry.replace_groups(before)
    backend.restore_backend(installed)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class LockedMeter(Meter):
    """Makes counters that hold a lock while they add, as the SDK's aggregations do, and can be interrupted there."""

    interrupt: Callable[[], None] | None = None

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        lock = threading.Lock()
        outer = self

        class Counter(Adding):
            def add(self, amount: float, attributes: dict[str, Any] | None = None, context: Any = None) -> None:
                assert lock.acquire(timeout=5), "waits for itself"
                try:
                    interrupt, outer.interrupt = outer.interrupt, None
                    if interrupt is not None:
                        interrupt()
                    self._take(amount, attributes)
                finally:
                    lock.release()

        counter = Counter("counter", name, unit, description)
        self.made.append(counter)
        return counter


def test_a_signal_handler_records_what_it_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that runs in the middle of a measurement records into the same instrument: both count, none waits."""
    meter = LockedMeter()
    meter.interrupt = lambda: record_metrics(meter, "mine", steps=2, attributes={"by": "handler"})
    record_metrics(meter, "mine", steps=1)
    record_metrics(meter, "mine", steps=4)
    assert meter["my.steps"].points == [(1, {}), (2, {"by": "handler"}), (4, {})]
    assert _warnings(caplog) == []


class _Slow(backend.NoopBackend):
    """A backend whose meter takes a while to make an instrument."""

    def __init__(self) -> None:
        self.meter = Meter()
        make = self.meter.create_counter

        def slowly(*args: Any, **kwargs: Any) -> Any:
            time.sleep(0.05)
            return make(*args, **kwargs)

        self.meter.create_counter = slowly  # type: ignore[method-assign]

    def get_meter(self, name: str, version: str | None = None) -> Any:
        return self.meter


def test_threads_that_first_record_at_once_make_one_instrument() -> None:
    """Eight threads first use an early meter's metric together: it is made once, which 1.38 needs, and all count."""
    early = get_meter("early")
    slow = _Slow()
    backend.install_backend(slow)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        record_metrics(early, "mine", steps=1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(slow.meter.made) == 1
    assert len(slow.meter["my.steps"].points) == 8


def test_asking_for_an_early_meter_again_and_again_keeps_nothing() -> None:
    """A library that switches its callbacks on with each object it makes holds them once, while telemetry is off."""
    register_metric_group("asked", [MetricSpec("load", "my.load", "observable_gauge", callback=lambda: 1)])
    create_metric_instruments(get_meter("again"), "asked")
    _, listeners = backend.snapshot_backend()
    for _ in range(10):
        create_metric_instruments(get_meter("again"), "asked")
    assert backend.snapshot_backend()[1] == listeners


def test_keys_and_groups_made_up_at_each_step_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Keys and groups with the step in them are said for the first few, and other problems still once."""
    meter = Meter()
    for step in range(6000):
        record_metrics(meter, "mine", {f"loss_{step}": 1.0})
        record_metrics(meter, f"group_{step}", loss=1.0)
        record_metrics(meter, "mine", steps="many")
    said = _warnings(caplog)
    assert len(said) < 100
    assert sum("a str is no number" in line for line in said) == 1


def test_a_key_that_cannot_be_shown_costs_itself_alone() -> None:
    """A key whose text raises does not keep the others from being recorded."""
    meter = Meter()
    logging.getLogger("nemo_lens").disabled = True  # showing it is the handler's affair
    try:
        record_metrics(meter, "mine", {Hostile(): 1, "steps": 2})
    finally:
        logging.getLogger("nemo_lens").disabled = False
    assert meter["my.steps"].points == [(2, {})]


def test_while_telemetry_is_off_a_request_is_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    """Bad attributes of a request are no problem while nothing is recorded."""
    record_inference_metrics(get_meter("off"), request_duration_s=1.0, attributes=[1])  # type: ignore[arg-type]
    assert _warnings(caplog) == []


def test_a_spec_is_the_same_in_another_process() -> None:
    """A pickled spec, as Ray sends it, equals and hashes as one made where it arrives."""
    spec = MetricSpec("load_s", "my.load", "histogram", "s", buckets=(1, 2))
    program = (
        "import pickle, sys; from nemo_lens.api.instruments import MetricSpec;"
        "sent = pickle.loads(bytes.fromhex(sys.argv[1]));"
        "made = MetricSpec('load_s', 'my.load', 'histogram', 's', buckets=(1, 2));"
        "assert sent == made and {sent: 1}[made]"
    )
    subprocess.run([sys.executable, "-c", program, pickle.dumps(spec).hex()], check=True, timeout=30)


def test_one_spec_is_no_group() -> None:
    """A spec that should have been in a list is a clear error."""
    with pytest.raises(TypeError, match="'one' takes an iterable of MetricSpec and not a MetricSpec"):
        register_metric_group("one", MetricSpec("a", "a"))  # type: ignore[arg-type]


def test_two_engines_observe_one_metric() -> None:
    """Two groups of one metric, each with a callback of its own, are both observed, on the meters they are on alone."""
    first, second = Meter(), Meter()
    for engine in ("engine0", "engine1"):
        spec = MetricSpec("load", "my.load", "observable_gauge", callback=lambda name=engine: (1, {"engine": name}))
        register_metric_group(engine, [spec])
        create_metric_instruments(first, engine)
    create_metric_instruments(second, "engine1")
    assert first["my.load"].collect() == [(1, {"engine": "engine0"}), (1, {"engine": "engine1"})]
    assert second["my.load"].collect() == [(1, {"engine": "engine1"})]
    unregister_metric_group("engine0")
    assert first["my.load"].collect() == [(1, {"engine": "engine1"})]


class _UntoldError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Scalar:
    ndim = 0

    def item(self) -> float:
        raise _UntoldError


_Scalar.__module__ = "numpy"


@pytest.mark.parametrize(
    ("callback", "word"),
    [
        pytest.param(lambda: sys.exit(3), "failed with SystemExit", id="exits"),
        pytest.param(_Scalar, "reading it failed with _UntoldError", id="no text"),
        pytest.param(lambda: [tensor(1.0, device="cuda")], "pass the number", id="on a device"),
    ],
)
def test_what_a_callback_does_wrong_is_said_once(
    callback: Callable[[], Any], word: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A callback that exits, or gives what cannot be read, is one WARNING and nothing on the console."""
    meter = Meter()
    register_metric_group("asked", [MetricSpec("load", "my.load", "observable_gauge", callback=callback)])
    create_metric_instruments(meter, "asked")
    for _ in range(2):
        assert meter["my.load"].collect() == []
    (line,) = _warnings(caplog)
    assert word in line
    assert "Traceback" not in capfd.readouterr().err
