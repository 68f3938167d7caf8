"""The cut of a backup: the ends of all logs at one instant, as the running brokers of a data directory say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fencepost.broker.log.backup.pins import PinnedLog
    from fencepost.client import Client
    from fencepost.client.admin import Admin
    from fencepost.protocol.topics import TopicPartition

ATTEMPTS = 50
PAUSES_MS = (50, 100, 200, 400, 800)
"""How long the cores pause: longer with each attempt, as one that was busy began its pause when another one's ended."""
RETRY_SECONDS = 0.2
_KNOWN_SINCE = 2
"""The version of DescribeLogDirs that has tags."""

Logs = dict["TopicPartition", "PinnedLog"]
Ends = dict["TopicPartition", int]


class Refusal(NamedTuple):
    """Why no cut could be taken, and what to do."""

    why: str
    hint: str


class CoreEnds(NamedTuple):
    """The ends of the logs of one core, which paused between these times."""

    since_us: int
    until_us: int
    ends: Ends


def of_one_instant(answers: Sequence[CoreEnds]) -> Ends | None:
    """The ends of all cores, if they all paused at some instant."""
    if max(one.since_us for one in answers) > min(one.until_us for one in answers):
        return None
    return {tp: end for one in answers for tp, end in one.ends.items()}


def pin(directory: Path, pinned: Path, logs: Logs, small: dict[str, bytes]) -> None:
    """Read the small files of all cores, then link the files of all partitions. Raises OSError."""
    from fencepost.broker.log.backup.pins import pin_all
    from fencepost.broker.log.backup.writing import small_files
    from fencepost.broker.log.storage.layout import core_directories

    small.clear()
    small.update(small_files(directory))
    for number, path in core_directories(directory).items():
        pin_all(path, pinned / str(number), logs)


def homes(directory: Path) -> dict[str, int]:
    """The core that has the directory of each partition. Raises OSError."""
    from fencepost.broker.log.backup.pins import partitions_in
    from fencepost.broker.log.storage.layout import core_directories

    return {name: number for number, path in core_directories(directory).items() for name in partitions_in(path)}


def on_the_way(directory: Path) -> list[str]:
    """The directories of partitions that go to another core: no core opens them, and they are not linked."""
    from fencepost.broker.log.storage.layout import MOVING, core_directories

    return [one.name for path in core_directories(directory).values() for one in path.glob(f"*{MOVING}")]


async def cut(
    kafka: "Client", directory: Path, pinned: Path, logs: Logs, small: dict[str, bytes], identity: tuple[str, int]
) -> "Mapping[TopicPartition, int] | Refusal":
    """Link all files, then ask the brokers for the ends of all logs; again, until the links reach those ends.

    `identity` is the cluster id of the directory, and its node id.
    """
    import trio

    from fencepost.broker.log.backup.pins import uncovered
    from fencepost.client import KafkaError

    admin = kafka.admin()
    refusal = Refusal("the cores did not pause at one instant", "Try again when they have less to do.")
    for number in range(ATTEMPTS):
        described = await admin.describe_cluster()  # each time: the number of cores may change
        brokers = sorted(one.broker_id for one in described.brokers)
        wrong = _wrong_brokers(directory, identity, described.cluster_id, brokers)
        if wrong is not None:
            return wrong
        before = await trio.to_thread.run_sync(homes, directory)
        await trio.to_thread.run_sync(pin, directory, pinned, logs, small)
        pause_ms = PAUSES_MS[min(number, len(PAUSES_MS) - 1)] if len(brokers) > 1 else 0
        try:
            ends = await ends_of(admin, brokers, pause_ms)
            missing = [] if ends is None else await _unanswered(admin, logs, ends)
        except KafkaError as error:
            if not error.retriable:
                raise
            refusal = Refusal(f"a broker does not answer: {error}", "Try again when all cores serve: /ready says so.")
            await trio.sleep(RETRY_SECONDS)
            continue
        if ends is None:
            continue
        asked = {tp: end for tp, end in ends.items() if tp in logs or end}
        missing += [str(tp) for tp in await trio.to_thread.run_sync(uncovered, logs, asked)]
        after = await trio.to_thread.run_sync(homes, directory)
        missing += [name for name, core in after.items() if before.get(name) != core] + on_the_way(directory)
        if not missing:
            return {tp: end for tp, end in asked.items() if tp in logs}
        refusal = Refusal(
            f"segments are begun, or logs move, quicker than they can be linked: {', '.join(missing[:5])}",
            "Try again when less is written or moved, or raise segment.bytes of these topics.",
        )
    return refusal


