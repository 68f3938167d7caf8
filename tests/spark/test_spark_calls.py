"""Spark's own order of calls against a real broker, while the topic is written, grows, and is deleted or cut.

Each state of a checkpoint that Spark can be in is started again after each such change. Seen from outside: a new stream
with the default `startingOffsets` on a busy topic failed at its start, 8 of 8 times.
"""

from collections.abc import Callable
from itertools import count
from os import urandom
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from fencepost.spark_connector.source.reader import DataLossError
from tests.kit.leaders import Leaders
from tests.kit.waiting import until
from tests.spark.source_world import DEADLINE_SECONDS, Topic, World, numbered
from tests.spark.spark_calls import WITH_LIMITS, Query, UserFailed, numbers

confluent = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EARLIEST = {"startingOffsets": "earliest"}
PATIENT = {"failOnDataLoss": "false"}
SOON = {"kafka.default.api.timeout.ms": "5000"}


@pytest.fixture(params=["4.0", "4.1", "4.2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The Spark that calls."""
    if request.param < WITH_LIMITS:
        monkeypatch.setitem(__import__("sys").modules, "fencepost.spark_connector.source.limited_stream", None)
    return str(request.param)


@pytest.fixture
def world(bootstrap: str) -> World:
    return World(bootstrap)


def busy(topic: Topic) -> Callable[[str], None]:
    """A producer that writes a record before each call."""
    number = count()
    return lambda call: topic.plain(numbered(0, next(number)))


def delete(topic: Topic) -> None:
    topic.world.admin.delete_topics([topic.name])[topic.name].result(DEADLINE_SECONDS)
    until(lambda: topic.partitions() == [], what="the topic's end")


def cut(topic: Topic, offset: int) -> None:
    """Retention deletes the records below."""
    with Leaders(topic.world.bootstrap) as leaders:
        assert leaders.of(topic.name, 0).delete_records(topic.name, offset) == (0, offset)


def failed(query: Query, number: int) -> Query:
    """As far as the user's function fails in that micro-batch: it is planned, and not committed."""
    with pytest.raises(UserFailed):
        query.run(fails_in=number)
    return query


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": "latest"},
        {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_new_stream_on_a_topic_that_is_being_written(world: World, version: str, options: dict[str, str]) -> None:
    topic = world.topic(1)
    topic.plain(numbered(0, 1000))
    query = Query(topic, options, version, between=busy(topic))
    calls = count()

    def few(call: str, write: Callable[[str], None] = query.between) -> None:
        if next(calls) < 12:
            write(call)

    query.between = few
    query.run()
    offsets = [one.offset for batch in query.batches for one in batch]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "without a hole"
    assert offsets[-1] == 12
    query.between = lambda call: None
    topic.plain(numbered(0, 50))
    assert query.run().batches[-1][-1].offset == 13


@pytest.mark.parametrize("options", [{}, EARLIEST], ids=["latest", "earliest"])
def test_the_first_micro_batch_begins_where_it_did_when_it_is_run_again(
    world: World, version: str, options: dict[str, str]
) -> None:
    """A bug in the user's function; records come meanwhile. As with Spark's own source."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1, 2))
    query = failed(Query(topic, options, version), 0)
    topic.plain(numbered(0, 3, 4))
    assert numbers(query.run().values) == ([3, 4] if not options else [1, 2, 3, 4])
    assert len(query.batches) == 2
    assert numbers(query.run().values) == numbers(query.values), "nothing is new"


def test_a_busy_topic_whose_first_micro_batch_fails(world: World, version: str) -> None:
    """The start is that of the first process, whatever came before and after it."""
    topic = world.topic(1)
    query = failed(Query(topic, {}, version, between=busy(topic)), 0)
    query.between = lambda call: None
    topic.plain(numbered(0, 1000))
    offsets = [one.offset for batch in query.run().batches for one in batch]
    assert offsets[0] == query.starts[0][topic.name]["0"]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "without a hole"


def test_a_partition_that_is_added_while_the_first_micro_batch_fails(world: World, version: str) -> None:
    """Before, a DataLossError: the new partition was taken for one that was gone."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1))
    query = failed(Query(topic, {}, version), 0)
    module = pytest.importorskip("confluent_kafka.admin")
    world.admin.create_partitions([module.NewPartitions(topic.name, 2)])[topic.name].result(DEADLINE_SECONDS)
    until(lambda: topic.partitions() == [0, 1], what="the new partition")
    topic.plain(numbered(0, 2) + numbered(1, 3))
    assert numbers(query.run().values) == [2, 3]


def test_records_of_the_first_micro_batch_that_are_deleted_are_missed(world: World, version: str) -> None:
    """Before, they were skipped in silence."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1, 2, 3, 4))
    query = failed(Query(topic, EARLIEST, version), 0)
    cut(topic, 2)
    with pytest.raises(DataLossError, match=f"{topic.name}-0 begins at offset 2: records from 0 on were deleted"):
        query.run()
    query.options = EARLIEST | PATIENT
    assert numbers(query.run().values) == [3, 4]


@pytest.mark.parametrize("number", [0, 1])
def test_a_planned_micro_batch_of_a_topic_that_is_gone(world: World, version: str, number: int) -> None:
    """Before, 60 seconds and UNKNOWN_TOPIC_OR_PARTITION at each start, also with failOnDataLoss=false."""
    topic, other = world.topic(1), world.topic(1)
    both = {"subscribe": f"{topic.name},{other.name}", **EARLIEST, **SOON}
    topic.plain(numbered(0, 1))
    other.plain(numbered(0, 2))
    query = Query(topic, both, version)
    if number:
        query.run()
        topic.plain(numbered(0, 3))
        other.plain(numbered(0, 4))
    failed(query, number)
    delete(topic)
    with pytest.raises(DataLossError, match=f"{topic.name}-0 was planned .* but it does not exist any more"):
        query.run()
    query.options = both | PATIENT
    assert numbers(query.run().values) == ([1, 2, 4] if number else [2])
    other.plain(numbered(0, 5))
    assert numbers(query.run().values)[-1] == 5


@pytest.mark.parametrize("now", [False, True], ids=["trigger", "available now"])
@pytest.mark.parametrize("again", [3, 10, 30], ids=["shorter", "same length", "longer"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_planned_micro_batch_of_a_topic_that_was_created_again(
    world: World, version: str, number: int, again: int, now: bool
) -> None:
    """Before, REQUEST_TIMED_OUT after 60 seconds at each start; a longer topic was read as if it were the old one."""
    topic = world.topic(1)
    topic.plain(numbered(0, *range(5)))
    query = Query(topic, EARLIEST | SOON, version)
    if number:
        query.run()
        topic.plain(numbered(0, *range(5, 10)))
    failed(query, number)
    delete(topic)
    new = world.topic(1, name=topic.name)
    new.plain(numbered(0, *range(100, 100 + again)))
    with pytest.raises(DataLossError, match=f"topic {topic.name} was deleted and created again"):
        query.run(now=now)
    query.options = EARLIEST | SOON | PATIENT
    old = list(range(5)) if number else []
    query.run(now=now)
    assert numbers(query.run(now=now).values) == [*old, *range(100, 100 + again)]


def test_an_empty_first_micro_batch_and_then_a_topic_that_was_created_again(world: World, version: str) -> None:
    """The start of the old topic counted for the new one, whose first records were never read."""
    topic = world.topic(1)
    topic.plain(numbered(0, *range(5)))
    query = Query(topic, {}, version).run()
    assert query.values == []
    delete(topic)
    new = world.topic(1, name=topic.name)
    new.plain(numbered(0, *range(100, 110)))
    with pytest.raises(DataLossError, match=f"topic {topic.name} was deleted and created again"):
        query.run()
    query.options = PATIENT
    assert numbers(query.run().values) == list(range(100, 110))


@pytest.mark.parametrize("again", [0, 3, 30], ids=["deleted", "shorter", "longer"])
def test_a_topic_that_is_created_again_between_two_micro_batches_of_available_now(world: World, again: int) -> None:
    """The end of such a query is that of its start, which is of the old topic."""

    def query_of(options: dict[str, str]) -> Query:
        topic, other = world.topic(1), world.topic(1)
        topic.plain(numbered(0, *range(15)))
        other.plain(numbered(0, 1000))
        both = {"subscribe": f"{topic.name},{other.name}", "maxOffsetsPerTrigger": "5", **EARLIEST, **SOON, **options}
        calls = count()

        def change(call: str) -> None:
            if call == "latestOffset" and next(calls) == 1:
                delete(topic)
                if again:
                    world.topic(1, name=topic.name).plain(numbered(0, *range(100, 100 + again)))

        return Query(topic, both, between=change)

    with pytest.raises(DataLossError):
        query_of({}).run(now=True)
    found = numbers(query_of(PATIENT).run(now=True).values)
    assert [one for one in found if 100 <= one < 1000] == list(range(100, 100 + again)), "each of the new ones once"
    assert 1000 in found


@pytest.mark.parametrize("at", ["before", "between"])
def test_a_pattern_without_topics_whose_first_micro_batch_fails(world: World, version: str, at: str) -> None:
    """`between`: a topic appears after the start was asked for, and before the end."""
    name = f"later-{urandom(4).hex()}"
    pattern = {"subscribePattern": f"^{name}$", **SOON}
    topic = Topic(world, name)

    def appear(call: str) -> None:
        if call == "latestOffset" and at == "between" and topic.partitions() == []:
            world.topic(1, name=name).plain(numbered(0, 1, 2, 3))

    query = failed(Query(topic, pattern, version, between=appear), 0)
    if at == "before":
        world.topic(1, name=name).plain(numbered(0, 1, 2, 3))
    query.run()
    topic.plain(numbered(0, 4))
    read = numbers(query.run().values)
    assert read == ([4] if version == "4.0" and at == "between" else [1, 2, 3, 4]), "4.0 asks for the end first"


def test_a_subscription_that_leaves_a_topic_out_for_a_while(world: World, version: str) -> None:
    """Its loss is told before it is in the checkpoint; if it is accepted, the topic goes on where it was."""
    one, other = world.topic(1), world.topic(1)
    both = {"subscribe": f"{one.name},{other.name}", **EARLIEST}
    alone = {"subscribe": one.name, **EARLIEST}
    one.plain(numbered(0, 1))
    other.plain(numbered(0, 2))
    query = Query(one, both, version).run()
    if version >= WITH_LIMITS:
        query.options = alone
        with pytest.raises(DataLossError, match=f"the query does not subscribe to {other.name}-0 any more"):
            query.run()
        query.options = both
        assert numbers(query.run().values) == [1, 2]
        query.options = alone | PATIENT
        one.plain(numbered(0, 3))
        assert numbers(query.run().values) == [1, 2, 3]
        query.options = alone
        assert numbers(query.run().values) == [1, 2, 3], "once is enough"
        other.plain(numbered(0, 4))
        query.options = both
        assert numbers(query.run().values) == [1, 2, 3, 4], "it goes on where it was"


def test_a_batch_planned_over_a_topic_created_again_that_is_then_deleted(world: World, version: str) -> None:
    topic, other = world.topic(1), world.topic(1)
    both = {"subscribe": f"{topic.name},{other.name}", **EARLIEST, **SOON, **PATIENT}
    topic.plain(numbered(0, 1, 2))
    other.plain(numbered(0, 3))
    query = Query(topic, both, version).run()
    delete(topic)
    world.topic(1, name=topic.name).plain(numbered(0, 100))
    other.plain(numbered(0, 4))
    failed(query, len(query.planned))
    delete(topic)
    assert numbers(query.run().values) == [1, 2, 3, 4]


def test_a_planned_micro_batch_that_lies_beyond_the_end(world: World, version: str) -> None:
    """As of a topic that was created again, by a version or on a broker without topic ids."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1, 2))
    query = Query(topic, EARLIEST | SOON, version, planned=[f'{{"{topic.name}": {{"0": 7}}}}'])
    with pytest.raises(DataLossError, match="it ends at offset 2: was the topic created again"):
        query.run()
    query.options = EARLIEST | SOON | PATIENT
    assert numbers(query.run().values) == [1, 2]


@pytest.mark.parametrize("again", [3, 30], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_while_the_query_was_down(world: World, version: str, again: int) -> None:
    """A longer one was read from the old position on, without a word."""
    topic = world.topic(1)
    topic.plain(numbered(0, *range(5)))
    query = Query(topic, EARLIEST, version).run()
    delete(topic)
    new = world.topic(1, name=topic.name)
    new.plain(numbered(0, *range(100, 100 + again)))
    with pytest.raises(DataLossError, match=f"topic {topic.name} was deleted and created again after"):
        query.run()
    query.options = EARLIEST | PATIENT
    assert numbers(query.run().values) == [*range(5), *range(100, 100 + again)]


def test_a_checkpoint_with_offsets_alone_goes_on(world: World, version: str) -> None:
    """As an older version wrote it."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1, 2))
    query = Query(topic, EARLIEST, version, planned=[f'{{"{topic.name}": {{"0": 1}}}}'], committed={0})
    assert numbers(query.run().values) == [2]


@pytest.mark.parametrize(("options", "read"), [({}, [2, 3]), (EARLIEST, [1, 2, 3])], ids=["latest", "earliest"])
def test_a_first_micro_batch_that_an_older_version_planned_is_run(
    world: World, version: str, options: dict[str, str], read: list[int]
) -> None:
    """With `latest` its start is not known any more; it failed at each start, because that lay beyond the end."""
    topic = world.topic(1)
    topic.plain(numbered(0, 1, 2))
    query = Query(topic, options, version, planned=[f'{{"{topic.name}": {{"0": 1}}}}'])
    topic.plain(numbered(0, 3))
    assert numbers(query.run().values) == read


@pytest.mark.parametrize("options", [{}, EARLIEST, {"startingTimestamp": "1"}], ids=["latest", "earliest", "time"])
def test_a_restart_without_news_plans_nothing(world: World, version: str, options: dict[str, str]) -> None:
    topic = world.topic(1)
    topic.plain(numbered(0, 1))
    query = Query(topic, options, version).run()
    topic.plain(numbered(0, 2))
    query.run()
    topic.plain(numbered(0, 3))
    planned = len(query.run().planned)
    assert numbers(query.values)[-2:] == [2, 3]
    assert len(query.run().run().planned) == planned


def test_a_topic_of_aborted_transactions_only(world: World, version: str) -> None:
    topic = world.topic(1)
    topic.abort(numbered(0, 1, 2))
    topic.settled()
    query = failed(Query(topic, EARLIEST, version), 0)
    assert query.run().values == []
    topic.commit(numbered(0, 3))
    topic.settled()
    assert numbers(query.run().values) == [3]


@pytest.mark.parametrize("by_pattern", [False, True], ids=["names", "pattern"])
def test_each_call_may_find_the_topic_gone(world: World, version: str, by_pattern: bool) -> None:
    """Whatever call comes first after the deletion, the query says that data is lost, and goes on where it may."""

    def subscription(*topics: Topic) -> dict[str, str]:
        names = [topic.name for topic in topics]
        return {"subscribePattern": f"^({'|'.join(names)})$"} if by_pattern else {"subscribe": ",".join(names)}

    for at in range(1, 7):  # before the first call there is nothing to go on with
        topic, other = world.topic(1), world.topic(1)
        both: dict[str, Any] = {**subscription(topic, other), **EARLIEST, **SOON, **PATIENT}
        topic.plain(numbered(0, 1))
        other.plain(numbered(0, 2))
        calls = count()

        def gone(call: str, calls: Any = calls, at: int = at, topic: Topic = topic) -> None:
            if next(calls) == at:
                delete(topic)

        query = Query(topic, both, version, between=gone)
        try:
            query.run()
        except Exception:  # noqa: BLE001 - whatever it is: Spark starts the query again
            query.run()
        assert 2 in numbers(query.values), at
        other.plain(numbered(0, 3))
        query.between = lambda call: None
        assert numbers(query.run().values)[-1] == 3, at
