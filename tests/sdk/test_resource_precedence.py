"""Who wins when several say what a resource attribute is, and what may not get into a resource at all."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from nemo_lens.api import NemoLensConfig, _diagnostics
from nemo_lens.sdk.resources.precedence import build_resource


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _diagnostics.forget_reported()
    for name in list(os.environ):
        if name.startswith(("OTEL_", "SLURM_", "NEMO_LENS_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)


def resource(config: NemoLensConfig | None = None, caller: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(build_resource(config or NemoLensConfig(), "run", caller).attributes)


def test_the_caller_then_the_environment_then_the_configuration_then_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source wins over those below it, key by key."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NAME", "detected")
    assert resource()["slurm.job.name"] == "detected"
    config = NemoLensConfig(user="configured", service_name=None)
    assert resource(config)["nemo.user.id"] == "configured"
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "slurm.job.name=inherited,nemo.user.id=inherited,service.name=inherited"
    )
    found = resource(config)
    assert (found["slurm.job.name"], found["nemo.user.id"], found["service.name"]) == ("inherited",) * 3
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named")
    assert resource(config)["service.name"] == "named"
    assert resource(NemoLensConfig(service_name="in code"))["service.name"] == "in code"
    given = {"slurm.job.name": "given", "nemo.user.id": "given", "service.name": "given"}
    found = resource(NemoLensConfig(service_name="in code", user="configured"), given)
    assert {key: found[key] for key in given} == given


def test_a_process_is_never_taken_for_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process attributes and the GPU count are this process's own, however the launcher wrote them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "process.pid=1,host.gpu.count=64,process.command=sbatch,process%2Eowner=root"
    )
    found = resource()
    assert found["process.pid"] == os.getpid()
    assert found["host.gpu.count"] == 2
    assert not [key for key in found if key.startswith("process") and key != "process.pid"]


def test_a_blank_inherited_value_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``nv.dl.rank=$RANK`` of a launcher without the variable leaves what is detected, and instance ids distinct."""
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "nv.dl.rank=,slurm.job.name=%20,service.name=,service.instance.id=,nemo.run.id="
    )
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "q"}.items():
        monkeypatch.setenv(name, value)
    found = resource()
    assert found["nv.dl.rank"] == 3
    assert found["service.instance.id"] == "run-rank3"
    assert (found["slurm.job.name"], found["service.name"], found["nemo.run.id"]) == ("q", "nemo", "run")


def test_what_the_carrier_drops_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads the variable by other rules; a resource holds a key once, decoded, or not at all."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a%20b=1,bad=%zz,good=%2C,k\udcff=1")
    found = resource()
    assert (found["a b"], found["good"]) == ("1", ",")
    assert not found.keys() & {"a%20b", "bad", "k\udcff"}


def test_bytes_that_are_no_utf_8_spoil_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They become U+FFFD wherever they come from, so that the resource can be encoded."""
    for name in ("SLURM_CLUSTER_NAME", "SLURM_JOB_NAME", "OTEL_SERVICE_NAME", "DEPLOYMENT_ENV", "NEMO_LENS_USER_ID"):
        monkeypatch.setenv(name, "x\udcff")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    found = resource(NemoLensConfig.from_env())
    keys = ("slurm.cluster.name", "slurm.job.name", "service.name", "deployment.environment.name", "nemo.user.id")
    assert {found[key] for key in keys} == {"x\ufffd"}
    for value in found.values():
        str(value).encode()


def test_known_attributes_have_their_type(caplog: pytest.LogCaptureFixture) -> None:
    """What the caller gives of another type is converted, as what is inherited is; one WARNING names what cannot be."""
    given = {
        "nv.dl.rank": "3",
        "nv.dl.world_size": " +008 ",
        "nv.dl.topology.size.tp": 4.0,
        "nv.dl.topology.size.pp": "1_0",
        "nv.dl.role": 7,
        "mine": "8",
    }
    with caplog.at_level("WARNING"):
        found = resource(caller=given)
    assert {key: found[key] for key in given} == {
        **given,
        "nv.dl.rank": 3,
        "nv.dl.world_size": 8,
        "nv.dl.topology.size.tp": 4,
        "nv.dl.role": "7",
    }
    assert {key: type(found[key]) for key in given if found[key] == given[key]}["nv.dl.topology.size.tp"] is int
    assert found["service.instance.id"] == "run-rank3"
    (said,) = [record.getMessage() for record in caplog.records]
    assert "'nv.dl.topology.size.pp' is sent as it is, '1_0'" in said


def test_a_rank_that_is_no_integer_names_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """File names have no rank then, and neither has the instance, which would look as if it had one."""
    with caplog.at_level("WARNING"):
        found = resource(caller={"nv.dl.rank": "three"})
    assert found["nv.dl.rank"] == "three"
    assert "three" not in found.get("service.instance.id", "")
    assert "'nv.dl.rank' is sent as it is" in caplog.text


def test_a_blank_of_the_caller_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of known attributes, as of inherited ones: name, run id and rank are then what they are without it."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "nv.dl.rank=4")
    found = resource(caller={"service.name": "", "nemo.run.id": " ", "nv.dl.rank": "", "mine": ""})
    assert (found["service.name"], found["nemo.run.id"], found["nv.dl.rank"]) == ("nemo", "run", 4)
    assert found["mine"] == ""


@pytest.mark.parametrize("inherited", ["deployment.environment.name", "deployment.environment"])
def test_one_environment_under_both_names(monkeypatch: pytest.MonkeyPatch, inherited: str) -> None:
    """A source that has one of the two names has both, so that the two never say different things."""
    names = ("deployment.environment", "deployment.environment.name")
    monkeypatch.setenv("DEPLOYMENT_ENV", "dev")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{inherited}=prod")
    found = resource(NemoLensConfig.from_env())
    assert [found[name] for name in names] == ["prod", "prod"]
    found = resource(NemoLensConfig.from_env(), {inherited: "test"})
    assert [found[name] for name in names] == ["test", "test"]


def test_what_is_not_inherited_does_not_hide_what_opentelemetry_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank, and what would be the launcher's, leave the SDK's own attributes and its detectors' in place."""
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process,otel")
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "telemetry.sdk.name=,telemetry.sdk.language=x,process.runtime.name=x"
    )
    found = resource()
    assert found["telemetry.sdk.name"] == "opentelemetry"
    assert found["telemetry.sdk.language"] == "x"
    assert found["process.runtime.name"] == sys.implementation.name
    assert found["process.pid"] == os.getpid()


def test_a_rank_beyond_64_bits_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no exporter can encode is left out."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", str(2**64))
    assert "nv.dl.rank" not in resource()
