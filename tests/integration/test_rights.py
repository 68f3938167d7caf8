"""A changed rule counts for the next request: also on fast paths, for cached answers and for fetches that wait."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.golden.group_scenarios import message
from tests.golden.rights_scenarios import SETTINGS, Stage
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import ConnectionEnded, batch_of, fetch_request, produce_request

pytestmark = pytest.mark.long
TOPIC, TRANSACTIONAL_ID, DENY, READ, WRITE, DELETE, DESCRIBE = 2, 5, 2, 3, 4, 6, 8
PRODUCE, FETCH, METADATA, CREATE_ACLS, DELETE_ACLS, INIT_PRODUCER_ID = 0, 1, 3, 30, 31, 22
CLIENT = "mine"
"""A client that may do everything with topics whose names begin so."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with BrokerProcess(tmp_path_factory.mktemp("rights"), settings=SETTINGS) as broker:
        made = Stage(broker.address)
        made.prepare()
        yield made
        made.close()
        assert "Traceback" not in broker.log()


def deny(stage: Stage, operation: int, name: str, kind: int = TOPIC) -> None:
    """Deny the client an operation."""
    acl = message(
        CREATE_ACLS,
        "AclCreation",
        resource_type=kind,
        resource_name=name,
        principal="User:ANONYMOUS",
        host="127.0.0.3",
        operation=operation,
        permission_type=DENY,
    )
    answer = as_admin(stage, CREATE_ACLS, 3, message(CREATE_ACLS, "CreateAclsRequest", creations=[acl]))
    assert answer.results[0].error_code == 0


def allow_again(stage: Stage) -> None:
    """Delete every rule that denies."""
    chosen = message(
        DELETE_ACLS,
        "DeleteAclsFilter",
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=DENY,
    )
    answer = as_admin(stage, DELETE_ACLS, 3, message(DELETE_ACLS, "DeleteAclsRequest", filters=[chosen]))
    assert answer.filter_results[0].matching_acls


def as_admin(stage: Stage, api_key: int, version: int, request: Any) -> Any:
    stage.client = "all"
    try:
        return stage.call(api_key, version, request)
    finally:
        stage.client = CLIENT


def test_a_repeated_produce_request_obeys_a_new_rule(stage: Stage) -> None:
    """R11: the second and third request are read by their known bytes (docs/decisions/0049)."""
    stage.client = CLIENT

    def produce(acks: int = -1) -> Any:
        asked = produce_request("mine", batch_of(b"a"), acks=acks)
        return stage.call(PRODUCE, 9, asked).responses[0].partition_responses[0].error_code

    assert [produce(), produce(), produce()] == [0, 0, 0]
    deny(stage, WRITE, "mine")
    assert [produce(), produce()] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    with pytest.raises(ConnectionEnded):  # acks=0: no answer can say it, as in Kafka
        produce(acks=0)
    allow_again(stage)
    assert produce() == 0


