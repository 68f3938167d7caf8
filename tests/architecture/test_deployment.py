"""Dockerfile, docker-compose.yml, Prometheus' configuration and the pins, read as their tools would read them."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from fencepost.cli.main import cli
from tests.architecture.project_files import ROOT
from tests.kit.compose import compose

METRICS_PORT, BROKER_PORT = 9404, 9092
PLAIN = ("docker-compose.yml",)
SECURE = ("docker-compose.yml", "docker-compose.secure.yml")
CLUSTER = ("docker-compose.cluster.yml",)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (INSTRUCTION, words), with continued lines joined and comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word
    ]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions by stage; the first of each is its FROM."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            found[rest.split()[-1]] = current = []
        current.append((word, rest))
    return found


def words_of(service: dict[str, Any]) -> list[str]:
    """A service's command."""
    return [str(word) for word in service["command"]]


@pytest.mark.parametrize("stage", ["broker", "spark"])
def test_an_image_runs_as_an_ordinary_user_from_pinned_parts(stage: str) -> None:
    found = stages()[stage]
    base = found[0][1].split()[0]
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base), f"{base}: slim, and these very bytes"
    words = [word for word, _ in found]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert dict(found)["USER"] not in {"root", "0"}
    assert "VOLUME" in words
    assert dict(found)["ENTRYPOINT"].startswith("["), "the exec form, so that signals reach the process"
    assert "ADD" not in words


def test_the_broker_image_is_the_default_and_tells_its_health() -> None:
    assert list(stages())[-1] == "broker"
    found = dict(stages()["broker"])
    assert str(BROKER_PORT) in found["EXPOSE"].split()
    assert f":{METRICS_PORT}/ready" in found["HEALTHCHECK"]
    assert f"0.0.0.0:{METRICS_PORT}" in found["CMD"]
    assert found["STOPSIGNAL"] == "SIGTERM"


def test_images_install_by_hash_only() -> None:
    installs = [part for _, rest in instructions() for part in rest.split("&&") if "pip install" in part]
    assert installs
    for install in installs:
        assert "--require-hashes" in install or "--no-deps ." in install, install


def test_every_file_that_is_copied_is_there_and_not_ignored() -> None:
    ignored = set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source.strip("./").split("/")[0] not in ignored, source


@pytest.mark.parametrize("files", [(), PLAIN, SECURE])
def test_the_broker_is_started_with_options_that_exist(files: tuple[str, ...]) -> None:
    """By the Dockerfile, and by Compose."""
    if files:
        words = words_of(compose(*files)["services"]["broker"])
    else:
        words = re.findall(r'"([^"]+)"', dict(stages()["broker"])["CMD"])
    known = CliRunner().invoke(cli, ["serve", "--help"]).output
    assert words[0] == "serve"
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"^\s+{option}\b", known, re.MULTILINE), option


def test_compose_has_a_broker_prometheus_and_a_spark_job() -> None:
    services = compose(*PLAIN)["services"]
    assert set(services) == {"broker", "grafana", "prometheus", "spark"}
    for name, service in services.items():
        image = service["image"]
        assert re.search(r":[\w.]+$", image), f"{image}: a tag"
        assert not image.endswith(":latest"), image
        if "build" in service:
            assert service["build"]["target"] in stages(), name
    for name in ("prometheus", "spark"):
        assert services[name]["depends_on"]["broker"]["condition"] == "service_healthy"
    assert f":{METRICS_PORT}/ready" in services["broker"]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("files", [PLAIN, CLUSTER])
def test_prometheus_and_grafana_have_what_is_mounted(files: tuple[str, ...]) -> None:
    services = compose(*files)["services"]
    mounted = {
        target.removesuffix(":ro"): source
        for one in ("prometheus", "grafana")
        for source, _, target in (volume.partition(":") for volume in services[one]["volumes"])
    }
    for source in mounted.values():
        assert not source.startswith(".") or (ROOT / source).exists(), source
    config = yaml.safe_load((ROOT / mounted["/etc/prometheus/prometheus.yml"]).read_text(encoding="utf-8"))
    assert [f"/etc/prometheus/{name}" in mounted for name in config["rule_files"]] == [True]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / mounted["/var/lib/grafana/boards"] / Path(home).name).exists()


def test_compose_publishes_a_port_for_each_of_its_cores() -> None:
    broker = compose(*PLAIN, on_cores=True)["services"]["broker"]
    words = words_of(broker)
    cores = int(words[words.index("--cores") + 1])
    assert cores > 1
    published = [f"127.0.0.1:{port}:{port}" for port in range(BROKER_PORT, BROKER_PORT + cores)]
    assert [port for port in broker["ports"] if port in published] == published
    assert "--cores" not in words_of(compose(*PLAIN)["services"]["broker"])


def test_the_dockerfile_says_how_to_publish_several_cores() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"-p (\d+)-(\d+):(\d+)-(\d+) .*\n.*--listen 0\.0\.0\.0:(\d+) .*--cores (\d+)", text)
    assert found is not None
    first, last, *container, listen, cores = map(int, found.groups())
    assert [first, last] == container == [listen, listen + cores - 1]


