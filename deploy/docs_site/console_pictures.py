"""Takes the pictures of docs/console.md: a broker with some life in it, its console, and a real Chromium.

    python -m deploy.docs_site.console_pictures

It needs playwright, and the system's Chromium. Each run overwrites docs/pictures/console-*.png.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from PIL import Image

import fencepost
from fencepost.client.admin import NewTopic
from fencepost.client.errors import KafkaError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PAGES = {
    "queue": "/queue?id=workers",
    "queues": "/queues",
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "tail": "/topics/orders/tail?isolation=read_uncommitted",
    "log": "/topics/orders/0",
    "transactions": "/transactions",
    "transaction": "/transaction?id=etl-7",
    "stuck": "/stuck",
    "why": "/stuck/orders/0",
    "group": "/group?id=reports",
    "metadata": "/metadata",
    "settings": "/settings?kind=topic&name=customers",
    "audit": "/audit",
    "count": "/audit/count?topic=orders&partition=0",
}
DARK = ("log", "transactions", "why", "tail")
"""The pages that are shown dark, too."""
DESK = {"width": 1120, "height": 700}
TALL = {"width": 1120, "height": 1000}
PHONE = {"width": 390, "height": 780}
COLOURS = 200
"""A picture of the console needs no more; with all its file would be three times as large."""
CLICKS = 50
"""Records without transactions. The others may be aborted, so no reader can wait for more than these."""
SETTLE_MS = 3500
"""After this time a page has refreshed itself once."""
CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


class Abandoned(Exception):
    """Ends a transaction without a commit."""


async def trade(kafka: fencepost.Client, name: str, count: int, chance: random.Random, failing: float = 0.25) -> None:
    """Transactions of one id; some are aborted."""
    async with kafka.transactional_producer(name) as producer:
        for number in range(count):
            try:
                async with producer.transaction() as transaction:
                    for part in range(chance.randint(1, 6)):
                        value = json.dumps({"order": number * 10 + part, "sum": chance.randint(5, 900)}).encode()
                        value *= chance.choice((1, 1, 3, 9))
                        partition = 0 if chance.random() < 0.6 else chance.randint(1, 3)
                        key, headers = f"c{part}".encode(), [("source", name.encode())]
                        await transaction.send("orders", value, key=key, partition=partition, headers=headers)
                        await trio.sleep(chance.random() * 0.03)
                    if chance.random() < failing:
                        raise Abandoned
            except Abandoned:
                pass  # the block has aborted the transaction
            await trio.sleep(chance.random() * 0.05)


async def click(kafka: fencepost.Client, count: int) -> None:
    """Records without transactions."""
    async with kafka.producer() as producer:
        for number in range(count):
            await producer.send("orders", b"plain %d" % number, partition=0)
            await producer.send("clicks", b"click %d" % number)
            await trio.sleep(0.05)


async def read_some(kafka: fencepost.Client, group: str) -> None:
    """A group that has read a part."""
    async with kafka.consumer("orders", group=group, auto_offset_reset="earliest") as consumer:
        taken = 0
        async for batch in consumer.batches(20):
            taken += len(batch)
            await consumer.commit()
            if taken >= CLICKS - 10:
                return


async def fence(kafka: fencepost.Client, name: str) -> None:
    """A second producer of the same id, and what the first one is answered then."""
    async with kafka.transactional_producer(name) as first, kafka.transactional_producer(name):
        try:
            async with first.transaction() as transaction:
                await transaction.send("orders", b"too late", partition=2)
        except KafkaError as error:
            print(f"as expected: {error}")


async def live(address: str) -> None:
    """Fill the broker; returns with a transaction of billing-2 open, until cancelled."""
    chance = random.Random(5)
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            compacted = {"cleanup.policy": "compact"}
            await admin.create_topics(
                [
                    NewTopic("orders", 4),
                    NewTopic("payments", 2),
                    NewTopic("clicks", 1),
                    NewTopic("customers", 1, configs=compacted),
                    NewTopic("jobs", 2),
                ]
            )
            await admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="workers")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trade, kafka, "billing-1", 20, chance)
            nursery.start_soon(trade, kafka, "shipping", 20, chance)
            nursery.start_soon(trade, kafka, "etl-7", 15, chance, 0.6)
            nursery.start_soon(click, kafka, CLICKS)
        await fence(kafka, "etl-7")
        await read_some(kafka, "reports")
        await trade(kafka, "billing-2", 2, chance)


async def hold_open(address: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """A transaction that nothing ends before its timeout."""
    async with (
        fencepost.Client(address, client_id="billing") as kafka,
        kafka.transactional_producer("billing-2", transaction_timeout=600) as producer,
        producer.transaction() as transaction,
    ):
        for _ in range(4):
            await transaction.send("orders", b"waiting", partition=0)
        await transaction.send("payments", b"waiting", partition=1)
        await trio.sleep(1)
        task_status.started()
        await trio.sleep_forever()


async def work(address: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """A member of a share group with jobs in hand; the others it has accepted, rejected or released."""
    async with fencepost.Client(address, client_id="worker-a") as kafka:
        async with kafka.producer() as producer:
            for number in range(150):
                await producer.send("jobs", b"job %d" % number, partition=number % 3 // 2)
        async with kafka.queue("jobs", group="workers", max_in_flight=40) as queue:
            messages = aiter(queue)
            kept = []
            for number in range(70):
                message = await anext(messages)
                if number % 9 == 5:
                    message.reject()
                elif number % 3:
                    message.accept()
                else:
                    kept.append(message)
            for message in kept[4:12]:
                message.release()
            await trio.sleep(1)
            task_status.started()
            await trio.sleep_forever()


def take_pictures(url: str) -> None:
    """Every page, on a desk and dark; the log on a phone."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM))
        for name, page in PAGES.items():
            size = TALL if name in ("log", "why") else DESK
            take(browser, url + page, f"console-{name}.png", "light", size)
            if name in DARK:
                take(browser, url + page, f"console-{name}-dark.png", "dark", size)
        take(browser, url + PAGES["log"], "console-log-phone.png", "light", PHONE)
        browser.close()


def take(browser: "Browser", url: str, name: str, scheme: str, size: dict[str, int]) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    page.wait_for_timeout(SETTLE_MS)
    if name.startswith("console-log") and size is TALL:
        page.focus("#picture")
        page.keyboard.press("End")
    page.screenshot(path=PICTURES / name)
    context.close()
    with Image.open(PICTURES / name) as taken:
        taken.convert("RGB").quantize(COLOURS).save(PICTURES / name, optimize=True)
    print(name, flush=True)


async def show(address: str, url: str) -> None:
    await live(address)
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_open, address)
        await nursery.start(work, address)
        await trio.to_thread.run_sync(take_pictures, url)
        nursery.cancel_scope.cancel()


def main() -> None:
    """The command."""
    PICTURES.mkdir(exist_ok=True)
    folder = PICTURES.parent.parent / ".pictures"
    shutil.rmtree(folder, ignore_errors=True)
    words = ["serve", "--data", str(folder), "--listen", "127.0.0.1:9092", "--console", "127.0.0.1:8080"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    with subprocess.Popen(
        [sys.executable, "-m", "fencepost", *words], stdout=subprocess.PIPE, text=True, env=environment
    ) as broker:
        try:
            assert broker.stdout is not None
            found = re.search(r"ready on (\S+).* console=(\S+)", broker.stdout.readline())
            assert found is not None
            trio.run(show, found[1], found[2])
        finally:
            broker.terminate()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
