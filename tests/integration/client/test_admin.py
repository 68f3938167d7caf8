"""Administration through a real broker."""

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition


async def test_topics_come_grow_and_go(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        with trio.fail_after(100):
            made = await admin.create_topics(name, partitions=2, configs={"retention.ms": "1000000"})
            assert (made[name].name, made[name].partitions) == (name, 2)
            assert await admin.create_topics(name, partitions=2, if_not_exists=True) == {}
            with pytest.raises(KafkaError) as exists:
                await admin.create_topics(name, partitions=2)
            assert exists.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert name in await admin.list_topics()
            await admin.create_partitions(name, 3)
            described = (await admin.describe_topics(name))[name]
            assert [partition.leader for partition in described.partitions] == [described.partitions[0].leader] * 3
            await admin.delete_topics(name)
            await admin.delete_topics(name, if_exists=True)
            with pytest.raises(KafkaError) as missing:
                await admin.delete_topics(name)
            assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError):
                await admin.describe_topics(name)


async def test_validating_creates_nothing(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        assert await admin.create_topics(name, partitions=2, validate_only=True)
        assert name not in await admin.list_topics()
        with pytest.raises(KafkaError) as refused:
            await admin.create_topics("not/a/name", partitions=1)
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_settings_are_read_changed_and_given_back(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=1)
        before = (await admin.describe_configs(topic=name))["retention.ms"]
        await admin.incremental_alter_configs({"retention.ms": "12345678"}, topic=name)
        assert (await admin.describe_configs(topic=name))["retention.ms"].value == "12345678"
        await admin.incremental_alter_configs({"retention.ms": None}, topic=name)
        assert (await admin.describe_configs(topic=name))["retention.ms"] == before
        with pytest.raises(KafkaError) as refused:
            await admin.incremental_alter_configs({"retention.msec": "1"}, topic=name)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        node = next(iter(kafka._cluster.brokers))
        assert await admin.describe_configs(broker=node)


async def test_offsets_by_place_and_by_time(kafka: fencepost.Client, name: str) -> None:
    here = TopicPartition(name, 0)
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=1)
        async with kafka.producer() as producer:
            for n in range(5):
                await producer.send(name, b"%d" % n, timestamp_ms=1_700_000_000_000 + n * 1000)
        assert (await admin.list_offsets([here], at="earliest"))[here].offset == 0
        assert (await admin.list_offsets([here]))[here].offset == 5
        assert (await admin.list_offsets([here], at=1_700_000_001_500))[here][:2] == (2, 1_700_000_002_000)
        assert (await admin.list_offsets([here], at="max_timestamp"))[here].offset == 4
        assert (await admin.list_offsets([here], at=1_800_000_000_000))[here].offset == -1


async def test_groups_are_listed_and_an_unknown_one_is_told(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=1)
        async with kafka.producer() as producer:
            await producer.send(name, b"x")
        async with kafka.consumer(name, group=name) as consumer:
            with trio.fail_after(100):
                await anext(consumer.batches())
            assert name in {group.group_id for group in await admin.list_groups()}
            with pytest.raises(KafkaError) as busy:
                await admin.delete_groups(name)
            assert busy.value.code is ErrorCode.NON_EMPTY_GROUP
        assert (await admin.describe_groups(f"{name}-unknown"))[f"{name}-unknown"].state == "Dead"
        with pytest.raises(KafkaError) as unknown:
            await admin.delete_groups(f"{name}-unknown")
        assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_features_and_states_that_are_not_known(kafka: fencepost.Client) -> None:
    async with kafka.admin() as admin:
        assert (await admin.describe_features()).finalized["transaction.version"] in (1, 2)
        with pytest.raises(KafkaError, match="does not know the transaction state 'Sleeping'"):
            await admin.describe_transactions(states="Sleeping")
        with pytest.raises(KafkaError):
            await admin.update_features({"no.such.feature": 1})
        with pytest.raises(KafkaError) as unknown:
            await admin.describe_transactions("nobody-has-this-id")
        assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
