"""What somebody meets who tries the client for the first time: it says what is wrong, and what to do."""

import logging

import pytest
import trio

import fencepost
from fencepost.client.group import membership
from tests.integration.client.group_kit import create
from tests.kit.waiting import soon


async def test_a_group_that_subscribes_to_an_unknown_topic_says_so_once(
    kafka: fencepost.Client, name: str, way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka.admin() as admin, kafka.consumer(name, group=name, **way) as consumer:
        with trio.move_on_after(3):
            await anext(consumer.batches())
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [text for text in warnings if f"topic '{name}' does not exist" in text] == [
            f"topic '{name}' does not exist; `fencepost topic create {name}` creates it"
            " (UNKNOWN_TOPIC_OR_PARTITION, Metadata). This consumer has subscribed to it, and reads it once it exists"
        ]
        await admin.create_topics(name)
        async with kafka.producer() as producer:
            await producer.send(name, b"v")
        with trio.fail_after(30):
            assert [record.value for record in await anext(consumer.batches())] == [b"v"]


async def test_a_member_that_waits_for_a_crashed_one_says_so(
    address_of_quick_groups: str,
    name: str,
    way: dict[str, object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "LONG_WAIT_S", 1.0)
    async with fencepost.Client(address_of_quick_groups) as kafka:
        await create(kafka, name, partitions=1, records=1)
        crashed, other = (kafka.consumer(name, group=name, **way) for _ in range(2))
        async with crashed:
            await anext(crashed.batches())
            crashed._subscriber.end_tasks()  # as kill -9 would
            async with other:
                with trio.move_on_after(4):
                    await anext(other.batches())
                    pytest.fail("the crashed member's session is over already")
    waited = [record.getMessage() for record in caplog.records if "for partitions" in record.getMessage()]
    assert len(waited) == 1
    assert "crashed keeps its own until its session ends (session_timeout, 45 s here)" in waited[0]


async def test_a_member_of_a_group_without_topics_heard_that_others_may_have_them_all(
    address_of_quick_groups: str,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-848: the broker keeps such a member waiting. A classic group gives it an empty assignment."""
    monkeypatch.setattr(membership, "LONG_WAIT_S", 0.5)

    def waited() -> list[str]:
        return [text for record in caplog.records if "for partitions" in (text := record.getMessage())]

    async with (
        fencepost.Client(address_of_quick_groups) as kafka,
        kafka.consumer(name, group=name, group_protocol="consumer"),
        kafka.consumer(group=f"{name}-p", group_protocol="consumer") as by_pattern,
    ):
        by_pattern.subscribe(pattern=f"{name}-.*")
        await soon(lambda: len(waited()) == 2)
    reasons = sorted(text.partition("for partitions. ")[2] for text in waited())
    assert reasons == [
        f"The broker has no topic of its subscription ({name}), or its user may not see it",
        f"The broker has no topic of its subscription (topics that match '{name}-.*'), or its user may not see it",
    ]
