"""The blocking facade: the same client, for programs without trio."""

import threading
from collections.abc import Iterator
from itertools import islice

import pytest
import trio

from fencepost import AbortableError, ConfigError, KafkaError, ReadError, TopicPartition
from fencepost.sync import Client, Consumer, TimedOutError, fail_after
from tests.kit.patterns import NEEDS_RE2


@pytest.fixture
def kafka(address: str) -> Iterator[Client]:
    """An open client, whose calls have a deadline."""
    with Client(address, timeout=100) as client:
        yield client


def filled(kafka: Client, topic: str, count: int, partitions: int = 1) -> None:
    """A topic with records that are numbered."""
    with kafka.admin() as admin, kafka.producer() as producer:
        admin.create_topics(topic, partitions=partitions)
        producer.send_many(topic, ((b"%d" % n, b"%d" % n) for n in range(count)))


def values_of(kafka: Client, topic: str, count: int) -> list[bytes]:
    """So many committed values of a topic, and no more within a moment."""
    got: list[bytes] = []
    with kafka.consumer(topic) as consumer:
        batches = consumer.batches()
        with fail_after(100):
            while len(got) < count:
                got += [record.value for record in next(batches)]
        with pytest.raises(TimedOutError), fail_after(0.2):
            next(batches)
    return got


def test_consume_transform_produce(kafka: Client, name: str) -> None:
    source, target = f"{name}-in", f"{name}-out"
    filled(kafka, source, 1200, partitions=2)
    filled(kafka, target, 0)
    turns = done = 0
    with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as producer:
        for records in consumer.batches(max_records=200):
            turns += 1
            try:
                with producer.transaction() as txn:
                    txn.send_many(target, ((r.key, r.value) for r in records))
                    if turns == 2:
                        raise AbortableError("again")
                    txn.send_offsets(consumer)
                done += len(records)
            except AbortableError:
                continue
            if done == 1200:
                break
        assert sum(offset or 0 for offset in consumer.committed().values()) == 1200
    assert sorted(values_of(kafka, target, 1200)) == sorted(b"%d" % n for n in range(1200))


