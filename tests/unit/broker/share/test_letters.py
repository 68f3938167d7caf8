"""What stands in a dead-letter topic, and which topics may be one (G9, KIP-1191)."""

import pytest

from fencepost.broker.share.letters import Copies, TopicRules, batches, headers, topic_problem
from fencepost.broker.share.values import DeadCause, DeadLetters
from fencepost.protocol.batch_header import HEADER_SIZE, read_header
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import TopicPartition

JOBS = TopicPartition("jobsa", 1)
OF_KAFKA = bytes.fromhex(
    "025a46a542000000000000000001a229555601000001a229555601ffffffffffffffffffffffffffff00000001f802000000046b300476300c"
    "245f5f646c712e6572726f72732e746f7069630a6a6f6273612c5f5f646c712e6572726f72732e706172746974696f6e0231265f5f646c712e"
    "6572726f72732e6f66667365740230245f5f646c712e6572726f72732e67726f757010776f726b65727361365f5f646c712e6572726f72732e"
    "64656c69766572792e636f756e740231285f5f646c712e6572726f72732e6d657373616765344f66667365742072656a656374656420627920"
    "636c69656e742e"
)
"""From the magic on, the dead letter that a Kafka 4.4.0 wrote of a record that a member had rejected."""
WRITTEN_MS = 1795989788161
READY = TopicRules(prefix="dlq.", auto_create=False, exists=True, enabled=True)


def written(dead: DeadLetters, copies: Copies, max_bytes: int = 1000) -> list[list[Record]]:
    """The records of each batch of the letters of a range."""
    offsets = range(dead.first_offset, dead.last_offset + 1)
    found = list(batches("g", JOBS, dead, offsets, copies, 7, max_bytes))
    assert all(len(batch) <= max_bytes for batch in found)
    return [decode_records(batch, 0, read_header(batch)) for batch in found]


def test_a_letter_has_the_bytes_of_kafkas() -> None:
    """ShareGroupDLQStateManager.ProduceRequestHandler.headers: six headers, all of them text, in this order."""
    dead = DeadLetters(0, 0, 1, DeadCause.REJECTED)
    [batch] = batches("workersa", JOBS, dead, [0], {0: (b"k0", b"v0")}, WRITTEN_MS, 1 << 20)
    assert batch[16:] == OF_KAFKA


def test_the_reason_is_a_text_that_tools_know() -> None:
    """ShareGroupDLQManager.CLIENT_REJECT, DELIVERY_COUNT_EXCEEDED."""
    [*_, count, message] = headers("g", JOBS, DeadLetters(3, 3, 5, DeadCause.LIMIT), 3)
    assert count == ("__dlq.errors.delivery.count", b"5")
    assert message == ("__dlq.errors.message", b"Offset delivery count exceeded the threshold.")
    assert DeadCause.REJECTED == "Offset rejected by client."


def test_what_has_no_copy_has_headers_only() -> None:
    """KIP-1191: key and value are null without errors.deadletterqueue.copy.record.enable, or if they cannot be read."""
    [[first, second]] = written(DeadLetters(4, 5, 1, DeadCause.LIMIT), {5: (None, b"v")})
    assert (first.key, first.value, second.key, second.value) == (None, None, None, b"v")
    assert (first.headers[2], second.headers[2]) == (("__dlq.errors.offset", b"4"), ("__dlq.errors.offset", b"5"))


def test_batches_are_no_longer_than_the_topic_allows() -> None:
    """`topicProduceData`: records go to the next round where the batch would exceed max.message.bytes."""
    dead = DeadLetters(0, 9, 1, DeadCause.LIMIT)
    found = written(dead, dict.fromkeys(range(10), (None, b"x" * 200)))
    assert [len(records) for records in found] == [2] * 5
    assert [record.headers[2][1] for records in found for record in records] == [b"%d" % n for n in range(10)]


def test_a_copy_that_fits_no_batch_is_left_out() -> None:
    """Ours: Kafka gives such a letter up if the copy fits without the headers (`collectUncompressed`)."""
    dead = DeadLetters(0, 2, 1, DeadCause.LIMIT)
    [records] = written(dead, {0: (b"k", b"x" * 900), 1: (b"k", b"v")}, 1000 - HEADER_SIZE)
    assert [record.value for record in records] == [None, b"v", None]


@pytest.mark.parametrize(
    ("topic", "rules", "problem"),
    [
        ("dlq.a", READY, None),
        ("dlq.a", READY._replace(exists=False, enabled=False, auto_create=True), None),
        ("a", READY._replace(prefix=""), None),
        (None, READY, "Configured DLQ topic name in share group: g is empty."),
        ("__a", READY._replace(prefix=""), "Configured DLQ topic name in share group: g cannot start with __"),
        ("dlq.a", READY._replace(enabled=False), "DLQ is not enabled on configured DLQ topic for share group: g"),
        ("dlq.a", READY._replace(exists=False), "DLQ topic does not exist and auto create is disabled on cluster"),
        ("a", READY, "Configured DLQ topic name does not comply with the DLQ topic prefix in share group: g"),
    ],
)
def test_which_topics_may_have_dead_letters(topic: str | None, rules: TopicRules, problem: str | None) -> None:
    """ShareGroupDLQStateManager.ProduceRequestHandler.validateDlqTopic."""
    found = topic_problem("g", topic, rules)
    assert found is None if problem is None else (found or "").startswith(problem)
