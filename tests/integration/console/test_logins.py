"""The console where users log in: each has the rights of its own user, and the broker decides."""

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.console.limits import GUESS_SECONDS, GUESSES_AT_ONCE
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command
from tests.kit.console import ConsoleProcess, Visitor
from tests.kit.open_transactions import HOUR_MS, begin, write
from tests.kit.sasl_broker import LISTEN, LISTENERS, add_scram_users
from tests.kit.wire import Wire

RULES = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS;User:alice"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """alice may do everything, bob nothing; carol has a password by SCRAM only. Its console is in its process."""
    arguments = [*LISTEN, "--console", "127.0.0.1:0"]
    place = tmp_path_factory.mktemp("secured")
    with BrokerProcess(place, data_dir=place / "data", settings={**LISTENERS, **RULES}, arguments=arguments) as running:
        add_scram_users(running, carol="carol-secret")
        with Wire(running.connect(), client_id="billing") as wire:
            begin(wire, "secret", "secret-1")
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log()


@pytest.fixture(params=["in the broker", "alone"])
def url(request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: object) -> Iterator[str]:
    """The console in the broker's process, and one of its own."""
    if request.param == "in the broker":
        yield broker.facts["console"]
        return
    host, port = broker.listeners["SASL"]
    log = tmp_path / "console.log"  # type: ignore[operator]
    with ConsoleProcess(f"{host}:{port}", log, "-X", "security.protocol=SASL_PLAINTEXT") as console:
        yield console.url


def log_in(visitor: Visitor, user: str, password: str, to: str = "/") -> int:
    return visitor.post("/login", {"user": user, "password": password, "to": to}).status


def test_without_a_login_nothing_is_shown(url: str) -> None:
    visitor = Visitor(url)
    shown = visitor.get("/topics?q=sec")
    assert "With your name and password of the cluster" in shown.words
    assert 'name="to" value="/topics?q=sec"' in shown.text
    assert "secret" not in shown.words
    assert visitor.get("/live/topics").status == 401
    assert visitor.get("/data/log/secret/0").status == 401
    assert visitor.post("/transaction/abort", {"id": "secret-1", "sure": "yes"}).status == 401
    assert visitor.get("/static/console.css").status == 200


def test_a_user_sees_and_does_what_it_may(url: str) -> None:
    visitor = Visitor(url)
    assert log_in(visitor, "alice", "wrong") == 403
    assert log_in(visitor, "", "") == 400
    page = visitor.post("/login", {"user": "alice", "password": "alice-secret", "to": "/topics"})
    assert (page.status, "secret" in page.words, "alice" in page.words) == (200, True, True)
    assert "secret:0" in visitor.get("/stuck").words
    assert visitor.json("/data/log/secret/0")["high"] == 2


def test_a_user_without_rights_sees_no_topic_and_no_history(url: str) -> None:
    visitor = Visitor(url)
    assert log_in(visitor, "bob", "bob-secret") == 200
    assert "secret" not in visitor.get("/topics").words
    assert visitor.get("/topics/secret/0").status in (403, 404)
    assert visitor.get("/data/log/secret/0").status in (403, 404)
    metadata = visitor.get("/metadata").words
    assert "/topics/secret" not in metadata
    assert "AUTHORIZATION_FAILED" in metadata or "with --data DIR" in metadata
    visitor.get("/groups")
    refused = visitor.post("/transaction/abort", {"id": "secret-1", "sure": "yes"})
    assert refused.status in (403, 404)
    assert "AUTHORIZATION_FAILED" in visitor.get("/settings?kind=broker&name=1").words


def test_a_user_of_one_mechanism_only(url: str) -> None:
    visitor = Visitor(url)
    assert log_in(visitor, "carol", "carol-secret") == 200
    assert "carol" in visitor.get("/").words


def test_a_transaction_is_not_said_to_hang_by_who_may_not_see_its_id(url: str, broker: BrokerProcess) -> None:
    """ListTransactions leaves it out without an error, and an old timestamp of a living transaction proves nothing."""
    name = f"old-{uuid.uuid4().hex[:8]}"
    for words in (["--topic", name, "--operation", "read"], ["--cluster", "--operation", "all"]):
        added = command(broker, "acl", "add", "--principal", "User:carol", *words)
        assert added.exit_code == 0, added.output
    with Wire(broker.connect(), client_id="mirror") as wire:
        wire.create_topic(name)
        held = wire.init_producer_id(name)
        wire.add_partitions(name, held, name, 0)
        write(wire, name, name, held, age_ms=24 * HOUR_MS)
        visitor = Visitor(url)
        log_in(visitor, "carol", "carol-secret")
        why = visitor.get(f"/stuck/{name}/0")
        assert (why.status, "your user may not see all transactional ids" in why.words) == (200, True), why.words
        assert "It may be alive, or it hangs" in why.words
        assert "Abort" not in why.words
        assert visitor.post(f"/stuck/{name}/0/repair", {"sure": "yes", "holder": f"{held[0]}:0"}).status == 409
        everywhere = visitor.get("/hanging")
        assert (everywhere.status, "who may DESCRIBE all transactional ids" in everywhere.words) == (403, True)
        assert wire.end_txn(name, held, commit=True).error_code == ErrorCode.NONE


def test_a_session_ends_with_its_logout(url: str) -> None:
    visitor = Visitor(url)
    log_in(visitor, "alice", "alice-secret")
    old = dict(visitor.cookies)
    visitor.get("/topics")
    streams = [visitor.events(path) for path in ("/live-tail/secret", "/live-log/secret/0?from=0", "/live/topics")]
    for one in streams:
        next(one)
    assert "With your name and password" in visitor.post("/logout", {}).words
    for one in streams:
        list(one)  # it ends: the session's client is closed
    visitor.cookies = old
    assert "With your name and password" in visitor.get("/topics").words


def test_guesses_of_passwords_slow_down(broker: BrokerProcess, tmp_path: Path) -> None:
    """200 connections guessed 200 passwords a second. An address is slow then, whatever user it names."""
    host, port = broker.listeners["SASL"]
    security = "security.protocol=SASL_PLAINTEXT"
    with ConsoleProcess(f"{host}:{port}", tmp_path / "console.log", "-X", security) as console:
        assert log_in(Visitor(console.url), "alice", "alice-secret") == 200
        with ThreadPoolExecutor(20) as guessing:
            guesses = [guessing.submit(log_in, Visitor(console.url), "alice", f"guess {n}") for n in range(20)]
            found = Counter(guess.result() for guess in guesses)
        assert found == {403: GUESSES_AT_ONCE, 429: 20 - GUESSES_AT_ONCE}
        refused = Visitor(console.url).post("/login", {"user": "bob", "password": "bob-secret"})
        assert refused.status == 429
        assert 0 < int(refused.headers["retry-after"]) <= GUESS_SECONDS
        assert "Try again in" in refused.words
