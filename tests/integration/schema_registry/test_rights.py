"""The broker's logins and rights: the registry may do for a user what the user may do to `_schemas`."""

import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fencepost.schema_registry.logins import LOGIN_SECONDS
from fencepost.testing import Broker
from tests.integration.schema_registry.http import ORDER, ask, register, schema_of
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.certificates import Authority

USERS = {"admin": "admin-pw", "reader": "reader-pw", "writer": "writer-pw", "nobody": "nobody-pw"}
ADMIN, READER, WRITER, NOBODY = (f"{name}:{password}" for name, password in USERS.items())
SETTINGS = {"authorizer.class.name": "standard", "super.users": "User:admin"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS, users=USERS, schema_registry=True) as found:
        yield found


@pytest.fixture
def url(broker: Broker) -> str:
    return broker.schema_registry_url


def allow(broker: Broker, user: str, operation: AclOperation, topic: str = "_schemas") -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({**broker.client_config("admin")})
    [answer] = admin.create_acls([rule]).values()
    assert answer.result(30) is None


def test_reading_needs_read_and_registering_needs_write(broker: Broker, url: str) -> None:
    register(url, "a", user=ADMIN)
    for user in ("reader", "writer"):
        allow(broker, user, AclOperation.READ)
    allow(broker, "writer", AclOperation.WRITE)
    assert ask(url, "GET", "/subjects", user=READER).body == ["a"]
    assert register(url, "a", user=READER) == 1, "nothing is written for a schema that is there"
    refused = ask(url, "POST", "/subjects/b/versions", {"schema": schema_of(1)}, user=READER)
    assert (refused.status, refused.body["error_code"]) == (403, 40301)
    assert "_schemas" in refused.body["message"]
    assert ask(url, "DELETE", "/subjects/a", user=READER).status == 403
    assert register(url, "b", schema_of(1), user=WRITER) == 2
    assert ask(url, "GET", "/subjects", user=NOBODY).status == 403
    assert ask(url, "GET", "/schemas/ids/1", user=NOBODY).status == 403


def test_creating_the_topic_needs_create(broker: Broker, url: str) -> None:
    for operation in (AclOperation.READ, AclOperation.WRITE):
        allow(broker, "writer", operation)
    assert ask(url, "GET", "/subjects", user=WRITER).body == []
    assert ask(url, "POST", "/subjects/a/versions", {"schema": ORDER}, user=WRITER).status == 403
    allow(broker, "writer", AclOperation.CREATE)
    assert register(url, "a", user=WRITER) == 1


def test_without_a_password_nothing_is_shown(url: str) -> None:
    """RFC 7617: 401 with the scheme that is wanted."""
    for headers in ({}, {"Authorization": "Basic !"}, {"Authorization": "Bearer x"}, {"Authorization": "Basic YQ=="}):
        answer = ask(url, "GET", "/subjects", headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert ask(url, "GET", "/subjects", user="admin:wrong").status == 401
    assert ask(url, "GET", "/subjects", user="stranger:x").status == 401


def test_guessing_is_slow_and_hinders_only_who_guesses(url: str) -> None:
    answers = [ask(url, "GET", "/subjects", user=f"admin:{number}").status for number in range(6)]
    assert answers == [401] * 5 + [429]


def test_a_login_counts_for_a_time_only(broker: Broker, url: str) -> None:
    """Then the broker is asked again: a changed password ends the old one's use."""
    assert ask(url, "GET", "/subjects", user=ADMIN).status == 200
    began = time.monotonic()
    for _ in range(20):
        ask(url, "GET", "/subjects", user=ADMIN)
    assert time.monotonic() - began < 5, "the password is not checked each time"
    logins = broker.journal.tail(1000).count("SaslAuthenticate")
    broker.clock.advance(LOGIN_SECONDS + 1)
    assert ask(url, "GET", "/subjects", user=ADMIN).status == 200
    assert broker.journal.tail(1000).count("SaslAuthenticate") > logins


def test_serve_has_a_registry_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    server = authority.sign("registry", hosts=["localhost"])
    arguments = [
        "--schema-registry=127.0.0.1:0",
        f"--set=schema.registry.certificate.location={server.certificate}",
        f"--set=schema.registry.key.location={server.key}",
    ]
    broker = BrokerProcess(tmp_path / "data", arguments=arguments).start()
    url = broker.facts["schema_registry"]
    assert url.startswith("https://127.0.0.1:")
    url = url.replace("127.0.0.1", "localhost")
    context = ssl.create_default_context(cafile=str(authority.ca))
    with urllib.request.urlopen(f"{url}/subjects", context=context, timeout=30) as response:
        assert response.read() == b"[]"
    assert broker.stop() == 0


def test_an_address_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, arguments=["--schema-registry", "0.0.0.0:0"]).start()
    assert broker.stop() == 0
    assert "everyone who reaches the schema registry may change schemas" in broker.log()


def test_an_address_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with Broker(schema_registry=True) as other:
        address = other.schema_registry_url.removeprefix("http://")
        with pytest.raises(BrokerFailed):
            BrokerProcess(tmp_path, arguments=["--schema-registry", address]).start()
