"""``contrib.nccl``: contexts as tensors, and sent from rank to rank alongside activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchrun_runs import Finished, needs_torch, torchrun

from support.written import Written

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s torch`")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402 - after the skip

from nemo_lens.api import (  # noqa: E402 - after the skip
    NemoLensConfig,
    extract_context,
    get_telemetry,
    inject_context,
    instrument,
    setup_telemetry,
    span_cm,
    uninstrument,
)
from nemo_lens.contrib import nccl  # noqa: E402 - after the skip

pytestmark = [needs_torch, pytest.mark.timeout(150)]

CARRIER = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Set telemetry up for one test."""
    exporter = InMemorySpanExporter()
    config = NemoLensConfig(enabled=True, metrics_enabled=False, span_groups="")
    with setup_telemetry(config, span_exporter=exporter, resource_attributes={"nv.dl.rank": 0}):
        yield exporter


# ---- tensors


def test_a_context_there_and_back(exporter: InMemorySpanExporter) -> None:
    """The current context, a given one and a carrier come back; the tensor is what it says it is."""
    with span_cm("sender"):
        own = inject_context({})
        tensors = [nccl.serialize_context(), nccl.serialize_context(extract_context(CARRIER), 128)]
    tensors.append(nccl.serialize_context(CARRIER, size=8192))
    assert [nccl.deserialize_context(tensor) for tensor in tensors] == [own, CARRIER, CARRIER]
    assert [(tensor.numel(), tensor.dtype, tensor.dim()) for tensor in tensors] == [
        (size, torch.uint8, 1) for size in (512, 128, 8192)
    ]
    assert all(tensor.is_contiguous() and tensor.device.type == "cpu" for tensor in tensors)
    with span_cm("child", context=nccl.extract_nccl_context(tensors[0])):
        pass
    assert get_telemetry().force_flush(10_000)
    child, sender = sorted(exporter.get_finished_spans(), key=lambda span: span.name)
    assert child.parent.span_id == sender.context.span_id
    assert inject_context({}, nccl.extract_nccl_context(tensors[2])) == CARRIER


def test_what_is_too_long_is_left_out(exporter: InMemorySpanExporter) -> None:
    """Baggage that does not fit does not cost the trace."""
    carrier = {**CARRIER, "baggage": "job=" + "x" * 600}
    assert nccl.deserialize_context(nccl.serialize_context(carrier)) == CARRIER
    assert nccl.deserialize_context(nccl.serialize_context(carrier, 1024)) == carrier


def test_without_telemetry_the_tensor_is_the_same_kind() -> None:
    """With telemetry off, a tensor of the same size holds an empty context."""
    tensor = nccl.serialize_context(size=256)
    assert (tensor.numel(), tensor.dtype) == (256, torch.uint8)
    assert nccl.deserialize_context(tensor) == {}
    assert nccl.extract_nccl_context(tensor) is None


@pytest.mark.parametrize("size", [0, -1, 127, 8193, 2**40, 128.0, "512", None])
def test_sizes(size: Any) -> None:
    """A size that no context fits is refused, with telemetry off as well, and says which do."""
    for call in (
        lambda: nccl.serialize_context(size=size),
        lambda: nccl.send_context(0, size=size),
        lambda: nccl.recv_context(0, size=size),
    ):
        with pytest.raises(ValueError, match="128 to 8192 bytes"):
            call()


class Hostile(torch.Tensor):
    """A tensor that cannot be read."""

    def tolist(self) -> list[int]:
        raise RuntimeError("no")


