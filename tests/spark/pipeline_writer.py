"""A thread that writes transactions, and aborts some, while the broker is killed; it knows what became of each."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from tests.spark.conftest import new_producer
from tests.spark.output_check import value_of

PARTITIONS = 3
_ABORTED_SHARE = 0.25
_ROWS_MAX = 60
_PAUSE_SECONDS = 1.5
_END_SECONDS = 120.0


class Writer(threading.Thread):
    """Writes until it is stopped. A transaction that is neither in `committed` nor in `aborted` may be either."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._address, self._topic = bootstrap, topic
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._producer = new_producer(bootstrap, log_level=0)
        self._number = 0
        self.rows = 0
        """In committed transactions."""
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.failed: BaseException | None = None

    def run(self) -> None:
        """The thread."""
        try:
            while not self._stopped.wait(_PAUSE_SECONDS * self._random.random() * 2):
                self._transact()
        except BaseException as error:
            self.failed = error
            raise

    def end(self) -> None:
        """Stop after the current transaction. Raises what ended the thread before."""
        self._stopped.set()
        self.join(_END_SECONDS)
        if self.failed is not None:
            raise self.failed
        assert not self.is_alive(), "the writer hangs"

    def wait_for(self, rows: int) -> None:
        """Return when `rows` rows are committed."""
        until = time.monotonic() + _END_SECONDS
        while self.rows < rows:
            assert self.is_alive(), f"the writer has ended: {self.failed}"
            assert time.monotonic() < until, f"the writer has committed {self.rows} rows only"
            time.sleep(0.05)

    def _transact(self) -> None:
        from confluent_kafka import KafkaException

        number, rows = self._number, self._random.randint(1, _ROWS_MAX)
        self._number += 1
        try:
            self._producer.begin_transaction()
            for row in range(rows):
                partition = self._random.randrange(PARTITIONS)
                value = value_of(number, row, rows)
                self._producer.produce(self._topic, value, key=b"%d" % (row % 17), partition=partition)
            if self._random.random() < _ABORTED_SHARE:
                self._producer.flush(_END_SECONDS)
                self._again(self._producer.abort_transaction)
                self.aborted.add(number)
                return
            self._again(self._producer.commit_transaction)
            self.committed.add(number)
            self.rows += rows
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._again(self._producer.abort_transaction)
                self.aborted.add(number)
            else:
                self._producer = new_producer(self._address, log_level=0)

    def _again(self, end: Any) -> None:
        """Call it until its outcome is known."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + _END_SECONDS
        while True:
            try:
                end(30)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise
