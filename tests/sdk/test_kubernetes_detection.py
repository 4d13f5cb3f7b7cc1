"""``detect_kubernetes``: in pods as the kubelet lays them out, outside of them, and where files are broken."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.sdk.resources import detect_kubernetes
from nemo_lens.sdk.resources.kubernetes import FILES, VARIABLES, VARIABLES_OF_A_POD, label_value
from support.kubelet import atomic_files, go_quoted

SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
POD_INFO = "etc/podinfo"
ALL_SIX = {
    "k8s.namespace.name": "ml-team",
    "k8s.pod.name": "train-0-x7k2p",
    "k8s.pod.uid": "5f0ab7de-0d5c-4bd2-9d0c-0c8ab1a5b1f4",
    "k8s.node.name": "gpu-node-07",
    "k8s.container.name": "trainer",
    "k8s.job.name": "train",
}


@pytest.fixture(autouse=True)
def _nothing_reported() -> Iterator[None]:
    forget_reported()
    yield
    forget_reported()


def pod(root: Path, folder: str = SERVICE_ACCOUNT, **files: str) -> Path:
    """Lay out a volume of a pod under ``root``."""
    atomic_files(root / folder, {name: text.encode() for name, text in files.items()})
    return root


def test_outside_kubernetes_there_is_nothing(tmp_path: Path) -> None:
    """A machine without a pod gives no attribute, whatever its variables of common names say."""
    elsewhere = {
        "HOSTNAME": "node7",
        "NODE_NAME": "built-in",
        "JOB_NAME": "nightly",
        "CONTAINER_NAME": "toolbox",
        "NAMESPACE": "x",
    }
    assert detect_kubernetes(elsewhere, tmp_path) == {}
    assert detect_kubernetes({}, str(tmp_path / "absent")) == {}


@pytest.mark.parametrize(
    ("attribute", "variable"), [(attribute, name) for attribute, names in VARIABLES.items() for name in names]
)
def test_each_spelling_alone_is_enough(tmp_path: Path, attribute: str, variable: str) -> None:
    """A variable that is set for telemetry gives its attribute by itself."""
    assert detect_kubernetes({variable: f" {ALL_SIX[attribute]}\n"}, tmp_path) == {attribute: ALL_SIX[attribute]}


@pytest.mark.parametrize(
    "variables",
    [
        "K8S_NAMESPACE_NAME K8S_POD_NAME K8S_POD_UID K8S_NODE_NAME K8S_CONTAINER_NAME K8S_JOB_NAME",
        "POD_NAMESPACE POD_NAME POD_UID NODE_NAME CONTAINER_NAME JOB_NAME",
    ],
)
def test_the_documented_spellings_give_all_six(tmp_path: Path, variables: str) -> None:
    """``K8S_*`` and the common spellings each describe the whole pod."""
    assert detect_kubernetes(dict(zip(variables.split(), ALL_SIX.values(), strict=True)), tmp_path) == ALL_SIX


def test_spellings_of_the_opentelemetry_operator(tmp_path: Path) -> None:
    """What the operator injects beside OTEL_RESOURCE_ATTRIBUTES is understood."""
    injected = {
        "OTEL_RESOURCE_ATTRIBUTES_POD_NAME": "p",
        "OTEL_RESOURCE_ATTRIBUTES_POD_UID": "u",
        "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME": "n",
    }
    assert detect_kubernetes(injected, tmp_path) == {"k8s.pod.name": "p", "k8s.pod.uid": "u", "k8s.node.name": "n"}


def test_a_spelling_for_telemetry_wins_over_a_common_one_and_over_files(tmp_path: Path) -> None:
    """``K8S_*``, then the common spelling, then the volume, then the service account."""
    root = pod(pod(tmp_path, namespace="of-the-account"), POD_INFO, namespace="of-the-volume", name="of-the-volume")
    both = {
        "K8S_POD_NAME": "exact",
        "POD_NAME": "common",
        "K8S_NAMESPACE": "exact",
        "POD_NAMESPACE": "common",
    }
    assert detect_kubernetes(both, root) == {"k8s.pod.name": "exact", "k8s.namespace.name": "exact"}
    common = {name: value for name, value in both.items() if value == "common"}
    assert detect_kubernetes(common, root) == {"k8s.pod.name": "common", "k8s.namespace.name": "common"}
    assert detect_kubernetes({}, root) == {"k8s.pod.name": "of-the-volume", "k8s.namespace.name": "of-the-volume"}
    assert detect_kubernetes({"POD_NAMESPACE": "  "}, root)["k8s.namespace.name"] == "of-the-volume"


@pytest.mark.parametrize("evidence", ["KUBERNETES_SERVICE_HOST", "POD_NAME", "POD_UID", "account", "volume"])
def test_shared_names_count_where_something_says_that_this_is_a_pod(tmp_path: Path, evidence: str) -> None:
    """``NODE_NAME``, ``CONTAINER_NAME`` and ``JOB_NAME`` are other software's too; in a pod they are the pod's."""
    shared = {"NODE_NAME": "gpu-node-07", "CONTAINER_NAME": "trainer", "JOB_NAME": "train"}
    if evidence == "account":
        pod(tmp_path, namespace="ml-team")
    elif evidence == "volume":
        pod(tmp_path, POD_INFO, uid="5f0a")
    else:
        shared[evidence] = "10.96.0.1"
    found = detect_kubernetes(shared, tmp_path)
    expected = {key: ALL_SIX[key] for key in ("k8s.node.name", "k8s.container.name", "k8s.job.name")}
    assert {key: found.get(key) for key in expected} == expected


def test_shared_names_are_those_of_jenkins_on_its_agents(tmp_path: Path) -> None:
    """A Jenkins agent in a pod has a ``JOB_NAME`` and a ``NODE_NAME`` that are no Kubernetes job and node."""
    agent = {"JENKINS_URL": "http://ci/", "JOB_NAME": "nightly", "NODE_NAME": "agent-1", "POD_NAME": "agent-1-x"}
    assert detect_kubernetes(agent, pod(tmp_path, namespace="ci")) == {
        "k8s.pod.name": "agent-1-x",
        "k8s.namespace.name": "ci",
    }


def test_the_host_name_is_never_the_pod_name(tmp_path: Path) -> None:
    """``HOSTNAME`` is the node's on the host network and may be cut or replaced elsewhere: no pod is named by it."""
    root = pod(tmp_path, namespace="ml-team")
    for environ in ({"HOSTNAME": "train-0"}, {"HOSTNAME": "gpu-node-07", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}):
        assert detect_kubernetes(environ, root) == {"k8s.namespace.name": "ml-team"}


