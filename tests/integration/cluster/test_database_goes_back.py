"""The database goes back in time, or is copied: what is acknowledged afterwards stays as it was acknowledged."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.database.schema import migrations, upgrade
from fencepost.broker.cluster.engine import Placement
from fencepost.broker.cluster.growth.loops import Growth
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import Objects, open_objects
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.ownership import spread
from fencepost.broker.cluster.reading.row_reading import foreign_rows
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin
from tests.kit.broker_process import BrokerFailed
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.growing import compact, growth_of, merge, opened
from tests.kit.postgres_server import PostgresServer, find_binaries, postgres_or_skip
from tests.kit.postgres_standby import PostgresStandby
from tests.kit.postgres_world import PostgresWorld
from tests.kit.shared_store import Stores
from tests.kit.store_commands import dump, empty_database, restore, run
from tests.kit.waiting import until
from tests.unit.log.kit import NOW_MS, batch

pytestmark = pytest.mark.timeout(300)
SECONDS = 60
PARTITIONS = 10
SETTINGS = {"cluster.active.brokers": "all", "cluster.linger.ms": "0"}


def value_of(name: str, number: int) -> bytes:
    """Too large for a row in the database."""
    return f"{name} {number} ".encode().ljust(20_000)


class Sender:
    """A client that notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self.acknowledged: dict[tuple[int, int], bytes] = {}

    def send(self, partition: int, name: str, count: int) -> None:
        """One object for each record."""
        for number in range(count):
            self._producer.produce("orders", value_of(name, number), partition=partition, on_delivery=self._note)
            assert self._producer.flush(SECONDS) == 0

    def _note(self, error: KafkaError | None, record: object) -> None:
        assert error is None, error
        self.acknowledged[record.partition(), record.offset()] = record.value()  # type: ignore[attr-defined]


def everything(bootstrap: str, partitions: Sequence[int]) -> dict[tuple[int, int], bytes]:
    """All records of these partitions by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("orders", number, 0) for number in partitions])
    found: dict[tuple[int, int], bytes] = {}
    unread = set(partitions)

    def read() -> bool:
        for record in consumer.consume(1000, 0.2):
            error = record.error()
            if error is None:
                found[record.partition(), record.offset()] = record.value()  # type: ignore[index, assignment]
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(record.partition())  # type: ignore[arg-type]
        return not unread

    until(read, seconds=SECONDS)
    consumer.close()
    return found


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values():
        future.result(SECONDS)


def leaders(bootstrap: str) -> dict[int, int]:
    """The leader of each partition."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics("orders", timeout=SECONDS).topics
    return {number: found.leader for number, found in topics["orders"].partitions.items()}


@contextmanager
def with_standby(work_dir: Path) -> Iterator[tuple[ClusterProcesses, PostgresServer, PostgresStandby]]:
    """Brokers whose database has an asynchronous standby."""
    binaries = find_binaries()
    assert binaries is not None
    with (
        postgres_or_skip() as primary,
        ClusterProcesses(work_dir, primary) as cluster,
        PostgresStandby(binaries, primary) as standby,
    ):
        standby.wait_streaming()
        cluster.store = cluster.store.replace(str(primary.directory), f"{primary.directory},{standby.directory}")
        yield cluster, primary, standby


