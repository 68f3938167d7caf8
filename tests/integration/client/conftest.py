"""Brokers for the client's tests: our own, or an Apache Kafka whose address stands in the environment."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import trio

import fencepost
from tests.integration.client.group_kit import GIVEN, QUICKER_GROUPS, WAYS
from tests.kit.broker_process import BrokerProcess
from tests.kit.settings import OLD_RECORDS


@pytest.fixture(scope="module")
def address_tv2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with transaction.version 2; FENCEPOST_TEST_BOOTSTRAP names another one than ours."""
    given = os.environ.get("FENCEPOST_TEST_BOOTSTRAP")
    if given is not None:
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("tv2"), settings=OLD_RECORDS) as broker:
        yield broker.address


@pytest.fixture(scope="module")
def address_tv1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with transaction.version 1; FENCEPOST_TEST_BOOTSTRAP_TV1 names another one than ours."""
    given = os.environ.get("FENCEPOST_TEST_BOOTSTRAP_TV1")
    if given is not None:
        trio.run(_set_transaction_version, given)
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("tv1"), settings=OLD_RECORDS) as broker:
        trio.run(_set_transaction_version, broker.address)
        yield broker.address


async def _set_transaction_version(address: str) -> None:
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        if (await admin.describe_features()).finalized.get("transaction.version", 0) != 1:
            await admin.update_features({"transaction.version": 1}, downgrade=True)


@pytest.fixture
def address(address_tv2: str) -> str:
    """The broker that most tests use."""
    return address_tv2


@pytest.fixture(params=["tv2", "tv1"])
def address_of_both(request: pytest.FixtureRequest) -> str:
    """Each transaction protocol in turn."""
    found: str = request.getfixturevalue(f"address_{request.param}")
    return found


@pytest.fixture
def name() -> str:
    """A name that nobody else uses, for topics, groups and transactional ids."""
    return f"n{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def kafka(address: str) -> AsyncIterator[fencepost.Client]:
    """An open client of the usual broker."""
    async with fencepost.Client(address) as client:
        yield client


@pytest.fixture(scope="module")
def address_of_quick_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that misses members soon; FENCEPOST_TEST_BOOTSTRAP names another one than ours."""
    if GIVEN is not None:
        yield GIVEN
        return
    with BrokerProcess(tmp_path_factory.mktemp("groups"), settings=QUICKER_GROUPS) as broker:
        yield broker.address


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, object]:
    """Each way of being a member."""
    return {**WAYS[request.param], "heartbeat_interval": 0.05, "session_timeout": 45}
