"""DescribeLogDirs (35): the data directory, its volume, and what the log of each partition weighs (KIP-113).

v3 has an error for the whole answer, v4 the sizes of the volume (KIP-827), v5 cordoned directories (KIP-1066): none is.
"""

import logging
import os
from collections.abc import Iterable
from typing import Protocol

import trio

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasConfig, HasLogs, HasMetadata, HasPartitions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from fencepost.protocol.topics import TopicPartition

UNKNOWN_BYTES = -1
AT_A_TIME = 100
"""So many partitions are looked at before other requests get their turn."""

logger = logging.getLogger(__name__)


class _Broker(HasConfig, HasLogs, HasMetadata, HasPartitions, Protocol):
    """What this handler asks of the broker."""


async def handle(node: _Broker, request: DescribeLogDirsRequest, _context: RequestContext) -> DescribeLogDirsResponse:
    """Describe the one directory; `topics` null asks for every partition, an unknown one is left out.

    Where the disk does not tell of a log, the directory is KAFKA_STORAGE_ERROR, as in Kafka.
    """
    if request.topics is None:
        wanted: Iterable[TopicPartition] = sorted(_everything(node))
    else:
        asked = [TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions]
        wanted = dict.fromkeys(asked)
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for count, tp in enumerate(wanted):
        if count % AT_A_TIME == AT_A_TIME - 1:
            await trio.lowlevel.checkpoint()  # a log that is not open is looked up on the disk
        if node.is_offline(tp) or not node.metadata.exists(tp):
            continue
        try:
            size_bytes = node.logs.size_bytes(tp)
        except OSError as error:
            logger.error("the size of %s is unknown: %s", tp, error)
            return _answer(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=node.logs.place))
        part = DescribeLogDirsPartition(
            partition_index=tp.partition, partition_size=size_bytes, offset_lag=0, is_future_key=False
        )
        by_topic.setdefault(tp.topic, []).append(part)
    total, usable = _volume(node)
    return _answer(
        DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=node.logs.place,
            topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=False,
        )
    )


def _answer(directory: DescribeLogDirsResult) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(results=[directory])


def _everything(node: _Broker) -> Iterable[TopicPartition]:
    for topic in node.metadata.image.topics_by_name.values():
        for number in range(topic.partitions):
            yield TopicPartition(topic.name, number)


def _volume(node: _Broker) -> tuple[int, int]:
    """Bytes of the volume in all, and those that the broker may still take; unknown for a broker in memory."""
    directory = node.config.data_directory
    if directory is None:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    try:
        volume = os.statvfs(directory)
    except OSError as error:
        logger.warning("the volume of the data directory cannot be asked for its size: %s", error)
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