def test_records_acknowledged_after_a_failover_are_not_replaced_by_those_of_another_partition(tmp_path: Path) -> None:
    """A broker has claimed ids from the old primary. The new one lacks these claims, and another broker claims there.

    Both brokers put objects then. No object may take the place of another one.
    """
    with with_standby(tmp_path) as (cluster, primary, standby):
        for number in (1, 2):
            cluster.start(number, **SETTINGS)
        create(cluster.bootstrap)
        until(lambda: tuple(slot.broker for slot in cluster.engine.slots()) == spread(frozenset({1, 2})))
        found = until(lambda: leaders(cluster.bootstrap), lambda found: set(found.values()) == {1, 2})
        chosen = {leader: number for number, leader in found.items()}
        standby.wait_caught_up()
        standby.kill()
        Sender(cluster.bootstrap).send(chosen[1], "lost", 20)  # from here on broker 1 has ids that the standby lacks
        primary.kill()
        standby.start()
        standby.promote()
        until(lambda: "the database lost commits" in cluster.brokers[1].log(), seconds=SECONDS)
        until(lambda: set(leaders(cluster.bootstrap).values()) == {1, 2}, seconds=SECONDS)
        sender = Sender(cluster.bootstrap)
        sender.send(chosen[2], "of broker 2", 60)
        sender.send(chosen[1], "of broker 1", 20)
        assert len(sender.acknowledged) == 80
        for number in (1, 2):  # without caches
            assert cluster.brokers[number].stop() == 0
        cluster.start(1, **SETTINGS)
        records = everything(cluster.bootstrap.split(",")[0], list(chosen.values()))
        assert {place: records.get(place) for place in sender.acknowledged} == sender.acknowledged
        verified = run("verify", "--store", cluster.store, "--objects", f"file://{cluster.objects}")
        assert verified.returncode == 0, verified.stdout
        primary.start()  # it lives on, and a broker reaches no other server
        old_store = cluster.store.replace(f"{primary.directory},{standby.directory}", str(primary.directory))
        lost = ClusterBrokerProcess(tmp_path / "lost", 3, old_store, cluster.objects, SETTINGS)
        with pytest.raises(BrokerFailed, match=r"has timeline 1, but .* a standby was promoted"):
            lost.start()
        assert set(leaders(cluster.brokers[1].address).values()) == {1}


class RealIds:
    """A world whose engines claim ids as brokers do."""

    def __init__(self, world: PostgresWorld) -> None:
        self.engines: list[PostgresEngine] = []
        self.age = world.age
        self._world = world

    def engine(self) -> PostgresEngine:
        self.engines.append(PostgresEngine(self._world.conninfo, self._world.schema))
        return self.engines[-1]

    def row_objects(self, objects: Objects) -> RowObjects:
        return RowObjects(objects, ClaimPool(self.engine()))


@pytest.mark.parametrize("work", [merge, compact])
def test_a_merge_or_compaction_with_a_claim_that_the_database_lost_replaces_no_object(
    work: Callable[[Growth], None], world: PostgresWorld, tmp_path: Path
) -> None:
    """A place that was not reported: these jobs put objects, too, under claims of the time that the database lost."""
    real, objects = RealIds(world), open_objects(f"file://{tmp_path}", "cluster")
    try:
        broker = Stores(real).broker(1, inline_bytes=0)
        broker.row_bytes = broker.rounds.row_bytes = real.row_objects(objects)  # type: ignore[assignment]
        log = opened(broker, config=LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0))
        for number in range(12):
            log.append(batch(3, value=b"%d" % number), AppendOrigin.COORDINATOR, NOW_MS)
            broker.round()
        world.execute("DELETE FROM {}.object WHERE state = 0")  # the database goes back: these claims were later
        sequence = f"pg_get_serial_sequence('{world.schema}.object', 'id')"
        world.execute(f"SELECT setval({sequence}, (SELECT max(id) FROM {{}}.object))")
        other = real.row_objects(objects)
        places = [Placement(other.put([b"of another broker %d" % number]), 0, 19) for number in range(5)]
        held = [objects.get(*place) for place in places]
        growth = growth_of(broker, log)
        for _ in range(2):  # the first attempt finds out that its claims are lost
            work(growth)
        assert [objects.get(*place) for place in places] == held
        assert growth.counters.merges >= 1
        assert len(broker.engine.rows(log.segments.log_id, 0, 99)) < 12
    finally:
        for engine in real.engines:
            engine.close()


