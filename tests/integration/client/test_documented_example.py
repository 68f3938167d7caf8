"""The example of the client's guide, run as it stands there."""

import logging
import re
import subprocess
import sys
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AbortableError, FencedError, TopicPartition
from tests.architecture.project_files import ROOT

log = logging.getLogger(__name__)


def price(order: bytes) -> bytes:
    return b"%d EUR" % (int(order) * 2)


async def bill(address: str, enough: trio.Event) -> None:
    async with fencepost.Client(address, client_id="billing") as kafka:  # noqa: SIM117 - as it stands in the guide
        async with (
            kafka.consumer("orders", group="billing", group_instance_id="billing-1") as consumer,
            kafka.transactional_producer("billing-1", transaction_timeout=30) as producer,
        ):
            async for batch in consumer.batches(max_records=500, max_wait=0.1):
                try:
                    async with producer.transaction() as txn:
                        for r in batch:
                            await txn.send("invoices", key=r.key, value=price(r.value))
                        await txn.send_offsets(consumer)
                except AbortableError as e:
                    log.warning("again", exc_info=e)
                except FencedError:
                    return
                enough.set()


async def simple(address: str) -> list[Any]:
    seen = []
    async with fencepost.Client(address) as kafka:
        async with kafka.producer(compression="zstd", linger=0.005) as producer:
            with trio.fail_after(100):
                meta = await producer.send("t", b"v", key=b"k")
                seen.append(meta)
                async with producer.batch() as b:
                    for i in range(10_000):
                        await b.send("t", b"%d" % i)
        async with kafka.admin() as admin:
            await admin.create_topics("x", partitions=3, if_not_exists=True)
            for t in (await admin.describe_transactions(states="Ongoing")).values():
                seen.append((t.transactional_id, t.started, t.partitions, t.blocks))
    return seen


async def test_the_example(address: str) -> None:
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics("orders", partitions=2, if_not_exists=True)
            await admin.create_topics("invoices", partitions=2, if_not_exists=True)
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(100):
                await batch.send("orders", b"%d" % n, key=b"%d" % n)
        enough = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bill, address, enough)
            got = []
            async with kafka.consumer("invoices", isolation="read_committed") as consumer:
                with trio.fail_after(100):
                    async for record in consumer:
                        got.append(record.value)
                        if len(got) == 100:
                            break
            async with kafka.transactional_producer("billing-1"):
                pass
            nursery.cancel_scope.cancel()
    assert sorted(got) == sorted(b"%d EUR" % (n * 2) for n in range(100))


async def test_the_simple_one(address: str) -> None:
    meta, *transactions = await simple(address)
    assert (meta.topic, meta.partition, meta.offset) == ("t", 0, 0)
    assert meta.timestamp == meta.timestamp_ms > 0
    assert transactions == []


def said_by(section: str, address: str) -> str:
    """What the first program of a section of the guide prints, with nothing changed but the address."""
    guide = (ROOT / "docs/client.md").read_text(encoding="utf-8").partition(f"# {section}\n")[2]
    program = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert program is not None
    assert "127.0.0.1:9092" in program[1]
    words = [sys.executable, "-c", program[1].replace("127.0.0.1:9092", address)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_first_five_minutes(address: str) -> None:
    assert re.fullmatch(r"[01] \d+\nb'ann' b'hello'\n", said_by("Five minutes", address))


def test_the_example_for_asyncio(address: str) -> None:
    offsets = re.fullmatch(r"\[(\d+), (\d+)\]\n", said_by("Under asyncio, with FastAPI", address))
    assert offsets is not None
    assert abs(int(offsets[1]) - int(offsets[2])) == 1


async def test_offsets_of_another_source(address: str) -> None:
    assert said_by("Offsets of another source", address) == "begin at 0\n"
    assert said_by("Offsets of another source", address) == "begin at 1000\n"
    async with fencepost.Client(address) as kafka, kafka.consumer("lines") as consumer:
        values = [record.value async for batch in consumer.read_to_end() for record in batch]
    assert values == [b"line %d" % n for n in range(1000)]


async def test_an_end_above_0_without_records(address: str) -> None:
    here = TopicPartition("only-aborted", 0)
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        await admin.create_topics("only-aborted", partitions=1)
        async with kafka.transactional_producer("only-aborted") as producer:
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - as a program has it
                async with producer.transaction() as txn:
                    await txn.send("only-aborted", b"never")
                    await producer.flush()
                    raise ZeroDivisionError
        async with kafka.consumer("only-aborted") as consumer:
            with trio.fail_after(100):
                assert [batch async for batch in consumer.read_to_end()] == []
            assert (await consumer.end_offsets(here))[here] == 2
