"""What a program may subscribe to, in each form, and what is refused."""

import re
from datetime import timedelta
from typing import Any

import pytest

import fencepost
from fencepost import ConfigError, sync
from fencepost.client.group.subscription import Subscription, subscription_to
from tests.kit.fetch_broker import ScriptedCluster
from tests.unit.client.reading_kit import T0, Start, values


@pytest.mark.parametrize(
    ("topics", "pattern", "expected"),
    [
        (("orders",), None, Subscription(("orders",))),
        (("orders", "bills"), None, Subscription(("orders", "bills"))),
        ((["orders", "bills"],), None, Subscription(("orders", "bills"))),
        ((("orders",), "bills", "orders"), None, Subscription(("orders", "bills"))),
        ((name for name in ("orders", "bills")), None, Subscription(("orders", "bills"))),
        ((re.compile("orders-.*"),), None, Subscription(pattern="orders-.*")),
        ((re.compile("(?i)orders"),), None, Subscription(pattern="(?i)orders")),
        ((), "orders-.*", Subscription(pattern="orders-.*")),
        ((), re.compile("orders-.*"), Subscription(pattern="orders-.*")),
    ],
)
def test_names_lists_and_patterns(topics: Any, pattern: Any, expected: Subscription) -> None:
    assert subscription_to(topics, pattern) == expected


@pytest.mark.parametrize(
    ("topics", "pattern", "why"),
    [
        ((), None, "to topics or to one pattern"),
        (([],), None, "to topics or to one pattern"),
        (("orders",), "bills", "not to both"),
        ((re.compile("a"), re.compile("b")), None, "to one pattern"),
        ((), "(", r"pattern '\('"),
        ((re.compile("orders", re.IGNORECASE),), None, r"with its flags inside, such as \(\?i\)"),
        ((re.compile(b"orders"),), None, "must be text"),
    ],
)
def test_what_is_no_subscription_is_refused(topics: Any, pattern: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        subscription_to(topics, pattern)


@pytest.mark.parametrize("topics", [(7,), ([7],), (b"orders",)], ids=str)
def test_a_topic_of_another_type_is_a_type_error(topics: Any) -> None:
    with pytest.raises(TypeError, match="a topic's name must be str, not"):
        subscription_to(topics, None)


async def test_a_consumer_takes_a_list_and_durations_as_timedelta(cluster: ScriptedCluster, start: Start) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 5))
    async with (
        fencepost.Client(broker.address, request_timeout=timedelta(seconds=20)) as kafka,
        kafka.consumer(["t"]) as consumer,
    ):
        async for batch in consumer.batches(5, max_wait=timedelta(seconds=10)):
            assert len(batch) == 5
            break
        assert await consumer.end_offsets(T0, isolation="read_uncommitted") == {T0: 5}
        with pytest.raises(ValueError, match="read_committed or read_uncommitted"):
            await consumer.end_offsets(T0, isolation="uncommitted")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'soon' is not a duration: give seconds or a timedelta"):
            consumer.batches(max_wait="soon")  # type: ignore[arg-type]


def test_a_deadline_of_the_blocking_client_may_be_a_timedelta() -> None:
    with sync.fail_after(timedelta(minutes=1)), sync.fail_after(1):
        pass
    with pytest.raises(ValueError, match="is not a duration"), sync.fail_after("1"):  # type: ignore[arg-type]
        pass
    with pytest.raises(ValueError, match="is not a duration"):
        sync.Client("a:1", timeout="30")  # type: ignore[arg-type]
