"""Limits, rates and throttle times equal Kafka's: the cases of its ClientQuotaManagerTest and its controller's test."""

from dataclasses import dataclass
from typing import cast

import pytest

from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.metering import Meter, MutationQuota, _stamp
from fencepost.broker.network.reply import Encoded
from fencepost.broker.ports import Broker
from fencepost.broker.security.quotas import (
    CLIENTS_MAX,
    Applicable,
    ClientQuotas,
    QuotaEntity,
    QuotaType,
    Usage,
    applicable,
    connection_creation_rate,
    updated_quotas,
)
from fencepost.broker.security.rates import Rate, TokenBucket, Windows, java_round
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api03_metadata import MetadataResponse
from fencepost.protocol.messages.api11_join_group import JoinGroupResponse
from fencepost.protocol.messages.api14_sync_group import SyncGroupResponse
from fencepost.protocol.messages.api78_share_fetch import PartitionData, ShareFetchableTopicResponse, ShareFetchResponse
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import ResponseValue
from tests.kit.clocks import START_MS, StillClock

WINDOWS = Windows()
DEFAULT = "<default>"


def entity(user: str | None = None, client_id: str | None = None) -> QuotaEntity:
    """An entity of the metadata image; DEFAULT is the default of its type."""
    parts = {"client-id": client_id, "user": user}
    return tuple((kind, None if name == DEFAULT else name) for kind, name in parts.items() if name is not None)


class Manager:
    """A quota manager as Kafka's test drives it: limits that change, values that are recorded, a clock."""

    def __init__(self, windows: Windows = WINDOWS) -> None:
        self.quotas = ClientQuotas(windows, windows)
        self.limits: dict[QuotaEntity, dict[str, float]] = {}
        self.now_ms = 1_000

    def set(self, limit: float | None, user: str | None = None, client_id: str | None = None) -> None:
        key = entity(user, client_id)
        if limit is None:
            del self.limits[key]
        else:
            self.limits[key] = {QuotaType.PRODUCE.value: limit}
        self.quotas.set_limits(dict(self.limits))

    def usage(self, user: str, client_id: str) -> Usage | None:
        usages = self.quotas.of(user, client_id, self.now_ms)
        return None if usages is None else usages.produce

    def record(self, value: float, user: str = "ANONYMOUS", client_id: str = "unknown") -> int:
        usage = self.usage(user, client_id)
        return 0 if usage is None else usage.record(value, self.now_ms)

    def check(self, user: str, client_id: str, limit: float | None, value: float, throttled: bool) -> None:
        usage = self.usage(user, client_id)
        assert (None if usage is None else usage.limit) == limit
        if usage is not None:
            assert usage.window_bytes == usage.limit * (WINDOWS.samples - 1) * WINDOWS.seconds
        assert (self.record(value * WINDOWS.samples, user, client_id) > 0) is throttled