def test_single_records_cross_in_batches_and_count_one_by_one(kafka: Client, name: str) -> None:
    """What is committed in the middle of an iteration is what the program has got."""
    here = TopicPartition(name, 0)
    filled(kafka, name, 900)
    with kafka.consumer(name, group=name) as consumer:
        calls = 0
        call = consumer._loop.call

        def counted(*args: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            return call(*args, **more)  # type: ignore[arg-type]

        consumer._loop.call = counted  # type: ignore[method-assign, assignment]
        records = iter(consumer)
        assert [next(records).offset for _ in range(700)] == list(range(700))
        assert calls < 20
        assert consumer.position(here) == 700
        assert consumer.lag()[here] == 200
        consumer.commit()
        assert consumer.committed() == {here: 700}
        assert next(records).offset == 700
        consumer.pause(here)
        with pytest.raises(TimedOutError), fail_after(0.2):
            next(records)
        consumer.resume(here)
        assert next(records).offset == 701
        batches = consumer.batches(max_records=10)
        assert next(batches)[0].offset == 702
        assert next(iter(consumer)).offset == 712
        assert next(batches)[0].offset == 713, "what came along with 712 was given back"
        consumer.seek(here, 5)
        assert next(iter(consumer)).offset == 5
    with kafka.consumer(name, group=name) as second:
        assert next(iter(second)).offset == 700


def test_auto_commit_counts_what_the_program_has_got(kafka: Client, name: str) -> None:
    filled(kafka, name, 50)
    with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
        for record in consumer:
            if record.offset == 20:
                break
    with kafka.consumer(name, group=name) as second:
        assert next(iter(second)).offset in (20, 21), "20 was in hand, so it may come again; 21 was never given"


def test_a_transaction_over_single_records(kafka: Client, name: str) -> None:
    """An abort in the middle of an iteration takes back what was got since the last commit, nothing else."""
    source, target = f"{name}-in", f"{name}-out"
    filled(kafka, source, 30)
    filled(kafka, target, 0)
    failed = False
    with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as producer:
        for record in consumer:
            try:
                with producer.transaction() as txn:
                    txn.send(target, record.value, key=record.key)
                    if record.offset == 17 and not failed:
                        failed = True
                        raise AbortableError("once")
                    txn.send_offsets(consumer)
            except AbortableError:
                continue
            if record.offset == 29:
                break
    assert values_of(kafka, target, 30) == [b"%d" % n for n in range(30)]


def test_an_exception_aborts(kafka: Client, name: str) -> None:
    filled(kafka, name, 0)
    with kafka.transactional_producer(name) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:  # noqa: PT012 - the block is the test
            txn.send(name, b"never")
            _ = 1 / 0
        with producer.transaction() as second:
            second.send(name, b"second")
    assert (txn.committed, second.committed, values_of(kafka, name, 1)) == (False, True, [b"second"])


def test_what_is_wrong_with_a_record_comes_out_at_the_end_at_the_latest(kafka: Client, name: str) -> None:
    filled(kafka, name, 0)
    with kafka.transactional_producer(name) as producer:
        with pytest.raises(KafkaError, match="there is no 7"), producer.transaction() as txn:  # noqa: PT012
            txn.send(name, b"x")
            txn.send(name, b"x", partition=7)
        with producer.transaction() as txn:
            txn.send(name, b"after")
    assert values_of(kafka, name, 1) == [b"after"]


def test_deliveries(kafka: Client, name: str) -> None:
    filled(kafka, name, 0)
    with kafka.producer(linger=0.01) as producer:
        assert producer.send(name, b"a", key=b"k").offset == 0
        deliveries = [producer.submit(name, b"%d" % n) for n in range(20)]
        assert [one.wait().offset for one in deliveries] == list(range(1, 21))
        assert deliveries[0].done
        assert deliveries[0].result().partition == 0


def test_errors_and_deadlines_reach_the_calling_thread(address: str, name: str) -> None:
    with Client(address) as kafka, kafka.admin() as admin, kafka.producer() as producer:
        admin.create_topics(name, partitions=1)
        assert producer.send(name, b"x", key=b"k").offset == 0
        with pytest.raises(KafkaError, match="there is no 7"):
            producer.send(name, b"x", partition=7)
        with kafka.consumer(name) as consumer:
            batches = consumer.batches()
            assert len(next(batches)) == 1
            with pytest.raises(trio.TooSlowError), fail_after(0.1):
                next(batches)
            with pytest.raises(TimeoutError), fail_after(100), fail_after(0.1):
                next(batches)
            producer.send(name, b"y")
            with fail_after(100):
                assert [record.value for record in next(batches)] == [b"y"]
        with pytest.raises(ConfigError, match="nearest is 'group'"):
            kafka.consumer(name, gruop="g")


def test_the_clients_timeout_bounds_calls_and_not_the_wait_for_records(address: str, name: str) -> None:
    with Client(address) as patient, patient.producer() as producer, Client(address, timeout=5) as kafka:
        filled(patient, name, 0)
        with kafka.admin() as admin, pytest.raises(TimedOutError):
            admin.list_offsets([TopicPartition(f"{name}-none", 0)])
        with kafka.consumer(name) as consumer:
            late = threading.Timer(7, producer.send, (name, b"late"))
            late.start()
            assert next(iter(consumer)).value == b"late"
            late.join()


def test_a_closed_client_says_so(address: str, name: str) -> None:
    with Client(address) as kafka:
        admin = kafka.admin()
        producer = kafka.producer()
    for call in (admin.list_topics, lambda: producer.send(name, b"x"), kafka.admin, lambda: kafka.consumer(name)):
        with pytest.raises(KafkaError, match="closed"):
            call()
    with pytest.raises(RuntimeError, match="only once"):
        kafka.__enter__()
    with pytest.raises(RuntimeError, match="not open"):
        Client(address).admin()


def test_closing_ends_a_call_of_another_thread(address: str, name: str) -> None:
    outcome: list[BaseException] = []
    with Client(address) as kafka:
        filled(kafka, name, 0)
        consumer = kafka.consumer(name).__enter__()
        waiting = threading.Event()

        def read() -> None:
            waiting.set()
            try:
                next(iter(consumer))
            except BaseException as error:  # noqa: BLE001 - looked at below
                outcome.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        waiting.wait(100)
    thread.join(100)
    assert not thread.is_alive()
    assert isinstance(outcome[0], KafkaError)
    assert "closed" in str(outcome[0])


def test_producers_are_for_all_threads_and_a_consumer_for_one(kafka: Client, name: str) -> None:
    filled(kafka, name, 0)
    with kafka.producer() as producer, producer.batch() as batch:

        def send(who: int) -> None:
            for n in range(300):
                batch.send(name, b"%d-%d" % (who, n))

        threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
    got = values_of(kafka, name, 1200)
    for who in range(4):
        mine = [value for value in got if value.startswith(b"%d-" % who)]
        assert mine == [b"%d-%d" % (who, n) for n in range(300)], "in the order of the thread that sent them"
    with kafka.consumer(name) as consumer:
        consumer.seek_to_end()
        assert consumer.position(TopicPartition(name, 0)) == 1200, "looked up now, not after the next record is there"
        entered, call = threading.Event(), consumer._loop.call

        def told(*args: object, **more: object) -> object:
            if threading.current_thread() is other:
                entered.set()
            return call(*args, **more)  # type: ignore[arg-type]

        consumer._loop.call = told  # type: ignore[method-assign, assignment]
        other = threading.Thread(target=lambda: next(iter(consumer)))
        other.start()
        assert entered.wait(100)
        with pytest.raises(RuntimeError, match="only one thread may use"):
            consumer.lag()
        with kafka.producer() as producer:
            producer.send(name, b"the end of its wait")
        other.join(100)
        assert consumer.lag() == {TopicPartition(name, 0): 0}


def test_each_thread_has_its_own_batch_in_hand(kafka: Client, name: str) -> None:
    """A transaction is tied to the consumer that its own thread reads from, as it is to that of its own task."""
    filled(kafka, name, 5)
    filled(kafka, f"{name}-out", 0)
    with kafka.consumer(name, group=name) as consumer, kafka.transactional_producer(name) as producer:
        assert next(iter(consumer)).offset == 0
        tied: list[int] = []

        def elsewhere() -> None:
            with producer.transaction() as txn:
                txn.send(f"{name}-out", b"x")
                tied.append(len(txn._inner._state.committers))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(100)
        with producer.transaction() as txn:
            txn.send(f"{name}-out", b"y")
            tied.append(len(txn._inner._state.committers))
    assert tied == [0, 1]


def test_callbacks_are_plain_functions_that_may_use_the_client(kafka: Client, name: str) -> None:
    filled(kafka, name, 40, partitions=2)
    told: list[tuple[str, int]] = []

    def on_assigned(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        told.append(("assigned", len(partitions)))
        for partition in partitions:
            consumer.seek(partition, 3)

    def on_revoked(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        told.append(("revoked", len(partitions)))
        consumer.commit()

    with kafka.consumer(name, group=name, on_assigned=on_assigned, on_revoked=on_revoked) as consumer:
        batches = consumer.batches(max_records=10)
        assert {record.offset for record in next(batches)} <= set(range(3, 20))
        next(batches)  # the first one is done with; this one is not
    assert told == [("assigned", 2), ("revoked", 2)]
    with kafka.admin() as admin:
        assert sum(one.offset - 3 for one in admin.list_group_offsets(name).values()) == 10


def test_what_a_callback_raises_ends_the_client(address: str, name: str) -> None:
    def on_assigned(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        raise LookupError("no place to put them")

    with pytest.raises(LookupError, match="no place"), Client(address, timeout=100) as kafka:  # noqa: PT012
        filled(kafka, name, 1)
        with kafka.consumer(name, group=name, on_assigned=on_assigned) as consumer:
            next(iter(consumer))


def test_an_arrow_table_of_a_topic(kafka: Client, name: str) -> None:
    pytest.importorskip("pyarrow")
    filled(kafka, name, 100)
    with kafka.consumer(name) as consumer:
        batch = next(iter(consumer.arrow(columns=["offset", "value"])))
        assert batch.column("offset").to_pylist()[:3] == [0, 1, 2]


def test_whole_transactions(kafka: Client, name: str) -> None:
    filled(kafka, name, 0, partitions=2)
    with kafka.transactional_producer(name) as producer:
        for turn in range(3):
            with producer.transaction() as txn:
                for n in range(4):
                    txn.send(name, b"%d-%d" % (turn, n), partition=n % 2)
    with kafka.consumer(name, group=name) as consumer:
        units = consumer.transactions()
        for turn in range(3):
            unit = next(units)
            assert sorted(record.value for record in unit) == [b"%d-%d" % (turn, n) for n in range(4)]
            assert unit.transactional
            consumer.commit()
        assert units.held_bytes == 0
        assert sum(offset or 0 for offset in consumer.committed().values()) > 12


def test_flush_is_also_about_what_has_not_crossed_yet(kafka: Client, name: str) -> None:
    filled(kafka, name, 0)
    here = TopicPartition(name, 0)
    with kafka.admin() as admin, kafka.producer() as producer, kafka.transactional_producer(name) as transactional:
        with producer.batch() as batch:
            batch.send(name, b"1")
            producer.flush()
            assert admin.list_offsets([here])[here].offset == 1
        with transactional.transaction() as txn:
            txn.send(name, b"2")
            transactional.flush()
            assert admin.list_offsets([here], isolation="read_uncommitted")[here].offset == 2


def test_what_can_not_be_deserialized_is_the_next_record_still(kafka: Client, name: str) -> None:
    here = TopicPartition(name, 0)
    filled(kafka, name, 0)
    with kafka.producer() as producer:
        producer.send_many(name, [(None, b"1"), (None, b"two"), (None, b"3")])
    with kafka.consumer(name, value_deserializer=int) as consumer:
        records = iter(consumer)
        assert next(records).value == 1
        for _ in range(2):
            with pytest.raises(ReadError) as failed:
                next(records)
            assert failed.value.position == consumer.position(here) == 1
        consumer.seek(here, failed.value.position + 1)
        assert next(records).value == 3


@NEEDS_RE2
def test_new_methods_are_there_by_themselves(kafka: Client, name: str) -> None:
    """None of them has a line in the blocking client."""
    filled(kafka, f"{name}-a", 10)
    filled(kafka, f"{name}-b", 10)
    with kafka.consumer(group=name, group_protocol="consumer") as consumer:
        consumer.subscribe(pattern=f"{name}-.*")
        assert len({(record.topic, record.offset) for record in islice(consumer, 20)}) == 20
        assert {partition.topic for partition in consumer.assignment} == {f"{name}-a", f"{name}-b"}
        assert consumer.subscription is not None
        first = TopicPartition(f"{name}-a", 0)
        assert (consumer.offsets_for_times({first: 0})[first].offset, consumer.beginning_offsets(first)) == (
            0,
            {first: 0},
        )
        assert consumer.metrics().records_consumed_total >= 20
        consumer.seek_to_timestamp(0)
        assert (next(iter(consumer)).offset, type(consumer.paused)) == (0, set)