def test_a_fetch_that_waits_is_answered_by_the_rules_of_its_end(stage: Stage) -> None:
    """R11."""
    stage.client = CLIENT
    asked = produce_request("mine", batch_of(b"a"))
    end = stage.call(PRODUCE, 9, asked).responses[0].partition_responses[0].base_offset + 1
    wire = stage.wire(CLIENT)
    sent = wire.send(FETCH, 11, fetch_request("mine", end, max_wait_ms=60_000, min_bytes=1))
    deny(stage, READ, "mine")
    as_admin(stage, PRODUCE, 9, asked)
    correlation_id, answer = wire.receive(FETCH, 11)
    [part] = answer.responses[0].partitions
    allow_again(stage)
    assert (correlation_id, part.error_code) == (sent, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert not part.records


def test_a_list_of_all_topics_loses_a_topic_with_its_rule(stage: Stage) -> None:
    """R11."""
    stage.client = CLIENT

    def names() -> set[str]:
        return {
            topic.name for topic in stage.call(METADATA, 12, message(METADATA, "MetadataRequest", topics=None)).topics
        }

    assert "mine" in names()
    assert "theirs" not in names()
    deny(stage, DESCRIBE, "mine")
    assert "mine" not in names()
    allow_again(stage)
    assert "mine" in names()


def test_a_transaction_obeys_a_new_rule(stage: Stage) -> None:
    """KIP-98: what fences a producer needs WRITE on the transactional id."""
    stage.client = CLIENT

    def begin() -> int:
        asked = message(
            INIT_PRODUCER_ID, "InitProducerIdRequest", transactional_id="mine-pays", transaction_timeout_ms=60_000
        )
        return int(stage.call(INIT_PRODUCER_ID, 4, asked).error_code)

    assert begin() == 0
    deny(stage, WRITE, "mine-pays", TRANSACTIONAL_ID)
    assert begin() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow_again(stage)
    assert begin() == 0


def test_the_history_of_a_transaction_needs_describe_on_the_cluster(stage: Stage) -> None:
    """It may name topics and groups that the client may not see."""
    asked = message(65, "DescribeTransactionsRequest", transactional_ids=["mine-pays"], explain=True)
    stage.client = CLIENT
    [state] = stage.call(65, 0, asked).transaction_states
    assert (state.error_code, state.history) == (0, None)
    [state] = as_admin(stage, 65, 0, asked).transaction_states
    assert state.history is not None


def planned(stage: Stage, topics: tuple[str, ...] = (), *, acl: bool = False, absent: bool = False) -> list[Any]:
    """The problems of a plan with these topics, and with an ACL, as (kind, name, error)."""
    wanted = [
        message(19, "PlannedTopic", name=name, partitions=1, replication_factor=-1, absent=absent) for name in topics
    ]
    rule = message(
        19,
        "PlannedAcl",
        resource_type=TOPIC,
        resource_name="elsewhere",
        pattern_type=3,
        principal="User:ANONYMOUS",
        host="127.0.0.3",
        operation=READ,
        permission_type=3,
    )
    plan = message(19, "Plan", topics=wanted, resources=[], acls=[rule] if acl else [])
    answer = stage.call(19, 7, message(19, "CreateTopicsRequest", plan=plan, topics=[], timeout_ms=30_000))
    return [(one.kind, one.name, one.error_code) for one in answer.plan.problems]


def test_a_plan_needs_the_rights_of_each_of_its_changes(stage: Stage) -> None:
    """All or nothing: one part without a right, and no part is applied."""
    stage.client = CLIENT
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert planned(stage, ("mine-planned", "theirs-planned")) == [("topic", "theirs-planned", refused)]
    assert planned(stage, ("mine-planned",), acl=True) == [("acl", "0", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    topic = message(METADATA, "MetadataRequestTopic", name="mine-planned")
    asked = message(METADATA, "MetadataRequest", topics=[topic], allow_auto_topic_creation=False)
    assert stage.call(METADATA, 12, asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert planned(stage, ("mine-planned",)) == []
    deny(stage, DELETE, "mine-planned")
    assert planned(stage, ("mine-planned",), absent=True) == [("topic", "mine-planned", refused)]
    allow_again(stage)
    assert planned(stage, ("mine-planned",), absent=True) == []
    stage.client = "describer"
    assert planned(stage, ("theirs-planned",)) == [("topic", "theirs-planned", refused)]
    stage.client = "all"
    assert planned(stage, ("theirs-planned",), acl=True) == []


def test_a_regular_expression_matches_only_topics_that_the_member_may_see(stage: Stage) -> None:
    """KIP-848: GroupMetadataManager leaves out the topics that the requesting member may not describe."""
    stage.client = CLIENT

    def heartbeat(epoch: int, **fields: Any) -> Any:
        asked = message(
            68, "ConsumerGroupHeartbeatRequest", group_id="mine-watch", member_id="A" * 22, member_epoch=epoch, **fields
        )
        answer = stage.call(68, 1, asked)
        assert answer.error_code == 0, answer.error_message
        return answer

    joined = heartbeat(0, subscribed_topic_regex="(mine|theirs)", topic_partitions=[], rebalance_timeout_ms=60_000)
    deadline = time.monotonic() + 60
    while not joined.assignment or not joined.assignment.topic_partitions:
        assert time.monotonic() < deadline
        joined = heartbeat(joined.member_epoch)
    assert [one.topic_id for one in joined.assignment.topic_partitions] == [stage.ids["mine"]]
