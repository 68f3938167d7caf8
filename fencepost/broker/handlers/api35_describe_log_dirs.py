"""DescribeLogDirs (35): the data directory, its volume, and the size of each partition's log (KIP-113).

v3 has an error for the whole response, v4 the sizes of the volume (KIP-827), v5 cordoned directories (KIP-1066), which
this broker never has. With the tag `pause_ms` (a fencepost extension) the answer has the ends of the logs instead.
"""

import logging
import os
from collections.abc import Iterable

import trio

from fencepost.broker.handlers.log_ends import log_ends
from fencepost.broker.log.storage.layout import absolute
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
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
PARTITIONS_PER_CHECKPOINT = 100
"""After this number of partitions other tasks may run."""

logger = logging.getLogger(__name__)


async def handle(node: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> Response:
    """Describe the one directory. `topics` null selects every partition. Those that it does not lead are left out.

    If the size of a log cannot be read, the directory's error is KAFKA_STORAGE_ERROR, as in Kafka.
    """
    if request.pause_ms >= 0:
        return await log_ends(node, request, context)
    log_dir = absolute(node.logs.place)
    if request.topics is None:
        wanted: Iterable[TopicPartition] = sorted(_all_partitions(node))
    else:
        asked = [TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions]
        wanted = dict.fromkeys(asked)
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for count, tp in enumerate(wanted):
        if count % PARTITIONS_PER_CHECKPOINT == PARTITIONS_PER_CHECKPOINT - 1:
            await trio.lowlevel.checkpoint()  # reading the size of a log that is not open blocks on the disk
        if node.is_offline(tp) or not node.partitions.leads(tp):
            continue
        try:
            size_bytes = node.logs.size_bytes(tp)
        except OSError as error:
            logger.error("cannot read the size of a log partition=%s cause=%s", tp, error)
            return _answer(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir))
        part = DescribeLogDirsPartition(
            partition_index=tp.partition, partition_size=size_bytes, offset_lag=0, is_future_key=False
        )
        by_topic.setdefault(tp.topic, []).append(part)
    total, usable = _volume(node)
    return _answer(
        DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=log_dir,
            topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=False,
        )
    )


def _answer(directory: DescribeLogDirsResult) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(results=[directory])


def _all_partitions(node: Broker) -> Iterable[TopicPartition]:
    for topic in node.metadata.image.topics_by_name.values():
        for number in range(topic.partitions):
            yield TopicPartition(topic.name, number)


def _volume(node: Broker) -> tuple[int, int]:
    """The volume's total and usable bytes; unknown for a broker in memory."""
    directory = node.config.data_directory
    if directory is None:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    try:
        volume = os.statvfs(directory)
    except OSError as error:
        logger.warning("cannot read the size of the data directory's volume: %s", error)
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
