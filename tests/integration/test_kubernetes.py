"""The manifests for Kubernetes: what fits together in them, and real brokers that are started as their pods are."""

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fencepost import sync
from tests.architecture.project_files import ROOT
from tests.kit.kubernetes import PodBroker, container_of, manifest
from tests.kit.postgres_server import postgres_or_skip
from tests.kit.stores import needs_files, new_stores
from tests.kit.waiting import until

MANIFESTS = ("files.yaml", "cluster.yaml")
PROBES = {"startupProbe": "/health", "readinessProbe": "/ready", "livenessProbe": "/health"}


def pod_of(file: str) -> dict[str, Any]:
    spec = manifest(file)["StatefulSet"]["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize("file", MANIFESTS)
def test_names_labels_and_ports_of_a_manifest_fit_together(file: str) -> None:
    objects = manifest(file)
    service, stateful = objects["Service"], objects["StatefulSet"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= stateful["spec"]["selector"]["matchLabels"].items()
    assert labels.items() >= service["spec"]["selector"].items()
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    container = container_of(objects)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {one["targetPort"]: one["port"] for one in service["spec"]["ports"]}
    assert [f"0.0.0.0:{port}" for port in ports.values()] == [w for w in container["args"] if w.startswith("0.0.0.0:")]
    mounted = {one["name"] for one in container["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in stateful["spec"].get("volumeClaimTemplates", [])}
    assert mounted == {one["name"] for one in pod_of(file)["volumes"]} | claims
    assert container["image"] == "fencepost:local"


def test_the_manifest_has_a_port_for_each_of_its_cores() -> None:
    """Core K listens K ports above the first one, and clients connect to each."""
    objects = manifest("files.yaml", on_cores=True)
    container = container_of(objects)
    words = container["args"]
    cores = int(words[words.index("--cores") + 1])
    assert cores > 1
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {one["targetPort"]: one["port"] for one in objects["Service"]["spec"]["ports"]}
    assert {port for name, port in ports.items() if name != "metrics"} == set(range(9092, 9092 + cores))
    assert "--cores" not in container_of(manifest("files.yaml"))["args"]


@pytest.mark.parametrize("file", MANIFESTS)
def test_a_pod_may_do_no_more_than_the_broker_of_compose(file: str) -> None:
    """The user is that of the image."""
    user = re.search(r"useradd --system --uid (\d+) --home-dir /var/lib/fencepost", (ROOT / "Dockerfile").read_text())
    assert user is not None
    pod, container = pod_of(file), container_of(manifest(file))
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "/tmp" in {one["mountPath"] for one in container["volumeMounts"]}


def test_the_secret_that_is_used_is_the_one_that_is_created() -> None:
    text = (ROOT / "deploy/kubernetes/cluster.yaml").read_text(encoding="utf-8")
    refs = [
        one["valueFrom"]["secretKeyRef"]
        for one in container_of(manifest("cluster.yaml"))["env"]
        if "secretKeyRef" in str(one)
    ]
    assert {one["name"] for one in refs} == set(re.findall(r"create secret generic (\S+)", text))
    assert sorted(one["key"] for one in refs) == sorted(re.findall(r"--from-literal=([\w-]+)=", text))


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def assert_probes_succeed(broker: PodBroker, container: dict[str, Any]) -> None:
    """Soon, as Kubernetes tries them again."""
    for name, path in PROBES.items():
        assert container[name]["httpGet"] == {"path": path, "port": "metrics"}
        until(lambda url=f"http://{broker.facts['metrics']}{path}": status(url), lambda found: found == 200)


@needs_files("the manifest keeps its logs on a volume")
def test_the_pod_with_files_serves_at_the_name_that_lasts(tmp_path: Path) -> None:
    objects = manifest("files.yaml")
    with PodBroker(tmp_path, objects, 0, {}) as broker:
        assert broker.name == "fencepost-0.fencepost.messaging.svc"
        assert f"--advertise localhost:{broker.port}" in " ".join(broker.command())
        assert broker.facts["data"] == str(tmp_path / "data")
        assert_probes_succeed(broker, container_of(objects))
        with sync.Client(broker.address) as kafka, kafka.producer() as producer:
            producer.send("events", b"a")
        assert broker.stop() == 0


def test_the_pods_of_a_cluster_are_brokers_with_numbers_and_names_of_their_own(tmp_path: Path) -> None:
    objects = manifest("cluster.yaml")
    with postgres_or_skip() as server:
        given = new_stores(tmp_path / "stores", server)
        stores = {"FENCEPOST_CLUSTER_STORE": given[1], "FENCEPOST_CLUSTER_OBJECTS": given[3]}
        names = {entry["name"] for entry in container_of(objects)["env"]}
        assert stores.keys() <= names
        with (
            PodBroker(tmp_path / "0", objects, 0, stores) as first,
            PodBroker(tmp_path / "1", objects, 1, stores) as second,
        ):
            assert [one.facts["role"] for one in (first, second)] == ["active", "standby"]
            for broker in (first, second):
                assert_probes_succeed(broker, container_of(objects))
            with sync.Client(second.address) as kafka, kafka.admin() as admin:
                brokers = {one.broker_id: f"{one.host}:{one.port}" for one in admin.describe_cluster().brokers}
            assert brokers.items() <= {0: f"localhost:{first.port}", 1: f"localhost:{second.port}"}.items()
            assert brokers
