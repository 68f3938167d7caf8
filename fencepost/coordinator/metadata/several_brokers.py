"""Registers the brokers of one machine, and places partitions on them: at their start, and while they run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fencepost.coordinator.metadata.placement import new_leaders, placement_records, resizing_records
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.metadata.start_records import Registration, registration_record
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.metadata_entries import MetadataEntry


async def register_all(metadata: MetadataService, registrations: Mapping[int, Registration]) -> None:
    """At the start of several brokers, register them by node id, and no others, in one transaction.

    It also has the new leaders of partitions (`new_leaders`), if the brokers are others than at the last start.
    Raises LogWriteFailed.
    """
    await metadata.journal.wait_writable()
    image, node_ids = metadata.journal.newest, sorted(registrations)
    records = placement_records(image, node_ids, new_leaders(image, node_ids))
    observer, metadata.observer = metadata.observer, None
    await metadata.journal.write([*_registered(metadata, registrations), *records], "register brokers")
    await metadata.journal.settle()
    metadata.observer = observer


async def resize(metadata: MetadataService, registrations: Mapping[int, Registration], node_ids: Sequence[int]) -> None:
    """While several brokers run, register those that are new, and place partitions on `node_ids` alone.

    Moves begin, and brokers are unregistered, as `resizing_records` says: repeat it until there are no others.
    Raises LogWriteFailed.
    """
    await metadata.journal.wait_writable()
    before = metadata.facts.brokers
    records = [*_registered(metadata, registrations), *resizing_records(metadata.journal.newest, before, node_ids)]
    metadata.place_on(node_ids)  # at once: nothing may be placed on a broker that is being unregistered
    try:
        if records:
            await metadata.journal.write(records, "change the number of brokers")
        await metadata.journal.settle()
    except LogWriteFailed:
        metadata.place_on(before)
        raise


def _registered(metadata: MetadataService, registrations: Mapping[int, Registration]) -> list[MetadataEntry]:
    """The first records of the next change, which has a name."""
    epoch = metadata.journal.next_record_offset + metadata.journal.has_transactions  # behind the one that begins it
    return [
        registration_record(replace(metadata.facts, node_id=node), registrations[node], epoch + number)
        for number, node in enumerate(sorted(registrations))
    ]
