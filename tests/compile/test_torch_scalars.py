"""Numbers that torch holds on the CPU are recorded as numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; nox -s torch installs it")

from nemo_lens.api import _diagnostics  # noqa: E402 - after the skip
from nemo_lens.api.instruments import (  # noqa: E402 - after the skip
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    register_metric_group,
    unregister_metric_group,
)
from support.meters import Meter  # noqa: E402 - after the skip

# torch's own deprecations are not what is tested here.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

DTYPES = {
    **dict.fromkeys(("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), 1.5),
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"), 3),
    "bool": True,
}


@pytest.fixture(autouse=True)
def _mine() -> Iterator[None]:
    _diagnostics.forget_reported()
    register_metric_group("torch", [MetricSpec("loss", "my.loss"), MetricSpec("steps", "my.steps", "counter")])
    yield
    unregister_metric_group("torch")


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.mark.parametrize("name", DTYPES)
def test_a_scalar_of_each_type_is_its_number(name: str, meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """Floats of 8 to 64 bits, bfloat16 too, integers and bools, as the last line of a loss function gives them."""
    given = DTYPES[name]
    record_metrics(meter, "torch", loss=torch.tensor(given).to(getattr(torch, name)))
    (value,) = meter.values("my.loss")
    assert value == given
    assert type(value) is (float if type(given) is float else int)
    assert not caplog.records


def test_a_scalar_of_the_graph_is_its_number(meter: Meter) -> None:
    """What requires a gradient, a parameter, a reduction, a view and what was detached; the gradient still flows."""
    weight = torch.nn.Parameter(torch.tensor(2.0))
    loss = (weight * torch.ones(4)).mean()
    for value in (weight, loss, loss.detach(), torch.arange(4.0)[2], torch.ones(1).squeeze()):
        record_metrics(meter, "torch", loss=value)
    assert meter.values("my.loss") == [2.0, 2.0, 2.0, 2.0, 1.0]
    loss.backward()
    assert weight.grad is not None


@pytest.mark.parametrize("shape", [(1,), (2, 2), (0,)])
def test_a_tensor_with_dimensions_is_refused(
    shape: tuple[int, ...], meter: Meter, caplog: pytest.LogCaptureFixture
) -> None:
    """Which of its numbers would it be? One WARNING says so, and the others are recorded."""
    for _ in range(3):
        record_metrics(meter, "torch", loss=torch.ones(shape), steps=1)
    assert meter.values("my.loss") == []
    assert meter.values("my.steps") == [1, 1, 1]
    (record,) = caplog.records
    assert "dimensions" in record.getMessage()


def test_a_tensor_that_has_no_storage_is_refused(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """A meta tensor is on a device that cannot be read at all: refused, like one on a GPU, without being asked."""
    record_metrics(meter, "torch", loss=torch.ones((), device="meta"), steps=1)
    assert (meter.values("my.loss"), meter.values("my.steps")) == ([], [1])
    (record,) = caplog.records
    assert "on a device" in record.getMessage()


def test_complex_and_not_finite_scalars(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """A complex number is no measurement; NaN and infinity are skipped without a WARNING."""
    with caplog.at_level(logging.WARNING):
        for value in (float("nan"), float("inf")):
            record_metrics(meter, "torch", loss=torch.tensor(value), steps=torch.tensor(value))
        assert not caplog.records
        record_metrics(meter, "torch", loss=torch.tensor(1j))
    assert meter.values("my.loss") == meter.values("my.steps") == []
    assert len(caplog.records) == 1


def test_what_a_callback_returns_may_be_of_torch(meter: Meter) -> None:
    """A scalar is one observation, a vector one for each of its numbers, as for any iterable."""
    given: list[Any] = [torch.tensor(1.5), [(torch.tensor(2), {"gpu": 0})], torch.tensor([3.0])]
    spec = MetricSpec("seen", "my.seen", "observable_gauge", callback=lambda: given.pop(0))
    register_metric_group("observed by torch", [spec])
    try:
        seen = create_metric_instruments(meter, "observed by torch")["seen"]
        assert [seen.collect() for _ in range(3)] == [[(1.5, {})], [(2, {"gpu": 0})], [(3.0, {})]]
    finally:
        unregister_metric_group("observed by torch")
