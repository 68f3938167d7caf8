"""A commit that is repeated after a rebalance is not sent for partitions that this member has lost.

The broker checks the member and its generation, and not who owns the partition (`GroupMetadataManager` in Kafka).
"""

import random
from typing import Any

import pytest

import fencepost
from fencepost import ErrorCode, KafkaError, RetriableError, TopicPartition
from fencepost.client.consumer.fetch_state import PartitionState
from tests.kit.scripted_broker import ScriptedBroker

KEPT, LOST = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("again", [False, True])
async def test_a_commit_of_a_partition_that_was_revoked_meanwhile_ends(script: Any, again: bool) -> None:
    """Assigned again it is another assignment: another member may have read further in between."""
    broker: ScriptedBroker = await script(partitions=2)
    sent: list[dict[TopicPartition, Any]] = []
    client = fencepost.Client(broker.address, random=random.Random(1), retry_backoff=0.001)
    async with client as kafka, kafka.consumer(group="g") as consumer:
        consumer.assign([KEPT, LOST])
        fetcher, group = consumer._fetcher, consumer._committer._group

        async def commit(metadata: Any, offsets: dict[TopicPartition, Any]) -> None:
            sent.append(offsets)
            if len(sent) == 1:
                renewed = {LOST: PartitionState(LOST)} if again else {}
                fetcher.states = {KEPT: fetcher.states[KEPT], **renewed}
                raise RetriableError("rebalancing", code=ErrorCode.REBALANCE_IN_PROGRESS)

        group.commit = commit  # type: ignore[method-assign]
        with pytest.raises(KafkaError, match="has revoked partitions of this commit") as refused:
            await consumer.commit({KEPT: 3, LOST: 7})
        assert (refused.value.code, len(sent)) == (ErrorCode.ILLEGAL_GENERATION, 1)
        await consumer.commit({KEPT: 3})
        assert len(sent) == 2
