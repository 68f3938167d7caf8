"""The record by which a broker registers itself in the metadata at its start (RegisterBrokerRecord, KIP-631). Pure."""

from dataclasses import dataclass

from fencepost.coordinator.metadata.features import SUPPORTED
from fencepost.protocol.metadata_record_types import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord


@dataclass(frozen=True, slots=True)
class Registration:
    """One run of a broker process: `incarnation_id` (16 bytes) names it, clients connect to its `end_points`."""

    incarnation_id: bytes
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None


def registration_record(broker_id: int, one: Registration, epoch: int) -> RegisterBrokerRecord:
    """The record at offset `epoch`, which is the broker epoch, as in Kafka.

    It is not fenced: no remote controller has to receive a heartbeat first. It has no log directories: they have no ids
    here.
    """
    features = tuple(BrokerFeature(name, *levels) for name, levels in sorted(SUPPORTED.items()))
    return RegisterBrokerRecord(
        broker_id, False, one.incarnation_id, epoch, one.end_points, features, one.rack, fenced=False
    )
