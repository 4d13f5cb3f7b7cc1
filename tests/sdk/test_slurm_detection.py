"""What is detected of a SLURM job: in recorded environments of three SLURM versions, and where they are odd."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.carrier import format_otel_resource_attributes
from nemo_lens.sdk import resources
from nemo_lens.sdk.resources import derive_job_uuid, detect_slurm
from support.slurm_expected import EXPECTED

RECORDED = Path(__file__).parents[1] / "slurm_env"

JOB = {"SLURM_JOB_ID": "42", "SLURM_CLUSTER_NAME": "alpha"}
# What any job has at least.
LEAST: dict[str, str | int] = {
    "slurm.job.id": "42",
    "slurm.job.id.raw": "42",
    "slurm.array.job_id": "42",
    "slurm.array.task_id": "0",
    "slurm.array.count": 1,
    "slurm.restart_count": 0,
    "slurm.cluster.name": "alpha",
    "nv.dl.job.uuid": "987db5dc-ce0d-512a-85fc-76ab42376852",
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _diagnostics.forget_reported()
    yield
    _diagnostics.forget_reported()


def recorded(name: str) -> dict[str, str]:
    lines = (RECORDED / name).read_text(encoding="utf-8").splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def inheriting(attributes: Mapping[str, object], **variables: str) -> dict[str, str]:
    return {"OTEL_RESOURCE_ATTRIBUTES": format_otel_resource_attributes(attributes), **variables}


def test_every_recording_has_an_expectation() -> None:
    """No recorded environment goes untested, and no expectation is about nothing."""
    assert {path.name for path in RECORDED.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recorded_job(name: str) -> None:
    """A job's environment gives exactly the attributes written out for it, text and integers as they should be."""
    found = detect_slurm(recorded(name))
    assert found == EXPECTED[name]
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in EXPECTED[name].items()
    }


def test_the_last_element_of_an_array_is_told_from_the_array() -> None:
    """It has the array's own job id, and is yet an element; all elements share the job's UUID."""
    elements = [detect_slurm(recorded(f"sbatch-array-task{task}.txt")) for task in range(4)]
    assert elements[3]["slurm.job.id.raw"] == elements[3]["slurm.array.job_id"] == "3"
    assert [element["slurm.job.id"] for element in elements] == ["3_0", "3_1", "3_2", "3_3"]
    assert len({element["nv.dl.job.uuid"] for element in elements}) == 1


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping, ``os.environ`` is read."""
    for name in ("SLURM_STEP_ID", "SLURM_STEPID", "SLURMD_NODENAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    assert detect_slurm()["slurm.job.id"] == "42"


@pytest.mark.parametrize(
    "environ", [{}, {"SLURM_JOB_ID": " "}, {"SLURM_JOB_NAME": "train", "SLURM_NTASKS": "8", "SLURMD_NODENAME": "n1"}]
)
def test_without_a_job_id_nothing_is_derived(environ: dict[str, str]) -> None:
    """SLURM's other variables alone make no job."""
    assert detect_slurm(environ) == {}


def test_a_job_id_alone_is_enough() -> None:
    """The rest is left out, or has the value that its absence means."""
    assert detect_slurm(JOB) == LEAST


OPTIONAL = """
SLURM_JOB_NAME SLURM_JOB_USER SLURM_JOB_ACCOUNT SLURM_JOB_QOS SLURM_JOB_RESERVATION SLURM_JOB_PARTITION
SLURM_JOB_NUM_NODES SLURM_NTASKS SLURM_RESTART_COUNT SLURM_SEGMENT SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN
SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_HET_SIZE SLURMD_NODENAME SLURM_STEP_ID
LENS_SLURM_SLUID LENS_SLURM_ARRAY_SLUID OTEL_RESOURCE_ATTRIBUTES
"""


def test_blank_variables_count_as_unset() -> None:
    """A blank variable is as good as none: left out, the next one read, or the default taken."""
    blank = dict.fromkeys(OPTIONAL.split(), " \t")
    assert detect_slurm({**JOB, **blank}) == LEAST
    others = {"SLURM_PARTITION": "debug", "SLURM_NNODES": "3", "NV_LAUNCH_SLUID": "s", "NV_LAUNCH_ARRAY_SLUID": "a"}
    assert detect_slurm({**JOB, **blank, **others}) == LEAST | {
        "slurm.partition": "debug",
        "slurm.nnodes": 3,
        "slurm.sluid": "s",
        "slurm.array.sluid": "a",
    }


# Attribute -> the variables it comes from, the stronger first.
SOURCES = {
    "slurm.partition": ("SLURM_JOB_PARTITION", "SLURM_PARTITION"),
    "slurm.nnodes": ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    "slurm.sluid": ("LENS_SLURM_SLUID", "NV_LAUNCH_SLUID"),
    "slurm.array.sluid": ("LENS_SLURM_ARRAY_SLUID", "NV_LAUNCH_ARRAY_SLUID"),
    "slurm.job.account": ("SLURM_JOB_ACCOUNT",),
    "slurm.job.qos": ("SLURM_JOB_QOS",),
    "slurm.job.reservation": ("SLURM_JOB_RESERVATION",),
    "slurm.segment": ("SLURM_SEGMENT",),
    "slurm.topology.addr": ("SLURM_TOPOLOGY_ADDR",),
    "slurm.topology.addr_pattern": ("SLURM_TOPOLOGY_ADDR_PATTERN",),
}


