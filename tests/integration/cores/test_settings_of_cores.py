"""What is of one core of several: settings and levels of loggers (rows D2, KIP-412, KIP-590), log directories (D8)."""

from pathlib import Path
from typing import Any

from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api32_describe_configs as api32
from fencepost.protocol.messages import api34_alter_replica_log_dirs as api34
from fencepost.protocol.messages import api35_describe_log_dirs as api35
from fencepost.protocol.messages import api44_incremental_alter_configs as api44
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import Cores, wire_to
from tests.kit.waiting import until
from tests.kit.wire import Wire

DESCRIBE_CONFIGS, ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS, ALTER_CONFIGS = 32, 34, 35, 44
BACKOFF = "log.cleaner.backoff.ms"
TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER


def changed(kind: ConfigResourceType, name: str, setting: str, value: str) -> Any:
    config = api44.AlterableConfig(name=setting, config_operation=ConfigOperation.SET, value=value)
    return api44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])


def value_of(wire: Wire, kind: ConfigResourceType, name: str, setting: str) -> str | None:
    resource = api32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[setting])
    [result] = wire.call(DESCRIBE_CONFIGS, 4, api32.DescribeConfigsRequest(resources=[resource])).results
    return next((entry.value for entry in result.configs), None)


def test_each_core_changes_its_own_settings_and_no_other_ones(tmp_path: Path) -> None:
    """ConfigAdminManager.preprocess: the broker that was asked checks the id and sets the levels of its loggers. The
    rest goes to the controller. So kafka-reassign-partitions.sh --verify asks each broker for its own throttles.
    """
    name = "fencepost.broker.node"
    with BrokerProcess(tmp_path, cores=2) as broker, wire_to(broker, 1) as wire, wire_to(broker, 0) as first:
        wire.create_topic("t", 1)
        resources = [
            changed(BROKER, "2", BACKOFF, "15002"),
            changed(LOGGER, "2", name, "ERROR"),
            changed(BROKER, "1", BACKOFF, "15001"),
            changed(LOGGER, "1", name, "ERROR"),
            changed(TOPIC, "t", "retention.ms", "77"),
        ]
        answer = wire.call(ALTER_CONFIGS, 1, api44.IncrementalAlterConfigsRequest(resources=resources))
        found = [(one.resource_name, one.error_code) for one in answer.responses]
        refused = ErrorCode.INVALID_REQUEST
        assert found == [("2", 0), ("2", 0), ("1", refused), ("1", refused), ("t", 0)]
        until(lambda: value_of(wire, BROKER, "2", BACKOFF), lambda value: value == "15002")
        until(lambda: value_of(wire, TOPIC, "t", "retention.ms"), lambda value: value == "77")
        assert value_of(wire, LOGGER, "2", name) == "ERROR"
        assert value_of(first, LOGGER, "1", name) != "ERROR"
        assert value_of(first, BROKER, "1", BACKOFF) == "15000"


def test_each_core_has_the_log_directory_of_the_partitions_that_it_leads(tmp_path: Path) -> None:
    """ReplicaManager.describeLogDirs and alterReplicaLogDirs: a broker has its own replicas alone."""
    with BrokerProcess(tmp_path, cores=2) as broker:
        leaders = Cores(broker).create("t", 3)
        for core in range(2):
            with wire_to(broker, core) as wire:
                [directory] = wire.call(DESCRIBE_LOG_DIRS, 4, api35.DescribeLogDirsRequest(topics=None)).results
                topic = api34.AlterReplicaLogDirTopic(name="t", partitions=[0, 1, 2])
                move = api34.AlterReplicaLogDir(path=directory.log_dir, topics=[topic])
                [moved] = wire.call(ALTER_LOG_DIRS, 2, api34.AlterReplicaLogDirsRequest(dirs=[move])).results
            found = [
                part.partition_index for topic in directory.topics if topic.name == "t" for part in topic.partitions
            ]
            assert found == [number for number, leader in enumerate(leaders) if leader == core]
            codes = [part.error_code for part in moved.partitions]
            assert codes == [
                ErrorCode.NONE if leader == core else ErrorCode.NOT_LEADER_OR_FOLLOWER for leader in leaders
            ]


def test_only_core_0_says_that_no_client_can_log_in(tmp_path: Path) -> None:
    """It creates the first user. The others may begin before they have read that there is one."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    first = {"first.user": "root", "first.password": "first-hunter2"}
    arguments = ["--listen", "SASL://127.0.0.1:0"]
    with BrokerProcess(tmp_path / "a", settings={**settings, **first}, arguments=arguments, cores=3) as broker:
        assert "no client can log in" not in broker.log()
        assert broker.log().count("created the first user") == 1
    with BrokerProcess(tmp_path / "b", settings=settings, arguments=arguments, cores=3) as broker:
        assert broker.log().count("no client can log in") == 1
        assert "core 0: no client can log in" in broker.log()
