"""The compose file, what Grafana and the stores are given, the Kubernetes manifests: read by real tools, and whole."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from nemo_lens.api import semconv
from nemo_lens.sdk.settings import DEFAULT_METRIC_INTERVAL_MS
from support import grafana_files
from support.collector_configs import CONFIGS, FOLDER, resolved
from support.kubelet import container_environment
from support.peer_fixtures import needed_binary
from support.peer_programs import free_port, running_peer, wait_for
from support.victoria_metrics import VictoriaMetrics

pytestmark = pytest.mark.timeout(300)  # the first test may have to fetch a program
COMPOSE = FOLDER.parent / "compose.yaml"
PROVISIONING = FOLDER.parent / "grafana" / "provisioning"
RELEASE = "otel/opentelemetry-collector-contrib:0.141.0"


def read_by_compose(path: Path) -> subprocess.CompletedProcess[str]:
    command = (needed_binary("docker_compose"), "--file", str(path), "config", "--format", "json")
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file, as Docker Compose reads them."""
    read = read_by_compose(COMPOSE)
    assert (read.returncode, read.stderr) == (0, "")
    found: dict[str, Any] = json.loads(read.stdout)["services"]
    return found


@pytest.fixture(scope="module")
def otelcol() -> Path:
    """The Collector, whose resolver puts variables in."""
    return needed_binary("otelcol")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# ---- compose


def test_compose_finds_what_is_misspelt(tmp_path: Path) -> None:
    """The reading that the other tests build on finds a key that there is not."""
    text = COMPOSE.read_text(encoding="utf-8")
    path = tmp_path / "compose.yaml"
    path.write_text(text.replace("mem_limit:", "memlimit:"), encoding="utf-8")
    assert "memlimit" in read_by_compose(path).stderr


def test_images_are_of_a_release_and_ports_on_loopback(services: dict[str, Any]) -> None:
    """Each image names a release, the collector's is the one of its configurations, and every port is on loopback."""
    assert set(services) == {"collector", "metrics", "traces", "grafana"}
    for name, service in services.items():
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}, name
    assert services["collector"]["image"] == RELEASE
    for path in CONFIGS.values():
        assert f"otelcol-contrib {RELEASE.partition(':')[2]}." in path.read_text(encoding="utf-8")


def test_what_is_mounted_is_there(services: dict[str, Any]) -> None:
    """Each file and folder that a container is given exists, and what a command names is mounted there."""
    for name, service in services.items():
        mounts = {mount["target"]: mount for mount in service["volumes"]}
        for mount in mounts.values():
            assert mount["type"] == "volume" or Path(mount["source"]).exists(), mount
        for word in service.get("command") or ():
            path = re.search(r"=(/\S+)", word)
            assert path is None or path[1] in mounts, f"{name}: {word}"
    assert loaded(FOLDER.parent / "grafana" / "tempo.yaml")["storage"]["trace"]["wal"]["path"].startswith("/var/tempo/")
    assert "/var/tempo" in {mount["target"] for mount in services["traces"]["volumes"]}


@pytest.mark.usefixtures("otelcol")
def test_the_containers_find_each_other(services: dict[str, Any]) -> None:
    """The collector listens for others than itself, and sends to, and Grafana asks, a service at a port it has."""
    config = resolved(CONFIGS["single"], services["collector"]["environment"])
    protocols = config["receivers"]["otlp"]["protocols"]
    listening = {f"0.0.0.0:{port['target']}" for port in services["collector"]["ports"]}
    assert {protocols["grpc"]["endpoint"], protocols["http"]["endpoint"]} < listening
    assert config["extensions"]["health_check"]["endpoint"] in listening
    assert config["exporters"]["file/traces"]["path"] == "/var/lib/otelcol/traces.jsonl"
    metrics_port, traces_port = services["metrics"]["ports"][0]["target"], services["traces"]["ports"][0]["target"]
    exporters = config["exporters"]
    assert (
        exporters["otlphttp/metrics"]["metrics_endpoint"] == f"http://metrics:{metrics_port}/opentelemetry/v1/metrics"
    )
    tempo = loaded(FOLDER.parent / "grafana" / "tempo.yaml")
    assert exporters["otlp/traces"]["endpoint"] == "http://traces:4317"
    assert tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == "0.0.0.0:4317"
    assert tempo["server"]["http_listen_port"] == traces_port
    sources = {
        source["uid"]: source["url"] for source in loaded(PROVISIONING / "datasources" / "stores.yaml")["datasources"]
    }
    assert sources == {"metrics": f"http://metrics:{metrics_port}", "traces": f"http://traces:{traces_port}"}


