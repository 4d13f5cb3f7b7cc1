"""The manifests of ``docs/kubernetes.md``: what the kubelet makes of them describes the pod in full."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_lens.sdk.resources import detect_kubernetes
from support.kubelet import container_environment, write_volumes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
SHORT, WHOLE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.M | re.S)

UID = "5f0ab7de-0d5c-4bd2-9d0c-0c8ab1a5b1f4"
JOB_UID = "0c9f3a52-7a0e-4a55-8f7e-1f4f7f0a4c11"


def manifest() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(WHOLE))


@pytest.fixture
def pod() -> dict[str, Any]:
    """The second pod of the Job, as the job controller, the scheduler and the kubelet fill it in."""
    (job,) = (document for document in manifest() if document["kind"] == "Job")
    assert job["spec"]["completionMode"] == "Indexed"
    name, template = job["metadata"]["name"], job["spec"]["template"]
    return {
        "metadata": {
            "name": f"{name}-1-x7k2p",
            "namespace": "ml-team",
            "uid": UID,
            "labels": {
                **template["metadata"]["labels"],
                "batch.kubernetes.io/controller-uid": JOB_UID,
                "batch.kubernetes.io/job-completion-index": "1",
                "batch.kubernetes.io/job-name": name,
                "controller-uid": JOB_UID,
                "job-name": name,
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
        },
        "spec": {**template["spec"], "nodeName": "gpu-node-07", "hostname": f"{name}-1"},
        "status": {"hostIP": "192.0.2.7", "podIP": "198.51.100.9"},
    }


def environment(pod: dict[str, Any]) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    # What the runtime and the kubelet add by themselves.
    own = {"HOSTNAME": pod["spec"]["hostname"], "KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": "1"}
    return {**own, **container_environment(pod, container)}


def test_the_manifest_gives_all_six_attributes(tmp_path: Path, pod: dict[str, Any]) -> None:
    """Namespace, pod, UID, node, container and Job arrive, each as the API server knows it."""
    (container,) = pod["spec"]["containers"]
    write_volumes(tmp_path, pod, container)
    assert detect_kubernetes(environment(pod), tmp_path) == {
        "k8s.namespace.name": "ml-team",
        "k8s.pod.name": pod["metadata"]["name"],
        "k8s.pod.uid": UID,
        "k8s.node.name": "gpu-node-07",
        "k8s.container.name": container["name"],
        "k8s.job.name": pod["metadata"]["labels"]["job-name"],
    }


def test_every_reference_of_the_manifest_is_resolved(pod: dict[str, Any]) -> None:
    """No variable is left with a ``$(NAME)``; the collector is that of the pod's node."""
    variables = environment(pod)
    assert not [name for name, text in variables.items() if "$(" in text]
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://192.0.2.7:4318"
    assert variables["NEMO_LENS_RUN_ID"] == JOB_UID


def test_the_first_variables_are_those_of_the_manifest(pod: dict[str, Any]) -> None:
    """What the first screen shows stands in the whole manifest, in the same order."""
    short = yaml.safe_load(SHORT)["env"]
    (container,) = pod["spec"]["containers"]
    assert [variable for variable in container["env"] if variable in short] == short


def test_the_manifest_starts_what_it_says(pod: dict[str, Any]) -> None:
    """The address that torchrun is given is the first pod's under the Service of the manifest."""
    (service,) = (document for document in manifest() if document["kind"] == "Service")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["metadata"]["name"] == pod["spec"]["subdomain"]
    (container,) = pod["spec"]["containers"]
    first = pod["spec"]["hostname"].replace("-1", "-0")
    assert f"--master-addr={first}.{service['metadata']['name']} " in container["args"][0]
    assert "\n" not in container["args"][0].strip()
