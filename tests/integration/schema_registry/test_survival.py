"""What the registry survives: restarts, clients that delete or write `_schemas`, and clients that behave badly."""

import contextlib
import http.client
import logging
import socket
import time
import urllib.error
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from fencepost.client import Client as AsyncClient
from fencepost.client.admin.client import parts_of
from fencepost.client.admin.parts import AdminParts
from fencepost.schema_registry import changes
from fencepost.schema_registry.changes import Registration
from fencepost.schema_registry.content import Content
from fencepost.schema_registry.http import BODY_BYTES_MAX, BODY_SECONDS
from fencepost.schema_registry.state import State
from fencepost.schema_registry.store import Store
from fencepost.sync import Client
from fencepost.testing import Broker
from tests.integration.schema_registry.http import ORDER, ask, register, schema_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(schema_registry=True) as found:
        yield found


@pytest.fixture
def url(broker: Broker) -> str:
    return broker.schema_registry_url


def test_a_restart_keeps_schemas_and_gives_no_id_again(broker: Broker, url: str) -> None:
    register(url, "a")
    register(url, "b", schema_of(2))
    ask(url, "DELETE", "/subjects/b")
    assert ask(url, "DELETE", "/subjects/b?permanent=true").body == [1]
    for end in (broker.kill, broker.stop):
        end()
        broker.start()
        assert broker.schema_registry_url == url
        assert ask(url, "GET", "/subjects/a/versions/latest").body["id"] == 1
    assert register(url, "c", schema_of(3)) == 3


