"""Dead letters of a share group, read and redriven by the client (KIP-1191)."""

import trio

import fencepost
from fencepost.client.redrive import dead_letter_of, dead_letters, redrive
from fencepost.protocol.topics import TopicPartition
from tests.integration.client.group_kit import create


def letter(topic: str, offset: int, group: str) -> list[tuple[str, bytes]]:
    """The headers of a dead letter."""
    said = (("topic", topic), ("partition", "0"), ("offset", str(offset)), ("group", group))
    rest = (("delivery.count", "5"), ("message", "Offset rejected by client."))
    return [(f"__dlq.errors.{name}", value.encode()) for name, value in (*said, *rest)]


async def records_of(kafka: fencepost.Client, topic: str) -> list[fencepost.ConsumerRecord[bytes, bytes]]:
    async with kafka.consumer(topic) as consumer:
        return [record async for batch in consumer.read_to_end() for record in batch]


async def test_each_record_goes_back_once(kafka: fencepost.Client, name: str) -> None:
    """Of two letters of one record one counts; those of other groups stay, as do records that are gone."""
    await create(kafka, name, partitions=1, records=0)
    await create(kafka, f"dlq.{name}", partitions=1, records=0)
    async with kafka.producer() as producer:
        for value in (b"a", b"b"):
            await producer.send(name, value, key=b"k", headers=[("trace", b"1")])
        for offset, group in ((0, "g"), (0, "g"), (1, "other"), (99, "g")):
            await producer.send(f"dlq.{name}", None, headers=letter(name, offset, group))
        await producer.send(f"dlq.{name}", b"copy", headers=letter(name, 98, "g"))
        await producer.send(f"dlq.{name}", b"no letter")
    with trio.fail_after(60):
        done = await redrive(kafka, f"dlq.{name}", "g")
        again = await redrive(kafka, f"dlq.{name}", "g")
        found = await records_of(kafka, name)
        listed = [(one.offset, one.is_copy) async for one in dead_letters(kafka, f"dlq.{name}", "g")]
    assert (done.sent, [one.offset for one in done.lost]) == (2, [99])
    assert (again.sent, again.lost) == (0, ())
    assert [(one.key, one.value, one.headers) for one in found[2:]] == [
        (b"k", b"a", (("trace", b"1"),)),
        (None, b"copy", ()),
    ]
    assert listed == [(0, False), (0, False), (99, False), (98, True)]


def test_what_a_letter_says() -> None:
    """ShareGroupDLQStateManager.ProduceRequestHandler: all of its headers are text; a record without them is none."""
    place = ("dlq.jobs", 1, 7, 1000, None, None)
    found = dead_letter_of(fencepost.ConsumerRecord(*place, tuple(letter("jobs", 3, "g"))))
    assert found is not None
    assert (found.group_id, found.partition, found.offset) == ("g", TopicPartition("jobs", 0), 3)
    assert (found.delivery_count, found.message) == (5, "Offset rejected by client.")
    assert dead_letter_of(fencepost.ConsumerRecord(*place, (("trace", b"1"),))) is None