def test_the_namespace_file_of_the_service_account(tmp_path: Path) -> None:
    """The file that is in nearly every pod gives the namespace, without the line end some writers add."""
    root = pod(tmp_path, namespace="ml-team\n", token="secret", **{"ca.crt": "-----BEGIN"})
    assert detect_kubernetes({}, root) == {"k8s.namespace.name": "ml-team"}
    assert detect_kubernetes({}, str(root)) == {"k8s.namespace.name": "ml-team"}


@pytest.mark.parametrize(("attribute", "path"), [(key, path) for key, paths in FILES.items() for path in paths])
def test_each_file_alone_is_enough(tmp_path: Path, attribute: str, path: str) -> None:
    """A file of the volume gives its attribute by itself."""
    folder, _, name = path.rpartition("/")
    assert detect_kubernetes({}, pod(tmp_path, folder, **{name: "value"})) == {attribute: "value"}


@pytest.mark.parametrize(
    ("labels", "annotations", "job"),
    [
        ({"batch.kubernetes.io/job-name": "train", "job-name": "old"}, {}, "train"),
        ({"app": "x", "job-name": "train"}, {"job-name": "no"}, "train"),
        ({"app": "x"}, {"note": 'a "quoted"\nline', "batch.kubernetes.io/job-name": "train"}, "train"),
        ({"my-job-name": "x", "job-name.x": "y"}, {"x": 'job-name="no"'}, None),
        ({"job-name": ""}, {}, None),
    ],
)
def test_the_job_comes_from_the_labels_file(
    tmp_path: Path, labels: dict[str, str], annotations: dict[str, str], job: str | None
) -> None:
    """The job controller's label gives ``k8s.job.name``, the present one before the legacy one."""
    texts = {"labels": labels, "annotations": annotations}
    root = pod(
        tmp_path,
        POD_INFO,
        **{name: "\n".join(f"{key}={go_quoted(text)}" for key, text in pairs.items()) for name, pairs in texts.items()},
    )
    assert detect_kubernetes({}, root).get("k8s.job.name") == job


def test_the_label_wins_over_a_variable_of_a_shared_name(tmp_path: Path) -> None:
    """In a pod whose label names the job, a ``JOB_NAME`` that says otherwise is somebody else's."""
    root = pod(tmp_path, POD_INFO, labels='job-name="train"')
    assert detect_kubernetes({"JOB_NAME": "nightly", "POD_NAME": "p"}, root)["k8s.job.name"] == "train"


def test_a_volume_updated_under_way_is_read_as_it_is_now(tmp_path: Path) -> None:
    """The kubelet swaps ``..data`` to a new folder: what it shows then counts."""
    assert detect_kubernetes({}, pod(tmp_path, POD_INFO, labels='job-name="first"'))["k8s.job.name"] == "first"
    assert detect_kubernetes({}, pod(tmp_path, POD_INFO, labels='job-name="second"'))["k8s.job.name"] == "second"


