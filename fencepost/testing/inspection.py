"""Inspects a broker under test: topics, logs, committed records, groups, and transactions that are not over."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.client.options import isolation_level
from fencepost.coordinator.metadata.commands import NewTopic, TopicRef
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.testing.faulty_node import FaultyNode
from fencepost.testing.loop_thread import BrokerGoneError, LoopThread

if TYPE_CHECKING:  # imported on first use, so that the first broker of a process is ready sooner
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.client.keywords import Isolation
    from fencepost.testing.exactly_once import By
    from fencepost.testing.log_view import LoggedRecord, LogView
    from fencepost.testing.lso_holders import OpenTransaction


@dataclass(frozen=True)
class GroupView:
    """A consumer group: its state under Kafka's name, the client ids of its members, and its committed offsets."""

    group_id: str
    state: str
    members: tuple[str, ...]
    offsets: Mapping[TopicPartition, int]


class Inspection:
    """The methods of `Broker` for topics, and for the state of logs, groups and transactions."""

    _loop: LoopThread

    # Topics

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name. Raises ValueError, with Kafka's error, if the broker refuses it."""

        async def create(node: FaultyNode) -> None:
            (created,) = await node.metadata.create_topics(
                [NewTopic(name=name, partitions=partitions, configs=dict(configs or {}))], False
            )
            _check(*created.outcome, f"topic {name!r}")

        self._loop.call_async(create)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises ValueError if there is no such topic."""

        async def delete(node: FaultyNode) -> None:
            (deleted,) = await node.metadata.delete_topics([TopicRef(name=name)])
            _check(*deleted.outcome, f"topic {name!r}")

        self._loop.call_async(delete)

    def topics(self) -> dict[str, int]:
        """The topics without Kafka's internal ones, with their numbers of partitions."""

        def look(node: FaultyNode) -> dict[str, int]:
            image = node.metadata.image
            return {t.name: t.partitions for t in image.topics_by_name.values() if not is_internal(t.name)}

        return self._loop.call(look)

    # Logs

    def log(self, topic: str, partition: int = 0) -> "LogView":
        """A partition's log with its control batches. Raises LookupError if there is no such partition."""
        return self._loop.call(_view, TopicPartition(topic, partition))

    def records(self, topic: str, *, isolation: "Isolation" = "read_committed") -> "list[LoggedRecord]":
        """The records of a topic that consumers with that isolation level get now, by partition, in order."""
        try:
            committed = isolation_level(isolation) is IsolationLevel.READ_COMMITTED
        except ValueError as error:
            raise ValueError(f"isolation={isolation!r} {error}") from None
        views = self._loop.call(_views, topic)
        return [r for view in views for r in (view.committed if committed else view.records)]

    def committed(self, topic: str) -> "list[LoggedRecord]":
        """The records of a topic that consumers with isolation.level=read_committed get now."""
        return self.records(topic)

    # Groups

    def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """A group's committed offsets, without those of transactions that are not over."""
        return self._loop.call_async(_offsets, group_id)

    def groups(self) -> dict[str, GroupView]:
        """All consumer groups."""

        async def look(node: FaultyNode) -> dict[str, GroupView]:
            names = [listed.group_id for listed in await node.groups.admin.list_groups((), ())]
            return {
                one.group_id: GroupView(
                    one.group_id,
                    one.state,
                    tuple(sorted(member.client_id for member in one.members)),
                    await _offsets(node, one.group_id),
                )
                for one in await node.groups.admin.describe(names)
            }

        return self._loop.call_async(look)

    # Transactions

    def open_transactions(self) -> "list[OpenTransaction]":
        """The transactions that are not over, the oldest first."""
        from fencepost.testing.lso_holders import open_transactions

        return self._loop.call(open_transactions)

    def assert_no_open_transactions(self) -> None:
        """Raise AssertionError if a transaction is not over; it names each, its age and its partitions."""
        __tracebackhide__ = True
        found = self.open_transactions()
        if found:
            lines = "\n".join(f"  {line}" for one in found for line in str(one).splitlines())
            number = "1 transaction is" if len(found) == 1 else f"{len(found)} transactions are"
            raise AssertionError(f"{number} not over:\n{lines}")

    def assert_exactly_once(self, topic: str, expected: Iterable[Any], *, by: "By" = "value") -> None:
        """Raise AssertionError unless committed readers get each of `expected` exactly once, and nothing else.

        `expected` are values, as bytes or text; with by="key" keys, with by="item" (key, value) pairs, and with a
        function its results for the records. An element that occurs twice is expected twice. The message shows what
        happened to a missing record: aborted, still open, or never written.
        """
        from fencepost.testing.exactly_once import differences

        __tracebackhide__ = True
        views = self._loop.call(_views, topic)
        visible = [record for view in views for record in view.committed]
        everything = [record for view in views for record in view.records]
        found = differences(expected, visible, everything, by)
        if found:
            raise AssertionError(
                f"{topic} does not hold exactly the expected records:\n" + "\n".join(f"  {o}" for o in found)
            )

    def _in_broker(self, what: Callable[[], None]) -> None:
        """Run `what` in the broker's thread, or here if the broker does not run."""
        try:
            self._loop.call(lambda node: what())
        except BrokerGoneError:
            what()


def _check(code: ErrorCode, message: str | None, what: str) -> None:
    if code is not ErrorCode.NONE:
        raise ValueError(f"{what}: {code.name}" + (f" ({message})" if message else ""))


def _view(node: FaultyNode, tp: TopicPartition) -> "LogView":
    from fencepost.testing.log_view import view_of

    return view_of(log_of(node, tp))


def log_of(node: FaultyNode, tp: TopicPartition) -> "PartitionLog":
    """The log of a partition. Raises LookupError if there is none."""
    log = node.partition(tp)
    if log is None:
        topic = node.metadata.image.topics_by_name.get(tp.topic)
        known = "there is no such topic" if topic is None else f"the topic has {topic.partitions} partitions"
        raise LookupError(f"no partition {tp.partition} of {tp.topic!r}: {known}")
    return log


def _views(node: FaultyNode, name: str) -> "list[LogView]":
    topic = node.metadata.image.topics_by_name.get(name)
    if topic is None:
        raise LookupError(f"there is no topic {name!r}")
    return [_view(node, TopicPartition(name, number)) for number in range(topic.partitions)]


async def _offsets(node: FaultyNode, group_id: str) -> dict[TopicPartition, int]:
    found = await node.groups.positions.fetch(group_id, None, False)
    return {one.partition: one.offset for one in found if one.offset >= 0}
