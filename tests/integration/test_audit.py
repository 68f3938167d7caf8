"""The audit log of a real broker: a line for each kind of event, by one logger, without secrets."""

from collections.abc import Iterator

import pytest

from fencepost import ItemsFailedError, sync
from fencepost.client.admin import (
    DEFAULT,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    ClusterPlan,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.kit.audit_log import Audit
from tests.kit.broker_process import BrokerProcess
from tests.kit.sasl_broker import LISTEN, LISTENERS, connect, handshake, log_in
from tests.kit.wire import Wire

pytestmark = pytest.mark.long
ADD_OFFSETS_TO_TXN, WRITE_TXN_MARKERS = 25, 27
SHA_256 = ScramMechanism.SCRAM_SHA_256
ANONYMOUS = "principal=User:ANONYMOUS host=127.0.0.1 client_id='fencepost'"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With an authorizer that restricts all but the clients of the plain listener."""
    access = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
    arguments = [*LISTEN, "--log-format", "json"]
    with BrokerProcess(tmp_path_factory.mktemp("audit"), settings={**LISTENERS, **access}, arguments=arguments) as one:
        yield one
        assert not any(secret in one.log() for secret in ("alice-secret", "hunter2", "pencil"))


@pytest.fixture
def audit(broker: BrokerProcess) -> Audit:
    return Audit(broker)


@pytest.fixture
def kafka(broker: BrokerProcess) -> Iterator[sync.Client]:
    with sync.Client(broker.address) as kafka:
        yield kafka


def test_a_login_is_logged(broker: BrokerProcess, audit: Audit) -> None:
    with connect(broker) as wire:
        assert log_in(wire).error_code == 0
    assert audit.lines == ["LOGIN principal=User:alice host=127.0.0.1 listener=SASL mechanism=PLAIN"]


def test_a_name_does_not_look_like_other_pairs_of_the_line(
    broker: BrokerProcess, kafka: sync.Client, audit: Audit
) -> None:
    name = "eve host=10.0.0.1"
    with kafka.admin() as admin:
        admin.alter_user_scram_credentials(upsert=ScramUpsertion(name, "pencil", SHA_256))
    host, port = broker.listeners["SASL"]
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": name, "sasl_password": "pencil"}
    with (
        sync.Client(f"{host}:{port}", security_protocol="sasl_plaintext", **login) as eve,
        eve.admin() as admin,
        pytest.raises(ItemsFailedError),
    ):
        admin.create_topics("orders")
    principal = f"principal='User:{name}' host=127.0.0.1"
    assert f"LOGIN {principal} listener=SASL mechanism=SCRAM-SHA-256" in audit.lines
    assert [line for line in audit.lines if line.startswith(f"DENIED {principal} operation=CREATE ")]


def test_a_long_name_is_cut(broker: BrokerProcess, audit: Audit) -> None:
    with connect(broker) as wire:
        assert log_in(wire, "m" * 5000, "hunter2").error_code
    assert audit.lines[0].endswith(f" user='{'m' * 250}'...")


@pytest.mark.parametrize(("user", "password"), [("alice", "hunter2"), ("mallory", "hunter2")])
def test_a_refused_login_is_logged(broker: BrokerProcess, audit: Audit, user: str, password: str) -> None:
    with connect(broker) as wire:
        assert log_in(wire, user, password).error_code
        wire.expect_end()
    why = f"login refused mechanism=PLAIN reason=Invalid username or password user='{user}'"
    assert audit.lines == [f"LOGIN_FAILED host=127.0.0.1 listener=SASL cause={why}"]


def test_a_refused_login_without_headers_is_logged(broker: BrokerProcess, audit: Audit) -> None:
    """SaslHandshake v0, and a mechanism that is not enabled."""
    with connect(broker) as wire:
        assert handshake(wire, version=0).error_code == 0
        wire.socket.sendall(b"\0\0\0\x0e\0alice\0hunter2")
        wire.expect_end()
    with connect(broker) as wire:
        assert handshake(wire, "GSSAPI").error_code
        wire.expect_end()
    refused, not_enabled = audit.lines
    assert refused.endswith("cause=login refused mechanism=PLAIN reason=Invalid username or password user='alice'")
    assert not_enabled.endswith("cause=the SASL mechanism 'GSSAPI' is not enabled")


def test_a_denied_operation_is_logged(broker: BrokerProcess, audit: Audit) -> None:
    with connect(broker) as wire:
        log_in(wire)
        request = AddOffsetsToTxnRequest(transactional_id="shop", producer_id=1, producer_epoch=0, group_id="billing")
        assert wire.call(ADD_OFFSETS_TO_TXN, 3, request).error_code
    what = "operation=WRITE resource=TRANSACTIONAL_ID:'shop' api=AddOffsetsToTxn version=3"
    assert audit.lines[1:] == [f"DENIED principal=User:alice host=127.0.0.1 {what} client_id='wire'"]


def test_markers_written_by_hand_are_logged(broker: BrokerProcess, audit: Audit) -> None:
    topics = [WritableTxnMarkerTopic(name="none", partition_indexes=[0, 1])]
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=3, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    with Wire(broker.connect()) as wire:
        wire.call(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
    what = "verdict=ABORT producer_id=7 epoch=3 partitions=none-0:UNKNOWN_TOPIC_OR_PARTITION,none-1:UNKNOWN"
    assert len(audit.lines) == 1
    assert what in audit.lines[0]


def test_a_change_of_acls_is_logged(kafka: sync.Client, audit: Audit) -> None:
    acl = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.WRITE)
    with kafka.admin() as admin:
        admin.create_acls(acl)
        admin.delete_acls(AclFilter(*acl))
    what = "permission=ALLOW user='User:alice' from='*' operation=WRITE resource=TOPIC:'orders' pattern=LITERAL"
    assert audit.lines == [f"ACL_CREATED {ANONYMOUS} {what}", f"ACL_DELETED {ANONYMOUS} {what}"]


def test_rules_that_a_plan_changes_are_logged(kafka: sync.Client, audit: Audit) -> None:
    rule = {"principal": "User:alice", "operations": ["write"], "topic": "orders"}
    with kafka.admin() as admin:
        for state in ("present", "absent"):
            admin.apply(ClusterPlan.from_mapping({"acls": [{**rule, "state": state}]}))
    what = "permission=ALLOW user='User:alice' from='*' operation=WRITE resource=TOPIC:'orders' pattern=LITERAL"
    assert audit.lines == [f"ACL_CREATED {ANONYMOUS} {what}", f"ACL_DELETED {ANONYMOUS} {what}"]


def test_a_change_of_users_is_logged(kafka: sync.Client, audit: Audit) -> None:
    with kafka.admin() as admin:
        admin.alter_user_scram_credentials(upsert=ScramUpsertion("carol", "pencil", SHA_256))
        admin.alter_user_scram_credentials(delete=ScramDeletion("carol", SHA_256))
        with pytest.raises(ItemsFailedError):
            admin.alter_user_scram_credentials(delete=ScramDeletion("carol", SHA_256))
    assert audit.lines == [
        f"USER_CHANGED {ANONYMOUS} user='carol' mechanism=SCRAM-SHA-256 iterations=8192",
        f"USER_DELETED {ANONYMOUS} user='carol' mechanism=SCRAM-SHA-256",
    ]


def test_a_change_of_quotas_is_logged(kafka: sync.Client, audit: Audit) -> None:
    with kafka.admin() as admin:
        quotas = {"producer_byte_rate": 1_048_576.0, "request_percentage": 12.5}
        admin.alter_client_quotas({QuotaEntity(user="carol"): quotas}, validate_only=True)
        admin.alter_client_quotas({QuotaEntity(user="carol"): quotas})
        admin.alter_client_quotas({QuotaEntity(user="carol", client_id=DEFAULT): {"consumer_byte_rate": None}})
    assert audit.lines == [
        f"QUOTA_CHANGED {ANONYMOUS} user='carol' producer_byte_rate=1048576 request_percentage=12.5",
        f"QUOTA_CHANGED {ANONYMOUS} client-id=default user='carol' consumer_byte_rate=removed",
    ]
