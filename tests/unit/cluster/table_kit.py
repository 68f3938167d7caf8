"""Random changes of a table, for tests of compaction."""

import random
from dataclasses import replace

from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from tests.unit.log.compaction_kit import COMPACT, keyed
from tests.unit.log.kit import NOW_MS

CONFIG = replace(COMPACT, producer_id_expiration_ms=1 << 60, min_cleanable_dirty_ratio=0.0)


class Tables:
    """Producers that write random changes of a table, in and out of transactions, to several logs at once."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def write(self, *logs: PartitionLog) -> None:
        """One batch of changes."""
        random_ = self._random
        pairs = [
            (f"key{random_.randint(0, 20)}", None if random_.random() < 0.2 else random_.randbytes(6).hex())
            for _ in range(random_.randint(1, 4))
        ]
        producer_id = random_.choice([-1, 0, 1, 5, 6])
        transactional = producer_id >= 5
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        for log in logs:
            epoch = 0 if producer_id >= 0 else -1
            data = keyed(pairs, producer_id, epoch, sequence, transactional=transactional)
            guard = log.verify(producer_id, 0, sequence, 1) if transactional else None
            ticket = log.append(data, AppendOrigin.CLIENT, NOW_MS, guard=guard)
            assert not ticket.error, ticket.message
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(pairs)
        if transactional:
            self.open.add(producer_id)

    def end(self, *logs: PartitionLog) -> None:
        """End all transactions."""
        for producer_id in sorted(self.open):
            commit = self._random.random() < 0.5
            for log in logs:
                log.append_marker(producer_id, 0, commit, 0, 1, NOW_MS)
        self.open.clear()
