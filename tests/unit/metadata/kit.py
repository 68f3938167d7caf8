"""In-memory ports for the metadata service: a log that can crash at any append, the real rules, a clock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.config.topic_rules import TopicRules, cluster_facts
from fencepost.coordinator.metadata.delta import Change
from fencepost.coordinator.metadata.ports import Bounds, LoggedBatch, Snapshots
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.ports import LogSuperseded, LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import MetadataRecord
from fencepost.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from tests.kit.clocks import StillClock
from tests.kit.memory_log import WANTED, MemoryLog, MemoryTicket

CLUSTER_ID = "t2Rk3nWSQQiVcAhMXp8GQw"


class PowerCut(BaseException):
    """The process died here."""


@dataclass
class MetadataLog(MemoryLog[list[bytes]]):
    """The metadata log. The append number `dies_at` is the last thing that does not happen; append number `refuses` is
    refused once. `end_offset` is how far this controller has read or written; others may share `batches` and be
    further."""

    at_once: bool = False
    dies_at: int | None = None
    refuses: int | None = None
    together: bool = False
    """Whether one commit may have several appends."""

    def append(self, values: Sequence[bytes], now_ms: int) -> MemoryTicket:
        assert values
        self.appends += 1
        if self.dies_at == self.appends:
            raise PowerCut
        if self.refuses == self.appends:
            raise LogWriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, WANTED)
        if (there := sum(map(len, self.batches))) != self.end_offset:
            raise LogSuperseded(ErrorCode.NOT_CONTROLLER, f"the log goes to {there}")
        self.batches.append(list(values))
        self.end_offset += len(values)
        return self.newest

    @contextmanager
    def in_one_commit(self) -> Iterator[bool]:
        if self.together:
            self.hold()
        try:
            yield self.together
        finally:
            if self.together:
                self.release()

    def seek(self, offset: int) -> None:
        self.end_offset = offset

    def read(self) -> Iterator[LoggedBatch]:
        offset = 0
        for values in list(self.batches):
            if offset >= self.end_offset:
                self.end_offset = offset + len(values)
                yield LoggedBatch(offset, self.end_offset, 0, values)
            offset += len(values)

    def records(self) -> list[MetadataRecord]:
        """Everything in it, decoded."""
        return [decode_metadata_record(value) for values in self.batches for value in values]

    def survivor(self) -> "MetadataLog":
        """The log as the next process finds it; what was appended is there, durable or not."""
        batches = [list(values) for values in self.batches]
        return MetadataLog(batches=batches, durable_end=sum(map(len, batches)))

    def rival(self) -> "MetadataLog":
        """The same log as another controller sees it, from its start."""
        return MetadataLog(batches=self.batches)

    @classmethod
    def of(cls, *batches: Sequence[MetadataRecord]) -> "MetadataLog":
        """A log with these batches."""
        encoded = [[encode_metadata_record(record) for record in batch] for batch in batches]
        return cls(batches=encoded, durable_end=sum(map(len, encoded)))


class Ids:
    """Topic ids that count up."""

    def __init__(self, start: int = 1) -> None:
        self.next = start

    def __call__(self) -> bytes:
        self.next += 1
        return self.next.to_bytes(16, "big")


@dataclass
class Cluster:
    """A service with its log and what its observer heard."""

    log: MetadataLog
    service: MetadataService
    heard: list[Change]


def build(
    log: MetadataLog | None = None,
    config: BrokerConfig | None = None,
    ids: Ids | None = None,
    bounds: Bounds | None = None,
    snapshots: Snapshots | None = None,
) -> Cluster:
    """A service that was not started yet."""
    log = log if log is not None else MetadataLog()
    config = config or load_config()
    heard: list[Change] = []
    service = MetadataService(
        log,
        StillClock(),
        cluster_facts(config, CLUSTER_ID),
        TopicRules(config),
        ids or Ids(sum(map(len, log.batches))),
        heard.extend,
        snapshots=snapshots,
        bounds=bounds or Bounds(),
    )
    return Cluster(log, service, heard)


async def started(log: MetadataLog | None = None, **parts: Any) -> Cluster:
    """A service that is up."""
    cluster = build(log, **parts)
    await cluster.service.start()
    return cluster


def user_topics(service: MetadataService) -> dict[str, int]:
    """The clients' topics and their partition counts."""
    return {name: topic.partitions for name, topic in service.image.topics_by_name.items() if not topic.internal}
