"""Cores with one defect each in how partitions move between them (decision 0088): the worlds have to find it."""

from collections.abc import Callable
from typing import Any

import trio

from fencepost.broker.cores import live_moves
from fencepost.broker.cores.handed_logs import forget_offsets
from fencepost.broker.cores.place import Core
from fencepost.broker.handlers import api27_write_txn_markers as markers_handler
from fencepost.broker.partitions import Partitions
from fencepost.coordinator.metadata import image_fold, reassignments
from fencepost.protocol.errors import ErrorCode


def empty_log_begun() -> None:
    """A core that leads a partition opens a log for it, empty, while the directory is under way."""
    leads = Partitions.leads

    def at_once(self: Partitions, tp: Any) -> bool:
        self.moving.discard(tp)
        return leads(self, tp)

    Partitions.leads = at_once  # type: ignore[method-assign]


def leader_epoch_stays() -> None:
    """A new leader has the leader epoch of the one before (KIP-101)."""
    change = image_fold.changed_partition

    def same_epoch(partition: Any, record: Any) -> Any:
        return change(partition, record)._replace(leader_epoch=partition.leader_epoch)

    image_fold.changed_partition = same_epoch


def old_leader_takes_markers() -> None:
    """A core that leads a partition no more says that it has written a marker there (WriteTxnMarkers)."""
    written = markers_handler._written

    def taken(markers: Any, codes: Any) -> Any:
        wrong = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return written(
            markers, [{tp: ErrorCode.NONE if code is wrong else code for tp, code in one.items()} for one in codes]
        )

    markers_handler._written = taken


def names_unsynced() -> None:
    """The controller learns of a hand-over before the new name of the directory is durable."""
    live_moves.sync_names = lambda *stores: None


def offsets_dropped_early() -> None:
    """The file with a log's offsets is deleted before the log's own name is durable."""
    rename = live_moves.take

    def take(handed: Any, own: Any, tp: Any) -> None:
        rename(handed, own, tp)
        forget_offsets(own, tp)

    live_moves.take = take


def start_stays() -> None:
    """A core that gets transactions of another one sends markers with the epoch that it had."""

    async def nothing(self: Core) -> None:
        await trio.lowlevel.checkpoint()

    Core.begin_coordinating = nothing  # type: ignore[method-assign]


def end_unfenced() -> None:
    """The controller ends a move whichever partition epoch it began in, also one that began anew."""
    decide = reassignments._decide

    def whatever_epoch(image: Any, wanted: Any, brokers: Any) -> Any:
        topic = image.topics_by_name.get(wanted.tp.topic)
        if isinstance(wanted, reassignments.HandedOver) and topic is not None:
            wanted = wanted._replace(partition_epoch=topic.assignment[wanted.tp.partition].partition_epoch)
        return decide(image, wanted, brokers)

    reassignments._decide = whatever_epoch


SPOILT_MOVES: dict[str, Callable[[], None]] = {
    spoil.__name__.replace("_", "-"): spoil
    for spoil in (
        empty_log_begun,
        leader_epoch_stays,
        old_leader_takes_markers,
        names_unsynced,
        offsets_dropped_early,
        start_stays,
        end_unfenced,
    )
}
"""By the name that `python -m tests.simulation.cores_world --spoilt` takes."""