def test_the_compose_of_a_cluster_has_both_stores_and_two_brokers() -> None:
    services = compose(*CLUSTER)["services"]
    assert set(services) == {"postgres", "objects", "broker-1", "broker-2", "grafana", "prometheus"}
    known = CliRunner().invoke(cli, ["serve", "--help"]).output
    for number in (1, 2):
        service = services[f"broker-{number}"]
        words = words_of(service)
        assert f"node.id={number}" in words
        assert f"CONTAINERS://broker-{number}:{BROKER_PORT}" in words
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"^\s+{option}\b", known, re.MULTILINE), option
        assert service["build"]["target"] in stages()
        assert f":{METRICS_PORT}/ready" in service["healthcheck"]["test"][-1]
        assert {name: one["condition"] for name, one in service["depends_on"].items()} == {
            "postgres": "service_healthy",
            "objects": "service_healthy",
        }
    for service in services.values():
        assert re.search(r":[\w.]+$", service["image"]), service["image"]
        assert not service["image"].endswith(":latest")
    config = yaml.safe_load((ROOT / "deploy/prometheus.cluster.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"broker-{number}:{METRICS_PORT}" for number in (1, 2)]}]


def test_the_compose_of_a_cluster_uses_the_same_names_and_secrets_everywhere() -> None:
    services = compose(*CLUSTER)["services"]
    environment, database = services["broker-1"]["environment"], services["postgres"]["environment"]
    assert environment == services["broker-2"]["environment"]
    address = urlsplit(environment["FENCEPOST_CLUSTER_STORE"])
    assert (address.username, address.path) == (database["POSTGRES_USER"], f"/{database['POSTGRES_DB']}")
    assert (address.hostname, address.password) == ("postgres", None)
    assert environment["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    objects = services["objects"]
    keys = {"ROOT_ACCESS_KEY": "AWS_ACCESS_KEY_ID", "ROOT_SECRET_KEY": "AWS_SECRET_ACCESS_KEY"}
    assert objects["environment"] == {name: environment[ours] for name, ours in keys.items()}
    assert environment["AWS_ENDPOINT_URL"] == f"http://objects{objects['command'][1]}"
    bucket = environment["FENCEPOST_CLUSTER_OBJECTS"].removeprefix("s3://")
    assert objects["volumes"] == [f"objects:{objects['command'][-1]}/{bucket}"]


def test_the_broker_image_has_what_a_cluster_needs() -> None:
    pinned = {line.split("==")[0] for line in _pins(ROOT / "deploy/broker-image.txt")}
    assert {"psycopg", "psycopg-binary", "obstore"} <= pinned
    assert {"starlette", "hypercorn", "jinja2"} <= pinned, "and what the console needs"


@pytest.mark.parametrize("files", [PLAIN, CLUSTER])
def test_compose_mounts_what_is_there_and_publishes_to_this_machine_only(files: tuple[str, ...]) -> None:
    loaded = compose(*files)
    for service in loaded["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in loaded["volumes"] or (ROOT / source).exists(), mount
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{port}: PLAINTEXT has no business on other interfaces"


def test_the_secure_compose_publishes_a_listener_with_logins_and_nothing_else_to_other_machines() -> None:
    loaded = compose(*SECURE)
    ports = {port for service in loaded["services"].values() for port in service.get("ports", [])}
    assert {port for port in ports if not port.startswith("127.0.0.1:")} == {"9093:9093"}
    words = words_of(loaded["services"]["broker"])
    assert "SASL_SSL://0.0.0.0:9093" in words
    assert "authorizer.class.name=standard" in words


def test_the_secure_compose_has_each_secret_that_it_names() -> None:
    loaded = compose(*SECURE)
    given = {name: set(service.get("secrets", [])) for name, service in loaded["services"].items()}
    assert set().union(*given.values()) == set(loaded["secrets"])
    for name, service in loaded["services"].items():
        words = [*service.get("command", []), *service.get("environment", {}).values()]
        assert set(re.findall(r"/run/secrets/(\S+)", " ".join(words))) <= given[name]
    for name, secret in loaded["secrets"].items():
        assert secret["file"] == f"./secrets/{name}"
    assert "/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert "secrets" in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_the_spark_job_is_told_what_it_reads_from_the_environment() -> None:
    job = (ROOT / "deploy/spark_job.py").read_text(encoding="utf-8")
    asked = set(re.findall(r"environ\[\"(\w+)\"\]", job))
    spark = compose(*SECURE)["services"]["spark"]
    assert asked == set(spark["environment"])
    assert spark["environment"]["BOOTSTRAP_SERVERS"] == f"broker:{BROKER_PORT}"


def test_prometheus_asks_where_the_broker_answers() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8"))
    targets = [target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]]
    assert targets == [f"broker:{METRICS_PORT}"]
    words = words_of(compose(*PLAIN)["services"]["broker"])
    assert words[words.index("--metrics") + 1] == f"0.0.0.0:{METRICS_PORT}"


@pytest.mark.parametrize("image", ["broker-image.txt", "spark-image.txt"])
def test_an_image_has_the_pins_that_were_tested(image: str) -> None:
    everything, of_image = (_pins(path) for path in (ROOT / "constraints.txt", ROOT / "deploy" / image))
    assert of_image
    assert of_image <= everything


def _pins(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return {
        f"{line.split()[0]} {' '.join(sorted(re.findall('sha256:[0-9a-f]{64}', line)))}" for line in text.splitlines()
    }
