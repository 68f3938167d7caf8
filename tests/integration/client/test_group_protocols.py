"""What a member of a group may count on, in the classic protocol and in KIP-848's: subscription and callbacks."""

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from tests.integration.client.group_kit import CONSUMER, PATIENCE_S, Heard, create, reading, until


@pytest.fixture(scope="module")
def address(address_of_quick_groups: str) -> str:
    """Groups change fast here."""
    return address_of_quick_groups


async def test_members_share_and_hear_of_it(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    """on_assigned and on_revoked; those that need not stop hear only of what changes (KIP-429, KIP-848)."""
    await create(kafka, name, partitions=4, records=4)
    first, second = Heard(), Heard()
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way, **first.options()) as one, reading(one):
            await until(lambda: len(one.assignment) == 4, "all")
            async with kafka.consumer(name, group=name, **way, **second.options()) as two, reading(two):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "both have two")
                assert not one.assignment & two.assignment
            await until(lambda: len(one.assignment) == 4, "all again")
    assert first.words[0] == ("assigned", [0, 1, 2, 3])
    taken = second.words[0][1]
    if way.get("group_protocol") or way.get("partition_assignment_strategy"):
        assert first.words[1:] == [("revoked", taken), ("assigned", taken), ("revoked", [0, 1, 2, 3])]
    else:
        assert first.words[1] == ("revoked", [0, 1, 2, 3])
    assert second.words[0][0] == "assigned"


