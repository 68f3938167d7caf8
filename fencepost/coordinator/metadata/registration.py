"""What a broker says of itself in the metadata when it starts (RegisterBrokerRecord, KIP-631). Pure."""

from dataclasses import dataclass

from fencepost.coordinator.metadata.features import SUPPORTED
from fencepost.protocol.metadata_record_types import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord


@dataclass(frozen=True, slots=True)
class Registration:
    """One life of a broker: `incarnation_id` (16 bytes) names it, `end_points` are where its clients find it."""

    incarnation_id: bytes
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None


def registration_record(broker_id: int, one: Registration, epoch: int) -> RegisterBrokerRecord:
    """The record at offset `epoch`, which numbers the life as Kafka's controller does.

    Not fenced: there is no controller elsewhere that would have to see a heartbeat first. No log directories: they have
    no ids here.
    """
    features = tuple(BrokerFeature(name, *levels) for name, levels in sorted(SUPPORTED.items()))
    return RegisterBrokerRecord(
        broker_id, False, one.incarnation_id, epoch, one.end_points, features, one.rack, fenced=False
    )
