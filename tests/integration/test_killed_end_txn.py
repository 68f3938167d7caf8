"""kill -9 while EndTxn is at work: the one record that decides is there or not, and nothing is in between."""

import os
import random
import time
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from tests.kit.connections import Connections
from tests.kit.wire import END_TXN, Wire, batch_of, committed_values

READ_COMMITTED = 1
TV2_PRODUCE, TV2_END, TV2_OFFSETS = 12, 5, 5
OFFSET_FETCH, TXN_OFFSET_COMMIT = 9, 28
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
"""How often EndTxn is interrupted; more by hand."""
LONGEST_WAIT_SECONDS = 0.012
"""Between EndTxn and the kill: about what EndTxn takes."""
Identity = tuple[int, int]


def test_a_kill_in_the_middle_of_end_txn_leaves_all_or_nothing(connections: Connections) -> None:
    """docs/transactions.md, "Crashes, step by step": kill -9 while EndTxn is at work, then ask for either outcome.

    Whatever the broker says then is what every partition and the group's position must show.
    """
    chance, wire = random.Random("end-txn"), connections.new()
    wire.create_topic("t", partitions=3)
    identity = wire.init_producer_id("t")
    visible = 0
    for number in range(ROUNDS):
        for partition in range(3):
            assert _produce(wire, identity, b"%d" % number, partition) == ErrorCode.NONE
        assert wire.commit_in_transaction("g", "t", number, "t", identity) is ErrorCode.NONE
        wire.send(END_TXN, TV2_END, _end_request(identity, commit=True))
        time.sleep(chance.uniform(0, LONGEST_WAIT_SECONDS))
        wire = connections.after_crash()
        wants_commit = chance.random() < 0.5
        code, decided = _ask_again(wire, identity, wants_commit)
        committed = wants_commit if code == ErrorCode.NONE else not wants_commit
        assert committed or not wants_commit, f"a commit was refused: {code!r}"
        visible += committed
        logs = [committed_values(wire.fetch("t", partition=part, isolation=READ_COMMITTED)) for part in range(3)]
        assert [len(log) for log in logs] == [visible] * 3, (number, code, logs)
        assert all((log[-1:] == [b"%d" % number]) == committed for log in logs)
        last = max((int(value or b"") for value in logs[0]), default=-1)
        assert _committed_offset(wire) == last
        identity = decided
    assert visible > 0


def _end_request(identity: Identity, *, commit: bool) -> Any:
    return EndTxnRequest(transactional_id="t", producer_id=identity[0], producer_epoch=identity[1], committed=commit)


def _ask_again(wire: Wire, identity: Identity, commit: bool) -> tuple[ErrorCode, Identity]:
    """EndTxn once more, twice; the code, and the identity to go on with."""
    answers = [wire.call(END_TXN, TV2_END, _end_request(identity, commit=commit)) for _ in range(2)]
    code = ErrorCode(answers[0].error_code)
    assert code == answers[1].error_code
    if code == ErrorCode.NONE:
        assert (answers[0].producer_id, answers[0].producer_epoch) == (identity[0], identity[1] + 1)
    else:
        assert code == ErrorCode.INVALID_TXN_STATE, "an abort that comes after the commit"
    return code, (identity[0], identity[1] + 1)


def _committed_offset(wire: Wire) -> int:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = wire.call(OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=[topic], require_stable=True))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return int(answer.topics[0].partitions[0].committed_offset)


def _produce(wire: Wire, identity: Identity, value: bytes, partition: int) -> ErrorCode:
    """A transaction's one record in this partition; each transaction has an epoch of its own, so it is number 0."""
    batch = batch_of(value, transactional=True, producer_id=identity[0], producer_epoch=identity[1], base_sequence=0)
    answer = wire.produce("t", batch, partition=partition, version=TV2_PRODUCE, transactional_id="t")
    return ErrorCode(answer.error_code)