@pytest.mark.parametrize("text", ["$(POD_NAME)", "prefix-$(MY.POD)", "$(A)$(B)"])
def test_an_unresolved_reference_is_dropped_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """The kubelet leaves a reference to a variable that is defined later as it stands: it is no name."""
    for _ in range(2):
        assert detect_kubernetes({"K8S_POD_NAME": text, "POD_NAME": "real"}, tmp_path) == {"k8s.pod.name": "real"}
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "K8S_POD_NAME" in warning.getMessage()
    assert text in warning.getMessage()


@pytest.mark.parametrize("text", ["a\nb", "a\x00b", "\x1b[31mred", "é", "\udcff", "x" * 254, "a\u2028b"])
def test_what_is_no_name_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Several lines, control characters, other alphabets and excess length are no name, and cost no WARNING."""
    assert detect_kubernetes({"K8S_POD_NAME": text}, tmp_path) == {}
    atomic_files(tmp_path / SERVICE_ACCOUNT, {"namespace": text.encode("utf-8", "surrogateescape")})
    assert detect_kubernetes({}, tmp_path) == {}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _bytes(content: bytes):  # type: ignore[no-untyped-def]
    return lambda path: path.write_bytes(content)


def _loop(path: Path) -> None:
    path.symlink_to(path)


BROKEN = {
    "folder": lambda path: path.mkdir(),
    "fifo": _fifo,
    "loop": _loop,
    "dangling": lambda path: path.symlink_to("absent"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "no UTF-8": _bytes(b"\xff\xfe\x00name"),
    "empty": _bytes(b""),
    "blank": _bytes(b" \n\n"),
    "huge": _bytes(b"x" * (5 << 20)),
    "one long line": _bytes(b'job-name="' + b"\\" * (1 << 19)),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_neither_raise_nor_block(tmp_path: Path, kind: str) -> None:
    """Folders, FIFOs, loops, devices, other encodings and huge files in place of the real ones give nothing."""
    names = [*(path for paths in FILES.values() for path in paths), f"{POD_INFO}/labels", f"{POD_INFO}/annotations"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        BROKEN[kind](tmp_path / name)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert detect_kubernetes({}, tmp_path) == {}
    after = len(os.listdir("/proc/self/fd")) if before else 0
    assert after == before, "a descriptor was left open"


@pytest.mark.parametrize("root", ["\0", "", "x" * 5000, "/dev/null"])
def test_a_root_that_is_none_gives_nothing(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No path makes detection raise; an empty one is the current folder."""
    monkeypatch.chdir(tmp_path)
    assert detect_kubernetes({}, root) == {}


def test_files_that_may_not_be_read_are_skipped(tmp_path: Path) -> None:
    """Folders of another user give nothing, and do not raise."""
    root = pod(pod(tmp_path, namespace="ml-team"), POD_INFO, name="train-0")
    for folder in (SERVICE_ACCOUNT, POD_INFO):
        (root / folder).chmod(0)
    user = os.geteuid()
    if user == 0:  # root reads what nobody may
        os.seteuid(65534)
    try:
        assert detect_kubernetes({"NODE_NAME": "n"}, root) == {}
    finally:
        os.seteuid(user)
        for folder in (SERVICE_ACCOUNT, POD_INFO):
            (root / folder).chmod(0o700)


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an argument, ``os.environ`` is read."""
    for names in (*VARIABLES.values(), *VARIABLES_OF_A_POD.values()):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POD_NAME", "mine")
    assert detect_kubernetes(root=tmp_path) == {"k8s.pod.name": "mine"}


@given(st.dictionaries(st.from_regex(r"[a-z0-9A-Z./_-]+", fullmatch=True), st.text()))
def test_labels_are_read_as_the_kubelet_writes_them(labels: dict[str, str]) -> None:
    """Any value written as Go quotes it is read back, and no other label is mistaken for it."""
    text = "\n".join(f"{key}={go_quoted(value)}" for key, value in sorted(labels.items()))
    assert {key: label_value(text, key) for key in labels} == labels
    assert label_value(text, "batch.kubernetes.io/none") is None


@given(st.binary())
def test_bytes_that_are_no_text_are_read_as_replacement_characters(value: bytes) -> None:
    r"""Go writes a byte that is no UTF-8 as ``\xff``; it becomes U+FFFD."""
    text = "a=" + "".join(f"\\x{byte:02x}" for byte in value).join('""')
    assert label_value(text, "a") == value.decode("utf-8", "replace")


@given(st.text(alphabet='ab="\\xuU0dDfF8\n\r \x85\u2028') | st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    """What is no labels file never raises; what is read from it can be encoded."""
    for whole in (text, f'job-name="{text}"', f"job-name={text}"):
        value = label_value(whole, "job-name")
        assert value is None or value.encode().decode() == value
