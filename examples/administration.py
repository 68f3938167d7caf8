"""Topics, settings, offsets, and who holds readers back: python -m examples.administration [HOST:PORT]."""

import sys

import trio

import fencepost
from fencepost import ErrorCode, TopicPartition
from fencepost.client.admin import ItemsFailedError, NewTopic

TOPICS = ("admin-orders", "admin-payments")


async def main(address: str) -> None:
    """What an operator does in a quarter of an hour."""
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        cluster, features = await admin.describe_cluster(), await admin.describe_features()
        print(f"cluster {cluster.cluster_id}, {len(cluster.brokers)} broker(s), features {features.finalized}")

        # Several topics at once: the error names each topic that failed; the others exist.
        try:
            await admin.create_topics([NewTopic(TOPICS[0], 2), NewTopic(TOPICS[1], 1), NewTopic("not/a/name", 1)])
        except ItemsFailedError as some:
            for topic, error in some.errors.items():
                print(f"not created: {topic}: {error.code.name if error.code else error}")
            print(f"created: {', '.join(some.results)}")

        await admin.incremental_alter_configs({"retention.ms": str(24 * 3600 * 1000)}, topic=TOPICS[0])
        setting = (await admin.describe_configs(topic=TOPICS[0]))["retention.ms"]
        print(f"{setting.name} = {setting.value}")

        # A transaction is open: which readers wait for it?
        here = TopicPartition(TOPICS[0], 0)
        async with kafka.transactional_producer("admin-example") as producer, producer.transaction() as txn:
            await txn.send(TOPICS[0], b"not decided yet", partition=0)
            await producer.flush()
            for one in (await admin.describe_transactions(states="Ongoing")).values():
                print(
                    f"{one.transactional_id} is open since {one.started}, and {list(map(str, one.blocks))} wait for it"
                )
            held = await admin.describe_last_stable_offset(here)
            print(f"{here}: readers stop at {held.last_stable_offset}, the log goes on to {held.high_watermark}")
            assert [holder.verdict.value for holder in held.holders] == ["open"]

        # A group's positions, set by hand and counted.
        await admin.alter_group_offsets("admin-group", {here: 0})
        for part in await admin.describe_group_lag("admin-group"):
            print(f"admin-group has {part.records} record(s) of {part.partition} to read")
        await admin.delete_groups("admin-group")

        await admin.delete_topics(TOPICS)
        try:
            await admin.describe_topics(TOPICS[0])
        except fencepost.KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            print("cleaned up")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
