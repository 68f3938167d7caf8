"""Transactions by hand, whose coordinator and partitions are on different cores."""

import time
from typing import Any

from fencepost.protocol.errors import ErrorCode
from tests.kit.cores_broker import Cores
from tests.kit.wire import batch_of, committed_values

Producer = tuple[int, int]


def begin(cores: Cores, name: str, timeout_ms: int = 60_000) -> Producer:
    return cores.retried(
        cores.coordinator(name), lambda wire: wire.init_producer_id(name, timeout_ms), lambda answer: 0
    )


def write(cores: Cores, topic: str, name: str, producer: Producer, sequence: int = 0, value: bytes = b"v") -> None:
    """To every partition, as a client of TV2, whose partitions are added by the write (KIP-890)."""
    for partition, core in enumerate(cores.leaders(topic)):
        batch = batch_of(
            value, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
        )
        answer = cores.produce(core, topic, batch, partition, version=12, transactional_id=name)
        assert answer.error_code == ErrorCode.NONE, answer


def end(cores: Cores, name: str, producer: Producer, *, commit: bool, version: int = 5) -> Any:
    answer = cores.retried(
        cores.coordinator(name),
        lambda wire: wire.end_txn(name, producer, commit=commit, version=version),
        lambda answer: int(answer.error_code),
    )
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


def committed(cores: Cores, topic: str) -> list[list[bytes | None]]:
    """What readers of committed records see, by partition, once nothing is open."""
    found = []
    for partition, core in enumerate(cores.leaders(topic)):
        deadline = time.monotonic() + 30
        while True:
            answer = cores.fetch(core, topic, partition, isolation=1)
            if answer.last_stable_offset == answer.high_watermark or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert answer.last_stable_offset == answer.high_watermark, (partition, answer)
        found.append(committed_values(answer))
    return found
