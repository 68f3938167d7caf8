"""Audit a copy of a topic: python examples/audit.py 127.0.0.1:9092 [SOURCE COPY]

Compares the committed records of two topics, by key and value. It reports what is missing, what is there too often, and
who holds readers back with an open transaction. Without topics it makes a pair: a copy in transactions, one aborted.
"""

import sys
from collections import defaultdict

from fencepost import TopicPartition
from fencepost.sync import Client

Line = tuple[bytes | None, bytes | None]


class ChangedMind(Exception):
    """Aborts a transaction."""


def make_pair(kafka: Client) -> tuple[str, str]:
    """A source with a thousand records, and its copy."""
    source, copy = "audit-source", "audit-copy"
    with kafka.admin() as admin:
        admin.create_topics((source, copy), partitions=2, if_not_exists=True)
    records = [(b"order-%d" % n, b"%d EUR" % (n % 90)) for n in range(1000)]
    with kafka.transactional_producer("audit-pair") as producer:
        if not places(kafka, source):
            with producer.transaction() as txn:
                txn.send_many(source, records)
                txn.send_many(copy, records)
        try:
            with producer.transaction() as txn:
                txn.send_many(copy, records)
                raise ChangedMind
        except ChangedMind:
            pass  # aborted: these records are in the log, and no reader of committed records gets them
    return source, copy


def places(kafka: Client, topic: str) -> dict[Line, list[str]]:
    """Where each committed record stands."""
    found: dict[Line, list[str]] = defaultdict(list)
    with kafka.consumer(topic) as consumer:
        for batch in consumer.read_to_end():
            for r in batch:
                found[r.key, r.value].append(f"{r.topic}-{r.partition}@{r.offset}")
    return found


def held_back(kafka: Client, topic: str) -> list[str]:
    """The open transactions that this audit could not look behind."""
    with kafka.admin() as admin:
        count = len(admin.describe_topics(topic)[topic].partitions)
        held = [admin.describe_last_stable_offset(TopicPartition(topic, p)) for p in range(count)]
    holders = [holder for info in held for holder in info.holders]
    names = [one.transaction.transactional_id if one.transaction else str(one.producer) for one in holders]
    return [f"{name} is open in {topic}" for name in names]


def main(address: str, topics: list[str]) -> bool:
    """Whether the copy has each record of the source as often as the source, and no other."""
    with Client(address, client_id="audit", timeout=60) as kafka:
        source, copy = topics or make_pair(kafka)
        wanted, there = places(kafka, source), places(kafka, copy)
        problems = [*held_back(kafka, source), *held_back(kafka, copy)]
    for line in wanted.keys() | there.keys():
        if len(wanted.get(line, [])) > len(there.get(line, [])):
            problems.append(f"missing: {line}, in the source at {', '.join(wanted[line])}")
        if len(there.get(line, [])) > len(wanted.get(line, [])):
            problems.append(f"too often: {line}, at {', '.join(there[line])}")
    print(*sorted(problems), sep="\n", end="\n" if problems else "")
    print(f"{sum(map(len, wanted.values()))} records in {source}, {len(problems)} problems in {copy}")
    return not problems


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092", sys.argv[2:]) else 1)
