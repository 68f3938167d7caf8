"""What an administrator asks, step by step, and how the answers of two brokers are made comparable.

    python -m tests.golden.admin_scenarios HOST:PORT > tests/golden/admin_answers.json

takes the answers of an Apache Kafka of one node (node.id=1, one log directory) with its release's features.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.golden.group_scenarios import Stage, answers_of, message, plain
from tests.kit.wire import batch_of

WAIT_S = 100.0
METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 3, 19, 20, 32, 37
INCREMENTAL, REASSIGN = 44, 45
TOPIC, BROKER_LOGGER, BROKER, CLIENT_METRICS, GROUP = 2, 8, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_ELR = "min.insync.replicas"
"""Kafka 4.3 keeps its default in the cluster's settings, for a feature about replicas (KIP-966)."""


class Desk:
    """An administrator with one connection, whose topics carry the run's name."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.wire = stage.member("").wire

    def named(self, name: str) -> str:
        """A topic's name of this run."""
        return f"{name}-{self.stage.run}"

    def ask(self, step: str, api_key: int, version: int, trim: Callable[[Any], Any] = plain, /, **fields: Any) -> Any:
        """One request by its fields; `trim` makes its answer what is compared."""
        answer = self.wire.call(api_key, version, message(api_key, f"{_name(api_key)}Request", **fields))
        self.stage.keep(f"v{version}: {step}".replace(self.stage.run, "RUN"), trim(answer))
        return answer

    def until(self, api_key: int, version: int, enough: Callable[[Any], bool], /, **fields: Any) -> Any:
        """The same, not kept, until it is as it will be: Kafka's brokers hear of a change a moment later."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.wire.call(api_key, version, message(api_key, f"{_name(api_key)}Request", **fields))
            if enough(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> tuple[str, bytes]:
        """Create a topic and wait until it is served; its name and id."""
        full = self.named(name)
        self.wire.create_topic(full, partitions, **configs)
        asked = [message(METADATA, "MetadataRequestTopic", name=full)]

        def led(answer: Any) -> bool:
            [topic] = answer.topics
            return topic.error_code == 0 and all(one.leader_id >= 0 for one in topic.partitions)

        topic_id: bytes = self.until(METADATA, 12, led, topics=asked).topics[0].topic_id
        self.stage.name(topic_id.hex(), f"ID-OF-{name}")
        return full, topic_id

    def produce(self, topic: str) -> None:
        """Two records for the first partition; a broker that was told of it a moment ago may not lead it yet."""
        deadline = time.monotonic() + WAIT_S
        while self.wire.produce(topic, batch_of(b"a", b"b")).error_code != 0:
            assert time.monotonic() < deadline, topic
            time.sleep(0.02)

    def create(self, step: str, *topics: Any, version: int = 7, validate_only: bool = False) -> Any:
        """CreateTopics of these; answers by name."""

        def trim(answer: Any) -> Any:
            for one in answer.topics:
                if any(one.topic_id):
                    self.stage.name(one.topic_id.hex(), f"ID-OF-{one.name}")
                one.configs = [config for config in one.configs or () if config.name != OF_ELR]
            return ordered(answer.topics, "name")

        return self.ask(step, CREATE_TOPICS, version, trim, topics=list(topics), validate_only=validate_only)

    def new(self, name: str, partitions: int = 1, replicas: int = 1, *, by_hand: Any = (), **configs: Any) -> Any:
        """A topic to create; `by_hand` are partitions with their replicas."""
        placed = [
            message(CREATE_TOPICS, "CreatableReplicaAssignment", partition_index=index, broker_ids=list(brokers))
            for index, brokers in by_hand
        ]
        settings = [
            message(CREATE_TOPICS, "CreatableTopicConfig", name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        return message(
            CREATE_TOPICS,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=placed,
            configs=settings,
        )

    def configs(self, kind: int, name: str, *keys: str, version: int = 4) -> dict[str, Any]:
        """DescribeConfigs of one resource, not kept: its entries by name."""
        resource = _resource(kind, name, keys)
        asked = message(DESCRIBE_CONFIGS, "DescribeConfigsRequest", resources=[resource], include_synonyms=True)
        [result] = self.wire.call(DESCRIBE_CONFIGS, version, asked).results
        return {entry.name: entry for entry in result.configs}

    def describe(self, step: str, kind: int, name: str, *keys: str, version: int = 4) -> None:
        """DescribeConfigs of one resource."""
        resource = _resource(kind, name, keys)

        def trim(answer: Any) -> Any:
            for result in answer.results:
                result.configs = [config for config in result.configs if config.name != OF_ELR]
                result.configs.sort(key=lambda config: config.name)
            return plain(answer)

        asked: dict[str, Any] = {"resources": [resource]}
        if version >= 1:
            asked["include_synonyms"] = True
        self.ask(step, DESCRIBE_CONFIGS, version, trim, **asked)

    def alter(
        self, step: str, kind: int, name: str, *edits: tuple[str, int, str | None], only: bool = False, version: int = 1
    ) -> int:
        """IncrementalAlterConfigs of one resource; its error code."""
        configs = [
            message(INCREMENTAL, "AlterableConfig", name=key, config_operation=operation, value=value)
            for key, operation, value in edits
        ]
        resource = message(INCREMENTAL, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=configs)
        answer = self.ask(step, INCREMENTAL, version, resources=[resource], validate_only=only)
        return int(answer.responses[0].error_code)

    def settled(self, kind: int, name: str, key: str, value: str | None) -> None:
        """Return once a setting has this value."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.configs(kind, name, key)).get(key) is None or found[key].value != value:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


def ordered(values: Iterable[Any], *names: str) -> list[Any]:
    """Structs as objects, in an order of their own: Kafka answers in that of its hash tables."""
    return sorted(map(plain, values), key=lambda value: json.dumps([value[name] for name in names], sort_keys=True))


def _resource(kind: int, name: str, keys: Sequence[str]) -> Any:
    """What DescribeConfigs is asked for."""
    wanted = list(keys) or None
    fields = {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
    return message(DESCRIBE_CONFIGS, "DescribeConfigsResource", **fields)


def _name(api_key: int) -> str:
    from fencepost.protocol.registry import API_BY_KEY

    return API_BY_KEY[api_key].name


def main() -> None:
    """Print the answers of one broker to all plays."""
    from tests.golden.admin_plays import PLAYS

    json.dump({name: answers_of(sys.argv[1], play) for name, play in PLAYS.items()}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
