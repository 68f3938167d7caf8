"""A process that recovers, makes one payment in a database and a topic, and dies at the step it is told to.

python -m tests.kit.two_phase_worker ADDRESS DATABASE NUMBER STEP [PID...]: the processes PID die at that step first.
"""

import os
import signal
import sqlite3
import sys
from functools import partial
from typing import Any

import trio

import fencepost
from examples.two_phase_commit import Bridge, Decisions

TRANSACTIONAL_ID = "payments"
TOPIC = "payments"


def pay(number: int, cursor: Any) -> None:
    """The database's half."""
    cursor.execute("CREATE TABLE IF NOT EXISTS payments (number INTEGER PRIMARY KEY)")
    cursor.execute("INSERT INTO payments VALUES (?)", (number,))


async def main(address: str, database: str, number: int, last_step: str, victims: list[int]) -> None:
    """Recover, then pay."""

    def step(name: str) -> None:
        if name == last_step:
            for pid in (*victims, os.getpid()):
                os.kill(pid, signal.SIGKILL)

    decisions = Decisions(partial(sqlite3.connect, database), TRANSACTIONAL_ID)
    async with fencepost.Client(address) as kafka, kafka.two_phase_producer(TRANSACTIONAL_ID) as producer:
        bridge = Bridge(producer, decisions, step)
        await bridge.recover()
        records = [(b"%d" % part, b"%d" % number) for part in range(8)]
        await bridge.run(TOPIC, records, partial(pay, number))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], [int(pid) for pid in sys.argv[5:]])
