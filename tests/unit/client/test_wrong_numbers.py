"""Numbers that no topic, partition or batch can have: an error at once that names them."""

import random
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost import KafkaError, TopicPartition
from fencepost.client.core.group_types import offsets_to_commit

Script = Callable[..., Any]


async def test_a_negative_partition_was_an_index_error(script: Script) -> None:
    """-1 was the last partition, as in Python's lists, and what is below the first one ended in an IndexError."""
    broker = await script()
    async with (
        fencepost.Client(broker.address, random=random.Random(1), retry_backoff=0.001) as kafka,
        kafka.producer() as producer,
    ):
        await producer.send("t", b"x")
        for partition in (TopicPartition("t", -1), TopicPartition("t", -9)):
            assert kafka._cluster.leader(partition) == -1
            assert kafka._cluster.leader_epoch(partition) == -1
            with pytest.raises(KafkaError, match=f"{partition} does not exist"):
                await kafka._cluster.leader_of(partition)


def test_a_commit_for_a_negative_partition_was_tried_again_for_a_minute() -> None:
    """The broker does not know the partition, and the client waited for it to be created."""
    with pytest.raises(ValueError, match="a partition of 't' must be from 0 to 2147483647, not -1"):
        offsets_to_commit({TopicPartition("t", -1): 3})


async def test_batches_of_a_negative_number_of_records_never_came(script: Script) -> None:
    broker = await script()
    async with fencepost.Client(broker.address) as kafka, kafka.consumer() as consumer:
        for read in (consumer.batches, consumer.read_to_end):
            with pytest.raises(ValueError, match="max_records must be from 1"):
                read(-1)
            with pytest.raises(TypeError, match="max_records must be an int, not float"):
                read(1.5)  # type: ignore[arg-type]
