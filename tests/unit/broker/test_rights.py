"""The table of rights is complete, and what it refuses as a whole is refused in every version (Kafka's KafkaApis)."""

import logging
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

import pytest

from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.security.audit import LINES_PER_SECOND, RepeatLimit
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.checks import brokers_only, is_allowed, is_loopback
from fencepost.broker.security.gate import refusal
from fencepost.broker.security.principal import Principal
from fencepost.broker.security.rights import BROKERS_ONLY, RIGHTS, Effect
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType
from fencepost.protocol.api_keys import SERVED, ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from tests.golden.group_scenarios import message, plain

ALICE = Principal("User", "alice")


@dataclass
class Settings:
    allow_remote_broker_requests: bool = False


@dataclass
class Broker:
    """The port that checks need: an authorizer and the settings."""

    authorizer: Authorizer | None
    config: Settings = field(default_factory=Settings)


def context(api_key: int, version: int, host: str = "10.0.0.9") -> RequestContext:
    return RequestContext(api_key, version, 1, "app", Session(host, Endpoint("127.0.0.1", 9092), ALICE))


def acl(operation: AclOperation, kind: AclResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)


REFUSED = [
    (key, version)
    for key, rights in RIGHTS.items()
    if any(right.effect is Effect.REQUEST for right in rights)
    for version in range(SERVED[key].declared[0], SERVED[key].declared[1] + 1)
]


SHARE_STATES = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "InitializeStateData",
    ApiKey.READ_SHARE_GROUP_STATE: "ReadStateData",
    ApiKey.WRITE_SHARE_GROUP_STATE: "WriteStateData",
    ApiKey.DELETE_SHARE_GROUP_STATE: "DeleteStateData",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "ReadStateSummaryData",
}


def request_of(key: ApiKey) -> Any:
    """A request that names one resource wherever the table refuses it as a whole."""
    filled: dict[ApiKey, dict[str, Any]] = {
        ApiKey.OFFSET_COMMIT: {
            "topics": [
                message(
                    8,
                    "OffsetCommitRequestTopic",
                    name="t",
                    partitions=[message(8, "OffsetCommitRequestPartition", partition_index=0)],
                )
            ]
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            "topics": [
                message(
                    28,
                    "TxnOffsetCommitRequestTopic",
                    name="t",
                    partitions=[message(28, "TxnOffsetCommitRequestPartition", partition_index=0)],
                )
            ]
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            "v3_and_below_topics": [message(24, "AddPartitionsToTxnTopic", name="t", partitions=[0])]
        },
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                message(
                    27,
                    "WritableTxnMarker",
                    topics=[message(27, "WritableTxnMarkerTopic", name="t", partition_indexes=[0])],
                )
            ]
        },
        ApiKey.CREATE_ACLS: {"creations": [message(30, "AclCreation")]},
        ApiKey.DELETE_ACLS: {"filters": [message(31, "DeleteAclsFilter")]},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {
            "dirs": [
                message(
                    34, "AlterReplicaLogDir", topics=[message(34, "AlterReplicaLogDirTopic", name="t", partitions=[0])]
                )
            ]
        },
        ApiKey.ELECT_LEADERS: {"topic_partitions": [message(43, "TopicPartitions", topic="t", partitions=[0])]},
        ApiKey.ALTER_CLIENT_QUOTAS: {"entries": [message(49, "EntryData", entity=[], ops=[])]},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
            "deletions": [message(51, "ScramCredentialDeletion", name="bob", mechanism=1)]
        },
    }
    filled[ApiKey.SHARE_FETCH] = filled[ApiKey.SHARE_ACKNOWLEDGE] = {"group_id": "g"}
    if key in SHARE_STATES:
        part = message(key, "PartitionData", partition=3)
        filled[key] = {"topics": [message(key, SHARE_STATES[key], topic_id=b"t" * 16, partitions=[part])]}
    return message(key, f"{key.api_name}Request", **filled.get(key, {}))


