"""A real S3 server behind a proxy that spoils requests: a put is durable or raises, a get is right or raises."""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.objects.object_store import Objects, open_objects
from fencepost.broker.log.storage.store import CorruptLogFile
from tests.kit.http_faults import Fault, FaultyProxy
from tests.kit.s3_server import S3Server

CLUSTER = "faults"
BODY = os.urandom(200_000)
FOREVER = 1000
IDS = itertools.count(1000)
"""The tests share a bucket, in which an object is never replaced."""
SLOW_DOWN = Fault(status=503, code="SlowDown")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.port) as proxy:
        yield proxy


def opened(
    s3: S3Server, endpoint: str | None = None, request_timeout_s: float = 30.0, retry_s: float = 30.0
) -> Objects:
    options = s3.options(endpoint)
    return open_objects(s3.url, CLUSTER, options, request_timeout_s=request_timeout_s, retry_s=retry_s)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        SLOW_DOWN,
        Fault(reset=True),
        Fault(lost_answer=True),
        Fault(status=500, torn=True),
    ],
)
def test_a_put_that_fails_twice_is_repeated(s3: S3Server, proxy: FaultyProxy, fault: Fault) -> None:
    objects = opened(s3, proxy.endpoint)
    proxy.spoil("PUT", fault, times=2)
    object_id = next(IDS)
    objects.put(object_id, [BODY])
    # A put whose answer was lost finds its own object, and compares it.
    assert proxy.requests == ["PUT"] * 3 + ["GET"] * fault.lost_answer
    assert opened(s3).get(object_id, 0, len(BODY)) == BODY


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        SLOW_DOWN,
        Fault(reset=True),
        Fault(lost_answer=True),
        Fault(torn=True),
    ],
)
def test_a_get_that_fails_twice_is_repeated(s3: S3Server, proxy: FaultyProxy, fault: Fault) -> None:
    opened(s3).put(2, [BODY])
    proxy.spoil("GET", fault, times=2)
    assert opened(s3, proxy.endpoint).get(2, 1000, 150_000) == BODY[1000:151_000]
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("fault", [Fault(status=500), SLOW_DOWN, Fault(reset=True)])
def test_a_store_that_stays_down_is_reported_in_bounded_time(s3: S3Server, proxy: FaultyProxy, fault: Fault) -> None:
    objects = opened(s3, proxy.endpoint, retry_s=1.0)
    proxy.spoil("PUT", fault, times=FOREVER)
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"^cannot put 5a/1 in the object store s3://fencepost/logs/faults: \S+"):
        objects.put(1, [BODY])
    proxy.heal()
    proxy.spoil("GET", fault, times=FOREVER)
    with pytest.raises(StoreUnavailable, match=r"^cannot get 5a/1 in the object store") as caught:
        objects.get(1, 0, 10)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 20
    assert objects.counters.failures == 2


def test_a_slow_answer_is_waited_for(s3: S3Server, proxy: FaultyProxy) -> None:
    objects = opened(s3, proxy.endpoint)
    proxy.spoil("PUT", Fault(delay_s=5.0))
    objects.put(3, [BODY])
    assert objects.counters.put_times.sum_seconds >= 5
    assert proxy.requests == ["PUT"]
    assert objects.get(3, 0, len(BODY)) == BODY


def test_a_put_that_succeeds_after_the_client_gave_up_is_whole(s3: S3Server, proxy: FaultyProxy) -> None:
    """The caller learns of an error, and may put the same bytes under the same id again."""
    objects = opened(s3, proxy.endpoint, request_timeout_s=1.0, retry_s=0.0)
    proxy.spoil("PUT", Fault(slow_answer_s=3.0), times=FOREVER)
    with pytest.raises(StoreUnavailable):
        objects.put(4, [BODY])
    assert opened(s3).get(4, 0, len(BODY)) == BODY
    proxy.heal()
    objects.put(4, [BODY])
    assert objects.get(4, 0, len(BODY)) == BODY


def test_an_answer_that_is_shorter_than_the_range_is_never_returned(s3: S3Server, proxy: FaultyProxy) -> None:
    """Its Content-Length fits its body: only the number of bytes shows the damage."""
    opened(s3).put(5, [BODY])
    proxy.spoil("GET", Fault(body=lambda body: body[:-1]), times=FOREVER)
    with pytest.raises((CorruptLogFile, StoreUnavailable)):
        opened(s3, proxy.endpoint, retry_s=1.0).get(5, 0, 1000)


