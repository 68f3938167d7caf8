"""The state of a whole broker in a form that can be compared, as it lives and as its logs alone give it."""

from collections.abc import Collection, Iterator, Sequence

import trio

from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.coordinator.txn.state import Dead, TxnState
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_nodes import SimDirectory
from tests.kit.sim_broker import SimBroker
from tests.kit.sim_disk import SimDisk

NodeState = dict[str, str]
"""What is known, by a name for people."""

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".seal")
"""Files that can be made anew from the batches."""
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "leader-epoch-checkpoint")
GROUPS = ("copiers",)


async def state_of(node: Node, groups: Collection[str] = GROUPS) -> NodeState:
    """Metadata, partitions with their bounds, producers and aborted transactions; transactional ids; groups' positions.

    The metadata log is compared by what it says: each life adds its own registration to it (KIP-631). All
    that was written is made durable first: the last Complete record of a transaction waits for the next flush.
    """
    state: NodeState = {}
    async with trio.open_nursery() as nursery:
        for log in node.logs.logs():
            if log.high_watermark < log.log_end_offset and not log.offline:
                nursery.start_soon(node.flusher.flush, log)
    image = node.metadata.image
    state["metadata"] = str((sorted(image.topics_by_name.items()), sorted(image.configs.items()), image.features))
    for tp in sorted(node.logs.partitions()):
        log = node.logs.get(tp)
        assert log is not None
        if not log.log_end_offset or tp == METADATA_PARTITION:
            continue  # it has no files yet
        bounds = log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
        state[f"{tp} bounds"] = str(bounds)
        state[f"{tp} producers"] = "\n".join(str(entry) for entry in sorted(log.producers.entries()))
        aborted = log.segments.aborted_between(log.log_start_offset, log.last_stable_offset)
        state[f"{tp} aborted"] = str(sorted((one.producer_id, one.first_offset) for one in aborted))
    state.update((f"transactional id {name}", str(known)) for name, known in transactional_ids(node))
    for group in groups:
        found = await node.groups.positions.fetch(group, None, False)
        state[f"group {group}"] = str(sorted((str(one.partition), one.offset) for one in found))
    return state


async def state_of_all(nodes: Sequence[Node]) -> NodeState:
    """The same of a cluster: each log, id and group as the broker knows it that leads it."""
    state: NodeState = {}
    for node in nodes:
        coordinated = [group for group in GROUPS if not node.groups.refusal(group)]
        found = await state_of(node, coordinated)
        twice = [name for name in found.keys() & state.keys() if name != "metadata"]
        assert not twice, f"two brokers lead {twice}"
        state.update(found)
    return state


def transactional_ids(node: Node) -> Iterator[tuple[str, TxnState]]:
    """All that the coordinator knows of, with their states."""
    for shard in node.transactions.runtime.shards():
        yield from shard.state.items()


def open_transactions(node: Node) -> list[str]:
    """Everything that is not at rest: open or undecided transactions, and partitions whose readers are held back."""
    at_rest = "Empty", "CompleteCommit", "CompleteAbort"
    found = [f"{name} is {known.name}" for name, known in transactional_ids(node) if known.name not in at_rest]
    for log in node.logs.logs():
        behind = log.high_watermark != log.log_end_offset and not is_internal(log.tp.topic)
        if log.last_stable_offset != log.high_watermark or behind:
            bounds = log.last_stable_offset, log.high_watermark, log.log_end_offset
            found.append(f"{log.tp} has LSO, HW, LEO {bounds}")
    return found


def epochs_ahead(node: Node, others: Sequence[Node] = ()) -> list[str]:
    """Partitions that know a newer epoch of a transactional producer than its coordinator does (rows T1, T7).

    The coordinator is that of `node`; `others` have partitions, too.

    Epochs are the coordinator's to give: what it has not on its disk, not as a Prepare record either, no marker and no
    producer may show. Whoever looks right after a start sees what a crash has left.
    """
    known = {
        state.producer.producer_id: (name, state.producer.epoch)
        for name, state in transactional_ids(node)
        if not isinstance(state, Dead)
    }
    found = []
    for broker, tp in [(one, tp) for one in (node, *others) for tp in sorted(one.logs.partitions())]:
        log = broker.partition(tp)
        for entry in () if log is None else log.producers.entries():
            name, epoch = known.get(entry.producer_id, ("", entry.epoch))
            if entry.epoch > epoch:
                found.append(f"{tp} knows {name} by ({entry.producer_id}, {entry.epoch}), its coordinator by {epoch}")
    return found


async def rebuilt_state(broker: SimBroker) -> NodeState:
    """As `state_of` a broker that finds nothing but batches and the identity of its topics; `broker` must be dead."""
    await broker.ended()
    disk = broker.disk.kill()
    strip(disk)
    async with trio.open_nursery() as nursery:
        node = broker.make_node(disk)
        await nursery.start(node.run)
        state = await state_of(node)
        nursery.cancel_scope.cancel()
    return state


def strip(disk: SimDisk) -> None:
    """Take away every file that replay can do without."""
    data = disk.root.entries["data"]
    assert isinstance(data, SimDirectory)
    _strip(data)


def _strip(directory: SimDirectory) -> None:
    for name, node in list(directory.entries.items()):
        if isinstance(node, SimDirectory):
            _strip(node)
        elif name.endswith(DERIVED) or name in CHECKPOINTS:
            directory.change({name: None})


def bounds_of(node: Node) -> dict[TopicPartition, tuple[int, int, int]]:
    """LSO, high watermark and log end offset of every open log."""
    return {log.tp: (log.last_stable_offset, log.high_watermark, log.log_end_offset) for log in node.logs.logs()}
