"""Many changes as one (row M2): all or none, each on what those before it made, and the difference as a value."""

import pytest

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.config.topic_rules import TopicRules, cluster_facts
from fencepost.coordinator.metadata.acl_controller import AclController
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.config_controller import ConfigController
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.delta import AclsChanged, PartitionsAdded, TopicConfigChanged, TopicCreated
from fencepost.coordinator.metadata.edits import CreateAcl, DeleteAcl, EditsController
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, Acl, MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import BeginTransactionRecord, EndTransactionRecord
from tests.unit.metadata.kit import CLUSTER_ID, PowerCut, started, user_topics

ALLOW = Acl(2, "a", 3, "User:ann", "*", 3, 3)
NOT_TRIED = ErrorCode.OPERATION_NOT_ATTEMPTED


def retention(topic: str, value: str) -> ConfigEdits:
    return ConfigEdits(2, topic, (ConfigEdit("retention.ms", 0, value),))


MIXED = [
    NewTopic("a", 2),
    NewTopic("b", 1),
    MorePartitions("a", 4),
    retention("a", "7"),
    TopicRef("old"),
    NewTopic("old", 6),
    CreateAcl(ALLOW),
    CreateAcl(ALLOW),
]


async def test_m2_mixed_changes_are_one_transaction_and_later_ones_see_earlier_ones() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("old", 1)])
    cluster.heard.clear()
    count = len(cluster.log.records())
    applied = await cluster.service.apply(MIXED, name="plan")
    assert [outcome.code for outcome in applied.outcomes] == [ErrorCode.NONE] * len(MIXED)
    assert user_topics(cluster.service) == {"a": 4, "b": 1, "old": 6}
    assert cluster.service.image.topics_by_name["a"].configs == {"retention.ms": "7"}
    assert [*cluster.service.image.acls.values()] == [ALLOW], "what is there already is not made twice"
    records = cluster.log.records()[count:]
    assert records[0] == BeginTransactionRecord("plan")
    assert records[-1] == EndTransactionRecord()
    assert applied.delta is not None
    assert applied.delta.image.topics_by_name == cluster.service.image.topics_by_name
    assert {type(change) for change in applied.delta.changes} >= {TopicCreated, AclsChanged}
    assert (await started(cluster.log.survivor())).service.image == cluster.service.image


@pytest.mark.parametrize("place", range(len(MIXED) + 1))
async def test_m2_one_that_can_not_be_refuses_all(place: int) -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("old", 1)])
    before, count = cluster.service.image, len(cluster.log.batches)
    edits = [*MIXED[:place], MorePartitions("nowhere", 3), *MIXED[place:]]
    applied = await cluster.service.apply(edits)
    codes = [outcome.code for outcome in applied.outcomes]
    assert codes == [*[NOT_TRIED] * place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *[NOT_TRIED] * (len(MIXED) - place)]
    assert applied.refused
    assert cluster.service.image is before
    assert len(cluster.log.batches) == count


async def test_m2_a_dry_run_tells_the_difference_and_writes_nothing() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("a", 1)])
    before, count = cluster.service.image, len(cluster.log.batches)
    edits = [MorePartitions("a", 3), retention("a", "9"), DeleteAcl(ALLOW), CreateAcl(ALLOW)]
    dry = await cluster.service.apply(edits, validate_only=True)
    assert dry.delta is not None
    grown, altered, acls = dry.delta.changes
    assert isinstance(grown, PartitionsAdded)
    assert (grown.before, grown.topic.partitions) == (1, 3)
    assert isinstance(altered, TopicConfigChanged)
    assert isinstance(acls, AclsChanged)
    assert dry.delta.before is before is cluster.service.image
    assert len(cluster.log.batches) == count
    wet = await cluster.service.apply(edits)
    assert wet.delta is not None
    assert [type(change) for change in wet.delta.changes] == [type(change) for change in dry.delta.changes]
    assert len(cluster.log.batches) == count + 1
    [gone] = (await cluster.service.apply([DeleteAcl(ALLOW)])).outcomes
    assert gone.code is ErrorCode.NONE
    assert cluster.service.image.acls == {}


async def test_m2_what_to_change_may_be_found_out_on_the_newest_image() -> None:
    cluster = await started()
    seen: list[MetadataImage] = []

    def edits(image: MetadataImage) -> list[NewTopic]:
        seen.append(image)
        return [NewTopic(f"after-{len(image.topics_by_name)}")]

    await cluster.service.create_topics([NewTopic("a")])
    assert not (await cluster.service.apply(edits)).refused
    assert set(user_topics(cluster.service)) == {"a", "after-3"}