def test_precedence_is_kafkas() -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence, step for step."""
    manager = Manager()
    manager.set(1000, DEFAULT)
    manager.set(2000, client_id=DEFAULT)
    manager.set(3000, DEFAULT, DEFAULT)
    manager.set(4000, "userA")
    manager.set(5000, "userA", "client1")
    manager.set(6000, "userB")
    manager.set(7000, "userB", "client1")
    manager.set(8000, "userB", DEFAULT)
    manager.set(10000, "userC")
    manager.set(9000, client_id="client1")

    manager.check("userA", "client1", 5000, 4500, False)
    manager.check("userA", "client2", 4000, 4500, True)
    manager.check("userA", "client3", 4000, 0, True)
    manager.check("userA", "client1", 5000, 0, False)

    manager.check("userB", "client1", 7000, 8000, True)
    manager.check("userB", "client2", 8000, 7000, False)
    manager.check("userB", "client3", 8000, 7000, False)

    manager.check("userD", "client1", 3000, 3500, True)
    manager.check("userD", "client2", 3000, 2500, False)
    manager.check("userE", "client1", 3000, 2500, False)

    manager.set(None, DEFAULT, DEFAULT)
    manager.check("userD", "client1", 1000, 0, False)
    manager.check("userE", "client4", 1000, 1500, True)
    manager.check("userF", "client4", 1000, 800, False)
    manager.check("userF", "client5", 1000, 800, True)

    manager.set(None, DEFAULT)
    manager.check("userF", "client4", 2000, 0, False)
    manager.check("userF", "client5", 2000, 0, False)
    manager.check("userF", "client5", 2000, 2500, True)
    manager.check("userG", "client5", 2000, 0, True)

    manager.set(8000, "userA")
    manager.set(10000, "userA", "client1")
    manager.check("userA", "client2", 8000, 0, False)
    manager.check("userA", "client2", 8000, 4500, True)
    manager.check("userA", "client1", 10000, 0, False)
    manager.check("userA", "client1", 10000, 6000, True)
    manager.set(None, "userA", "client1")
    manager.check("userA", "client6", 8000, 0, True)
    manager.set(11000, "userA", "client6")
    manager.check("userA", "client6", 11000, 8500, False)
    manager.set(12000, "userA", DEFAULT)
    manager.set(None, "userA", "client6")
    manager.check("userA", "client6", 12000, 4000, True)


def test_a_spike_is_throttled_as_by_kafka() -> None:
    """ClientQuotaManagerTest.testQuotaViolation: 6300 bytes in 10.5 s are 600 per second, 2100 ms over 500."""
    manager = Manager()
    manager.set(500, client_id=DEFAULT)
    for _ in range(10):
        assert manager.record(400) == 0
        manager.now_ms += 1000
    manager.now_ms += 500
    throttle_ms = manager.record(2300)
    assert throttle_ms == 2100
    manager.now_ms += throttle_ms
    for _ in range(10):
        manager.record(400)
        manager.now_ms += 1000
    assert manager.record(0) == 0, "the spike has left the windows"


def test_a_removed_default_limits_nothing() -> None:
    """ClientQuotaManagerTest.testSetAndRemoveDefaultUserQuota."""
    manager = Manager()
    manager.check("userA", "client1", None, 1000, False)
    manager.set(10, DEFAULT)
    manager.check("userA", "client1", 10, 1000, True)
    manager.set(None, DEFAULT)
    manager.check("userA", "client1", None, 1000, False)


def test_the_most_that_one_fetch_may_return() -> None:
    """ClientQuotaManagerTest.testGetMaxValueInQuotaWindowWithNonDefaultQuotaWindow."""
    manager = Manager(Windows(4))
    manager.set(10, DEFAULT)
    usage = manager.usage("userA", "client1")
    assert usage is not None
    assert usage.window_bytes == 30


def test_a_client_without_an_id_has_only_the_limits_of_its_user() -> None:
    """Kafka treats a null client id as an empty one; pairs and client ids do not match it."""
    limits = {entity(DEFAULT, DEFAULT): 1.0, entity(client_id=DEFAULT): 2.0}
    assert applicable(limits, "alice", "") is None
    limits[entity(DEFAULT)] = 3.0
    assert applicable(limits, "alice", "") == Applicable("alice", "", 3)
    limits[entity("alice")] = 4.0
    assert applicable(limits, "alice", "") == Applicable("alice", "", 4)
    assert applicable(limits, "alice", "x") == Applicable("alice", "", 4), "a user comes before the default pair"


def test_a_fetch_that_is_taken_back_does_not_count() -> None:
    """ClientQuotaManager.unrecordQuotaSensor: the rate is as before."""
    usage = Usage(Applicable("u", "", 100.0), WINDOWS)
    assert usage.record(900, 0) == 0
    assert usage.record(900, 500) > 0
    usage.unrecord(900, 500)
    assert usage.rate.total(500) == 900


@dataclass
class Node:
    """What a meter uses of a broker."""

    clock: StillClock


def test_a_share_fetch_counts_as_a_fetch_and_its_records_are_sent_all_the_same() -> None:
    """`KafkaApis.processShareFetchResponse` uses the quota of fetches. It drops the records, which stay acquired."""
    api = API_BY_KEY[ApiKey.SHARE_FETCH]
    route = Route(api, 2, lambda *_: None, False, api.request.decoder(2), api.response.encoder(2), b"", None)
    quotas = ClientQuotas(WINDOWS, WINDOWS)
    quotas.set_limits({entity(client_id="c"): {QuotaType.FETCH.value: 10.0}})
    usages = quotas.of("u", "c", START_MS)
    assert usages is not None
    records = PartitionData(partition_index=0, records=b"r" * 1000)
    response = ShareFetchResponse(responses=[ShareFetchableTopicResponse(topic_id=bytes(16), partitions=[records])])
    reply, throttle_ms = Meter(cast(Broker, Node(StillClock())), quotas, usages, route, 100).finish(response)
    assert isinstance(reply, Encoded)
    sent = api.response.decode(b"".join(reply.parts), 2)
    assert throttle_ms == sent.throttle_time_ms > 0
    assert bytes(sent.responses[0].partitions[0].records) == b"r" * 1000
    assert usages.fetch is not None
    assert usages.fetch.rate.total(START_MS) == sum(map(len, reply.parts)) + 4


def test_the_time_of_requests_throttles_for_at_most_a_window() -> None:
    """ClientRequestQuotaManagerTest / QuotaUtils.boundedThrottleTime: 100 s of handler time, and 1 s of throttle."""
    usage = Usage(Applicable("u", "", 1.0), WINDOWS)
    assert usage.record_percentage(0.1, 0) == 0, "10 % in one of ten seconds are 1 %"
    assert usage.record_percentage(0.01, 0) == java_round((1.1 - 1) / 1 * 10_000)
    assert usage.record_percentage(100, 0) == 1000


def test_a_rate_covers_at_least_all_windows_but_one() -> None:
    """Rate.windowSize: a first value counts over ten seconds, not over the ms since it was recorded."""
    rate = Rate(WINDOWS)
    rate.record(1000, 5_000)
    assert rate.elapsed_ms(5_000) == 10_000
    assert rate.per_second(5_000) == 100
    assert rate.per_second(15_500) == pytest.approx(1000 / 10.5)
    assert rate.per_second(16_000) == 0, "the sample is older than eleven seconds"
    assert rate.is_unused(16_000)


def test_tokens_return_at_the_rate_up_to_a_burst() -> None:
    """ControllerMutationQuotaManagerTest.testControllerMutationQuotaViolation, with ten windows of a second."""
    bucket = TokenBucket(Windows(10, 1))
    now_ms = 0
    for _ in range(10):
        assert bucket.throttle_ms(10, now_ms) == 0
        bucket.take(10, 10, now_ms)
        now_ms += 1000
    assert bucket.tokens(10, now_ms) == 100
    bucket.take(110, 10, now_ms)
    assert bucket.throttle_ms(10, now_ms) == 1000
    assert bucket.throttle_ms(10, now_ms + 1000) == 0


@pytest.mark.parametrize(
    ("strict", "accepted", "throttle_ms"), [(True, [True, True, False], 8000), (False, [True] * 3, 17_000)]
)
def test_a_strict_quota_refuses_where_a_permissive_one_throttles(
    strict: bool, accepted: list[bool], throttle_ms: int
) -> None:
    """StrictControllerMutationQuotaTest and PermissiveControllerMutationQuotaTest."""
    now_ms = 0
    quota = MutationQuota(Usage(Applicable("u", "", 10.0), Windows(10, 1)), strict, lambda: now_ms)
    assert [quota(90) for _ in range(3)] == accepted
    assert quota.throttle_ms(0) == throttle_ms
    assert quota.throttle_ms(5000) == throttle_ms - 5000, "the throttle time is adjusted with time"


@pytest.mark.parametrize("response", [MetadataResponse, JoinGroupResponse, SyncGroupResponse])
def test_an_encoded_response_begins_with_its_throttle_time(response: type[ResponseValue]) -> None:
    """Handlers encode these responses themselves; the throttle time is written over the first field."""
    field = response.fields["throttle_time_ms"]
    _, highest = response.versions
    for version in range(field.since, highest + 1):
        if API_BY_KEY[response.api_key].serves(version):
            empty = Encoded([response.encode(response(), version)])
            expected = response.encode(response(throttle_time_ms=1234), version)  # type: ignore[call-arg]
            assert _stamp(empty, 1234).parts == [expected]


def test_client_ids_that_are_used_no_more_are_forgotten() -> None:
    """Clients choose their client ids, so they must not fill the broker's memory."""
    manager = Manager()
    manager.set(500, client_id=DEFAULT)
    for number in range(3 * CLIENTS_MAX):
        manager.record(1, client_id=f"client-{number}")
        manager.now_ms += 100
    assert len(list(manager.quotas.usages(QuotaType.PRODUCE))) <= 2 * CLIENTS_MAX


