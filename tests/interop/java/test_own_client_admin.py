"""Our admin client against a real Apache Kafka: what it asks, Kafka answers, and what it changes is changed."""

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from fencepost.client.admin import ItemsFailedError
from fencepost.client.admin.security_types import (
    ANY,
    DEFAULT,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from fencepost.client.admin.types import NewTopic
from fencepost.protocol.admin_enums import ConfigSource
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.interop.java.secured_kafka import GUARDED
from tests.kit import acl_answers
from tests.kit.acl_answers import AclWire

T = TypeVar("T")


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A Kafka with an authorizer and a listener at which one logs in; whoever is anonymous may do everything."""
    work_dir = tmp_path_factory.mktemp("guarded")
    listeners = {"GUARDED": "SASL_PLAINTEXT"}
    with started(RealKafka(work_dir, settings=GUARDED, listeners=listeners)) as kafka:
        yield kafka


@pytest.fixture
async def client(guarded_kafka: RealKafka) -> AsyncIterator[fencepost.Client]:
    """An open client."""
    async with fencepost.Client(guarded_kafka.address, default_api_timeout=100) as client:
        yield client


@pytest.fixture
async def admin(client: fencepost.Client) -> AsyncIterator[fencepost.Admin]:
    """An open admin client."""
    async with client.admin() as admin:
        yield admin


async def until(ask: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    """The answer once it is as it must become: Kafka's brokers learn of a change a moment after it is made."""
    with trio.fail_after(100):
        while True:
            told = await ask()
            if enough(told):
                return told
            await trio.sleep(0.02)


async def topic_of(admin: fencepost.Admin, name: str, partitions: int = 1) -> TopicPartition:
    """A fresh topic, its partitions led."""
    await admin.create_topics(name, partitions)
    return TopicPartition(name, 0)


async def test_topics_by_name_and_id(admin: fencepost.Admin) -> None:
    made = await admin.create_topics([NewTopic("t-a", 2), NewTopic("t-b", assignments={0: [1], 1: [1]})])
    assert {name: (one.partitions, one.replication_factor) for name, one in made.items()} == {
        "t-a": (2, 1),
        "t-b": (2, 1),
    }
    with pytest.raises(ItemsFailedError) as some:
        await admin.create_topics(["t-a", NewTopic("t-c", 1, replication_factor=9)])
    assert {item: error.code for item, error in some.value.errors.items()} == {
        "t-a": ErrorCode.TOPIC_ALREADY_EXISTS,
        "t-c": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    described = await admin.describe_topics(["t-a", made["t-b"].topic_id])
    assert {name: len(one.partitions) for name, one in described.items()} == {"t-a": 2, "t-b": 2}
    await admin.create_partitions("t-a", 3)
    with pytest.raises(KafkaError) as fewer:
        await admin.create_partitions("t-a", 1)
    assert fewer.value.code is ErrorCode.INVALID_PARTITIONS
    await admin.delete_topics([made["t-a"].topic_id, "t-b"])
    await until(admin.list_topics, lambda told: not {"t-a", "t-b"} & set(told))
    with pytest.raises(ItemsFailedError) as gone:
        await admin.delete_topics([made["t-a"].topic_id])
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_settings_of_topics_brokers_and_groups(admin: fencepost.Admin) -> None:
    await admin.create_topics("c-a", 1)
    await admin.incremental_alter_configs({"retention.ms": "1234"}, topic="c-a", append={"cleanup.policy": "compact"})
    found = await settled(admin, "retention.ms", "1234", topic="c-a")
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["cleanup.policy"].value == "delete,compact"
    assert "time" in (
        (await admin.describe_configs(topic="c-a", documentation=True))["retention.ms"].documentation or ""
    )
    await admin.incremental_alter_configs({"retention.ms": None}, topic="c-a")
    await settled(admin, "retention.ms", "604800000", topic="c-a")
    with pytest.raises(KafkaError) as wrong:
        await admin.incremental_alter_configs({"retention.ms": "soon"}, topic="c-a")
    assert wrong.value.code is ErrorCode.INVALID_CONFIG
    await admin.incremental_alter_configs({"log.cleaner.threads": "2"}, broker=1)
    assert (await settled(admin, "log.cleaner.threads", "2", broker=1))["log.cleaner.threads"].source == 2
    await admin.incremental_alter_configs({"log.cleaner.threads": "1"}, broker="")
    await admin.incremental_alter_configs({"log.cleaner.threads": None}, broker=1)
    await until(
        lambda: admin.describe_configs(broker=1),
        lambda found: (found["log.cleaner.threads"].value, found["log.cleaner.threads"].source) == ("1", 3),
    )
    await admin.incremental_alter_configs({"consumer.session.timeout.ms": "2500"}, group="c-group")
    group = await settled(admin, "consumer.session.timeout.ms", "2500", group="c-group")
    assert group["consumer.session.timeout.ms"].source == ConfigSource.DYNAMIC_GROUP_CONFIG
    assert ("group", "c-group") in await admin.list_config_resources("group")
    assert {"topic", "broker", "group"} <= {kind for kind, _ in await admin.list_config_resources()}


async def settled(admin: fencepost.Admin, key: str, value: str, **of: Any) -> dict[str, Any]:
    """The settings once one of them has a value."""
    return await until(lambda: admin.describe_configs(**of), lambda found: found[key].value == value)


async def test_settings_of_a_broker_before_incremental_changes(
    admin: fencepost.Admin, client: fencepost.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Kafka 2.1 makes of alter_configs: all settings read, changed and written as a whole (AlterConfigs)."""
    await admin.create_topics("old-a", 1, configs={"retention.ms": "5000", "cleanup.policy": "delete"})
    connection = await client._cluster.any_connection()
    without = {key: versions for key, versions in connection.session.versions.items() if key != 44}
    monkeypatch.setattr(connection.session, "versions", without)
    await admin.incremental_alter_configs(
        {"max.message.bytes": "4321", "retention.ms": None}, topic="old-a", append={"cleanup.policy": "compact"}
    )
    found = await settled(admin, "max.message.bytes", "4321", topic="old-a")
    assert (found["cleanup.policy"].value, found["retention.ms"].source) == (
        "delete,compact",
        ConfigSource.DEFAULT_CONFIG,
    )


async def test_records_and_offsets(client: fencepost.Client, admin: fencepost.Admin) -> None:
    here = await topic_of(admin, "o-a")
    async with client.producer() as producer:
        for n in range(5):
            await producer.send("o-a", b"x", timestamp_ms=1_700_000_000_000 + 1000 * n)
    assert (await admin.list_offsets([here], at="max_timestamp"))[here].offset == 4
    async with client.transactional_producer("o-txn") as producer, producer.transaction() as txn:
        await txn.send("o-a", b"open")
        await producer.flush()
        high = await admin.list_offsets([here], isolation="read_uncommitted")
        assert (high[here].offset, (await admin.list_offsets([here]))[here].offset) == (6, 5)
        listed = await admin.list_transactions(states="Ongoing")
        assert [one.transactional_id for one in listed] == ["o-txn"]
        assert await admin.list_transactions(pattern="o-.*", running_longer_than=60) == []
        told = (await admin.describe_transactions("o-txn"))["o-txn"]
        assert (told.state, told.partitions, told.blocks) == ("Ongoing", (here,), (here,))
        producers = [one for one in (await admin.describe_producers(here))[here] if one.producer_id == told.producer_id]
        assert [one.transaction_start_offset for one in producers] == [5]
        assert await admin.find_hanging_transactions([here]) == []
    assert (await admin.list_offsets([here], at=1_700_000_001_500))[here] == (2, 1_700_000_002_000, 0)
    assert (await admin.list_offsets({here: "earliest_local"}))[here].offset == 0
    assert await admin.delete_records({here: 3}) == {here: 3}
    with pytest.raises(ItemsFailedError) as beyond:
        await admin.delete_records({here: 99})
    assert beyond.value.errors[here].code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await admin.list_offsets([here], at="earliest"))[here].offset == 3


async def test_ending_an_open_transaction_by_force(client: fencepost.Client, admin: fencepost.Admin) -> None:
    here = await topic_of(admin, "f-a")
    async with client.transactional_producer("f-txn") as producer:
        with pytest.raises(fencepost.FencedError):  # noqa: PT012 - it comes from the end of the block
            async with producer.transaction() as txn:
                await txn.send("f-a", b"lost")
                await producer.flush()
                await admin.fence_producers("f-txn")
        assert (await admin.list_offsets([here]))[here].offset == 2  # the record and the marker of its abort
        assert await admin.list_transactions(states="Ongoing", pattern="f-.*") == []


async def test_groups(client: fencepost.Client, admin: fencepost.Admin) -> None:
    here = await topic_of(admin, "g-a")
    async with client.producer() as producer:
        await producer.send("g-a", b"x")
    await admin.alter_group_offsets("g-empty", {here: 0})
    async with client.consumer("g-a", group="g-live", group_instance_id="till-1") as consumer:
        with trio.fail_after(100):
            await anext(consumer.batches())
        told = await admin.describe_groups(["g-live", "g-empty", "g-none"])
        assert {name: one.state for name, one in told.items()} == {
            "g-live": "Stable",
            "g-empty": "Empty",
            "g-none": "Dead",
        }
        assert told["g-live"].members[0].partitions == (here,)
        assert "g-live" in {one.group_id for one in await admin.list_groups(states="Stable", types="classic")}
        with pytest.raises(ItemsFailedError) as some:
            await admin.delete_groups(["g-live", "g-none"])
        assert {name: error.code for name, error in some.value.errors.items()} == {
            "g-live": ErrorCode.NON_EMPTY_GROUP,
            "g-none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        with pytest.raises(ItemsFailedError) as read:
            await admin.delete_group_offsets("g-live", [here])
        assert read.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    await admin.remove_members("g-live", instance_ids=["till-1"], reason="a test")
    with pytest.raises(ItemsFailedError) as gone:
        await admin.remove_members("g-live", instance_ids=["till-1"])
    assert gone.value.errors["till-1"].code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [part.records for part in await admin.describe_group_lag("g-empty")] == [1]
    await admin.delete_group_offsets("g-empty", [here])
    await admin.delete_groups("g-empty")


async def test_a_consumer_group_is_described_with_its_epochs(guarded_kafka: RealKafka, admin: fencepost.Admin) -> None:
    """KIP-848, with confluent-kafka as the member."""
    from confluent_kafka import Consumer

    here = await topic_of(admin, "new-a")
    options = {"bootstrap.servers": guarded_kafka.address, "group.id": "new-g", "group.protocol": "consumer"}
    member = Consumer(options)
    member.subscribe(["new-a"])
    try:
        with trio.fail_after(100):
            while True:
                await trio.to_thread.run_sync(member.poll, 0.2)
                told = (await admin.describe_groups("new-g"))["new-g"]
                if told.state == "Stable" and told.members and told.members[0].partitions:
                    break
        assert (told.type, told.state, told.protocol) == ("consumer", "Stable", "uniform")
        assert told.group_epoch >= 1
        assert told.members[0].partitions == told.members[0].target == (here,)
        assert told.members[0].subscribed == ("new-a",)
    finally:
        await trio.to_thread.run_sync(member.close)


async def test_the_cluster(admin: fencepost.Admin) -> None:
    here = await topic_of(admin, "cl-a")
    cluster = await admin.describe_cluster(include_fenced=True)
    assert [(one.broker_id, one.fenced) for one in cluster.brokers] == [(1, False)]
    quorum = await admin.describe_quorum()
    assert (quorum.leader_id, [voter.replica_id for voter in quorum.voters]) == (1, [1])
    assert quorum.high_watermark > 0
    assert quorum.voters[0].log_end_offset >= quorum.high_watermark
    [volume] = (await until(admin.describe_log_dirs, lambda told: here in told[1][0].replicas))[1]
    assert volume.error is None
    assert volume.replicas[here].size_bytes == 0
    assert volume.total_bytes > volume.usable_bytes > 0
    await admin.alter_replica_log_dirs(1, {here: volume.path})
    with pytest.raises(ItemsFailedError) as nowhere:
        await admin.alter_replica_log_dirs(1, {here: "/nowhere/at/all"})
    assert nowhere.value.errors[here].code is ErrorCode.LOG_DIR_NOT_FOUND


async def test_features_go_up_and_down(admin: fencepost.Admin) -> None:
    levels = await admin.describe_features()
    assert levels.finalized["transaction.version"] == 2
    assert levels.supported["transaction.version"] == (0, 2)
    with pytest.raises(KafkaError):
        await admin.update_features({"transaction.version": 1})
    await admin.update_features({"transaction.version": 1}, downgrade=True, validate_only=True)
    assert (await admin.describe_features()).finalized["transaction.version"] == 2


async def test_leaders_and_replicas(admin: fencepost.Admin) -> None:
    here, nowhere = await topic_of(admin, "r-a"), TopicPartition("r-none", 0)
    assert await admin.elect_leaders([here]) == {here: False}
    with pytest.raises(ItemsFailedError) as unknown:
        await admin.elect_leaders([here, nowhere])
    assert unknown.value.errors[nowhere].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.value.results == {here: False}
    assert isinstance(await admin.elect_leaders(), dict)
    await admin.alter_partition_reassignments({here: [1]})
    assert await admin.list_partition_reassignments() == {}
    with pytest.raises(ItemsFailedError) as several:
        await admin.alter_partition_reassignments({here: None, nowhere: [1], TopicPartition("cl-b", 0): [7]})
    assert several.value.errors[here].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert several.value.errors[nowhere].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ItemsFailedError) as elsewhere:
        await admin.alter_partition_reassignments({here: [7]})
    assert elsewhere.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_kafka_answers_requests_about_acls_as_our_table_says(guarded_kafka: RealKafka) -> None:
    """Row R9: the table that tests/integration/test_acl_requests.py holds our broker to."""
    host, _, port = guarded_kafka.address.rpartition(":")
    acls = AclWire(lambda: socket.create_connection((host, int(port)), 60), patience_s=60.0)
    acl_answers.check_creations(acls, is_kafka=True)
    acl_answers.check_batches(acls)
    acl_answers.check_filters(acls)
    acl_answers.check_limit(acls)


async def test_access_rules(admin: fencepost.Admin) -> None:
    await acl_answers.check_admin(admin)


async def test_without_an_authorizer_it_is_said(real_kafka: RealKafka) -> None:
    async with fencepost.Client(real_kafka.address) as client, client.admin() as admin:
        with pytest.raises(KafkaError) as disabled:
            await admin.describe_acls()
        assert disabled.value.code is ErrorCode.SECURITY_DISABLED


async def test_quotas(admin: fencepost.Admin) -> None:
    ann, everybody = QuotaEntity(user="q-ann"), QuotaEntity(user=DEFAULT, client_id="q-app")
    await admin.alter_client_quotas({ann: {"producer_byte_rate": 1e6}, everybody: {"consumer_byte_rate": 2e6}})
    await until(admin.describe_client_quotas, lambda told: len(told) == 2)
    assert await admin.describe_client_quotas(ann) == {ann: {"producer_byte_rate": 1e6}}
    assert await admin.describe_client_quotas(QuotaEntity(user=ANY), strict=True) == {ann: {"producer_byte_rate": 1e6}}
    assert everybody in await admin.describe_client_quotas(QuotaEntity(client_id="q-app"))
    with pytest.raises(ItemsFailedError) as wrong:
        await admin.alter_client_quotas({ann: {"producer_byte_rate": None}, everybody: {"speed": 1}})
    assert list(wrong.value.errors) == [everybody]
    await until(lambda: admin.describe_client_quotas(ann), lambda told: not told)


async def test_users_that_log_in(guarded_kafka: RealKafka, admin: fencepost.Admin) -> None:
    """The proof of a salted password is that somebody else's client gets in with it."""
    await admin.alter_user_scram_credentials(upsert=[ScramUpsertion("s-ann", "wonder")])
    second = ScramUpsertion("s-ann", "wonder", ScramMechanism.SCRAM_SHA_256, 4096)
    await admin.alter_user_scram_credentials(upsert=[second])
    await until(lambda: admin.describe_user_scram_credentials(), lambda told: len(told.get("s-ann", ())) == 2)
    assert sorted((await admin.describe_user_scram_credentials("s-ann"))["s-ann"]) == [
        ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096),
        ScramCredential(ScramMechanism.SCRAM_SHA_512, 8192),
    ]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        await until(partial(trio.to_thread.run_sync, logs_in, guarded_kafka, mechanism, "wonder"), bool)
    assert not await trio.to_thread.run_sync(logs_in, guarded_kafka, "SCRAM-SHA-512", "wander")
    with pytest.raises(ItemsFailedError) as some:
        await admin.alter_user_scram_credentials(
            delete=[ScramDeletion("s-ann", ScramMechanism.SCRAM_SHA_256), ScramDeletion("s-bob", ScramMechanism(1))],
            upsert=[ScramUpsertion("s-eve", "x", iterations=7)],
        )
    assert {user: error.code for user, error in some.value.errors.items()} == {
        "s-bob": ErrorCode.RESOURCE_NOT_FOUND,
        "s-eve": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    await until(lambda: admin.describe_user_scram_credentials(), lambda told: len(told["s-ann"]) == 1)
    with pytest.raises(ItemsFailedError) as unknown:
        await admin.describe_user_scram_credentials(["s-ann", "s-bob"])
    assert unknown.value.errors["s-bob"].code is ErrorCode.RESOURCE_NOT_FOUND
    assert [one.mechanism.name for one in unknown.value.results["s-ann"]] == ["SCRAM_SHA_512"]


def logs_in(kafka: RealKafka, mechanism: str, password: str) -> bool:
    """Whether confluent-kafka gets metadata with this password, or is told that it is wrong."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    refused: list[KafkaError] = []
    options = {
        "bootstrap.servers": kafka.address_of("GUARDED"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "s-ann",
        "sasl.password": password,
        "log_level": 0,
        "error_cb": lambda error: refused.append(error) if error.code() == KafkaError._AUTHENTICATION else None,
    }
    admin, began = AdminClient(options), time.monotonic()
    while not refused:
        assert time.monotonic() < began + 100, "neither let in nor refused"
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            admin.poll(0)  # hears of the refusal
    return False