def test_a_torn_answer_is_never_returned(s3: S3Server, proxy: FaultyProxy) -> None:
    opened(s3).put(6, [BODY])
    proxy.spoil("GET", Fault(torn=True), times=FOREVER)
    with pytest.raises(StoreUnavailable):
        opened(s3, proxy.endpoint, retry_s=1.0).get(6, 0, len(BODY))


def test_a_refused_key_is_found_by_the_check(s3: S3Server, proxy: FaultyProxy) -> None:
    opened(s3, proxy.endpoint).check()
    assert proxy.requests == ["PUT", "GET", "GET", "POST"], "write, read, list, delete"
    proxy.spoil("PUT", Fault(status=403, code="InvalidAccessKeyId"), times=FOREVER)
    with pytest.raises(StoreUnavailable, match=r"cannot put check/\w+ in the object store .*InvalidAccessKeyId"):
        opened(s3, proxy.endpoint).check()


def test_a_store_that_forgets_is_found_by_the_check(s3: S3Server, proxy: FaultyProxy) -> None:
    proxy.spoil("GET", Fault(body=lambda body: bytes(len(body))))
    with pytest.raises(StoreUnavailable, match="was written, but it has other bytes"):
        opened(s3, proxy.endpoint).check()
    proxy.spoil("GET", Fault(status=404, code="NoSuchKey"))
    with pytest.raises(StoreUnavailable, match="was written, but it does not exist"):
        opened(s3, proxy.endpoint).check()


def test_a_refused_key_is_reported_and_not_repeated(s3: S3Server, proxy: FaultyProxy) -> None:
    proxy.spoil("PUT", Fault(status=403, code="AccessDenied"), times=FOREVER)
    with pytest.raises(StoreUnavailable, match=r"AccessDenied|403"):
        opened(s3, proxy.endpoint).put(7, [BODY])
    assert proxy.requests == ["PUT"]


def test_a_bucket_that_does_not_exist_is_not_taken_for_a_lost_object(s3: S3Server) -> None:
    objects = open_objects("s3://absent", CLUSTER, s3.options())
    with pytest.raises(StoreUnavailable, match=r"NoSuchBucket|bucket does not exist"):
        objects.put(1, [BODY])
    with pytest.raises(StoreUnavailable, match=r"NoSuchBucket|bucket does not exist"):
        objects.get(1, 0, 1)


def test_a_server_that_is_gone_is_unavailable() -> None:
    with S3Server() as server:
        objects = opened(server, retry_s=0.5)
        objects.put(1, [BODY])
        server.kill()
        with pytest.raises(StoreUnavailable, match="cannot get"):
            objects.get(1, 0, 10)


def test_the_endpoint_may_come_from_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    objects = open_objects(s3.url, CLUSTER)
    objects.put(8, [BODY])
    assert objects.get(8, 0, 100) == BODY[:100]


def test_any_mixture_of_faults(s3: S3Server, proxy: FaultyProxy) -> None:
    """Threads put and get while every other request is spoilt. Each call tells the truth or raises."""
    chance, lock = random.Random(5), threading.Lock()
    faults = [
        *(Fault(status=500), SLOW_DOWN, Fault(reset=True), Fault(lost_answer=True), Fault(torn=True)),
        *(Fault(body=lambda body: body[:-1]), Fault(slow_answer_s=1.5), Fault(delay_s=1.5), Fault(status=403)),
    ]
    wrong, outcomes = list[str](), Counter[str]()
    direct = opened(s3)

    def work(number: int) -> None:
        objects = opened(s3, proxy.endpoint, request_timeout_s=1.0, retry_s=0.5)
        for object_id in range(number * 1000, number * 1000 + 12):
            data = str(object_id).encode() * 5000
            with lock:
                for method in ("PUT", "GET"):
                    proxy.spoil(method, chance.choice(faults), times=chance.randrange(3))
            try:
                objects.put(object_id, [data])
            except StoreUnavailable:
                outcomes["put raised"] += 1
                continue
            outcomes["put"] += 1
            if direct.get(object_id, 0, len(data)) != data:
                wrong.append(f"put {object_id}")
            try:
                if objects.get(object_id, 100, 5000) != data[100:5100]:
                    wrong.append(f"get {object_id}")
            except (StoreUnavailable, CorruptLogFile):
                outcomes["get raised"] += 1
            else:
                outcomes["get"] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert outcomes["put"] > 5 < outcomes["get"], outcomes
    assert outcomes["put raised"] + outcomes["get raised"] > 0, outcomes