GOOD = nccl.carrier_tensor(nccl.pack_carrier(CARRIER, 512), None)
BAD = {
    "cut": GOOD[:-1],
    "cut at the front": GOOD[1:],
    "cut short": GOOD[:100],
    "header alone": GOOD[:12],
    "padded": torch.cat([GOOD, torch.zeros(1, dtype=torch.uint8)]),
    "padded at the front": torch.cat([torch.zeros(1, dtype=torch.uint8), GOOD]),
    "padded with others": torch.cat([GOOD, torch.ones(64, dtype=torch.uint8)]),
    "two of them": torch.cat([GOOD, GOOD]),
    "a matrix": GOOD.reshape(2, 256),
    "a column": GOOD.reshape(512, 1),
    "a number": GOOD[0],
    "signed": GOOD.to(torch.int8),
    "float": GOOD.to(torch.float32),
    "bool": GOOD.to(torch.bool),
    "complex": GOOD.to(torch.complex64),
    "backwards": GOOD.flip(0),
    "every other one": torch.cat([GOOD, GOOD])[::2],
    "empty": torch.empty(0, dtype=torch.uint8),
    "zeros": torch.zeros(512, dtype=torch.uint8),
    "ones": torch.full((512,), 255, dtype=torch.uint8),
    "huge": torch.zeros(1, dtype=torch.uint8).expand(2**40),
    "longer than any": torch.cat([GOOD, torch.zeros(8192, dtype=torch.uint8)]),
    "on no device": torch.empty(512, dtype=torch.uint8, device="meta"),
    "sparse": GOOD.to_sparse(),
    "hostile": GOOD.as_subclass(Hostile),
    "none": None,
    "bytes": bytes(GOOD.tolist()),
    "list": GOOD.tolist(),
    "numpy": GOOD.numpy(),
    "text": "NLC1",
    "carrier": CARRIER,
    "class": torch.Tensor,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_tensors(bad: Any, exporter: InMemorySpanExporter) -> None:
    """Cut, padded, of the wrong type or shape, huge or hostile: an empty context and no exception."""
    assert nccl.deserialize_context(GOOD) == CARRIER
    assert nccl.deserialize_context(bad) == {}
    assert inject_context({}, nccl.extract_nccl_context(bad)) == {}


@given(st.integers(0, 511), st.integers(0, 255))
def test_one_wrong_byte(position: int, byte: int) -> None:
    """A byte that was changed on the way gives a carrier of text or an empty one."""
    tensor = GOOD.clone()
    tensor[position] = byte
    found = nccl.deserialize_context(tensor)
    assert set(map(type, found.values())) <= {str}
    if position < 12 or position >= 80:  # header and filling
        assert found in ({}, CARRIER)


@given(st.lists(st.integers(0, 255), max_size=600), st.booleans())
@settings(max_examples=300)
def test_any_bytes(data: list[int], genuine: bool) -> None:
    """Bytes of somebody else's, also behind a header of ours, never raise."""
    header = list(b"NLC1") + list((len(data) + 12).to_bytes(4, "big")) + list(len(data).to_bytes(4, "big"))
    tensor = torch.tensor(header * genuine + data, dtype=torch.uint8)
    assert isinstance(nccl.deserialize_context(tensor), dict)
    nccl.extract_nccl_context(tensor)


def test_the_entry_point() -> None:
    """``instrument("nccl")`` gives the functions, as often as one asks, and patches nothing."""
    before = dict(vars(torch.distributed))
    assert instrument("nccl") is instrument("nccl") is nccl
    assert uninstrument("nccl") is None
    assert dict(vars(torch.distributed)) == before


# ---- between ranks


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Written]:
    """Run the chain of ranks once: rank 2 has telemetry off."""
    written = Written(tmp_path_factory.mktemp("chain"))
    done = torchrun(
        "alongside_activations", program="context.py", environ={"NEMO_LENS_ENABLED": "1", **written.environ}
    )
    assert done.code == 0, done.stderr
    assert "nemo_lens" not in done.stderr
    return done, written


def results(job: tuple[Finished, Written], case: str) -> list[Any]:
    said = job[0].cases(case)
    return [said[rank]["result"] for rank in range(4)]


def test_contexts_travel_with_activations(job: tuple[Finished, Written]) -> None:
    """Each rank computes what it would without, gets the context of the rank before, and links to it."""
    own = {fact["rank"]: fact["own"] for fact in job[0].facts if "own" in fact}
    assert own[2] == {}
    assert results(job, "chain") == [[6.0, {}], [18.0, own[0]], [36.0, own[1]], [60.0, {}]]
    stages = {span["resource"]["nv.dl.rank"]: span for span in job[1].spans() if span["name"] == "stage"}
    assert set(stages) == {0, 1, 3}
    assert [stages[rank]["parent_id"] for rank in (0, 1, 3)] == [""] * 3
    assert [link["span_id"] for link in stages[1]["links"]] == [stages[0]["span_id"]]
    assert stages[0]["links"] == stages[3]["links"] == []


def test_a_context_is_one_message(job: tuple[Finished, Written]) -> None:
    """Beside the activations there is one message more to each neighbour, also where telemetry is off."""
    sent, received = ["gloo:send"] * 2, ["gloo:recv"] * 2
    messages = [job[0].cases("chain")[rank]["sent"] for rank in range(4)]
    assert [sorted(names) for names in messages] == [sent, received + sent, received + sent, received]


def test_in_a_subgroup(job: tuple[Finished, Written]) -> None:
    """In a subgroup the two members exchange a given context; the others get an empty one and do nothing."""
    assert results(job, "pair") == [None, CARRIER, None, None]
    assert [job[0].cases("pair")[rank]["sent"] for rank in range(4)] == [["gloo:send"], ["gloo:recv"], [], []]


def test_by_means_of_ones_own(job: tuple[Finished, Written]) -> None:
    """In a batch with activations the tensor arrives, and the receiver's span links to the sender's and is a root."""
    receiver = job[1].span("receiver")
    (sender,) = [span for span in job[1].spans() if span["name"] == "sender" and span["resource"]["nv.dl.rank"] == 0]
    assert results(job, "batch")[1]["traceparent"].split("-")[2] == sender["span_id"]
    assert [(link["trace_id"], link["span_id"]) for link in receiver["links"]] == [
        (sender["trace_id"], sender["span_id"])
    ]
    assert (receiver["parent_id"], receiver["trace_id"] == sender["trace_id"]) == ("", False)


def test_cuda_is_not_touched(job: tuple[Finished, Written]) -> None:
    """Over gloo nobody looks at the CUDA that is in sight."""
    assert [fact for fact in job[0].facts if "touched" in fact] == []


def test_without_a_process_group(job: tuple[Finished, Written]) -> None:
    """Once the process group is destroyed nothing is sent, and what is received is empty."""
    assert results(job, "destroyed") == [[None, {}]] * 4
