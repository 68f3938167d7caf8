"""The brokers of a cluster whose database fails over: how they reach it, and what they answer about the metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.reading.loading import read_indexes
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from tests.kit.cluster_processes import ClusterBrokerProcess
from tests.kit.failover_check import Kept
from tests.kit.kill_cluster import SETTINGS
from tests.kit.postgres_proxy import PostgresProxy
from tests.kit.wire import ConnectionEnded, Wire

NO_ANSWER = "no answer"
OFTEN = {
    "cluster.active.brokers": "all",
    "cluster.inline.max.bytes": "300",
    "cluster.linger.ms": "50",
    "cluster.merge.interval.ms": "1000",
    "cluster.gc.interval.ms": "1500",
    "cluster.sweep.interval.ms": "5000",
}
"""Many objects, and all that merges and deletes them, within the seconds of a play."""


class TopicView(NamedTuple):
    """A topic as one broker describes it."""

    topic_id: str
    leaders: tuple[tuple[int, int], ...]
    """Partition and broker."""


class PastBroker(ClusterBrokerProcess):
    """A broker with a proxy of its own before PostgreSQL."""

    def __init__(self, work_dir: Path, node_id: int, store: str, objects: str, environment: Mapping[str, str]) -> None:
        self.database = PostgresProxy(socket_of(store))
        through = f"host=127.0.0.1 port={self.database.port} sslmode=disable gssencmode=disable"
        settings = {**SETTINGS, **OFTEN}
        super().__init__(work_dir, node_id, f"{through} {store.partition(' ')[2]}", objects, settings)
        self.environment = dict(environment)


def metadata_of(brokers: Sequence[PastBroker]) -> dict[int, dict[str, TopicView]]:
    """What each broker answers."""
    found: dict[int, dict[str, TopicView]] = {}
    for broker in brokers:
        try:
            with Wire(broker.connect(5)) as wire:
                topics = wire.call(3, 10, MetadataRequest(topics=None)).topics
        except (OSError, ConnectionEnded) as error:
            found[broker.node_id] = {NO_ANSWER: TopicView(repr(error), ())}
            continue
        found[broker.node_id] = {
            str(topic.name): TopicView(
                str(topic.topic_id), tuple((one.partition_index, one.leader_id) for one in topic.partitions)
            )
            for topic in topics
        }
    return found


def socket_of(store: str) -> str:
    """The path of the server's socket."""
    return f"{store.partition('host=')[2].split()[0]}/.s.PGSQL.5432"


def kept_by(store: str) -> Kept:
    """The ends of all logs in a database that no broker has reached yet."""
    engine = PostgresEngine(store)
    heads = engine.heads()
    indexes = read_indexes(engine, heads)
    engine.close()
    places = {head.log: (name, int(number)) for head in heads for name, _, number in [head.name.rpartition("-")]}
    return Kept(
        {places[head.log]: head.next for head in heads},
        {places[log]: index.fold().stable for log, index in indexes.items()},
    )


def agree(views: Mapping[int, Mapping[str, TopicView]]) -> bool:
    first, *others = views.values()
    return all(one == first for one in others) and NO_ANSWER not in first


def disagreement(views: Mapping[int, Mapping[str, TopicView]]) -> str:
    names = sorted({name for view in views.values() for name in view})
    different = [name for name in names if len({str(view.get(name)) for view in views.values()}) > 1]
    one = different[0]
    return f"{len(different)} topics: {one}: { {broker: str(view.get(one))[:120] for broker, view in views.items()} }"