def codes_in(value: Any) -> set[int]:
    """Every error code of an answer."""
    if isinstance(value, dict):
        own = {code for name, code in value.items() if name.endswith("error_code")}
        return own.union(*(codes_in(inner) for inner in value.values()))
    return set().union(*map(codes_in, value)) if isinstance(value, list) else set()


def test_every_served_api_has_its_rights_in_the_table() -> None:
    """R10."""
    served = {api.key for api in Dispatch(unstable=True).served} | {ApiKey.ENVELOPE}  # of which clients are not told
    assert served == RIGHTS.keys(), "a new API needs its rows in fencepost/broker/security/rights.py"


@pytest.mark.parametrize("key", [key for key in RIGHTS if RIGHTS[key]], ids=lambda key: key.api_name)
def test_every_right_names_a_field_of_the_request(key: ApiKey) -> None:
    fields = API_BY_KEY[key].request.__slots__
    for right in RIGHTS[key]:
        assert not right.of or right.of in fields or " " in right.of or right.of == "any", right
        assert right.of in fields or right.of in ("", "any") or right.effect is not Effect.REQUEST, right
        assert all(name in fields for name in (right.if_set, right.if_null) if name), right


@pytest.mark.parametrize(("key", "version"), REFUSED)
def test_a_request_without_a_right_is_refused_in_every_version(key: ApiKey, version: int) -> None:
    """With no rule at all every operation is denied; the answer can be encoded, and holds no other error."""
    api, asked = API_BY_KEY[key], request_of(key)
    answer = refusal(Broker(Authorizer(())), asked, context(key, version))
    assert answer is not None
    errors = {right.error for right in RIGHTS[key] if right.effect is Effect.REQUEST}
    decoded = api.response.decode(api.response.encode(answer, version), version)
    codes = codes_in(plain(decoded)) - {ErrorCode.NONE}
    if key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:  # no field for it: Kafka answers with no directory
        assert (codes, decoded.results) == (set(), [])
    else:
        assert len(codes) == 1
        assert codes <= errors


@pytest.mark.parametrize(("key", "version"), REFUSED)
def test_a_super_user_is_refused_nothing(key: ApiKey, version: int) -> None:
    broker = Broker(Authorizer((), ["User:alice"]))
    assert refusal(broker, request_of(key), context(key, version)) is None


def test_kip_98_write_txn_markers_needs_alter_or_cluster_action() -> None:
    """KafkaApis.handleWriteTxnMarkersRequest: ALTER on the cluster is tried first, for an operator's abort."""
    asked, cluster = request_of(ApiKey.WRITE_TXN_MARKERS), AclResourceType.CLUSTER
    for operation, refused in (
        (AclOperation.ALTER, False),
        (AclOperation.CLUSTER_ACTION, False),
        (AclOperation.DESCRIBE, True),
    ):
        broker = Broker(Authorizer([acl(operation, cluster, "kafka-cluster")]))
        assert (refusal(broker, asked, context(ApiKey.WRITE_TXN_MARKERS, 1)) is not None) == refused


@pytest.mark.parametrize("key", SHARE_STATES, ids=lambda key: key.api_name)
def test_kip_932_only_brokers_ask_the_share_coordinator(key: ApiKey) -> None:
    """KafkaApis, `toGlobalErrorResponse`: CLUSTER_ACTION; each partition is refused, with Kafka's message."""
    asked, cluster = request_of(key), AclResourceType.CLUSTER
    answer: Any = refusal(
        Broker(Authorizer([acl(AclOperation.ALTER, cluster, "kafka-cluster")])), asked, context(key, 0)
    )
    [topic] = answer.results
    [part] = topic.partitions
    assert (topic.topic_id, part.partition) == (b"t" * 16, 3)
    assert (part.error_code, part.error_message) == (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "Cluster authorization failed.",
    )
    may = Broker(Authorizer([acl(AclOperation.CLUSTER_ACTION, cluster, "kafka-cluster")]))
    assert refusal(may, asked, context(key, 0)) is None