@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_m2_a_crash_at_any_append_leaves_all_or_nothing(dies_at: int) -> None:
    cluster = await started(bounds=Bounds(append_records_max=3))
    await cluster.service.create_topics([NewTopic("old", 1)])
    before = cluster.service.image
    cluster.log.appends, cluster.log.dies_at = 0, dies_at
    try:
        await cluster.service.apply(MIXED)
        expected = {"a": 4, "b": 1, "old": 6}
    except PowerCut:
        expected = {"old": 1}
    again = await started(cluster.log.survivor())
    assert user_topics(again.service) == expected
    assert bool(again.service.image.acls) == (len(expected) == 3)
    if len(expected) == 1:
        assert again.service.image.topics_by_id == before.topics_by_id


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"resource_type": 1}, "resourceType ANY"),
        ({"pattern_type": 2}, "patternType MATCH"),
        ({"permission_type": 1}, "permissionType ANY"),
        ({"operation": 1}, "operation ANY"),
        ({"resource_name": ""}, "name"),
        ({"resource_type": 4}, "kafka-cluster"),
        ({"principal": "ann"}, "no colon is present"),
        ({"principal": ":ann"}, "TYPE:NAME"),
        ({"host": ""}, "host"),
    ],
)
async def test_d_acls_that_can_not_be(changed: dict[str, object], part: str) -> None:
    """As Kafka's AclControlManager checks a new ACL."""
    cluster = await started()
    [outcome] = (await cluster.service.apply([CreateAcl(ALLOW._replace(**changed))])).outcomes  # type: ignore[arg-type]
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert part in (outcome.message or "")


async def test_m2_what_is_alike_is_decided_together_so_that_ten_thousand_are_no_pause() -> None:
    """It shows in that all who are wrong among them are told, as those of one CreateTopics request are."""
    cluster = await started()
    await cluster.service.create_topics([NewTopic("old", 1), NewTopic("older", 1)])
    before = cluster.service.image
    refs = [TopicRef(name="old"), TopicRef(name="none"), TopicRef(name="older"), TopicRef(name="never")]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = await cluster.service.apply(refs)
    assert [one.code for one in refused.outcomes] == [NOT_TRIED, unknown, NOT_TRIED, unknown]
    acls = [ALLOW._replace(host=""), ALLOW, ALLOW._replace(principal="ann")]
    refused = await cluster.service.apply([CreateAcl(acl) for acl in acls])
    bad = ErrorCode.INVALID_REQUEST
    assert [one.code for one in refused.outcomes] == [bad, NOT_TRIED, bad]
    assert cluster.service.image is before
    again = TopicRef(topic_id=before.topics_by_name["old"].topic_id)
    refused = await cluster.service.apply([TopicRef(name="older"), TopicRef(name="old"), again])
    assert [one.code for one in refused.outcomes] == [NOT_TRIED, NOT_TRIED, ErrorCode.UNKNOWN_TOPIC_ID]
    others = [ALLOW._replace(principal=f"User:{name}") for name in "abc"]
    done = await cluster.service.apply([*map(CreateAcl, others), DeleteAcl(others[1]), DeleteAcl(ALLOW), refs[0]])
    assert not done.refused
    assert [*cluster.service.image.acls.values()] == [others[0], others[2]]
    assert user_topics(cluster.service) == {"older": 1}


def test_m2_the_bound_counts_every_partition_of_a_request() -> None:
    """Of a run of partitions that are alike each is a record (`change_records_max`)."""
    rules = TopicRules(load_config())
    facts = cluster_facts(load_config(), CLUSTER_ID)
    topics = TopicController(facts, rules, lambda: bytes(16))
    bounded = EditsController(topics, ConfigController(facts, rules), AclController(lambda: bytes(16)), 100)
    edits = [NewTopic("a", 60), MorePartitions("a", 99)]
    assert not bounded.decide(EMPTY_IMAGE, edits).applied.refused, "60 and 39, and the topic's own: 100"
    over = bounded.decide(EMPTY_IMAGE, [edits[0], MorePartitions("a", 100)])
    assert over.records == ()
    assert [one.code for one in over.applied.outcomes] == [NOT_TRIED, ErrorCode.POLICY_VIOLATION]
