"""What every broker of a cluster does besides leading its slots: it follows the controller's metadata log."""

import logging
from typing import Protocol

import trio

from fencepost.broker.cluster.membership import FOLLOW_SECONDS, Membership
from fencepost.broker.ports import HasCluster, HasGroups, HasMetadata, HasMetadataLog, HasTransactions
from fencepost.coordinator.metadata.image import METADATA_VERSION
from fencepost.coordinator.ports import LogWriteFailed

logger = logging.getLogger(__name__)


class Follower(HasCluster, HasGroups, HasMetadata, HasMetadataLog, HasTransactions, Protocol):
    """A broker of a cluster."""

    async def register(self) -> None:
        """As the controller, register this run of the broker in the metadata."""


async def until_bootstrapped(node: Follower) -> None:
    """Return when the cluster has metadata: its first controller writes them."""
    while METADATA_VERSION not in node.metadata.image.features:
        await trio.sleep(FOLLOW_SECONDS)
        await catch_up(node)


def begin(node: Follower, services: trio.Nursery) -> None:
    """Follow the metadata, and coordinate nothing in slots of other brokers: NOT_COORDINATOR sends clients there."""
    services.start_soon(_follow, node)
    followed = _cluster(node).followed
    if followed is not None:
        services.start_soon(followed.run, node.metadata)
    for runtime in (node.groups.runtime, node.transactions.runtime):
        topic = node.metadata.image.topics_by_name[runtime.topic]
        for partition in range(runtime.count):
            if not _cluster(node).leads_partition(topic.topic_id, partition):
                runtime.unload(partition)


async def _follow(node: Follower) -> None:
    """Follow the metadata until cancelled."""
    while True:
        await trio.sleep(FOLLOW_SECONDS)
        await catch_up(node)


async def catch_up(node: Follower) -> None:
    """Read what the controller has written so far."""
    async with _cluster(node).following:
        await _cluster(node).read_to_end(node)


async def become_controller(node: Follower, epoch: int) -> None:
    """Change the metadata from now on, in place of another broker. The log must have been followed to its end."""
    log = node.metadata_log
    log.leader_epoch = epoch
    log.epochs.note(epoch, log.log_end_offset)
    try:
        await node.metadata.take_over()
    except LogWriteFailed as error:
        logger.warning("this broker could not become the controller: %s", error)
    else:
        await node.register()


def _cluster(node: Follower) -> Membership:
    assert node.cluster is not None, "a broker with files is its own controller"
    return node.cluster
