"""Calls about several things at once: one error for each that failed, and what became of the others."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from fencepost.client.admin import ItemsFailedError
from fencepost.client.admin.types import NewTopic
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.errors import FatalError


async def test_topics_that_failed_are_told_and_the_others_are_there(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        made = await admin.create_topics(
            [NewTopic(f"{name}-a", 2), NewTopic(f"{name}-b", 1, configs={"retention.ms": "9"})]
        )
        assert [(one.name, one.partitions) for one in made.values()] == [(f"{name}-a", 2), (f"{name}-b", 1)]
        with pytest.raises(ItemsFailedError) as some:
            await admin.create_topics([f"{name}-a", "not/a/name", NewTopic(f"{name}-c", 3)])
        assert {item: error.code for item, error in some.value.errors.items()} == {
            f"{name}-a": ErrorCode.TOPIC_ALREADY_EXISTS,
            "not/a/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert some.value.results[f"{name}-c"].partitions == 3
        assert some.value.code is None, "the two have different codes"
        with pytest.raises(ItemsFailedError) as gone:
            await admin.delete_topics([f"{name}-a", f"{name}-none", f"{name}-c"])
        assert list(gone.value.errors) == [f"{name}-none"]
        assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [topic for topic in await admin.list_topics() if topic.startswith(name)] == [f"{name}-b"]


async def test_item_errors_are_a_kafka_error_and_a_group(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        with pytest.raises(KafkaError) as told:
            await admin.describe_topics([f"{name}-x", f"{name}-y"])
        assert str(told.value).startswith(
            f"describing topics: {name}-x: describing topic '{name}-x' failed (UNKNOWN_TOPIC_OR_PARTITION"
        )
        seen: list[str] = []
        try:
            await admin.delete_groups([f"{name}-x", f"{name}-y"])
        except* KafkaError as group:
            seen += [str(error) for error in group.exceptions]
        assert len(seen) == 2
        with pytest.raises(ItemsFailedError) as whole:
            await admin.delete_groups([f"{name}-x", f"{name}-y"])
        first = whole.value.errors[f"{name}-x"]
        part, rest = whole.value.split(lambda error: error is first)
        assert isinstance(part, ItemsFailedError)
        assert list(part.errors) == [f"{name}-x"]
        assert isinstance(rest, ItemsFailedError)
        assert list(rest.errors) == [f"{name}-y"]


async def test_topics_that_exist_are_left_as_they_are(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=2)
        made = await admin.create_topics([name, f"{name}-b", f"{name}-c"], 3, if_not_exists=True)
        assert [topic.partitions for topic in made.values()] == [3, 3]
        assert list(made) == [f"{name}-b", f"{name}-c"]
        assert len((await admin.describe_topics(name))[name].partitions) == 2
        with pytest.raises(ItemsFailedError) as some:
            await admin.create_topics([name, "not/a/name"], if_not_exists=True)
        assert list(some.value.errors) == ["not/a/name"]
        with pytest.raises(TypeError, match="in its NewTopic"):
            await admin.create_topics(NewTopic(f"{name}-d"), partitions=3)
        await admin.delete_topics([name, "never-made"], if_exists=True)
        assert name not in await admin.list_topics()


async def test_a_topic_by_its_id(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        made = (await admin.create_topics([NewTopic(name, 2)]))[name]
        assert made.topic_id != bytes(16)
        described = await admin.describe_topics(made.topic_id)
        assert described[name].topic_id == made.topic_id
        assert len(described[name].partitions) == 2
        await admin.delete_topics(made.topic_id)
        assert name not in await admin.list_topics()
        await admin.delete_topics(made.topic_id, if_exists=True)
        with pytest.raises(KafkaError) as unknown:
            await admin.describe_topics(made.topic_id)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_records_go_where_they_may_and_the_rest_is_told(kafka: fencepost.Client, name: str) -> None:
    """Row L6: DeleteRecords beyond the high watermark is out of range."""
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    async with kafka.admin() as admin, kafka.producer() as producer:
        await admin.create_topics(name, partitions=2)
        for partition in (0, 1):
            for _ in range(4):
                await producer.send(name, b"x", partition=partition)
        with pytest.raises(ItemsFailedError) as some:
            await admin.delete_records({one: 3, two: 99})
        assert some.value.results == {one: 3}
        assert some.value.errors[two].code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await admin.list_offsets({one: "earliest", two: "earliest"}))[one].offset == 3
        missing = TopicPartition(name, 7)
        with pytest.raises(ItemsFailedError) as places:
            await admin.list_offsets([one, missing], at="earliest")
        assert places.value.results[one].offset == 3
        assert places.value.errors[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await admin.delete_records({two: -1}) == {two: 4}


async def test_groups_offsets_and_members(kafka: fencepost.Client, name: str) -> None:
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    async with kafka.admin() as admin, kafka.producer() as producer:
        await admin.create_topics(name, partitions=2)
        for partition in (0, 1):
            await producer.send(name, b"x", partition=partition)
        await admin.alter_group_offsets(name, {one: 0, two: CommittedOffset(1, -1, "by hand")})
        assert {p: (at.offset, at.metadata) for p, at in (await admin.list_group_offsets(name)).items()} == {
            one: (0, ""),
            two: (1, "by hand"),
        }
        with trio.fail_after(100):
            async with kafka.consumer(name, group=name, group_instance_id="till-1") as consumer:
                await anext(consumer.batches())
                told = (await admin.describe_groups(name))[name]
                assert (told.state, told.type, len(told.members)) == ("Stable", "classic", 1)
                assert told.members[0].instance_id == "till-1"
                assert set(told.members[0].partitions) == {one, two}
                with pytest.raises(ItemsFailedError) as busy:
                    await admin.alter_group_offsets(name, {one: 0})
                assert busy.value.errors[one].code is ErrorCode.UNKNOWN_MEMBER_ID
                with pytest.raises(ItemsFailedError) as read:
                    await admin.delete_group_offsets(name, [one])
                assert read.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                with pytest.raises(ItemsFailedError) as nobody:
                    await admin.remove_members(name, instance_ids=["till-1", "till-2"])
                assert list(nobody.value.errors) == ["till-2"]
        described = await admin.describe_groups([name, f"{name}-none"])
        assert {group: told.state for group, told in described.items()} == {name: "Empty", f"{name}-none": "Dead"}
        await admin.delete_group_offsets(name, [two])
        assert {p: at.offset for p, at in (await admin.list_group_offsets(name)).items()} == {one: 0}
        assert name in {group.group_id for group in await admin.list_groups(states="Empty", protocol_types="consumer")}
        lag = await admin.describe_group_lag(name)
        assert [(part.partition, part.records) for part in lag] == [(one, 1)]
        await admin.delete_groups(name)
        with pytest.raises(KafkaError) as unknown:
            await admin.delete_group_offsets(name, [one])
        assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_lists_in_settings_grow_and_shrink(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=1, configs={"cleanup.policy": "delete"})
        await admin.incremental_alter_configs(topic=name, append={"cleanup.policy": "compact"})
        assert (await admin.describe_configs(topic=name))["cleanup.policy"].value == "delete,compact"
        await admin.incremental_alter_configs({"retention.ms": "77"}, topic=name, subtract={"cleanup.policy": "delete"})
        after = await admin.describe_configs(topic=name, documentation=True)
        assert (after["cleanup.policy"].value, after["retention.ms"].value) == ("compact", "77")
        assert after["retention.ms"].synonyms[0].value == "77"
        await admin.incremental_alter_configs({"retention.ms": "78"}, topic=name, validate_only=True)
        assert (await admin.describe_configs(topic=name))["retention.ms"].value == "77"
        with pytest.raises(KafkaError, match="one of topic, broker and group"):
            await admin.describe_configs(topic=name, broker=1)


async def test_the_cluster_and_its_features(kafka: fencepost.Client) -> None:
    async with kafka.admin() as admin:
        cluster = await admin.describe_cluster()
        assert cluster.cluster_id
        assert cluster.controller_id in {broker.broker_id for broker in cluster.brokers}
        levels = await admin.describe_features()
        assert levels.supported["transaction.version"][1] == 2
        assert levels.finalized["transaction.version"] in (1, 2)
        assert levels.epoch is not None


async def test_what_a_broker_does_not_know_is_said_at_once(kafka: fencepost.Client, name: str) -> None:
    """A clear error and no closed connection: docs/decisions/0023-asked-but-not-served.md."""
    async with kafka.admin() as admin:
        unserved = [one for one in _asked(admin, name) if one[0] not in await _served(kafka)]
        for api, call in unserved:
            with trio.fail_after(100), pytest.raises(FatalError, match=api) as told:
                await call()
            assert told.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert await admin.list_topics() is not None


def _asked(admin: fencepost.Admin, name: str) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    from fencepost.client.admin.security_types import Acl, AclFilter, AclResourceType, QuotaEntity
    from fencepost.protocol.admin_enums import AclOperation

    here = TopicPartition(name, 0)
    rule = Acl(AclResourceType.TOPIC, name, "User:a", AclOperation.READ)
    return [
        ("DescribeAcls", admin.describe_acls),
        ("CreateAcls", lambda: admin.create_acls(rule)),
        ("DeleteAcls", lambda: admin.delete_acls(AclFilter(*rule))),
        ("DescribeClientQuotas", admin.describe_client_quotas),
        ("AlterClientQuotas", lambda: admin.alter_client_quotas({QuotaEntity(user="a"): {"producer_byte_rate": 1.0}})),
        ("DescribeUserScramCredentials", admin.describe_user_scram_credentials),
        ("DescribeLogDirs", admin.describe_log_dirs),
        ("ElectLeaders", lambda: admin.elect_leaders([here])),
        ("AlterPartitionReassignments", lambda: admin.alter_partition_reassignments({here: [1]})),
        ("ListPartitionReassignments", admin.list_partition_reassignments),
        ("DescribeQuorum", admin.describe_quorum),
        ("ListConfigResources", admin.list_config_resources),
    ]


async def _served(kafka: fencepost.Client) -> set[str]:
    from fencepost.protocol.registry import API_BY_KEY

    connection = await kafka._cluster.any_connection()
    return {API_BY_KEY[key].name for key in connection.session.versions if key in API_BY_KEY}
