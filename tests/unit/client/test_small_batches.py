"""Small batches are unpacked many at a time; what is given, and the position behind it, is as batch by batch."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest

from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.protocol.batch_header import CorruptBatch, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from tests.kit.record_code import record_code

__all__ = ["record_code"]
Visible = list[tuple[Record, int]]


class Log:
    """Transactions of two producers and plain batches, interleaved, with holes, codecs and new leader epochs."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.bytes, self.starts, self.aborted = bytearray(), list[int](), list[SimpleNamespace]()
        self.visible: Visible = []
        self.end, epoch = 0, 0
        for _ in range(40):
            epoch += chance.random() < 0.1
            writers = chance.sample([7, 8, -1], chance.randint(1, 3))
            fates = {writer: writer < 0 or chance.random() < 0.7 for writer in writers}
            begun: dict[int, int] = {}
            for writer in chance.choices(writers, k=chance.randint(1, 8)):
                begun.setdefault(writer, self.end)
                self._batch(chance, writer, epoch, visible=fates[writer])
            for writer, first in begun.items():
                if writer >= 0:
                    marker_at = self.end
                    self._append(end_txn_marker(writer, 0, fates[writer], 0, 1, self.end, epoch))
                    if not fates[writer]:
                        self.aborted.append(
                            SimpleNamespace(producer_id=writer, first_offset=first, marker_at=marker_at)
                        )

    def _batch(self, chance: random.Random, writer: int, epoch: int, *, visible: bool) -> None:
        step = 1 + (chance.random() < 0.1)
        value = b"seen" if visible else b"ABORTED"
        made = [Record(self.end + step * at, 5, None, value, ()) for at in range(chance.randint(1, 20))]
        if visible:
            self.visible += [(record, epoch) for record in made]
        codec = Compression.GZIP if chance.random() < 0.1 else Compression.NONE
        of = {"base_offset": self.end, "leader_epoch": epoch, "producer_id": writer, "transactional": writer >= 0}
        if writer >= 0:
            of |= {"producer_epoch": 0, "base_sequence": 0}
        self._append(build_batch(made, compression=codec, **of))  # type: ignore[arg-type]

    def _append(self, batch: bytearray) -> None:
        self.starts.append(len(self.bytes))
        self.bytes += batch
        self.end = read_header(batch).next_offset

    def answers(self, chance: random.Random) -> list[bytes]:
        """All of it, cut between batches into a few answers."""
        cuts = [0, *sorted(chance.sample(self.starts[1:], 3)), len(self.bytes)]
        return [bytes(self.bytes[start:stop]) for start, stop in pairwise(cuts)]


def state_with(log: Log, answers: list[bytes], start: int = 0) -> PartitionState:
    state = PartitionState(TopicPartition("t", 0))
    state.start_at(start)
    for data in answers:
        answer = SimpleNamespace(
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=0,
            records=data,
            aborted_transactions=[one for one in log.aborted if one.marker_at >= read_header(data).base_offset],
        )
        state.arrive(answer, IsolationLevel.READ_COMMITTED, check_crcs=True)
    return state


@pytest.mark.parametrize("seed", range(12))
def test_a_read_committed_reader_gets_what_was_committed_in_bites_of_any_size(seed: int) -> None:
    """Row I2: nothing aborted, no marker; position, leader epoch and lag count as if batch after batch was unpacked."""
    log, chance = Log(seed), random.Random(seed)
    start = chance.choice([0, chance.randrange(log.end)])
    first = read_header(log.bytes, [at for at in log.starts if read_header(log.bytes, at).base_offset <= start][-1])
    data = [bytes(log.bytes)] if start else log.answers(chance)
    state = state_with(log, data, start)
    assert first.base_offset <= start
    expected = [(record, epoch) for record, epoch in log.visible if record.offset >= start]
    given: list[Record] = []
    while state.chunks:
        limit = chance.choice([1, 2, 7, 50, 500])
        one = state.take_one() if chance.random() < 0.2 else None
        taken = [one] if one is not None else state.take(limit)
        given += taken
        if state.chunks and taken:
            record, epoch = expected[len(given) - 1]
            assert state.leader_epoch == epoch or state.position != record.offset + 1
            assert record == taken[-1]
    assert given == [record for record, _ in expected]
    assert (state.left, state.position, state.buffered_bytes) == (0, log.end, 0)


@pytest.mark.parametrize("seed", range(6))
def test_what_stands_before_damage_is_given_first(seed: int) -> None:
    log, chance = Log(seed), random.Random(seed)
    hurt = chance.choice(log.starts[20:])
    header = read_header(log.bytes, hurt)
    log.bytes[hurt + header.size_bytes - 1] ^= 255
    state = state_with(log, [bytes(log.bytes)])
    given: list[Record] = []
    while taken := state.take(30) if state.at_hand() or state.chunks[0].batches else []:
        given += taken
    with pytest.raises(CorruptBatch, match=f"offset {header.base_offset}"):
        state.take(30)
    assert given == [record for record, _ in log.visible if record.offset < header.base_offset]