async def test_what_a_callback_raises_ends_the_clients_block(address: str, name: str, way: dict[str, object]) -> None:
    """Also a KafkaError: it is the program's, and not the membership's."""

    async def breaks(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        raise KafkaError("the store is gone")

    async def run() -> None:
        async with fencepost.Client(address) as kafka:
            await create(kafka, name, partitions=1, records=1)
            async with kafka.consumer(name, group=name, on_assigned=breaks, **way):
                await trio.sleep_forever()

    with trio.fail_after(PATIENCE_S), pytest.raises(KafkaError, match="the store is gone"):
        await run()


async def test_offsets_kept_elsewhere_are_sought_in_on_assigned(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    await create(kafka, name, partitions=1, records=10)

    async def go_to_seven(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, 7)

    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, on_assigned=go_to_seven, **way) as consumer:
            assert (await anext(aiter(consumer))).offset == 7


async def test_a_program_that_does_not_come_back_leaves_and_learns_of_it(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """max.poll.interval.ms: others read on, its commit is refused, on_lost tells, and it may come back."""
    await create(kafka, name, partitions=2, records=8)
    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        options = {**way, **heard.options(), "max_poll_interval": 0.6}
        async with kafka.consumer(name, group=name, **options) as lazy:
            batches = lazy.batches()
            await anext(batches)
            async with kafka.consumer(name, group=name, **way) as busy, reading(busy):
                await until(lambda: len(busy.assignment) == 2, "the other one has everything")
                assert heard.words[-1][0] == "lost"
                assert not lazy.assignment
                with pytest.raises(KafkaError) as refused:
                    await lazy.commit()
                assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
                async with kafka.transactional_producer(name) as producer:
                    with pytest.raises(fencepost.AbortableError):
                        async with producer.transaction() as txn:
                            await txn.send_offsets(lazy)
                async with reading(lazy):
                    await until(lambda: len(lazy.assignment) == len(busy.assignment) == 1, "it has come back")


async def test_subscriptions_change_at_run_time(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    """subscribe, subscribe to something else, unsubscribe, assign, unsubscribe, subscribe."""
    for suffix in "ab":
        await create(kafka, f"{name}{suffix}", partitions=2, records=2)

    def reads(*suffixes: str) -> bool:
        return consumer.assignment == {TopicPartition(f"{name}{one}", n) for one in suffixes for n in range(2)}

    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name, **way) as consumer:
            assert not consumer.assignment
            consumer.subscribe(f"{name}a", **heard.options())  # type: ignore[arg-type]
            async with reading(consumer):
                await until(lambda: reads("a"), "the first")
                consumer.subscribe(f"{name}b", f"{name}a")
                await until(lambda: reads("a", "b"), "both")
                consumer.subscribe(f"{name}b")
                await until(lambda: reads("b"), "the second")
                with pytest.raises(RuntimeError, match="unsubscribe first"):
                    consumer.assign([TopicPartition(f"{name}a", 0)])
            await consumer.unsubscribe()
            assert heard.words[-1] == ("revoked", [0, 1])
            async with kafka.admin() as admin:
                assert not (await admin.describe_groups(name))[name].members
            consumer.assign([TopicPartition(f"{name}a", 1)])
            with pytest.raises(RuntimeError, match="unsubscribe first"):
                consumer.subscribe(f"{name}a")
            assert (await anext(aiter(consumer))).partition == 1
            await consumer.commit()
            await consumer.unsubscribe()
            consumer.subscribe(f"{name}a")
            async with reading(consumer):
                await until(lambda: reads("a"), "as a member again")
                assert await consumer.committed(TopicPartition(f"{name}a", 1)) == {TopicPartition(f"{name}a", 1): 1}


@pytest.mark.parametrize("group", [True, False])
async def test_a_pattern_takes_topics_that_come_later(
    address: str, name: str, way: dict[str, object], group: bool
) -> None:
    """Matched as a whole, by the client (classic protocol, no group) or by the broker (RE2, KIP-848)."""
    async with fencepost.Client(address, metadata_max_age=0.1) as kafka:
        await create(kafka, f"{name}-1", partitions=1, records=1)
        await create(kafka, f"x{name}-1", partitions=1, records=1)
        options = {**way, "group": name} if group else {}
        with trio.fail_after(PATIENCE_S):
            async with kafka.consumer(**options) as consumer:
                consumer.subscribe(pattern=f"{name}-[0-9]+")
                async with reading(consumer):
                    await until(lambda: consumer.assignment == {TopicPartition(f"{name}-1", 0)}, "the one that fits")
                    await create(kafka, f"{name}-22", partitions=2, records=2)
                    await until(lambda: len(consumer.assignment) == 3, "the new one, too")
                    async with kafka.admin() as admin:
                        await admin.create_partitions(f"{name}-22", 3)
                    await until(lambda: len(consumer.assignment) == 4, "what it has grown by")


async def test_a_pattern_that_is_none_is_refused(kafka: fencepost.Client, name: str) -> None:
    async with kafka.consumer(group=name) as consumer:
        for wrong in ({"pattern": "("}, {}):
            with pytest.raises(fencepost.ConfigError):
                consumer.subscribe(**wrong)  # type: ignore[arg-type]
        with pytest.raises(fencepost.ConfigError):
            consumer.subscribe("a", pattern="b")


async def test_a_pattern_the_broker_does_not_take_is_told_by_the_next_call(kafka: fencepost.Client, name: str) -> None:
    """RE2 knows no lookahead; Python does."""
    with trio.fail_after(100):
        async with kafka.consumer(group=name, group_protocol="consumer") as consumer:
            consumer.subscribe(pattern="(?=a)b")
            with pytest.raises(KafkaError) as refused:
                await anext(consumer.batches())
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_static_member_that_comes_again_finds_its_partitions(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """KIP-345, KIP-848 (epoch -2): nobody rebalances while it is away for a moment."""
    await create(kafka, name, partitions=4, records=4)
    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        options = {"group": name, **way}
        async with kafka.consumer(name, group_instance_id="1", **options, **heard.options()) as one, reading(one):
            async with kafka.consumer(name, group_instance_id="2", **options) as two, reading(two):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "two each")
                had = two.assignment
            before = len(heard.words)
            async with kafka.consumer(name, group_instance_id="2", **options) as two, reading(two):
                await until(lambda: two.assignment == had, "the same two")
            assert heard.words[before:] == []


async def test_a_static_place_of_a_dead_predecessor_is_waited_for(kafka: fencepost.Client, name: str) -> None:
    """KIP-848: it is released when its session is over; until then the broker says UNRELEASED_INSTANCE_ID."""
    await create(kafka, name, partitions=1, records=1)
    options = {"group": name, "group_instance_id": "1", **CONSUMER}
    async with kafka.admin() as admin:
        await admin.incremental_alter_configs({"consumer.session.timeout.ms": "2000"}, group=name)
    with trio.fail_after(PATIENCE_S):
        dead = kafka.consumer(name, **options)
        await dead.__aenter__()
        await anext(dead.batches())
        dead._subscriber.end_tasks()  # as kill -9 would
        async with kafka.consumer(name, **options) as successor:
            await anext(successor.batches())
        await dead.__aexit__(None, None, None)


async def test_the_servers_assignor_may_be_chosen(kafka: fencepost.Client, name: str) -> None:
    """KIP-848: by name; one that the broker has not got is told by the next call."""
    await create(kafka, name, partitions=1, records=1)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, group_remote_assignor="range", **CONSUMER) as consumer:
            await anext(consumer.batches())
        async with kafka.consumer(name, group=f"{name}x", group_remote_assignor="fair", **CONSUMER) as consumer:
            with pytest.raises(KafkaError) as refused:
                await anext(consumer.batches())
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
