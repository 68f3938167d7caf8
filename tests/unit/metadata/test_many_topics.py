"""Many topics and many partitions: what is kept for them, and that it is the same as without."""

import os

from fencepost.broker.metadata.answers import partition_value
from fencepost.coordinator.metadata.commands import MorePartitions, NewTopic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tests.unit.metadata.kit import started
from tests.unit.metadata.wire import NOT_ASKED, TOPIC_BITS, node, versions

LONG = bool(os.environ.get("FENCEPOST_LONG"))
"""FENCEPOST_LONG=1 makes it a million; `python -m bench.metadata --million` tells how long that takes over a socket."""


@versions(3)
async def test_kept_bytes_of_topics_are_what_the_codec_writes(version: int) -> None:
    """All topics at once are answered from kept bytes: the same as the declaration's own, in every version."""
    asked = await node()
    await asked.metadata.create_topics([NewTopic("wide", 300)])
    response = MetadataResponse(cluster_id="c", controller_id=1, cluster_authorized_operations=5)
    response.brokers = [MetadataResponseBroker(node_id=1, host="h", port=1)]
    for operations in (NOT_ASKED, TOPIC_BITS):
        for _ in range(2):
            kept = b"".join(asked.metadata_answers.parts(response, asked.metadata.image, version, operations))
            plain = MetadataResponse(cluster_id="c", controller_id=1, cluster_authorized_operations=5)
            plain.brokers = response.brokers
            plain.topics = [
                MetadataResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    topic_authorized_operations=operations,
                    partitions=[partition_value(number, one) for number, one in enumerate(topic.assignment)],
                )
                for topic in asked.metadata.image.topics_by_id.values()
            ]
            assert kept == MetadataResponse.encode(plain, version)
            await asked.metadata.create_partitions([MorePartitions("a", 4)])


async def test_a_million_partitions_in_one_request() -> None:
    """E.6: created as one transaction over a hundred appends, by values that are kept once; atomic for who looks."""
    cluster = await started()
    count = 1_000_000 if LONG else 60_000
    before = len(cluster.log.batches)
    [reply] = await cluster.service.create_topics([NewTopic("wide", count)])
    assert (reply.outcome.code, reply.partitions) == (ErrorCode.NONE, count)
    written = cluster.log.batches[before:]
    assert len(written) > count // 10_000
    assert max(map(len, written)) <= 10_000
    assert len(cluster.heard) == 1
    topic = (await started(cluster.log.survivor())).service.image.topics_by_name["wide"]
    assert topic == cluster.service.image.topics_by_name["wide"]
    assert topic.partitions == count
    assert len(set(map(id, topic.assignment))) == 1
    halved = cluster.log.survivor()
    del halved.batches[before + len(written) // 2 :]
    assert "wide" not in (await started(halved)).service.image.topics_by_name
