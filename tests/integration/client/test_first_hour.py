"""What somebody meets who tries the client for the first time: it says what is wrong, and what to do."""

import logging

import pytest
import trio

import fencepost


async def test_a_group_that_subscribes_to_an_unknown_topic_says_so_once(
    kafka: fencepost.Client, name: str, way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka.admin() as admin, kafka.consumer(name, group=name, **way) as consumer:
        with trio.move_on_after(3):
            await anext(consumer.batches())
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [text for text in warnings if f"topic '{name}' does not exist" in text] == [
            f"subscribed to what is not there: topic '{name}' does not exist;"
            f" `fencepost topic create {name}` creates it"
            " (UNKNOWN_TOPIC_OR_PARTITION, Metadata). It is read once it exists"
        ]
        await admin.create_topic(name)
        async with kafka.producer() as producer:
            await producer.send(name, b"v")
        with trio.fail_after(30):
            assert [record.value for record in await anext(consumer.batches())] == [b"v"]
