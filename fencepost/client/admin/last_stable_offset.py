"""The transactions that hold a partition's last stable offset, and hanging transactions (rows T19, T20)."""

import uuid
from collections.abc import Collection

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.parts import AdminParts
from fencepost.client.admin.types import (
    HangingTransaction,
    Holder,
    LastStableOffsetInfo,
    ProducerState,
    TransactionDescription,
    Verdict,
    WaitingGroup,
)
from fencepost.client.errors import KafkaError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NO_TIMEOUT_MS = 2**31 - 1
"""The transaction timeout that means none: the transaction is part of a two-phase commit (row T22)."""
MAX_TIMEOUT = "transaction.max.timeout.ms"
MAX_TIMEOUT_DEFAULT_MS = 900_000


async def describe_last_stable_offset(admin: AdminParts, partition: TopicPartition) -> LastStableOffsetInfo:
    """As `Admin.describe_last_stable_offset`. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION, ...).

    It sends several requests, one after the other, so it may return a transaction that ends meanwhile.
    """
    await check_exists(admin, partition)
    producers = (await admin.transactions.describe_producers(partition))[partition]
    stable = (await admin.offsets.list_offsets([partition]))[partition].offset
    high = (await admin.offsets.list_offsets([partition], isolation="read_uncommitted"))[partition].offset
    is_open = [(p.transaction_start_offset, p) for p in producers if p.transaction_start_offset is not None]
    holders = []
    if is_open:
        max_age_ms = await max_timeout_ms(admin)
        for first_offset, producer in sorted(is_open):
            known = await _transaction_of(admin, producer)
            verdict = await _verdict(admin, partition, producer, known, max_age_ms)
            holders.append(Holder(producer, first_offset, verdict, known))
    groups = await _waiting(admin, partition, stable, high) if high > stable else ()
    return LastStableOffsetInfo(partition, stable, high, tuple(holders), tuple(groups))


async def find_hanging(
    admin: AdminParts, partitions: Collection[TopicPartition] | None, older_than_ms: int | None
) -> list[HangingTransaction]:
    """Old transactions that the coordinator does not know, or not with this partition.

    Raises KafkaError (TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the user may not see all coordinators' ids).
    """
    max_age_ms = await max_timeout_ms(admin) if older_than_ms is None else older_than_ms
    found = []
    for partition in partitions or ():
        await check_exists(admin, partition)
    for partition in await _all_partitions(admin) if partitions is None else sorted(partitions):
        for producer in (await admin.transactions.describe_producers(partition))[partition]:
            first_offset = producer.transaction_start_offset
            if first_offset is None or not _is_old(admin, producer, max_age_ms):
                continue
            known = await _transaction_of(admin, producer)
            if (known is not None and partition in known.partitions) or not await _still_open(
                admin, partition, producer
            ):
                continue
            if known is None and not await _sees_all_ids(admin):
                raise KafkaError(
                    f"{partition} has an old transaction of producer {producer.producer_id}: only a user who may"
                    " DESCRIBE all transactional ids can know whether it hangs",
                    code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                )
            name = None if known is None else known.transactional_id
            found.append(HangingTransaction(partition, producer, first_offset, name, reason(producer, known)))
    return found


async def check_exists(admin: AdminParts, partition: TopicPartition) -> None:
    """Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION) if a partition does not exist.

    It raises at once, because the name may be mistyped; producers and consumers wait for a new topic.
    """
    described = await admin.topics.describe_topics(partition.topic)
    if partition.partition >= len(described[partition.topic].partitions):
        raise KafkaError(f"{partition} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def reason(producer: ProducerState, known: TransactionDescription | None) -> str:
    """Why no coordinator will end the transaction."""
    if known is None:
        return f"no transactional id has producer id {producer.producer_id}"
    return f"{known.transactional_id!r} has this producer id, is in {known.state} and does not have this partition"


async def max_timeout_ms(admin: AdminParts) -> int:
    """The longest transaction timeout of this cluster; Kafka's default if the broker does not report it."""
    described = await admin.configs.describe_configs(broker=await _some_broker(admin))
    entry = described.get(MAX_TIMEOUT)
    return MAX_TIMEOUT_DEFAULT_MS if entry is None or entry.value is None else int(entry.value)


async def _some_broker(admin: AdminParts) -> int:
    await admin.topics.list_topics()
    return min(admin.cluster.brokers)


async def _all_partitions(admin: AdminParts) -> list[TopicPartition]:
    topics = await admin.topics.describe_topics()
    return [TopicPartition(name, number) for name in sorted(topics) for number in range(len(topics[name].partitions))]


async def _transaction_of(admin: AdminParts, producer: ProducerState) -> TransactionDescription | None:
    described = await admin.transactions.describe_transactions(producer_ids=producer.producer_id)
    return next(iter(described.values()), None)


async def _sees_all_ids(admin: AdminParts) -> bool:
    """Whether the user may describe any transactional id, for example one that does not exist."""
    unknown = f"fencepost-{uuid.uuid4().hex}"
    try:
        await admin.transactions.describe_transactions(unknown)
    except ItemsFailedError as failed:
        return failed.errors[unknown].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return False


def _is_old(admin: AdminParts, producer: ProducerState, max_age_ms: int) -> bool:
    return admin.now_ms() - producer.last_timestamp_ms > max_age_ms


async def _still_open(admin: AdminParts, partition: TopicPartition, producer: ProducerState) -> bool:
    """Whether the same transaction is still open after the coordinator's response: then it has no owner.

    Otherwise it ended between the two requests, and the coordinator was right not to know it.
    """
    producers = (await admin.transactions.describe_producers(partition))[partition]
    now = {one.producer_id: one for one in producers}.get(producer.producer_id)
    return now is not None and (now.producer_epoch, now.transaction_start_offset) == (
        producer.producer_epoch,
        producer.transaction_start_offset,
    )


async def _verdict(
    admin: AdminParts,
    partition: TopicPartition,
    producer: ProducerState,
    known: TransactionDescription | None,
    max_age_ms: int,
) -> Verdict:
    if known is None and not await _sees_all_ids(admin):
        return Verdict.HIDDEN
    if known is None or partition not in known.partitions:
        if _is_old(admin, producer, max_age_ms) and await _still_open(admin, partition, producer):
            return Verdict.HANGING
        return Verdict.UNOWNED
    if known.state != "Ongoing":
        return Verdict.COMPLETING
    return Verdict.PREPARED if known.timeout_ms == NO_TIMEOUT_MS else Verdict.OPEN


async def _waiting(admin: AdminParts, partition: TopicPartition, stable: int, high: int) -> list[WaitingGroup]:
    """The groups with a committed offset up to the last stable offset: groups past it read uncommitted."""
    waiting = []
    for group in await admin.groups.list_groups():
        found = (await admin.groups.list_group_offsets(group.group_id, require_stable=False)).get(partition)
        if found is not None and found.offset <= stable:
            lag = stable - found.offset
            waiting.append(WaitingGroup(group.group_id, group.state, found.offset, lag, high - stable))
    return waiting
