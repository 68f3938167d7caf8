"""Dead letters of a share group, read and redriven by the client (KIP-1191)."""

import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import trio

import fencepost
from fencepost import FencedError
from fencepost.client import redrive as redriving
from fencepost.client.redrive import DeadLetter, Redriven, dead_letter_of, dead_letters, redrive
from fencepost.protocol.topics import TopicPartition
from tests.integration.client.group_kit import create


def letter(topic: str, offset: int, group: str) -> list[tuple[str, bytes]]:
    """The headers of a dead letter."""
    said = (("topic", topic), ("partition", "0"), ("offset", str(offset)), ("group", group))
    rest = (("delivery.count", "5"), ("message", "Offset rejected by client."))
    return [(f"__dlq.errors.{name}", value.encode()) for name, value in (*said, *rest)]


INTERRUPTED = """
import sys
import trio
import fencepost
from fencepost.client import redrive

real, places = redrive._source_of, []

async def source_of(admin, dead):
    places.append(dead.offset)
    if len(places) == 2:
        await trio.sleep(0.5)  # the first record is sent
        print(len(places), flush=True)
        await trio.sleep_forever()
    return await real(admin, dead)

async def main(address, topic):
    async with fencepost.Client(address) as kafka:
        await redrive.redrive(kafka, topic, "g")

redrive._source_of = source_of
trio.run(main, *sys.argv[1:])
"""


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
        planned = await redrive(kafka, f"dlq.{name}", "g", dry_run=True)
        assert len(await records_of(kafka, name)) == 2, "a dry run sends nothing, and commits no position"
        done = await redrive(kafka, f"dlq.{name}", "g")
        after = await redrive(kafka, f"dlq.{name}", "g", dry_run=True)
        again = await redrive(kafka, f"dlq.{name}", "g")
        found = await records_of(kafka, name)
        listed = [(one.offset, one.is_copy) async for one in dead_letters(kafka, f"dlq.{name}", "g")]
    assert planned == done
    assert (done.sent, [one.offset for one in done.lost]) == ({TopicPartition(name, 0): [0, 98]}, [99])
    assert after == again == Redriven({}, [])
    assert [(one.key, one.value, one.headers) for one in found[2:]] == [
        (b"k", b"a", (("trace", b"1"),)),
        (None, b"copy", ()),
    ]
    assert listed == [(0, False), (0, False), (99, False), (98, True)]


async def test_letters_of_a_topic_that_was_created_again_are_of_other_records(
    kafka: fencepost.Client, name: str
) -> None:
    """Offsets begin again with the topic, and letters do not name its id: what differs in the copy is not the same."""
    await create(kafka, name, partitions=1, records=0)
    await create(kafka, f"dlq.{name}", partitions=1, records=0)
    async with kafka.producer() as producer:
        await producer.send(name, b"new")
        for copy in (b"old", b"new", b"old", None):
            await producer.send(f"dlq.{name}", copy, headers=letter(name, 0, "g"))
    with trio.fail_after(60):
        done = await redrive(kafka, f"dlq.{name}", "g")
        found = await records_of(kafka, name)
    assert done == Redriven({TopicPartition(name, 0): [0, 0]}, [])
    assert [one.value for one in found] == [b"new", b"old", b"new"]


async def prepare(kafka: fencepost.Client, name: str) -> None:
    """Two records, with a dead letter for each."""
    await create(kafka, name, partitions=1, records=0)
    await create(kafka, f"dlq.{name}", partitions=1, records=0)
    async with kafka.producer() as producer:
        for offset, value in enumerate((b"a", b"b")):
            await producer.send(name, value)
            await producer.send(f"dlq.{name}", None, headers=letter(name, offset, "g"))


@pytest.mark.parametrize("way", ["cancelled", "killed"])
async def test_a_redrive_that_was_interrupted_is_run_again(
    kafka: fencepost.Client, address: str, name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had sent is aborted, with the positions: the next run sends each record once."""
    await prepare(kafka, name)
    if way == "killed":
        command = [sys.executable, "-c", INTERRUPTED, address, f"dlq.{name}"]
        async with trio.open_nursery() as nursery:
            process = await nursery.start(partial(trio.run_process, command, check=False, stdout=subprocess.PIPE))
            assert (await process.stdout.receive_some()).startswith(b"2")
            process.kill()
    else:
        real, places = redriving._source_of, list[int]()

        async def source_of(admin: Any, dead: DeadLetter) -> Any:
            places.append(dead.offset)
            if len(places) == 2:
                await trio.sleep_forever()
            return await real(admin, dead)

        with monkeypatch.context() as patch, trio.move_on_after(1):
            patch.setattr(redriving, "_source_of", source_of)
            await redrive(kafka, f"dlq.{name}", "g")
        assert places == [0, 1]
    with trio.fail_after(60):
        done = await redrive(kafka, f"dlq.{name}", "g")
        again = await redrive(kafka, f"dlq.{name}", "g")
    assert (done.sent, again.sent) == ({TopicPartition(name, 0): [0, 1]}, {})
    assert [one.value for one in await records_of(kafka, name)] == [b"a", b"b", b"a", b"b"]


async def test_of_two_redrives_at_a_time_the_later_one_counts(
    kafka: fencepost.Client, address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-98: the transactional id fences the earlier one, which sends nothing."""
    await prepare(kafka, name)
    real, reached, go_on = redriving._source_of, trio.Event(), trio.Event()

    async def source_of(admin: Any, dead: DeadLetter) -> Any:
        if not reached.is_set():
            reached.set()
            await go_on.wait()
        return await real(admin, dead)

    async def be_fenced() -> None:
        with pytest.raises(FencedError):
            await redrive(kafka, f"dlq.{name}", "g")

    monkeypatch.setattr(redriving, "_source_of", source_of)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_fenced)
            await reached.wait()
            async with fencepost.Client(address) as other:
                done = await redrive(other, f"dlq.{name}", "g")
            go_on.set()
    assert done.sent == {TopicPartition(name, 0): [0, 1]}
    assert len(await records_of(kafka, name)) == 4


def test_what_a_letter_says() -> None:
    """ShareGroupDLQStateManager.ProduceRequestHandler: all of its headers are text; a record without them is none."""
    place = ("dlq.jobs", 1, 7, 1000, None, None)
    found = dead_letter_of(fencepost.ConsumerRecord(*place, tuple(letter("jobs", 3, "g"))))
    assert found is not None
    assert (found.group_id, found.partition, found.offset) == ("g", TopicPartition("jobs", 0), 3)
    assert (found.delivery_count, found.message) == (5, "Offset rejected by client.")
    assert dead_letter_of(fencepost.ConsumerRecord(*place, (("trace", b"1"),))) is None
