"""What fetches count: under the name of a topic that exists, and of no other."""

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import FETCH, TX, running

VERSION = 11


def ask(**offsets_of_topics: dict[int, int]) -> object:
    topics = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
                for number, offset in offsets.items()
            ],
        )
        for name, offsets in offsets_of_topics.items()
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)


async def test_partitions_read_and_refused_and_bytes_are_counted_by_topic() -> None:
    async with running() as node:
        held = await node.identity()
        await node.add(3, held, TopicPartition("t", 0), TopicPartition("t", 1))
        for number in (0, 1):
            assert await node.produce(8, held, TopicPartition("t", number), b"x" * 100, 0) == ErrorCode.NONE
        answer = await node.ask(FETCH, VERSION, ask(t={0: 0, 1: 0, 2: 7}, nowhere={0: 0, 1: 0}))
        codes = [[part.error_code for part in topic.partitions] for topic in answer.responses]
        beyond, unknown = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[ErrorCode.NONE, ErrorCode.NONE, beyond], [unknown, unknown]]
        size = sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)
        assert size > 200
        counters = node.node.metrics.topic("t")
        assert (counters.fetch_requests, counters.failed_fetch_requests, counters.bytes_out) == (3, 1, size)
        nobodys = node.node.metrics.no_topic
        assert (nobodys.fetch_requests, nobodys.failed_fetch_requests, nobodys.bytes_out) == (2, 2, 0)
        assert "nowhere" not in node.node.metrics.topics
        assert TX not in node.node.metrics.topics


async def test_a_partition_that_is_not_there_counts_for_the_topic_that_is() -> None:
    async with running() as node:
        await node.ask(FETCH, VERSION, ask(t={9: 0, 0: 0}))
        counters = node.node.metrics.topic("t")
        assert (counters.fetch_requests, counters.failed_fetch_requests) == (2, 1)