@pytest.mark.parametrize("attribute", SOURCES)
def test_what_the_recordings_do_not_show(attribute: str) -> None:
    """Each of these variables gives its attribute, alone and before a weaker one."""
    texts = ["16", "32"]  # of either type
    typed = [int(text) if attribute == "slurm.nnodes" else text for text in texts]
    variables = SOURCES[attribute]
    for variable, text, value in zip(variables, texts, typed, strict=False):
        assert detect_slurm({**JOB, variable: text}) == LEAST | {attribute: value}
    assert detect_slurm({**JOB, **dict(zip(variables, texts, strict=False))}) == LEAST | {attribute: typed[0]}


@pytest.mark.parametrize(
    "text", ["x", "1_0", "3.5", "0x10", "1e3", "--1", "+", "٣", "9223372036854775808", "2(x4)", "9" * 5000]
)
def test_an_integer_that_is_none_is_left_out(text: str) -> None:
    """Also where an absent one would have a default: nothing is made up."""
    integers = (
        "SLURM_NTASKS",
        "SLURM_JOB_NUM_NODES",
        "SLURM_HET_SIZE",
        "SLURM_RESTART_COUNT",
        "SLURM_ARRAY_TASK_COUNT",
    )
    expected = {key: value for key, value in LEAST.items() if key not in ("slurm.restart_count", "slurm.array.count")}
    assert detect_slurm({**JOB, **dict.fromkeys(integers, text)}) == expected


@pytest.mark.parametrize(
    ("text", "number"), [(" +007 ", 7), ("-1", -1), ("0", 0), ("9223372036854775807", 2**63 - 1), ("0" * 50 + "4", 4)]
)
def test_integers_are_understood(text: str, number: int) -> None:
    """Blanks around an integer, its sign and leading zeros do not matter."""
    assert detect_slurm({**JOB, "SLURM_NTASKS": text}) == LEAST | {"slurm.ntasks": number}


def test_bytes_that_are_no_utf8_can_be_exported() -> None:
    """A job's name in another encoding reaches no exporter as lone surrogates."""
    assert detect_slurm({**JOB, "SLURM_JOB_NAME": "caf\udce9"})["slurm.job.name"] == "caf\ufffd"


# Variables of the step -> whether it is a task that srun started.
STEPS: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"SLURM_STEP_ID": "", "SLURM_STEPID": " "}, False),
    ({"SLURM_STEP_ID": "-5"}, False),  # the batch step of 26.05
    ({"SLURM_STEP_ID": "-5", "SLURM_STEPID": "-5"}, False),
    ({"SLURM_STEP_ID": "4294967290"}, False),  # salloc's shell
    ({"SLURM_STEP_ID": "0"}, True),
    ({"SLURM_STEPID": "0"}, True),
    ({"SLURM_STEP_ID": "", "SLURM_STEPID": "3"}, True),
    ({"SLURM_STEP_ID": "4294967000"}, True),
    ({"SLURM_STEP_ID": "unknown"}, True),
]


@pytest.mark.parametrize(("step", "in_task"), STEPS)
def test_the_head_node_is_known_outside_task_steps_only(step: dict[str, str], in_task: bool) -> None:
    """A task's node is where the task runs; the batch script's, and that of salloc's shell, is the head node."""
    found = detect_slurm({**JOB, **step, "SLURMD_NODENAME": "gpu-a1"})
    assert found == (LEAST if in_task else LEAST | {"slurm.head_node.name": "gpu-a1"})


HET = {
    **JOB,
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "42",
    "SLURM_JOB_ID_HET_GROUP_1": "43",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu-a[1-2]",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu-b[07-10],login",
    "SLURM_STEP_ID": "0",
}


@pytest.mark.parametrize(
    ("changed", "group"),
    [
        ({"SLURMD_NODENAME": "gpu-a2"}, 0),
        ({"SLURMD_NODENAME": "gpu-b09"}, 1),
        ({"SLURMD_NODENAME": "gpu-b9"}, None),
        ({"SLURMD_NODENAME": "elsewhere"}, None),
        ({}, None),
        # Both components have tasks on that node.
        ({"SLURMD_NODENAME": "gpu-a2", "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu-a[2-3]"}, None),
        # A list that cannot be read may name it too.
        ({"SLURMD_NODENAME": "gpu-a2", "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu-b[07"}, None),
        # The batch step is the whole job's.
        ({"SLURMD_NODENAME": "gpu-a1", "SLURM_STEP_ID": "-5"}, None),
        ({"SLURMD_NODENAME": "gpu-a2", "SLURM_HET_SIZE": ""}, None),
    ],
)
def test_the_het_group_is_said_when_the_node_says_it(changed: dict[str, str], group: int | None) -> None:
    """A task on a node of exactly one component belongs to that one; in doubt nothing is said."""
    assert detect_slurm({**HET, **changed}).get("slurm.het.group") == group