def test_a_restored_dump_cannot_use_the_objects_of_its_original_until_it_takes_them_over(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Both databases have the same cluster id, so they find the same objects. Two would replace and delete them."""
    with ClusterProcesses(tmp_path, server) as cluster:
        original = cluster.start(1, **SETTINGS)
        create(cluster.bootstrap)
        before = Sender(cluster.bootstrap)
        before.send(0, "before the dump", 5)
        dump(cluster.store, tmp_path / "dump")
        restored = empty_database(server)
        restore(tmp_path / "dump", restored)
        stores = ["--store", restored, "--objects", f"file://{cluster.objects}"]
        copy = ClusterBrokerProcess(tmp_path / "copy", 2, restored, cluster.objects, SETTINGS)
        after = Sender(cluster.bootstrap)
        after.send(0, "after the dump", 120)
        with suppress(BrokerFailed), copy:
            until(lambda: set(leaders(copy.address).values()) == {2}, seconds=SECONDS)
            Sender(copy.address).send(0, "of the copy", 120)
        assert original.stop() == 0
        original = cluster.start(1, **SETTINGS)  # without a cache
        records = everything(cluster.bootstrap, [0])
        assert records == before.acknowledged | after.acknowledged
        assert "belong to another database" in copy.log()
        assert "run `fencepost store take-over`" in copy.log()
        assert "Traceback" not in copy.log()
        checked = run("store", "check", *stores)
        assert (checked.returncode, "wrong: the objects at" in checked.stdout) == (1, True), checked.stdout
        taken = run("store", "take-over", "--wait", "0", *stores)
        assert (taken.returncode, "belong to this database now" in taken.stdout) == (0, True), taken.stderr
        until(lambda: not original.running, seconds=SECONDS)
        assert "belong to another database" in original.log()
        again = run("store", "take-over", *stores)
        assert (again.returncode, "already" in again.stdout) == (0, True), again.stderr
        with copy.start():
            until(lambda: set(leaders(copy.address).values()) == {2}, seconds=SECONDS)
            assert everything(copy.address, [0]) == before.acknowledged
            Sender(copy.address).send(0, "of the copy", 5)
        verified = run("verify", *stores)
        assert verified.returncode == 0, verified.stdout


def test_rows_and_objects_of_an_older_schema_stay_as_they_are(server: PostgresServer, tmp_path: Path) -> None:
    """Their objects keep their names, their rows have no checksum, and are read and verified as before."""
    address, directory = empty_database(server), tmp_path / "objects"
    directory.mkdir()
    objects = open_objects(f"file://{directory}", "cluster")
    content = [bytes(batch(1, value=b"%d" % number)) for number in range(3)]
    with psycopg.connect(address, autocommit=True) as connection:
        upgrade(connection, "fencepost", migrations()[:3])
        connection.execute("SET search_path = fencepost")
        connection.execute("UPDATE cluster SET id = 'cluster'")
        for number, data in enumerate(content, start=1):
            connection.execute("INSERT INTO object (state, live) VALUES (1, 1)")
            objects.put(number, [data])
            connection.execute(
                "INSERT INTO entry VALUES (7, %s, 1, 0, 0, %s, 0, %s, %s, 1, '{}', %s, '', NULL)",
                [number - 1, number, len(data), NOW_MS, data[:61]],
            )
        connection.execute("INSERT INTO head VALUES (7, 'orders-0', %s, 3, 0, %s)", [bytes(16), sum(map(len, content))])
    stores = ["--store", address, "--objects", f"file://{directory}"]
    assert run("store", "upgrade", "--store", address).returncode == 0
    engine = PostgresEngine(address)
    try:
        assert [row.checksum for row in engine.rows(7, 0, 3)] == [None] * 3
        rows = RowObjects(objects, ClaimPool(engine))
        found = foreign_rows(engine, rows, 7, 0, 3)
        assert [bytes(one.data) for one in found] == content
        new = rows.put([b"x"])
        assert new not in (1, 2, 3)
        assert engine.known([1, 2, 3, new]) == {1, 2, 3, new}
        verified = run("verify", *stores)
        assert (verified.returncode, "0 damaged" in verified.stdout) == (0, True), verified.stdout
    finally:
        engine.close()
