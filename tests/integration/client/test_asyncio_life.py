"""A client's life under asyncio: event loops, tasks, processes, and their ends."""

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fencepost import Client
from tests.integration.client.asyncio_kit import WAIT_S, committed_values, create, run


def test_what_fails_in_the_background_ends_the_block(address: str) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - as a program has it
            async with Client(address) as kafka:
                kafka._tasks.start_soon(fail)
                await asyncio.sleep(WAIT_S)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())


def test_a_client_is_for_the_loop_that_opened_it(address: str, name: str) -> None:
    told: list[str] = []

    async def use(*calls: Callable[[], Awaitable[Any]]) -> None:
        for call in calls:
            with pytest.raises(
                RuntimeError, match=r"opened in another event loop.*`from fencepost import Client`"
            ) as wrong:
                await call()
            told.append(str(wrong.value))

    async def main() -> None:
        async with Client(address) as kafka:
            await create(kafka, name)
            async with (
                kafka.producer() as producer,
                kafka.consumer(name) as consumer,
                kafka.admin() as admin,
                kafka.transactional_producer(name) as sender,
                sender.transaction() as txn,
            ):
                calls: list[Callable[[], Awaitable[Any]]] = [
                    lambda: producer.send(name, b"x"),
                    lambda: producer.send_many(name, [(None, b"x")]),
                    lambda: txn.send(name, b"x"),
                    lambda: anext(consumer.batches()),
                    lambda: anext(aiter(consumer)),
                    admin.list_topics,
                    lambda: kafka.producer().__aenter__(),
                ]
                await asyncio.to_thread(asyncio.run, use(*calls))
                await asyncio.to_thread(trio.run, use, *calls)
            assert await committed_values(kafka, name) == []

    run(main())
    assert len(told) == 14
    assert all("`from fencepost import Client`" in one for one in told)


def test_a_trio_client_says_so_under_asyncio(address: str) -> None:
    async def main() -> None:
        async with Client(address) as kafka, kafka.admin() as admin:

            async def other() -> None:
                with pytest.raises(RuntimeError, match="opened in another event loop"):
                    await admin.list_topics()

            await trio.to_thread.run_sync(asyncio.run, other())

    trio.run(main)


def test_every_block_may_be_left_in_another_task(address: str, name: str) -> None:
    """As fixtures of pytest-asyncio are."""

    async def main() -> None:
        client = Client(address)
        kafka = await asyncio.create_task(client.__aenter__())
        await create(kafka, name)
        blocks: list[Any] = [kafka.producer(), kafka.consumer(name, group=name), kafka.transactional_producer(name)]
        opened = [await asyncio.create_task(block.__aenter__()) for block in blocks]
        await opened[0].send(name, b"x")
        assert (await anext(opened[1].batches()))[0].value == b"x"
        for block in reversed([client, *blocks]):
            await asyncio.create_task(block.__aexit__(None, None, None))

    run(main())


def test_a_client_that_is_never_closed_keeps_no_loop_from_ending(address: str) -> None:
    async def main() -> None:
        kafka = await Client(address).__aenter__()
        async with kafka.admin() as admin:
            await admin.list_topics()

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_several_clients_and_context_variables(address: str, name: str) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    def serialize(value: str) -> bytes:
        seen.append(who.get())
        return value.encode()

    async def main() -> None:
        async with Client(address) as one, Client(address) as other:
            await create(one, name)
            async with one.producer(value_serializer=serialize) as first, other.producer() as second:

                async def send(me: str) -> None:
                    who.set(me)
                    await first.send(name, me)
                    await second.send(name, me.encode())

                await asyncio.gather(send("ann"), send("bob"))
        assert sorted(seen) == ["ann", "bob"]
        assert threading.active_count() == 1 or not [t for t in threading.enumerate() if "fencepost" in t.name]

    run(main())


def test_a_loop_that_ends_under_a_client_commits_nothing(address: str, name: str) -> None:
    kept: list[asyncio.Task[None]] = []

    async def main() -> None:
        opened = asyncio.Event()

        async def work() -> None:
            async with (
                Client(address) as kafka,
                kafka.transactional_producer(name) as producer,
                producer.transaction() as txn,
            ):
                await txn.send(name, b"never")
                opened.set()
                await asyncio.sleep(WAIT_S)

        async with Client(address) as kafka:
            await create(kafka, name)
        kept.append(asyncio.create_task(work()))  # asyncio.run cancels it, and all tasks of the client
        await opened.wait()

    async def look() -> None:
        async with Client(address) as kafka, kafka.transactional_producer(name):
            assert await committed_values(kafka, name) == []

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < WAIT_S / 2
    assert kept[0].done()
    run(look())


OPEN = """
import asyncio, signal, sys
from fencepost import Client

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background inherits "ignore"

def show_tasks():
    for task in asyncio.all_tasks():
        task.print_stack()

async def main(address, name):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, show_tasks)
    async with Client(address) as kafka, kafka.consumer(name, group=name) as consumer:
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            await txn.send(name, b"never")
            await producer.flush()
            print("open", flush=True)
            await anext(consumer.batches())

asyncio.run(main(*sys.argv[1:]))
"""


def ended(program: "subprocess.Popen[str]") -> str:
    """What the program wrote to stderr until it ended. A program that does not end shows its tasks and is killed."""
    try:
        return program.communicate(timeout=WAIT_S)[1]
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGUSR1)
        time.sleep(1)
        program.kill()
        pytest.fail(f"the program did not end within {WAIT_S} s; its tasks: {program.communicate()[1]}")


def test_ctrl_c_aborts_and_leaves(address: str, name: str) -> None:
    async def before() -> None:
        async with Client(address) as kafka:
            await create(kafka, name)

    async def after() -> None:
        async with Client(address) as kafka, kafka.admin() as admin:
            assert [one.state for one in await admin.list_transactions() if one.transactional_id == name] in (
                ["CompleteAbort"],
                ["Empty"],
            )
            [group] = (await admin.describe_groups([name])).values()
            assert group.members == ()
            assert await committed_values(kafka, name) == []

    run(before())
    words = [sys.executable, "-X", "dev", "-c", OPEN, address, name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        program.send_signal(signal.SIGINT)
        said = ended(program)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert "destroyed" not in said
    assert "ResourceWarning" not in said
    run(after())


FORK = """
import asyncio, os, sys
from fencepost import Client

async def topics(address):
    async with Client(address) as kafka, kafka.admin() as admin:
        return await admin.list_topics()

async def main(address):
    async with Client(address) as kafka, kafka.admin() as admin, kafka.producer() as producer:
        for call in (admin.list_topics, lambda: producer.send("t", b"x")):
            child = os.fork()
            if not child:
                try:
                    await call()
                except RuntimeError as error:
                    print("child:", "process" in str(error), isinstance(asyncio.run(topics(address)), list), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        print("parent:", isinstance(await admin.list_topics(), list))

asyncio.run(main(sys.argv[1]))
"""


def test_a_forked_process_opens_its_own(address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, address], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert done.stdout == "child: True True\nchild: True True\nparent: True\n", done.stderr
