"""What a standby of a cluster does: it follows the metadata, and sends clients to the active broker."""

from typing import Protocol

import trio

from fencepost.broker.cluster.membership import FOLLOW_SECONDS, Membership
from fencepost.broker.ports import HasGroups, HasMetadata, HasMetadataAnswers, HasMetadataLog, HasTransactions


class Standby(HasGroups, HasMetadata, HasMetadataAnswers, HasMetadataLog, HasTransactions, Protocol):
    """The broker that stands by."""


async def stand_by(node: Standby, cluster: Membership, services: trio.Nursery) -> None:
    """Follow the metadata, and coordinate nothing: NOT_COORDINATOR sends clients to the active broker."""
    for runtime in (node.groups.runtime, node.transactions.runtime):
        for partition in range(runtime.count):
            runtime.unload(partition)
    await services.start(node.groups.run)
    await services.start(node.transactions.run)
    services.start_soon(_follow_metadata, node, cluster)


async def _follow_metadata(node: Standby, cluster: Membership) -> None:
    leader = cluster.leader_id, cluster.leader_epoch
    while True:
        if await cluster.follow(node.metadata_log):
            await node.metadata.follow()
        if leader != (cluster.leader_id, cluster.leader_epoch):
            leader = cluster.leader_id, cluster.leader_epoch
            node.metadata_answers.forget()
        await trio.sleep(FOLLOW_SECONDS)
