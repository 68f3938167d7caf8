"""One commit over a database and Kafka topics: both have it or neither, whatever dies and when (KIP-939).

The database is the coordinator: its commit is the decision. Kafka's transaction is prepared before, completed after,
by this process or by the one that comes after it. docs/recipes/two_phase_commit.md explains each step.
"""

from collections.abc import Callable
from typing import Any

import trio

import fencepost

SCHEMA = """
CREATE TABLE IF NOT EXISTS kafka_decisions (
    transactional_id TEXT PRIMARY KEY,
    owner            TEXT NOT NULL,
    decided          TEXT
)
"""
CLAIM = """
INSERT INTO kafka_decisions (transactional_id, owner) VALUES ({0}, {0})
ON CONFLICT (transactional_id) DO UPDATE SET owner = excluded.owner
"""
DECIDED = "SELECT decided FROM kafka_decisions WHERE transactional_id = {0}"
DECIDE = "UPDATE kafka_decisions SET decided = {0} WHERE transactional_id = {0} AND owner = {0}"

Connect = Callable[[], Any]
Step = Callable[[str], None]


class TakenOver(Exception):
    """A successor runs under the same transactional id; nothing was committed here."""


class Decisions:
    """The table of decisions in a database that is reached through Python's DB-API.

    `connect` opens a connection; `mark` is how its driver writes a parameter: "?" for sqlite3, "%s" for psycopg.
    """

    def __init__(self, connect: Connect, transactional_id: str, mark: str = "?") -> None:
        self._connect = connect
        self._id = transactional_id
        self._mark = mark
        self._owner = ""

    def claim(self, owner: str) -> str | None:
        """From here on only `owner` decides; what was decided last, by whomever. Waits for one who is deciding now."""
        connection = self._connect()
        try:
            cursor = connection.cursor()
            cursor.execute(SCHEMA)
            cursor.execute(CLAIM.format(self._mark), (self._id, owner))
            cursor.execute(DECIDED.format(self._mark), (self._id,))
            decided: str | bytes | None = cursor.fetchone()[0]
            connection.commit()
        finally:
            connection.close()
        self._owner = owner
        # psycopg gives bytes where the database's encoding is SQL_ASCII.
        return decided.decode() if isinstance(decided, bytes) else decided

    def commit(self, prepared: fencepost.PreparedTransaction, work: Callable[[Any], None], step: Step) -> None:
        """Do `work` (with a cursor) and decide for `prepared`, in one database transaction. Raises TakenOver."""
        connection = self._connect()
        try:
            cursor = connection.cursor()
            work(cursor)
            cursor.execute(DECIDE.format(self._mark), (str(prepared), self._id, self._owner))
            if cursor.rowcount != 1:
                raise TakenOver(self._id)
            step("worked")
            connection.commit()
        finally:
            connection.close()


class Bridge:
    """A two-phase producer and the database that decides for it.

    `step` is called with the name of each step that was done; tests let the process die there.
    """

    def __init__(self, producer: fencepost.TwoPhaseProducer, decisions: Decisions, step: Step = lambda _: None) -> None:
        self._producer = producer
        self._decisions = decisions
        self._step = step

    async def recover(self) -> bool:
        """Once after opening: end what a predecessor left. Whether it was committed."""
        self._step("opened")
        decided = await trio.to_thread.run_sync(self._decisions.claim, self._producer.identity)
        self._step("claimed")
        committed = await self._producer.complete(decided)
        self._step("recovered")
        return committed

    async def run(self, topic: str, records: list[tuple[bytes, bytes]], work: Callable[[Any], None]) -> None:
        """`records` (key, value) get into `topic` if and only if `work` gets into the database.

        Raises TakenOver, with nothing done on either side. After any other error ask `recover`, with a new producer.
        """
        async with self._producer.transaction() as txn:
            await txn.send_many(topic, records)
            self._step("sent")
            prepared = await txn.prepare()
            self._step("prepared")
            await trio.to_thread.run_sync(self._decisions.commit, prepared, work, self._step)
            self._step("decided")
        self._step("completed")