def test_the_database_takes_what_a_job_says(services: dict[str, Any], tmp_path: Path) -> None:
    """A real VictoriaMetrics with the options of the compose file stores metrics of a job that says everything."""
    options = [option for option in services["metrics"]["command"] if not option.startswith("-storageDataPath")]
    page = (FOLDER.parent / "index.md").read_text(encoding="utf-8")
    needed = {"-opentelemetry.usePrometheusNaming", "-maxLabelsPerTimeseries=100"}
    assert needed == {option for option in options if f"`{option}`" in page} - {"-search.latencyOffset=5s"}
    port = free_port()
    where = (f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={tmp_path / 'data'}", "-memory.allowedBytes=64MB")
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add()
    for name in semconv.RESOURCE_FIELDS:
        metrics.resource.attributes.add(key=name).value.string_value = "x"
    metric = metrics.scope_metrics.add().metrics.add(name=semconv.DL_TRAINING_LOSS, unit="1")
    metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=2.5)
    header = {"Content-Type": "application/x-protobuf"}
    with running_peer((needed_binary("victoria_metrics"), *options, *where), (port,), tmp_path / "database.log"):
        database = VictoriaMetrics(port)
        url = database.environ()["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
        urlopen(Request(url, request.SerializeToString(), header), timeout=10).close()
        assert wait_for(lambda: database.exported("dl_training_loss_ratio"), 10), database.own_metrics()


def test_grafana_finds_the_dashboards_and_they_find_their_sources(services: dict[str, Any]) -> None:
    """The folder that Grafana reads is the one of the dashboards, and the sources they choose from are provisioned."""
    (provider,) = loaded(PROVISIONING / "dashboards" / "nemo-lens.yaml")["providers"]
    mounts = {mount["target"]: mount.get("source") for mount in services["grafana"]["volumes"]}
    assert mounts[provider["options"]["path"]] == str(grafana_files.FOLDER / "dashboards")
    sources = {
        source["uid"]: source["type"] for source in loaded(PROVISIONING / "datasources" / "stores.yaml")["datasources"]
    }
    assert grafana_files.FILES
    for path in grafana_files.FILES:
        chosen = [
            each for each in grafana_files.variables(grafana_files.board(path.stem)) if each["type"] == "datasource"
        ]
        assert [sources[each["current"]["value"]] for each in chosen] == [each["query"] for each in chosen] != []


@pytest.mark.parametrize("board", grafana_files.BOARDS)
@pytest.mark.usefixtures("otelcol")
def test_windows_are_as_long_as_the_intervals(board: str) -> None:
    """Grafana is told how often jobs send, and, in what asks for collectors' own metrics, how often those do."""
    (source,) = [
        each for each in loaded(PROVISIONING / "datasources" / "stores.yaml")["datasources"] if each["uid"] == "metrics"
    ]
    assert source["jsonData"] == {
        "httpMethod": "POST",
        "timeInterval": f"{DEFAULT_METRIC_INTERVAL_MS // 1000}s",
        "prometheusType": "Prometheus",
        "prometheusVersion": "3.0.0",
    }
    readers = [resolved(path)["service"]["telemetry"]["metrics"]["readers"] for path in CONFIGS.values()]
    slowest_ms = max(reader["periodic"]["interval"] for each in readers for reader in each if "periodic" in reader)
    asking = 0
    for panel in grafana_files.panels(grafana_files.board(board)):
        for target in panel["targets"]:
            if "otelcol_" in target["expr"]:
                asking += 1
                assert target["interval"] == f"{slowest_ms // 60_000}m", panel["title"]
    assert (asking > 0) == (board == "telemetry-health")


# ---- Kubernetes


def made_by_kustomize(folder: Path) -> list[dict[str, Any]]:
    command = (needed_binary("kustomize"), "build", str(folder))
    built = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return list(yaml.safe_load_all(built.stdout))


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    """What ``kubectl apply -k`` of the folder would create."""
    return made_by_kustomize(FOLDER)


def test_the_manifests_are_as_kubernetes_wants_them(manifests: list[dict[str, Any]]) -> None:
    """Each manifest is valid by Kubernetes' own schemas, unknown fields included, and in the namespace."""
    validator = pytest.importorskip("kubernetes_validate", reason="not installed: run `nox -s receivers`")
    assert sorted(manifest["kind"] for manifest in manifests) == [
        *("ConfigMap", "ConfigMap", "DaemonSet", "Deployment", "Namespace", "Service")
    ]
    for manifest in manifests:
        validator.validate(manifest, validator.latest_version(), strict=True)
        assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "observability"
    with pytest.raises(validator.ValidationError):
        validator.validate({**manifests[-1], "spce": {}}, validator.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["node", "gateway"])
@pytest.mark.usefixtures("otelcol")
def test_a_pod_runs_the_configuration_of_the_folder(name: str, manifests: list[dict[str, Any]]) -> None:
    """The pods mount the file as it stands; with their variables it listens on the pod's ports, for others too."""
    kind = {"node": "DaemonSet", "gateway": "Deployment"}[name]
    (workload,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == RELEASE
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    (maps,) = (each for each in manifests if each["metadata"]["name"] == mounts["/etc/otelcol"]["configMap"]["name"])
    assert maps["data"] == {f"{name}.yaml": CONFIGS[name].read_text(encoding="utf-8")}
    assert container["args"] == [f"--config=/etc/otelcol/{name}.yaml"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]

    pod = {"metadata": {"name": "otel-x7k2p"}, "spec": {"nodeName": "gpu-node-07"}}
    environ = container_environment(pod, container)
    config = resolved(CONFIGS[name], environ)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    protocols = config["receivers"]["otlp"]["protocols"]
    assert protocols["grpc"]["endpoint"] == f"0.0.0.0:{ports['otlp-grpc']}"
    assert protocols["http"]["endpoint"] == f"0.0.0.0:{ports['otlp-http']}"
    assert config["extensions"]["health_check"]["endpoint"] == f"0.0.0.0:{ports['health']}"
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "health"
    assert "unknown" not in config["service"]["telemetry"]["resource"].values()
    if name == "node":
        assert environ["OTEL_RESOURCE_ATTRIBUTES"] == "host.name=gpu-node-07,k8s.node.name=gpu-node-07"
        assert {port["name"]: port.get("hostPort") for port in container["ports"]}["otlp-http"] == 4318
        (service,) = (manifest for manifest in manifests if manifest["kind"] == "Service")
        address = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}:4317"
        assert config["exporters"]["otlp/gateway"]["endpoint"] == address
        assert 4317 in {port["port"] for port in service["spec"]["ports"]}
        (namespace,) = (manifest for manifest in manifests if manifest["kind"] == "Namespace")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"  # for host ports
    else:
        (service,) = (manifest for manifest in manifests if manifest["kind"] == "Service")
        assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} < ports.keys()
        files = [each for kind, each in config["exporters"].items() if kind.startswith("file/")]
        volume = mounts[str(Path(files[0]["path"]).parent)]
        most_mb = sum(each["rotation"]["max_megabytes"] * (each["rotation"]["max_backups"] + 1) for each in files)
        assert most_mb < int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 1024


