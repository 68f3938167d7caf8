"""A process that recovers, makes one payment in a database and a topic, and dies at the step it is told to.

python -m tests.kit.two_phase_worker ADDRESS DATABASE NUMBER STEP [PID...]: the processes PID die at that step first.
DATABASE is a file of SQLite, or PostgreSQL's "host=... dbname=...".
"""

import os
import signal
import sqlite3
import sys
from functools import partial
from typing import Any

import trio

import fencepost
from examples.two_phase_commit import Bridge, Connect, Decisions

TRANSACTIONAL_ID = "payments"
TOPIC = "payments"


def connector(database: str) -> tuple[Connect, str]:
    """What opens a connection to `database`, and how its driver marks a parameter."""
    if not database.startswith("host="):
        return partial(sqlite3.connect, database, timeout=100), "?"
    import psycopg  # here: where no PostgreSQL is, its library is not either

    return partial(psycopg.connect, database), "%s"


def pay(number: int, mark: str, cursor: Any) -> None:
    """The database's half."""
    cursor.execute("CREATE TABLE IF NOT EXISTS payments (number INTEGER PRIMARY KEY)")
    cursor.execute(f"INSERT INTO payments VALUES ({mark})", (number,))


async def main(address: str, database: str, number: int, last_step: str, victims: list[int]) -> None:
    """Recover, then pay."""

    def step(name: str) -> None:
        if name == last_step:
            for pid in (*victims, os.getpid()):
                os.kill(pid, signal.SIGKILL)

    connect, mark = connector(database)
    decisions = Decisions(connect, TRANSACTIONAL_ID, mark)
    async with fencepost.Client(address) as kafka, kafka.two_phase_producer(TRANSACTIONAL_ID) as producer:
        bridge = Bridge(producer, decisions, step)
        await bridge.recover()
        records = [(b"%d" % part, b"%d" % number) for part in range(8)]
        await bridge.run(TOPIC, records, partial(pay, number, mark))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], [int(pid) for pid in sys.argv[5:]])
