"""Quotas on a real broker: throttle times in responses, muted connections, and no other client that waits (KIP-219)."""

import itertools
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import fencepost
from fencepost.client.admin.security_types import DEFAULT, QuotaEntity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest, Plan, PlannedTopic
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.api48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from fencepost.protocol.messages.api49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import FETCH, PRODUCE, ConnectionEnded, Wire, batch_of, fetch_request, produce_request, values_in

METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE, ALTER = 3, 18, 19, 20, 37, 48, 49
SECONDS = 60
_numbers = itertools.count()
BATCH = batch_of(b"x" * 2000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker on files with its metrics. A rate covers one second and more, not Kafka's ten: throttles are short."""
    place = tmp_path_factory.mktemp("broker")
    windows = {"quota.window.num": "2", "controller.quota.window.num": "2"}
    with BrokerProcess(
        place, data_dir=place / "data", settings=windows, arguments=["--metrics", "127.0.0.1:0"]
    ) as shared:
        yield shared


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of the test's own topic, and of its client."""
    return f"{request.node.originalname}-{next(_numbers)}"


@pytest.fixture
def wire(broker: BrokerProcess, topic: str) -> Iterator[Wire]:
    """A connection of a client, which has a topic of its own."""
    with Wire(broker.connect(), client_id=topic) as wire:
        wire.create_topic(topic)
        yield wire


def alter(wire: Wire, parts: dict[str, str | None], version: int = 1, **quotas: float | None) -> Any:
    """Set the quotas of an entity, and return its answer; None removes one."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    return wire.call(ALTER, version, AlterClientQuotasRequest(entries=[entry], validate_only=False)).entries[0]


def limit(wire: Wire, client_id: str, **quotas: float | None) -> None:
    assert alter(wire, {"client-id": client_id}, **quotas).error_code == ErrorCode.NONE


def scrape(broker: BrokerProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{broker.facts['metrics']}/metrics", timeout=100) as response:
        lines = [line.rpartition(" ") for line in response.read().decode().splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in lines if name}


# The APIs


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_and_described(wire: Wire, topic: str, version: int) -> None:
    user = f"{topic}-{version}"
    alter(wire, {"user": user}, version, producer_byte_rate=1e9, request_percentage=99.5)
    alter(wire, {"user": user, "client-id": None}, version, consumer_byte_rate=1e9)

    def described(*components: ComponentData, strict: bool = False) -> list[tuple[dict[str, Any], dict[str, float]]]:
        response = wire.call(DESCRIBE, version, DescribeClientQuotasRequest(components=list(components), strict=strict))
        assert response.error_code == ErrorCode.NONE
        return [
            ({one.entity_type: one.entity_name for one in entry.entity}, {one.key: one.value for one in entry.values})
            for entry in response.entries
        ]

    exact = ComponentData(entity_type="user", match_type=0, match=user)
    own = {"user": user}, {"producer_byte_rate": 1e9, "request_percentage": 99.5}
    pair = {"user": user, "client-id": None}, {"consumer_byte_rate": 1e9}
    assert described(exact) == [own, pair]
    assert described(exact, strict=True) == [own]
    assert described(exact, ComponentData(entity_type="client-id", match_type=1, match=None)) == [pair]
    assert described(exact, ComponentData(entity_type="client-id", match_type=2, match=None)) == [pair]
    alter(wire, {"user": user}, version, producer_byte_rate=None, request_percentage=None)
    assert described(exact) == [pair]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, "x")], ErrorCode.INVALID_REQUEST),
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_filters_are_refused(
    wire: Wire, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    """ClientQuotasRequestTest.testDescribeClientQuotasInvalidFilterCombination and others."""
    parts = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = wire.call(DESCRIBE, 1, DescribeClientQuotasRequest(components=parts, strict=False))
    assert response.error_code == code
    assert response.error_message
    assert response.entries is None


@pytest.mark.long
def test_quotas_survive_a_restart(tmp_path: Any) -> None:
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as broker:
        with Wire(broker.connect()) as wire:
            assert alter(wire, {"ip": "10.0.0.1"}, connection_creation_rate=12.0).error_code == ErrorCode.NONE
            limit(wire, "slow", producer_byte_rate=10.0)
            wire.create_topic("t")
        broker.restart()
        with Wire(broker.connect(), client_id="slow") as wire:
            assert wire.call(PRODUCE, 9, produce_request("t", BATCH)).throttle_time_ms > 1000


# Throttling


def limit_to_share(wire: Wire, api_key: int, version: int, request: Any) -> None:
    """Allow five sevenths of this request per second, so that one request throttles its client for 0.4 s."""
    _, frame = wire.frame(api_key, version, request)
    limit(wire, wire.client_id, producer_byte_rate=float((len(frame) - 4) * 5 // 7))


def muted_seconds(wire: Wire) -> float:
    """How long the broker reads nothing from this client."""
    began = time.monotonic()
    wire.call(API_VERSIONS, 0, ApiVersionsRequest())
    return time.monotonic() - began


@pytest.mark.parametrize(("version", "acks"), [(9, -1), (9, 1), (3, -1), (13, -1)])
def test_a_producer_over_its_limit_is_answered_and_then_muted(wire: Wire, topic: str, version: int, acks: int) -> None:
    """KIP-219: the response comes at once; the next request is read after the throttle time."""
    request = produce_request(topic, BATCH, acks=acks)
    if version >= 13:
        request.topic_data[0].topic_id = topic_id(wire, topic)
    limit_to_share(wire, PRODUCE, version, request)
    response = wire.call(PRODUCE, version, request)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert response.throttle_time_ms == pytest.approx(400, abs=3)
    assert 0.2 < muted_seconds(wire) < 10, "the response has not waited for the throttle time"
    assert values_in(wire.fetch(topic)) == [b"x" * 2000], "the records are written"


def test_a_producer_without_responses_is_muted(wire: Wire, topic: str) -> None:
    """acks=0: there is no response that could carry a throttle time."""
    request = produce_request(topic, BATCH, acks=0)
    limit_to_share(wire, PRODUCE, 9, request)
    wire.send(PRODUCE, 9, request)
    assert 0.2 < muted_seconds(wire) < 10


@pytest.mark.long
def test_requests_that_were_sent_already_wait_too(broker: BrokerProcess, wire: Wire, topic: str) -> None:
    """A client that does not wait, and sends five requests at once, gets no more than its limit; others do not wait."""
    request = produce_request(topic, BATCH)
    limit_to_share(wire, PRODUCE, 9, request)
    began = time.monotonic()
    for _ in range(4):
        wire.send(PRODUCE, 9, request)
    with Wire(broker.connect(), client_id="another") as other:
        slowest = max(muted_seconds(other) for _ in range(20))
    throttles = [wire.receive(PRODUCE, 9)[1].throttle_time_ms for _ in range(4)]
    assert time.monotonic() - began >= sum(throttles[:3]) / 1000 * 0.95
    assert throttles[0] > 0
    assert slowest < 1
    assert len(values_in(wire.fetch(topic))) == 4


def test_a_fetch_over_its_limit_is_empty_and_does_not_count(broker: BrokerProcess, wire: Wire, topic: str) -> None:
    """KafkaApis.handleFetchRequest: an empty response with the throttle time; its bytes are taken back."""
    wire.produce(topic, BATCH)
    full = len(BATCH) + 100
    limit(wire, topic, consumer_byte_rate=float(full * 6 // 5))
    request = fetch_request(topic)
    first = wire.call(FETCH, 11, request)
    assert first.throttle_time_ms == 0
    assert values_in(first.responses[0].partitions[0]) == [b"x" * 2000]
    second = wire.call(FETCH, 11, request)
    assert (second.error_code, second.session_id, second.responses) == (ErrorCode.NONE, 0, [])
    assert 200 < second.throttle_time_ms < 1000
    assert 0.15 < muted_seconds(wire) < 10
    read = 'kafka_server_brokertopicmetrics_bytesout_total{topic="%s"}'
    assert scrape(broker)[read % topic] == len(BATCH), "only records that are sent count"
    while (later := wire.call(FETCH, 4, request)).throttle_time_ms:
        assert later.responses == []
    assert values_in(later.responses[0].partitions[0]) == [b"x" * 2000], "a limited client comes to its records"


def test_a_fetch_is_no_larger_than_what_its_limit_allows(wire: Wire, topic: str) -> None:
    """getMaxValueInQuotaWindow: a larger response would be throttled for certain, and never be sent."""
    for _ in range(8):
        wire.produce(topic, BATCH)
    limit(wire, topic, consumer_byte_rate=float(3.5 * len(BATCH) // 1))
    response = wire.call(FETCH, 11, fetch_request(topic))
    assert response.throttle_time_ms == 0
    assert len(values_in(response.responses[0].partitions[0])) == 3


@pytest.mark.long
@pytest.mark.parametrize(("version", "has_field"), [(8, True), (2, False)])
def test_the_time_of_requests_is_limited(wire: Wire, topic: str, version: int, has_field: bool) -> None:
    """request_percentage: any request counts, and a client is muted by versions without throttle_time_ms as well."""
    limit(wire, topic, request_percentage=0.001)
    response = wire.call(METADATA, version, MetadataRequest(topics=None))
    assert (getattr(response, "throttle_time_ms", 0) > 100) is has_field
    assert 0.1 < muted_seconds(wire) < 10, "one throttle lasts at most a window of a second"
    limit(wire, topic, request_percentage=None)


# Creations and deletions of partitions (KIP-599)


def create(wire: Wire, names: list[str], partitions: int, version: int) -> tuple[list[int], int]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = wire.call(CREATE_TOPICS, version, CreateTopicsRequest(topics=topics, timeout_ms=1000))
    return [one.error_code for one in response.topics], response.throttle_time_ms


def test_new_versions_are_refused_over_the_limit(wire: Wire, topic: str) -> None:
    """A burst of two windows is 10 tokens: two topics of 6 partitions take 12, so the third is refused."""
    limit(wire, topic, controller_mutation_rate=5.0)
    codes, throttle_ms = create(wire, [f"{topic}-{n}" for n in range(3)], 6, version=7)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, refused]
    assert 200 < throttle_ms <= 400, "two tokens are missing, five return in a second"
    assert 0.2 < muted_seconds(wire) < 10
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"{topic}-{n}") for n in range(2)], timeout_ms=1000)
    assert [one.error_code for one in wire.call(DELETE_TOPICS, 6, deletion).responses] == [ErrorCode.NONE, refused]
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"{topic}-1", count=16, assignments=None)], timeout_ms=1000
    )
    assert [one.error_code for one in wire.call(CREATE_PARTITIONS, 3, more).results] == [ErrorCode.NONE]
    assert wire.call(CREATE_PARTITIONS, 3, more).results[0].error_code == ErrorCode.INVALID_PARTITIONS, "it was done"


def test_old_versions_are_only_throttled(wire: Wire, topic: str) -> None:
    limit(wire, topic, controller_mutation_rate=10.0)
    codes, throttle_ms = create(wire, [f"{topic}-{n}" for n in range(4)], 6, version=5)
    assert codes == [ErrorCode.NONE] * 4
    assert 200 < throttle_ms <= 400
    assert 0.2 < muted_seconds(wire) < 10


def test_a_plan_counts_as_well(wire: Wire, topic: str) -> None:
    """A plan is all or nothing: the second topic is over the limit, so none is created."""
    limit(wire, topic, controller_mutation_rate=1.0)
    names = [f"{topic}-{n}" for n in range(2)]
    planned = [PlannedTopic(name=name, partitions=6) for name in names]
    request = CreateTopicsRequest(topics=[], plan=Plan(topics=planned), timeout_ms=1000)
    outcome = wire.call(CREATE_TOPICS, 7, request).plan
    assert [one.error_code for one in outcome.problems] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    known = {one.name for one in wire.call(METADATA, 8, MetadataRequest(topics=None)).topics}
    assert known.isdisjoint(names)


def test_connections_of_an_address_are_created_at_a_rate(broker: BrokerProcess, wire: Wire) -> None:
    """KIP-612: connections too many are closed, and the others are served."""
    assert alter(wire, {"ip": "127.0.0.1"}, connection_creation_rate=3.0).error_code == ErrorCode.NONE
    others = [Wire(broker.connect()) for _ in range(6)]
    served = [is_served(other) for other in others]  # while the quota lasts: the broker accepts them one by one
    assert alter(wire, {"ip": "127.0.0.1"}, connection_creation_rate=None).error_code == ErrorCode.NONE
    assert served == [True] * 3 + [False] * 3
    with Wire(broker.connect()) as later:
        assert is_served(later)


def is_served(wire: Wire) -> bool:
    with wire:
        try:
            wire.call(API_VERSIONS, 0, ApiVersionsRequest())
        except (ConnectionEnded, ConnectionError):
            return False
    return True


# What an administrator sees, and what our client does


def test_throttled_clients_are_in_the_metrics(broker: BrokerProcess, wire: Wire, topic: str) -> None:
    request = produce_request(topic, BATCH)
    limit_to_share(wire, PRODUCE, 9, request)
    wire.call(PRODUCE, 9, request)
    samples = scrape(broker)
    labels = f'{{client_id="{topic}",user=""}}'
    assert samples["kafka_server_produce_queue_size"] == 1
    assert samples[f"kafka_server_produce_throttle_time{labels}"] == pytest.approx(400, abs=3)
    assert samples[f"kafka_server_produce_byte_rate{labels}"] > 1000
    muted_seconds(wire)
    assert scrape(broker)["kafka_server_produce_queue_size"] == 0


@pytest.mark.long
async def test_our_client_waits_as_long_as_the_broker_asks(broker: BrokerProcess, topic: str) -> None:
    """Its requests do not time out meanwhile, and no record is lost or sent twice."""
    quota = QuotaEntity(client_id=topic)
    with trio.fail_after(SECONDS):
        async with fencepost.Client(broker.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(topic, partitions=1)
            await admin.alter_client_quotas({quota: {"producer_byte_rate": 50_000.0, "consumer_byte_rate": 100_000.0}})
        began = trio.current_time()
        async with fencepost.Client(broker.address, client_id=topic, request_timeout=1) as kafka:
            async with kafka.producer(batch_size=10_000) as producer, producer.batch() as batch:
                for number in range(20):
                    await batch.send(topic, b"%d" % number + bytes(9_000))
            produced = trio.current_time() - began
            async with kafka.consumer(topic) as consumer:
                values = [record.value async for batch in consumer.read_to_end() for record in batch]
    assert produced > 2.0, "180 KB at 50 KB/s"
    assert [int(value.partition(bytes(1))[0]) for value in values if value] == list(range(20))


async def test_the_default_of_a_type_is_set_by_our_client(broker: BrokerProcess) -> None:
    quota = {QuotaEntity(user="nobody", client_id=DEFAULT): {"request_percentage": 12.5}}
    async with fencepost.Client(broker.address) as kafka, kafka.admin() as admin:
        await admin.alter_client_quotas(quota)
        assert await admin.describe_client_quotas(QuotaEntity(user="nobody")) == quota


def topic_id(wire: Wire, topic: str) -> bytes:
    topics = wire.call(METADATA, 12, MetadataRequest(topics=None)).topics
    return next(one.topic_id for one in topics if one.name == topic)
