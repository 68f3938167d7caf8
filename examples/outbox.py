"""Publish events from a PostgreSQL outbox, each once: python examples/outbox.py 127.0.0.1:9092 "dbname=shop"

A service writes an order and its event in one database transaction. A relay publishes the events in order. How far it
is stands in Kafka as the offset of a group, in one transaction with the events. Kill the program with kill -9 and run
it again: the topic has one event for each order.
"""

import sys
import threading
import time

import psycopg

from fencepost import AbortableError, CommittedOffset, GroupMetadata, TopicPartition
from fencepost.sync import Client

TOPIC, GROUP, COUNT = "outbox-events", "outbox-relay", 300
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS outbox (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event BYTEA NOT NULL)
"""


def place_orders(database: str) -> None:
    """The service: an order and its event are in the database, both or neither. Orders that are there stay."""
    with psycopg.connect(database, autocommit=True) as db:
        for number in range(COUNT):
            with db.transaction():
                if db.execute("INSERT INTO orders VALUES (%s) ON CONFLICT DO NOTHING", (number,)).rowcount:
                    db.execute("INSERT INTO outbox (event) VALUES (%s)", (b"order %d placed" % number,))


def waiting(db: psycopg.Connection, after: int) -> list[tuple[int, bytes]]:
    """The next events, in the order of their ids. The lock waits for writers, so no smaller id can appear later."""
    with db.transaction():
        db.execute("LOCK TABLE outbox IN SHARE MODE")
        return db.execute("SELECT id, event FROM outbox WHERE id > %s ORDER BY id LIMIT 20", (after,)).fetchall()


def relay(kafka: Client, database: str, service: threading.Thread) -> None:
    """Publish until the service has ended and nothing waits."""
    here = TopicPartition(TOPIC, 0)
    # Opening the producer aborts what a killed relay left open: the position that is read then is final.
    with kafka.transactional_producer("outbox-relay") as producer, psycopg.connect(database, autocommit=True) as db:
        with kafka.consumer(group=GROUP) as consumer:
            done = consumer.committed(here)[here] or 0
        while True:
            ended = not service.is_alive()
            events = waiting(db, done)
            if not events:
                if ended:
                    return
                time.sleep(0.01)
                continue
            last = events[-1][0]
            try:
                with producer.transaction() as txn:
                    txn.send_many(TOPIC, ((None, event) for _, event in events))
                    txn.send_group_offsets(GroupMetadata(GROUP), {here: CommittedOffset(last)})
            except AbortableError as error:
                print(f"aborted, the same events come again: {error}")
                continue
            done = last
            db.execute("DELETE FROM outbox WHERE id <= %s", (done,))
            print(f"published {len(events)} events", flush=True)


def main(address: str, database: str) -> bool:
    """Whether the topic has one event for each order."""
    with psycopg.connect(database, autocommit=True) as db, Client(address, timeout=60) as kafka:
        db.execute(SCHEMA)
        with kafka.admin() as admin:
            admin.create_topics(TOPIC, partitions=1, if_not_exists=True)
        service = threading.Thread(target=place_orders, args=(database,), daemon=True)
        service.start()
        relay(kafka, database, service)
        with kafka.consumer(TOPIC) as consumer:
            events = [record.value for batch in consumer.read_to_end() for record in batch]
        orders = [number for (number,) in db.execute("SELECT number FROM orders ORDER BY number")]
        print(f"{len(orders)} orders in the database, {len(events)} events in the topic")
        return events == [b"order %d placed" % number for number in orders] and len(orders) == COUNT


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1], sys.argv[2]) else 1)