def test_a_job_submitted_from_inside_a_heterogeneous_one_is_not_heterogeneous() -> None:
    """``sbatch`` hands the outer job's variables on: they are told by the job ids of the components."""
    found = detect_slurm({**HET, "SLURM_JOB_ID": "77", "SLURMD_NODENAME": "gpu-a2"})
    assert "slurm.het.size" not in found
    assert "slurm.het.group" not in found
    assert detect_slurm({**JOB, "SLURM_HET_SIZE": "2"})["slurm.het.size"] == 2


def test_inherited_attributes_win_key_by_key() -> None:
    """What was inherited stays, whatever it says; what is missing is derived; other attributes are no concern here."""
    given = {
        "slurm.job.name": "inherited, with=odd% characters",
        "slurm.ntasks": 512,
        "slurm.site.rack": "r7",
        "nv.dl.job.uuid": "given",
        "nv.dl.run.uuid": "not detected",
        "nv.dl.rank": 3,
        "service.name": "trainer",
    }
    found = detect_slurm(inheriting(given, **JOB, SLURM_JOB_NAME="own", SLURM_NTASKS="8", SLURM_JOB_USER="ada"))
    assert found == LEAST | {
        "slurm.job.name": "inherited, with=odd% characters",
        "slurm.ntasks": 512,
        "slurm.site.rack": "r7",
        "slurm.job.user": "ada",
        "nv.dl.job.uuid": "given",
    }


def test_inherited_attributes_alone_are_enough() -> None:
    """In a container without ``SLURM_*`` the job is what was inherited, and nothing is added to it."""
    given = {"slurm.job.id": "7_1", "slurm.nnodes": 4, "nv.dl.job.uuid": "given", "nv.dl.run.uuid": "r"}
    expected = {"slurm.job.id": "7_1", "slurm.nnodes": 4, "nv.dl.job.uuid": "given"}
    assert detect_slurm(inheriting(given)) == expected
    assert detect_slurm(inheriting(given, SLURM_JOB_NAME="ignored", SLURMD_NODENAME="n1")) == expected


def test_a_blank_inherited_attribute_is_none() -> None:
    """It does not hide what the job says."""
    environ = {**JOB, "OTEL_RESOURCE_ATTRIBUTES": "slurm.job.user=,slurm.job.name=%20", "SLURM_JOB_USER": "ada"}
    assert detect_slurm(environ) == LEAST | {"slurm.job.user": "ada"}


def test_attributes_of_another_job_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING names both jobs and the remedy, and what was inherited wins all the same."""
    environ = inheriting({"slurm.job.id": "41", "slurm.job.id.raw": "41"}, **JOB)
    with caplog.at_level(logging.DEBUG, logger="nemo_lens"):
        found = [detect_slurm(environ) for _ in range(3)]
    assert found == [LEAST | {"slurm.job.id": "41", "slurm.job.id.raw": "41"}] * 3
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "SLURM job 41, and this is job 42" in record.getMessage()
    assert "nemo-lens set-slurm-resource-attrs --stage sbatch" in record.getMessage()


@pytest.mark.parametrize(
    "environ",
    [
        inheriting({"slurm.job.id.raw": "42"}, **JOB),
        inheriting({"slurm.job.name": "no id"}, **JOB),
        inheriting({"slurm.job.id.raw": "41"}),
        # The components of a heterogeneous job are one job.
        inheriting({"slurm.job.id.raw": "43"}, **HET),
        inheriting({"slurm.job.id.raw": "42"}, **{**HET, "SLURM_JOB_ID": "43"}),
    ],
)
def test_attributes_of_the_same_job_are_no_reason_to_warn(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor are those that name no job, or those in a process that SLURM tells nothing."""
    detect_slurm(environ)
    assert not caplog.records


def test_the_job_uuid_is_that_of_derive_job_uuid() -> None:
    """Detection and an application that calls the function agree."""
    for name in ("sbatch-array-task1.txt", "het-srun-rank2.txt", "v26.05-mn4x2-srun-rank3.txt"):
        assert detect_slurm(recorded(name))["nv.dl.job.uuid"] == derive_job_uuid(recorded(name))


def test_the_names_of_the_package_are_all_there() -> None:
    """Each name of ``nemo_lens.sdk.resources.__all__`` is found when it is touched, and a misspelt one is an error."""
    assert all(callable(getattr(resources, name)) for name in resources.__all__)
    assert set(resources.__all__) <= set(dir(resources))
    with pytest.raises(AttributeError, match="no attribute 'detect_slrum'"):
        _ = resources.detect_slrum