def test_a_broker_without_quotas_has_no_object_for_them() -> None:
    assert updated_quotas(None, {}, (WINDOWS, WINDOWS)) is None
    addresses = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}}
    assert updated_quotas(None, addresses, (WINDOWS, WINDOWS)) is not None
    limits = {entity("alice"): {"request_percentage": 5.0}}
    quotas = updated_quotas(None, limits, (WINDOWS, WINDOWS))
    assert quotas is not None
    assert updated_quotas(quotas, limits, (WINDOWS, WINDOWS)) is quotas
    assert updated_quotas(quotas, {}, (WINDOWS, WINDOWS)) is None


def test_a_greedy_client_gets_its_limit_over_a_minute() -> None:
    """It sends 100 KB whenever it may. After the first burst, a minute has within 10 % of the limit."""
    manager = Manager()
    manager.set(1e6, "greedy")
    sent: list[int] = []
    while manager.now_ms < 121_000:
        sent.append(manager.now_ms)
        manager.now_ms += 1 + manager.record(100_000, "greedy")
    later = 100_000 * sum(at >= 61_000 for at in sent)
    assert 0.9 * 60e6 <= later <= 1.1 * 60e6
    first = 100_000 * len(sent) - later
    assert 60e6 <= first <= 75e6, "a burst of ten seconds' worth passes at the start, as in Kafka"


def test_connections_of_an_address_are_created_at_a_rate() -> None:
    """KIP-612: a connection too many is closed after at most a window, and does not count."""
    quotas = updated_quotas(None, {(("ip", "10.0.0.1"),): {"connection_creation_rate": 2.0}}, (WINDOWS, WINDOWS))
    assert quotas is not None
    assert [quotas.record_connection("10.0.0.1", 1000) for _ in range(22)] == [0] * 20 + [500, 500]
    assert quotas.record_connection("10.0.0.2", 1000) == 0
    assert quotas.record_connection("10.0.0.1", 12_000) == 0


def test_the_rate_of_an_address_has_a_default() -> None:
    """KIP-612: an address without its own rate has the default's."""
    limits = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}}
    assert connection_creation_rate(limits, "10.0.0.1") == 5
    assert connection_creation_rate(limits, "10.0.0.2") is None
    limits[(("ip", None),)] = {"connection_creation_rate": 7.0}
    assert connection_creation_rate(limits, "10.0.0.2") == 7