@pytest.mark.usefixtures("otelcol")
def test_the_limits_leave_room(manifests: list[dict[str, Any]], services: dict[str, Any]) -> None:
    """The memory limiter's limit is below the container's, and Go's soft limit is 80 % of it."""
    for kind, name in (("DaemonSet", "node"), ("Deployment", "gateway")):
        (workload,) = (manifest for manifest in manifests if manifest["kind"] == kind)
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        environ = container_environment({"metadata": {"name": "x"}, "spec": {"nodeName": "y"}}, container)
        limit = container["resources"]["limits"]["memory"]
        mebibytes = int(limit[:-2]) * {"Mi": 1, "Gi": 1024}[limit[-2:]]
        limiter = resolved(CONFIGS[name], environ)["processors"]["memory_limiter"]
        hard = limiter.get("limit_mib", mebibytes * limiter.get("limit_percentage", 0) // 100)
        assert hard < mebibytes
        assert int(environ["GOMEMLIMIT"].removesuffix("MiB")) == pytest.approx(0.8 * hard, rel=0.02)
    environ = services["collector"]["environment"]
    hard = resolved(CONFIGS["single"], environ)["processors"]["memory_limiter"]["limit_mib"]
    assert hard < int(services["collector"]["mem_limit"]) / 2**20
    assert int(environ["GOMEMLIMIT"].removesuffix("MiB")) == pytest.approx(0.8 * hard)
