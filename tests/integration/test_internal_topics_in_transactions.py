"""Internal topics are not for clients' transactions, with and without an authorizer.

Kafka: `KafkaApis.handleAddPartitionsToTxnRequest` takes internal topics out before it asks for rights, so that they are
TOPIC_AUTHORIZATION_FAILED for every client.
"""

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api24_add_partitions_to_txn import AddPartitionsToTxnTopic
from tests.kit.wire import ADD_PARTITIONS, Wire, add_request, batch_of

INTERNAL = ("__consumer_offsets", "__transaction_state")


def begin(wire: Wire, name: str) -> tuple[int, int]:
    return wire.init_producer_id(name)


def codes(wire: Wire, name: str, producer: tuple[int, int], *topics: str, version: int = 3) -> dict[str, ErrorCode]:
    request = add_request(name, producer, topics[0], 0)
    request.v3_and_below_topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics]
    results = wire.call(ADD_PARTITIONS, version, request).results_by_topic_v3_and_below
    return {one.name: ErrorCode(one.results_by_partition[0].partition_error_code) for one in results}


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("internal", INTERNAL)
def test_a_transaction_writes_no_marker_into_an_internal_topic(wire: Wire, internal: str, version: int) -> None:
    """The marker stayed in `__transaction_state`, and Apache Kafka could not load the directory any more."""
    name = f"marker-{internal}-{version}"
    producer = begin(wire, name)
    before = wire.offset_of(internal, -1).offset
    assert codes(wire, name, producer, internal, version=version) == {internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    wire.end_txn(name, producer, commit=False)
    assert wire.offset_of(internal, -1).offset == before


def test_an_internal_topic_keeps_the_others_of_its_request_out(wire: Wire, topic: str) -> None:
    """All partitions of a request are added or none, and a missing topic is reported as missing."""
    name = "mixed"
    producer = begin(wire, name)
    assert codes(wire, name, producer, topic, INTERNAL[1], "missing") == {
        topic: ErrorCode.OPERATION_NOT_ATTEMPTED,
        INTERNAL[1]: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    batch = batch_of(b"x", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
    assert wire.produce(topic, batch, transactional_id=name).error_code != ErrorCode.NONE
    assert codes(wire, name, producer, topic) == {topic: ErrorCode.NONE}
