"""Loads a slice of the flights with confluent-kafka: the same work through a client that others wrote."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from examples.flights import loading
from examples.flights.dataset import FLIGHTS_TOPIC, LOADER_GROUP, SOURCE_TOPIC
from examples.flights.loading import LoadOptions, Step

WAIT_SECONDS = 60.0
MOVING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""The group moves to another broker: librdkafka looks for it, but does not ask again by itself."""
Rows = list[tuple[bytes, bytes]]


class Loader:
    """One producer process and its place in the input."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        common: dict[str, Any] = {"bootstrap.servers": options.bootstrap, "client.id": options.transactional_id}
        self._producer = Producer(
            common
            | {
                "transactional.id": options.transactional_id,
                "partitioner": "murmur2_random",  # as Java's and fencepost's client: a carrier has one partition
                "compression.type": "lz4",
                "linger.ms": 20,
                # While all brokers are down librdkafka forgets them, and an offset commit under way then waits for a
                # coordinator that it does not know any more (its issue 5511). Let it keep them.
                "metadata.recovery.strategy": "none",
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self._positions = Consumer(common | {"group.id": LOADER_GROUP, "isolation.level": "read_committed"})

    def load(self, rows: Rows) -> None:
        """Write everything from the committed position on."""
        self._producer.init_transactions(WAIT_SECONDS)
        position = self._committed_position()
        loading.tell_start(len(rows), position)
        while position < len(rows):
            try:
                for step in loading.plan(self._options, len(rows), position):
                    if step.written_in_vain_first:
                        self._write_in_vain(rows, step)
                    self._write(rows, step)
                    loading.tell_committed(step.end)
            except KafkaException as caught:
                error = caught.args[0]
                if not error.txn_requires_abort():
                    raise
                self._producer.abort_transaction(WAIT_SECONDS)
                loading.tell_aborted(self._options.transaction_rows, error.str())
            position = self._committed_position()
        self._positions.close()

    def _write(self, rows: Rows, step: Step) -> None:
        self._producer.begin_transaction()
        self._send(rows, step)
        place = TopicPartition(SOURCE_TOPIC, self._options.slice_number, step.end)
        group = self._positions.consumer_group_metadata()
        _again(lambda: self._producer.send_offsets_to_transaction([place], group, WAIT_SECONDS))
        _again(lambda: self._producer.commit_transaction(WAIT_SECONDS))

    def _write_in_vain(self, rows: Rows, step: Step) -> None:
        self._producer.begin_transaction()
        self._send(rows, step)
        self._producer.flush(WAIT_SECONDS)
        _again(lambda: self._producer.abort_transaction(WAIT_SECONDS))
        loading.tell_aborted(step.end - step.start, "on purpose")

    def _send(self, rows: Rows, step: Step) -> None:
        middle = (step.start + step.end) // 2
        for number in range(step.start, step.end):
            if step.stand_still and number == middle:
                self._producer.flush(WAIT_SECONDS)
                loading.wait_to_be_killed(number)
            key, value = rows[number]
            self._producer.produce(FLIGHTS_TOPIC, value, key)
            self._producer.poll(0)

    def _committed_position(self) -> int:
        place = TopicPartition(SOURCE_TOPIC, self._options.slice_number)
        while True:
            try:
                (found,) = self._positions.committed([place], timeout=WAIT_SECONDS)
            except KafkaException as caught:
                if caught.args[0].code() not in MOVING:
                    raise
                loading.note(f"again after {caught.args[0]}")
                time.sleep(0.1)
            else:
                return max(0, found.offset)


def _again(call: Any) -> None:
    """Repeat a call for as long as its error says that the very same call may succeed."""
    while True:
        try:
            call()
        except KafkaException as caught:
            if not caught.args[0].retriable():
                raise
            loading.note(f"again after {caught.args[0]}")
        else:
            return


def main() -> None:
    """Load one slice."""
    options = loading.parse_options()
    Loader(options).load(loading.read_slice(options))


if __name__ == "__main__":
    main()