def test_transactional_acknowledgements_need_the_rights_of_transactional_offsets() -> None:
    """As KafkaApis.handleTxnOffsetCommitRequest: WRITE on the transactional id, READ on the group."""
    key = ApiKey.TXN_SHARE_ACKNOWLEDGE
    asked = message(key, "TxnShareAcknowledgeRequest", transactional_id="x", group_id="g")
    write = acl(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "x")
    read = acl(AclOperation.READ, AclResourceType.GROUP, "g")
    for rules, error in (
        ([read], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ([write], ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ([read, write], ErrorCode.NONE),
    ):
        answer: Any = refusal(Broker(Authorizer(rules)), asked, context(key, 0))
        assert (ErrorCode.NONE if answer is None else answer.error_code) == error


@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE], ids=lambda key: key.api_name)
def test_kip_932_members_of_a_share_group_need_read_on_it(key: ApiKey) -> None:
    """KafkaApis.handleShareFetchRequest: a request without a group is not refused here, but by its handler."""
    reader = Broker(Authorizer([acl(AclOperation.READ, AclResourceType.GROUP, "g")]))
    for group_id, refused in (("g", False), ("h", True), (None, False)):
        asked = message(key, f"{key.api_name}Request", group_id=group_id)
        answer: Any = refusal(reader, asked, context(key, 1))
        assert (answer is not None) == refused, group_id
        assert answer is None or answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("key", "operation"),
    [
        (ApiKey.SHARE_GROUP_HEARTBEAT, AclOperation.READ),
        (ApiKey.ALTER_SHARE_GROUP_OFFSETS, AclOperation.READ),
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, AclOperation.DELETE),
    ],
)
def test_kip_932_requests_about_a_share_group_need_a_right_on_it(key: ApiKey, operation: AclOperation) -> None:
    """KafkaApis: handleShareGroupHeartbeat, handleAlterShareGroupOffsets, handleDeleteShareGroupOffsets."""
    asked = message(key, f"{key.api_name}Request", group_id="g")
    allowed = Broker(Authorizer([acl(operation, AclResourceType.GROUP, "g")]))
    assert refusal(allowed, asked, context(key, API_BY_KEY[key].served[0])) is None
    describer = Broker(Authorizer([acl(AclOperation.DESCRIBE, AclResourceType.GROUP, "g")]))
    answer: Any = refusal(describer, asked, context(key, API_BY_KEY[key].served[0]))
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_kip_932_a_member_may_describe_every_topic_that_it_wants() -> None:
    """KafkaApis.handleShareGroupHeartbeat: TOPIC_AUTHORIZATION_FAILED for the whole request."""
    rules = [
        acl(AclOperation.READ, AclResourceType.GROUP, "g"),
        acl(AclOperation.DESCRIBE, AclResourceType.TOPIC, "mine"),
    ]
    for topics, refused in ((["mine"], False), (["mine", "theirs"], True), (None, False), ([], False)):
        asked = message(76, "ShareGroupHeartbeatRequest", group_id="g", subscribed_topic_names=topics)
        answer: Any = refusal(Broker(Authorizer(rules)), asked, context(76, 1))
        assert (answer is not None) == refused, topics
        assert answer is None or answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_kip_679_a_producer_id_needs_write_on_any_topic_or_idempotent_write() -> None:
    """P8: KafkaApis.handleInitProducerIdRequest, for a request without a transactional id."""
    asked = message(22, "InitProducerIdRequest", transactional_id=None)
    on_a_topic = Broker(Authorizer([acl(AclOperation.WRITE, AclResourceType.TOPIC, "not-there-yet")]))
    on_cluster = Broker(Authorizer([acl(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, "kafka-cluster")]))
    reader = Broker(Authorizer([acl(AclOperation.READ, AclResourceType.TOPIC, "t")]))
    there = context(ApiKey.INIT_PRODUCER_ID, 4)
    assert refusal(on_a_topic, asked, there) is None
    assert refusal(on_cluster, asked, there) is None
    answer: Any = refusal(reader, asked, there)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
    with_id = message(22, "InitProducerIdRequest", transactional_id="pay")
    answer = refusal(on_cluster, with_id, there)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_kip_939_two_phase_commit_is_a_right_of_its_own() -> None:
    asked = message(22, "InitProducerIdRequest", transactional_id="pay", enable2_pc=True)
    writer = Broker(Authorizer([acl(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "pay")]))
    answer: Any = refusal(writer, asked, context(ApiKey.INIT_PRODUCER_ID, 6))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    asked = message(22, "InitProducerIdRequest", transactional_id="pay", enable2_pc=False)
    assert refusal(writer, asked, context(ApiKey.INIT_PRODUCER_ID, 6)) is None
    asked = message(22, "InitProducerIdRequest", transactional_id=None, enable2_pc=True)
    answer = refusal(writer, asked, context(ApiKey.INIT_PRODUCER_ID, 6))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "without an id there is nothing to prepare"


