"""Row R9, the requests about ACLs on the wire: the answers of Kafka's AclApis and AclControlManager."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.admin_enums import AclOperation, AclPermission
from fencepost.protocol.errors import ErrorCode
from tests.kit import acl_answers
from tests.kit.acl_answers import AclWire, creation
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of

pytestmark = pytest.mark.long
SETTINGS = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer."""
    work_dir = tmp_path_factory.mktemp("acls")
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=SETTINGS) as broker:
        yield broker


def wire(broker: BrokerProcess, version: int = 3) -> AclWire:
    return AclWire(lambda: socket.create_connection((broker.host, broker.port), 60), version)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_creations_are_checked_in_kafkas_order_and_words(broker: BrokerProcess, version: int) -> None:
    acl_answers.check_creations(wire(broker, version), is_kafka=False)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_entry_of_a_request_has_its_own_result(broker: BrokerProcess, version: int) -> None:
    acl_answers.check_batches(wire(broker, version))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_filters_match_as_kafkas_do(broker: BrokerProcess, version: int) -> None:
    """KIP-290."""
    acl_answers.check_filters(wire(broker, version))


def test_a_request_changes_at_most_ten_thousand_acls(broker: BrokerProcess) -> None:
    acls = wire(broker)
    acl_answers.check_limit(acls)
    acls.create(*[creation(name=f"many-{number}") for number in range(10_000)])
    acls.create(creation(name="other"))
    text = "Cannot remove more than 10000 acls in a single delete operation."
    assert acls.delete({}) == [(ErrorCode.INVALID_REQUEST, text, [])]
    [(code, _, gone)] = acls.delete({"name": "other"})
    assert (code, gone) == (ErrorCode.NONE, ["other"]), "a filter that is refused removes nothing"
    [(code, _, gone)] = acls.delete({})
    assert (code, len(gone)) == (ErrorCode.NONE, 10_000)


def test_acls_outlive_the_process(broker: BrokerProcess) -> None:
    """Row R8."""
    acls = wire(broker)
    acls.create(creation(name="kept"), creation(name="gone"))
    acls.delete({"name": "gone"})
    broker.restart()
    assert [name for _, name, *_ in acls.describe()] == ["kept"]
    acls.delete({})


def test_without_an_authorizer_the_answer_is_security_disabled(tmp_path: Path) -> None:
    """AclApis, when authorizer.class.name is not set."""
    disabled = ErrorCode.SECURITY_DISABLED
    with BrokerProcess(tmp_path) as broker:
        acls = wire(broker)
        assert acls.create(creation(), creation()) == [(disabled, "No Authorizer is configured.")] * 2
        assert acls.delete({}) == [(disabled, "No Authorizer is configured.", [])]
        request = acl_answers.DescribeAclsRequest(**acl_answers.fields())
        response = acls.call(acl_answers.DESCRIBE, request)
        assert (response.error_code, response.error_message) == (disabled, "No Authorizer is configured on the broker")


def test_a_changed_rule_counts_for_the_next_request_of_an_open_connection(tmp_path: Path) -> None:
    """Row R8: also for a Produce request that repeats an earlier one, which is answered without decoding it again."""
    settings = {"authorizer.class.name": "standard", "allow.everyone.if.no.acl.found": "true"}
    deny = creation(name="t", principal="User:ANONYMOUS", operation=AclOperation.WRITE, permission=AclPermission.DENY)
    with BrokerProcess(tmp_path, settings=settings) as broker, Wire(broker.connect()) as producer:
        producer.create_topic("t")
        acls = wire(broker)

        def written() -> int:
            return producer.produce("t", batch_of(b"v")).error_code

        for _ in range(3):
            assert [written(), written(), written()] == [ErrorCode.NONE] * 3
            acls.create(deny)
            assert [written(), written()] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
            acls.delete({"name": "t"})