def _wrong_brokers(
    directory: Path, identity: tuple[str, int], cluster_id: str | None, brokers: list[int]
) -> Refusal | None:
    first = identity[1]
    if cluster_id == identity[0] and first in brokers[1:]:
        return Refusal(
            f"{directory} is the directory of one core of several", "Name the data directory of all of them."
        )
    if (cluster_id, brokers) != (identity[0], list(range(first, first + len(brokers)))):
        return Refusal(
            f"the broker is of cluster {cluster_id}, and {directory} belongs to cluster {identity[0]}",
            "Name the broker of this directory with --bootstrap.",
        )
    return None


async def ends_of(admin: "Admin", brokers: Sequence[int], pause_ms: int) -> Ends | None:
    """The high watermarks of all open logs but that of the metadata; None if they are not of one instant.

    The requests go out together, on connections that are open already: so the brokers pause at about the same time.
    Raises KafkaError.
    """
    import trio

    from fencepost.client import KafkaError

    answers: list[CoreEnds] = []
    errors: list[KafkaError] = []

    async def ask(broker: int, pause_ms: int) -> None:
        try:
            answers.append(await _ends_of_core(admin, broker, pause_ms))
        except KafkaError as error:
            errors.append(error)

    for pause in (0, pause_ms) if pause_ms else (0,):
        answers.clear()
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(ask, broker, pause)
        if errors:
            raise errors[0]
    return of_one_instant(answers) if pause_ms else answers[0].ends


async def _ends_of_core(admin: "Admin", broker: int, pause_ms: int) -> CoreEnds:
    from fencepost.broker.metadata.log import METADATA_PARTITION
    from fencepost.client import KafkaError
    from fencepost.client.admin.client import parts_of
    from fencepost.client.admin.requests import failure
    from fencepost.protocol.api_keys import ApiKey
    from fencepost.protocol.messages.api35_describe_log_dirs import DescribeLogDirsRequest
    from fencepost.protocol.topics import TopicPartition

    request = DescribeLogDirsRequest(topics=[], pause_ms=pause_ms)
    answer = await parts_of(admin).cluster.ask(broker, request, at_least=_KNOWN_SINCE)
    error = failure(answer, f"asking broker {broker} for the ends of its logs", ApiKey.DESCRIBE_LOG_DIRS, broker)
    if error is not None:
        raise error
    if answer.ends is None:
        raise KafkaError(
            f"broker {broker} is of an older version, which does not say the ends of its logs", node=broker
        )
    ends = {
        TopicPartition(topic.name, one.partition_index): one.high_watermark
        for topic in answer.ends.topics
        for one in topic.partitions
    }
    ends.pop(METADATA_PARTITION, None)
    return CoreEnds(answer.ends.since_us, answer.ends.until_us, ends)


async def _unanswered(admin: "Admin", logs: Logs, ends: Ends) -> list[str]:
    """The logs that no broker had open. Those of deleted topics are left out of the backup.

    Raises KafkaError, such as ItemsFailedError for a log that is offline.
    """
    from fencepost.broker.metadata.log import METADATA_PARTITION
    from fencepost.client.admin import ItemsFailedError
    from fencepost.protocol.errors import ErrorCode

    silent = sorted(logs.keys() - ends.keys() - {METADATA_PARTITION})
    if not silent:
        return []
    try:
        await admin.list_offsets(silent, isolation="read_uncommitted")
    except ItemsFailedError as error:
        if any(one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in error.errors.values()):
            raise
        for tp in error.errors:
            del logs[tp]
    return [str(tp) for tp in silent if tp in logs]
