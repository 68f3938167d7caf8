"""The slots of a cluster as one broker sees them: which it leads, who leads the others, and who should.

The plan is pure, so every broker that knows the same members computes the same one.
"""

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache

from fencepost.broker.cluster.engine import SLOTS, Slot, log_id, slot_of
from fencepost.broker.metadata.log import METADATA_PARTITION, METADATA_TOPIC_ID
from fencepost.broker.place import LeaderAndEpoch

METADATA_LOG = log_id(METADATA_TOPIC_ID, METADATA_PARTITION.partition)
METADATA_SLOT = slot_of(METADATA_LOG)
"""The owner of this slot is the controller."""


class Ownership:
    """The newest known owners. This broker leads a slot once it has loaded the slot's logs."""

    def __init__(self, broker: int, slots: Sequence[Slot]) -> None:
        """`broker` leads the slots that it owns according to `slots`: their logs are loaded."""
        self.broker = broker
        self.slots = list(slots)
        self.led = {slot.slot: slot.epoch for slot in slots if slot.broker == broker}
        """The epoch of each slot that this broker leads."""
        self.version = 0
        """Rises when an owner changes."""

    def see(self, slots: Sequence[Slot]) -> None:
        """The database has these owners now."""
        if list(slots) != self.slots:
            self.slots = list(slots)
            self.version += 1

    def begin(self, slots: Sequence[Slot]) -> None:
        """This broker leads these slots of its own from now on."""
        for slot in slots:
            self.led[slot.slot] = slot.epoch
            self.slots[slot.slot] = slot
        self.version += 1

    def end(self, slot: int) -> None:
        """This broker does not lead this slot any more; its next owner is not known yet."""
        self.led.pop(slot, None)
        self.slots[slot] = self.slots[slot]._replace(broker=None)
        self.version += 1

    def leads(self, log: int) -> bool:
        return log % SLOTS in self.led

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return slot_of(log_id(topic_id, partition)) in self.led

    def of(self, topic_id: bytes, partition: int) -> Slot:
        return self.slots[slot_of(log_id(topic_id, partition))]

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        slot = self.of(topic_id, partition)
        return LeaderAndEpoch(slot.broker, slot.epoch)

    @property
    def controller(self) -> int | None:
        return self.slots[METADATA_SLOT].broker

    @property
    def is_controller(self) -> bool:
        return METADATA_SLOT in self.led


@lru_cache(maxsize=64)
def spread(brokers: frozenset[int]) -> tuple[int, ...]:
    """The broker of each slot, by rendezvous hashing: of those that may own slots, the one with the highest score.

    A broker that comes or goes changes only its own share. `brokers` must not be empty.
    """
    return tuple(max(brokers, key=lambda broker: _score(slot, broker)) for slot in range(SLOTS))


def gathered(slots: Sequence[Slot], brokers: Collection[int], first: int) -> tuple[int, ...]:
    """All slots at one broker: at the owner of slot `first` if it is among `brokers`, else at the lowest id."""
    owner = slots[first].broker
    return (owner if owner is not None and owner in brokers else min(brokers),) * SLOTS


def _score(slot: int, broker: int) -> tuple[bytes, int]:
    return hashlib.blake2b(f"{slot}/{broker}".encode(), digest_size=8).digest(), broker
