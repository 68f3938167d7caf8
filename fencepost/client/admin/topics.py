"""Topics: create, delete, list and describe them, and add partitions."""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.requests import AdminRequests, failure, listed
from fencepost.client.admin.types import CreatedTopic, NewTopic, TopicDescription
from fencepost.client.core.partitions import PartitionInfo
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.api37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

NO_ID = bytes(16)
NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_DEFAULTS_SINCE, _DELETE_BY_ID_SINCE, _DESCRIBE_BY_ID_SINCE = 4, 6, 12


class TopicAdmin:
    """The part of the admin client for topics. A str names a topic, 16 bytes are its id."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def create_topics(
        self,
        topics: NewTopic | str | Iterable[NewTopic | str],
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        validate_only: bool = False,
    ) -> dict[str, CreatedTopic]:
        """Create topics and return the new ones by name; a broker knows them by then.

        `partitions`, `replication_factor` and `configs` are for topics given by name; -1 takes the broker's default. A
        NewTopic has its own. `if_not_exists` leaves existing topics as they are, and out of the result.
        `validate_only` creates nothing and returns what the broker would create. Raises ItemsFailedError by name
        (TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, ...), and TypeError for settings with a
        NewTopic.
        """
        given: list[NewTopic | str] = listed(topics, NewTopic, str)
        common = NewTopic("", partitions, replication_factor, configs or {})
        wanted = {}
        for one in given:
            if isinstance(one, NewTopic) and common != NewTopic(""):
                raise TypeError(f"set the partitions, replication_factor and configs of {one.name!r} in its NewTopic")
            topic = one if isinstance(one, NewTopic) else common._replace(name=one)
            wanted[topic.name] = topic
        defaults = any(topic.assignments is None and -1 in topic[1:3] for topic in wanted.values())

        async def ask(node: int | None, names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._rpc.timeout_ms,
                validate_only=validate_only,
            )
            response = await self._rpc.ask(node, request, at_least=_DEFAULTS_SINCE if defaults else 1)
            return {
                one.name: failure(one, f"creating topic {one.name!r}", ApiKey.CREATE_TOPICS, node)
                or CreatedTopic(one.name, one.topic_id, one.num_partitions, one.replication_factor)
                for one in response.topics
            }

        failed: Mapping[str, KafkaError] = {}
        try:
            made = await self._rpc.each(wanted, self._rpc.controller, ask, "creating topics")
        except ItemsFailedError as some:
            made, failed = dict(some.results), some.errors
        await self.wait_for([] if validate_only else list(made))
        _raise_others("creating topics", failed, made, {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else ())
        return made

    async def wait_for(self, names: list[str]) -> None:
        """Wait until a broker knows new topics: brokers learn of them a moment after the controller's response."""

        async def attempt() -> None:
            for name, code in (await self._rpc.cluster.refresh(names)).items():
                raise RetriableError(f"the broker does not know the new topic {name!r} yet", code=code, api="Metadata")

        if names:
            with contextlib.suppress(RetriableError):  # it is created all the same
                await self._rpc.retry(attempt, "waiting for new topics")

    async def delete_topics(self, topics: str | bytes | Iterable[str | bytes], *, if_exists: bool = False) -> None:
        """Delete topics with all their records, by their names or (Kafka 2.8) their ids.

        `if_exists` passes over topics that do not exist. Raises ItemsFailedError (UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, ...).
        """
        asked: list[str | bytes] = listed(topics, str, bytes)
        by_id = any(isinstance(topic, bytes) for topic in asked)

        async def ask(node: int | None, some: list[str | bytes]) -> dict[str | bytes, KafkaError | None]:
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(topic_id=one) if isinstance(one, bytes) else DeleteTopicState(name=one)
                    for one in some
                ],
                topic_names=[one for one in some if isinstance(one, str)],
                timeout_ms=self._rpc.timeout_ms,
            )
            response = await self._rpc.ask(node, request, at_least=_DELETE_BY_ID_SINCE if by_id else 0)
            found: dict[str | bytes, KafkaError | None] = {}
            for one in response.responses:
                item = one.topic_id if one.topic_id in some else one.name or ""
                what = f"deleting topic {_shown(item)}"
                found[item] = failure(one, what, ApiKey.DELETE_TOPICS, node, final=NO_TOPIC)
                if one.name is not None:
                    self._rpc.cluster.forget_topic(one.name)
            return found

        try:
            await self._rpc.each(asked, self._rpc.controller, ask, "deleting topics")
        except ItemsFailedError as some:
            _raise_others("deleting topics", some.errors, some.results, NO_TOPIC if if_exists else ())

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Raise a topic's number of partitions to `total`. New records of a key may then go to another partition.

        `assignments` are the brokers of each new partition's replicas. Raises KafkaError (INVALID_PARTITIONS, ...).
        """
        given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=list(b)) for b in assignments]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=given)],
            timeout_ms=self._rpc.timeout_ms,
            validate_only=validate_only,
        )
        what = f"adding partitions to {topic!r}"
        await self._rpc.response(
            topic, self._rpc.controller, request, what, lambda response: response.results[0], final=NO_TOPIC
        )
        if not validate_only:
            await self._rpc.retry(lambda: self._rpc.cluster.refresh([topic]), what)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; with `internal`, also of Kafka's own topics. Raises KafkaError."""
        await self._rpc.retry(lambda: self._rpc.cluster.refresh(None), "listing topics")
        return sorted(name for name, info in self._rpc.cluster.topics.items() if internal or not info.internal)

    async def describe_topics(
        self, topics: str | bytes | Iterable[str | bytes] | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of topics, by name: of topics named by name or (Kafka 2.8) id, or of all.

        Raises ItemsFailedError by name or id: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID. The description of all
        topics leaves out those that the broker cannot describe now.
        """
        asked: list[str | bytes] | None = None if topics is None else listed(topics, str, bytes)

        async def attempt() -> tuple[dict[str, TopicDescription], dict[str | bytes, KafkaError]]:
            found: dict[str, TopicDescription] = {}
            failed: dict[str | bytes, KafkaError] = {}
            for response in await self._metadata(asked):
                for one in response.topics:
                    item = one.topic_id if one.topic_id in (asked or ()) else one.name
                    error = failure(one, f"describing topic {_shown(item)}", ApiKey.METADATA, final=NO_TOPIC)
                    if error is None:
                        found[one.name] = _described(one)
                    elif asked is not None and isinstance(error, RetriableError):
                        raise error
                    elif asked is not None:
                        failed[item] = error
            return found, failed

        found, failed = await self._rpc.retry(attempt, "describing topics")
        if failed:
            raise ItemsFailedError("describing topics", failed, found)
        return found

    async def _metadata(self, topics: Sequence[str | bytes] | None) -> list[Any]:
        """Metadata of all topics (None) or of these; ids and names are never in one request."""
        names = [MetadataRequestTopic(name=topic) for topic in topics or () if isinstance(topic, str)]
        ids = [MetadataRequestTopic(topic_id=topic, name=None) for topic in topics or () if isinstance(topic, bytes)]
        asked: list[tuple[list[Any] | None, int]] = [(None, 1)] if topics is None else []
        asked += [(names, 1)] if names else []
        asked += [(ids, _DESCRIBE_BY_ID_SINCE)] if ids else []
        responses = []
        for entries, least in asked:
            request = MetadataRequest(topics=entries, allow_auto_topic_creation=False)
            response = await self._rpc.ask(None, request, at_least=least)
            if response.error_code:
                raise error_for(code_of(response.error_code), "describing topics failed", api="Metadata")
            responses.append(response)
        return responses


def _raise_others(
    what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any], accepted: Collection[ErrorCode]
) -> None:
    left = {item: error for item, error in errors.items() if error.code not in accepted}
    if left:
        raise ItemsFailedError(what, left, results) from None


def _creatable(topic: NewTopic) -> Any:
    placed = topic.assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if placed else topic.partitions,
        replication_factor=-1 if placed else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _described(one: Any) -> TopicDescription:
    partitions = sorted(one.partitions, key=lambda partition: partition.partition_index)
    infos = (PartitionInfo(p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes)) for p in partitions)
    return TopicDescription(one.name, one.topic_id, tuple(infos), one.is_internal)


def _shown(topic: str | bytes) -> str:
    return f"of id {topic.hex()}" if isinstance(topic, bytes) else repr(topic)