def test_registrations_at_the_same_time_have_one_id(url: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        same = set(pool.map(lambda _: register(url, "same"), range(32)))
        others = list(pool.map(lambda number: register(url, f"s-{number}", schema_of(number)), range(32)))
    assert same == {1}
    assert ask(url, "GET", "/subjects/same/versions").body == [1]
    assert sorted(others) == list(range(2, 34))


def test_a_deleted_topic_is_an_empty_registry_that_gives_no_id_again(
    broker: Broker, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Data with the old ids may be in other topics."""
    register(url, "a")
    with Client(broker.bootstrap) as kafka, kafka.admin() as admin:
        admin.delete_topics("_schemas")
        assert ask(url, "GET", "/subjects").body == []
        assert "the topic _schemas was deleted" in caplog.text
        assert register(url, "b", schema_of(2)) == 2
        admin.delete_topics("_schemas")
        admin.create_topics("_schemas", 1, configs={"cleanup.policy": "compact"})
        assert ask(url, "GET", "/subjects").body == []
        assert register(url, "c", schema_of(3)) == 3


def test_a_topic_that_loses_records_is_not_written(broker: Broker, url: str) -> None:
    """cleanup.policy=delete would forget schemas after a week. Confluent's registry does not start then."""
    broker.create_topic("_schemas")
    answer = ask(url, "POST", "/subjects/a/versions", {"schema": ORDER})
    assert (answer.status, answer.body["error_code"]) == (500, 50001)
    assert "cleanup.policy=delete" in answer.body["message"]


def test_a_topic_that_is_made_to_lose_records_is_not_written_any_more(broker: Broker, url: str) -> None:
    register(url, "a")
    with Client(broker.bootstrap) as client, client.admin() as admin:
        admin.incremental_alter_configs({"cleanup.policy": "compact,delete"}, topic="_schemas")
        answer = ask(url, "POST", "/subjects/b/versions", {"schema": schema_of(2)})
        assert (answer.status, answer.body["error_code"]) == (500, 50001)
        assert register(url, "a") == 1, "nothing is written for what is there"
        admin.incremental_alter_configs({"cleanup.policy": "compact"}, topic="_schemas")
    assert register(url, "b", schema_of(2)) == 2


def test_records_of_others_are_skipped_with_one_line(
    broker: Broker, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    register(url, "a")
    with Client(broker.bootstrap) as kafka, kafka.producer() as producer:
        for number in range(20):
            producer.send("_schemas", b"garbage", key=b"k%d" % number, partition=0)
        theirs = b'{"subject":"theirs","version":1,"id":9,"schema":"\\"string\\"","deleted":false}'
        producer.send("_schemas", theirs, key=b'{"keytype":"SCHEMA","subject":"theirs","version":1,"magic":1}')
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        assert ask(url, "GET", "/subjects").body == ["a", "theirs"]
        assert ask(url, "GET", "/subjects/theirs/versions/1").body["id"] == 9
    lines = [one.getMessage() for one in caplog.records if "_schemas" in one.getMessage()]
    assert len(lines) == 1
    assert "count=20 first_offset=1" in lines[0]
    assert register(url, "b", schema_of(1)) == 10


def test_an_open_transaction_holds_nothing_up(broker: Broker, url: str) -> None:
    register(url, "a")
    with (
        Client(broker.bootstrap) as kafka,
        kafka.transactional_producer("foreign") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("_schemas", b"garbage", key=b"garbage")
        assert register(url, "b", schema_of(1)) == 2
        assert ask(url, "GET", "/subjects").body == ["a", "b"]


def test_bodies_are_bounded(url: str) -> None:
    large = b'{"schema": "' + b"x" * BODY_BYTES_MAX + b'"}'
    assert ask(url, "POST", "/subjects/a/versions", large).status == 413
    with contextlib.suppress(urllib.error.URLError):  # the registry closes while the rest is being sent
        assert ask(url, "POST", "/subjects/a/versions", large * 40).status == 413
    for body, status in ((b"{", 400), (b"[]", 400), (b"\xff", 400), (b'{"schema": "\\ud800"}', 400), (b"", 422)):
        assert ask(url, "POST", "/subjects/a/versions", body).status == status
    assert register(url, "a") == 1


def test_a_schema_that_no_record_can_have_is_refused(url: str) -> None:
    """42209: what fits a body may not fit a record, in which each character may have six."""
    text = '{"type":"string","doc":"' + "\u00e9" * 400_000 + '"}'
    answer = ask(url, "POST", "/subjects/a/versions", ('{"schema":' + _quoted(text) + "}").encode())
    assert (answer.status, answer.body["error_code"]) == (422, 42209)
    assert register(url, "a") == 1


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def test_a_slow_client_holds_up_no_other(broker: Broker, url: str) -> None:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port)) as slow:
        slow.sendall(b"POST /subjects/a/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        began = time.monotonic()
        assert register(url, "a") == 1
        assert time.monotonic() - began < BODY_SECONDS / 2
        broker.clock.advance(BODY_SECONDS + 1)
        slow.settimeout(10)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_suite_with_many_clients_is_served(url: str) -> None:
    """Each client of a registry keeps a connection open, and suites create one for each test."""
    where = urlsplit(url)
    with contextlib.ExitStack() as stack:
        for _ in range(250):
            client = stack.enter_context(contextlib.closing(http.client.HTTPConnection(where.netloc, timeout=30)))
            client.request("GET", "/subjects")
            assert client.getresponse().read() == b"[]"


def test_head_and_requests_as_for_a_proxy_are_answered(url: str) -> None:
    """RFC 9110, 9.3.2, and RFC 9112, 3.2.2. Confluent's server answers HEAD as GET, without a body."""
    where = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(where.netloc, timeout=30)) as client:
        for method, target, body in (
            ("HEAD", "/subjects", b""),
            ("GET", f"{url}/subjects?x=1", b"[]"),
            ("GET", url, b"{}"),
        ):
            client.request(method, target)
            answer = client.getresponse()
            assert (answer.status, answer.headers["content-length"]) == (200, "2")
            assert answer.read() == body


def test_a_client_goes_on_when_time_has_passed(broker: Broker, url: str) -> None:
    """The clock ends idle connections of the client to the registry, and of the registry to the broker."""
    client = SchemaRegistryClient({"url": url, "max.retries": 0})
    for number in range(3):
        assert client.register_schema("a", Schema(f'{{"type": "string", "doc": "{number}"}}')) == number + 1
        broker.clock.advance(4000)
    client.close()


def test_pages_of_web_sites_are_refused(url: str) -> None:
    """A page that a user looks at can send requests to the user's own machine."""
    answer = ask(url, "POST", "/subjects/a/versions", {"schema": ORDER}, headers={"Origin": "http://example.com"})
    assert answer.status == 403
    assert ask(url, "GET", "/subjects", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert ask(url, "GET", "/subjects", headers={"Sec-Fetch-Site": "none"}).body == []


def test_a_fault_meets_no_request_of_the_registry(broker: Broker, url: str) -> None:
    """A test that refuses the next Produce means that of its own program."""
    fault = broker.refuse("Produce", "NOT_LEADER_OR_FOLLOWER")
    broker.drop("Fetch", times=None)
    assert register(url, "a") == 1
    assert fault.hits == 0
    broker.heal()
    named = broker.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED", client_id="fencepost-schema-registry")
    assert ask(url, "POST", "/subjects/b/versions", {"schema": schema_of(1)}).status == 403
    assert named.hits == 1


def test_answers_say_what_they_are(url: str) -> None:
    answer = ask(url, "GET", "/subjects/none/versions")
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert answer.body == {"error_code": 40401, "message": "Subject 'none' not found."}
    register(url, "with%2Fslash")
    assert ask(url, "GET", "/subjects/with%2Fslash/versions").body == [1]


def test_without_a_registry_there_is_no_url() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="schema_registry=True"):
        broker.schema_registry_url  # noqa: B018 - it raises


class Late(Store):
    """A store that loses a race: another registry writes just before it."""

    before_append: Callable[[], Awaitable[object]] | None = None

    async def _prepare_topic(self, admin: AdminParts) -> bool:
        late, self.before_append = self.before_append, None
        if late is not None:
            await late()
        return await super()._prepare_topic(admin)


@pytest.mark.parametrize("theirs", ["same subject", "other subject"])
async def test_two_registries_that_write_at_once_give_no_id_twice(broker: Broker, theirs: str) -> None:
    """The fold keeps what came first; the second puts back what it overwrote, and decides again."""
    async with AsyncClient(broker.bootstrap) as kafka, kafka.admin() as opened:
        admin = parts_of(opened)
        first, late = Store(), Late()
        for store in (first, late):
            await store.change(admin, lambda state: register_in(state, "a", ORDER))
        subject = "a" if theirs == "same subject" else "b"
        loose = Registration(Content("AVRO", schema_of(1)))
        await first.change(admin, lambda state: changes.set_level(state, None, {"compatibility": "NONE"}))
        late.before_append = partial(first.change, admin, lambda state: changes.register(state, subject, loose))
        answer = await late.change(admin, lambda state: register_in(state, "a", schema_of(2)))
        state = await Store().read(admin)
    assert {one.id: one.content.text for one in state.all_versions()} == {1: ORDER, 2: schema_of(1), 3: schema_of(2)}
    assert answer["id"] == 3
    assert [one.id for one in state.versions("a")] == ([1, 2, 3] if subject == "a" else [1, 3])


def register_in(state: State, subject: str, text: str) -> changes.Decision:
    return changes.register(state, subject, Registration(Content("AVRO", text)))


async def test_a_topic_that_appears_meanwhile_is_read_first(broker: Broker) -> None:
    async with AsyncClient(broker.bootstrap) as kafka, kafka.admin() as opened:
        admin, late = parts_of(opened), Late()
        late.before_append = partial(Store().change, admin, lambda state: register_in(state, "a", ORDER))
        answer = await late.change(admin, lambda state: register_in(state, "b", schema_of(2)))
        assert answer["id"] == 2
        assert [one.id for one in (await Store().read(admin)).all_versions()] == [1, 2]