@pytest.mark.parametrize(("key", "version"), BROKERS_ONLY.items())
def test_without_an_authorizer_requests_of_brokers_come_from_this_machine_only(key: ApiKey, version: int) -> None:
    """R12."""
    asked = request_of(key)
    for host, setting, served in (
        ("10.0.0.9", False, False),
        ("10.0.0.9", True, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
    ):
        answer = brokers_only(Broker(None, Settings(setting)), asked, context(key, version, host))
        assert (answer is None) == served, host
    assert not is_loopback("localhost.example")


@pytest.mark.parametrize(("key", "version"), BROKERS_ONLY.items())
async def test_the_handlers_refuse_requests_of_brokers_from_other_machines(key: ApiKey, version: int) -> None:
    """R12."""
    handle = Dispatch().route(key, version).handle
    reply: Any = handle(Broker(None), request_of(key), context(key, version))
    answer = await reply if isawaitable(reply) else reply
    assert codes_in(plain(answer)) - {0} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_repeated_denials_are_counted_not_written(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each cause, at most ten a second; the next line says how many were left out."""
    there, broker = context(ApiKey.PRODUCE, 12), Broker(Authorizer(()))
    with caplog.at_level(logging.INFO, "fencepost.audit"):
        for _ in range(10 * LINES_PER_SECOND):
            assert not is_allowed(broker, there, AclOperation.WRITE, AclResourceType.TOPIC, "orders")
        assert not is_allowed(broker, there, AclOperation.READ, AclResourceType.TOPIC, "orders")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "DENIED principal=User:alice host=10.0.0.9 operation=WRITE resource=TOPIC:'orders' api=Produce version=12 "
        "client_id='app'"
    )
    assert LINES_PER_SECOND < len(lines) <= 2 * LINES_PER_SECOND + 1
    assert "operation=READ" in lines[-1]


def test_a_limited_cause_reports_what_it_left_out() -> None:
    limit, passed = RepeatLimit(), []
    for at in [0.0] * (LINES_PER_SECOND + 3) + [1.5]:
        record = logging.LogRecord("fencepost.audit", logging.INFO, "", 0, "DENIED", (), None)
        record.created, record.__dict__["cause"] = at, "alice"
        if limit.filter(record):
            passed.append(record.getMessage())
    assert passed == ["DENIED"] * LINES_PER_SECOND + ["DENIED left_out_before=3"]


def test_an_allowed_operation_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(Authorizer((), ["User:alice"]))
    with caplog.at_level(logging.DEBUG, "fencepost.audit"):
        assert is_allowed(broker, context(ApiKey.FETCH, 12), AclOperation.READ, AclResourceType.TOPIC, "t")
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["ALLOWED"]
