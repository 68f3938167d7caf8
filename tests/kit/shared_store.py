"""The stores of a cluster in this process, and brokers' logs over them, for tests."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from fencepost.broker.cluster.commit.rounds import RoundLimits, Rounds
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.shared_logs import SharedLogs
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import SLOTS, Engine, Placement, Row, Session
from fencepost.broker.cluster.reading.loading import load_logs
from fencepost.broker.cluster.reading.stamping import stamped
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment import Segment
from tests.kit.engine_worlds import SimWorld, World
from tests.kit.sim_tables import SimDatabase

LEASE_MS = 1000
TOPIC_ID = bytes(range(16))


class ObjectsInMemory:
    """`RowBytes` over a dict that brokers share; ids are claimed one by one."""

    def __init__(self, engine: Engine, objects: dict[int, bytes]) -> None:
        self.engine = engine
        self.objects = objects

    def put(self, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        (object_id,) = self.engine.claim(1)
        self.objects[object_id] = b"".join(parts)
        return object_id

    def read(self, place: Placement) -> bytes:
        return self.objects[place.object_id][place.position : place.position + place.size_bytes]

    def read_many(self, places: Sequence[Placement]) -> Iterator[bytes]:
        return map(self.read, places)

    def ids(self) -> Iterator[int]:
        return iter(list(self.objects))

    def delete(self, object_ids: Collection[int]) -> None:
        for object_id in object_ids:
            self.objects.pop(object_id, None)

    def check_owner(self) -> None:
        """They have one database."""

    def forget_claims(self) -> None:
        """Every claim is used at once."""


class ColdAtOnce:
    """`ColdRows` that are fetched inline, after one read missed them."""

    def __init__(self, engine: Engine, row_bytes: ObjectsInMemory) -> None:
        self._engine = engine
        self._row_bytes = row_bytes
        self._segments: dict[tuple[int, int, int, Placement], Segment] = {}
        self.waiting: list[tuple[SharedLog, Row, Missing]] = []

    def segment(self, log_id: int, row: Row) -> Segment | None:
        return self._segments.get((log_id, row.base, row.end, row.placement))

    def load(self, log: SharedLog, row: Row, ahead: Iterable[Row] = ()) -> Missing:
        self.waiting.append((log, row, Missing()))
        return self.waiting[-1][2]

    def arrive(self) -> None:
        """Fetch what reads missed."""
        waiting, self.waiting = self.waiting, []
        for log, row, missing in waiting:
            data = (
                self._row_bytes.read(row.placement)
                if row.placement.object_id
                else self._engine.rows(log.log_id, row.base, row.end, inline=True)[0].inline
            )
            assert data is not None
            segment = Segment(MemoryStore(), row.base)
            for batch, header in stamped(row, data):
                segment.next_offset = header.base_offset
                segment.append(batch, header, 4096)
            segment.next_offset = row.end
            self._segments[log.log_id, row.base, row.end, row.placement] = segment
            missing.arrived = True
            log.arrived()


class Stores:
    """The database and the objects, and the brokers over them."""

    def __init__(self, world: World | None = None) -> None:
        self.world = SimWorld() if world is None else world
        self.objects: dict[int, bytes] = {}

    @property
    def database(self) -> SimDatabase:
        """The tables, if they are in this process."""
        assert isinstance(self.world, SimWorld), "a real database"
        return self.world.database

    def broker(self, number: int, inline_bytes: int = 16 << 10, limits: RoundLimits | None = None) -> "StoreBroker":
        """A broker that takes all slots over: time passes until it may."""
        self.world.age(LEASE_MS + 1)
        engine = self.world.engine()
        session = engine.join(number, f"broker-{number}", LEASE_MS)
        engine.take_over(session.identity, range(SLOTS), LEASE_MS)
        return StoreBroker(self, engine, session, limits or RoundLimits(inline_bytes))

    def guest(self, number: int) -> Writer:
        """The commits of a broker that owns no slot."""
        engine = self.world.engine()
        return Writer(engine, engine.join(number, f"guest-{number}", LEASE_MS))


class StoreBroker:
    """One broker's part: its engine, rounds and logs."""

    def __init__(self, stores: Stores, engine: Engine, session: Session, limits: RoundLimits) -> None:
        self.engine = engine
        self.row_bytes = ObjectsInMemory(engine, stores.objects)
        self.fenced = 0
        self.writer = Writer(engine, session)
        self.rounds = Rounds(engine, self.writer, self.row_bytes, self._fence, limits)
        self.cold = ColdAtOnce(engine, self.row_bytes)
        self.epoch = engine.slots()[0].epoch
        self.scratch = MemoryStore()
        self.logs = SharedLogs(
            "database:", load_logs(engine, self.row_bytes), self.rounds, self.cold, self.scratch, lambda log: self.epoch
        )

    def _fence(self) -> None:
        self.fenced += 1

    def open(self, name: str, config: Any, *, topic_id: bytes = TOPIC_ID) -> Any:
        """As `LogStore.open`."""
        return self.logs.open(name, config, 0, 0, topic_id)

    def round(self) -> None:
        """Commit everything appended so far, and report the results."""
        for task in self.rounds.begin():
            task.sync()
        self.rounds.deliver()
