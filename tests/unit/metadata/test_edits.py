"""Many changes as one (row M2): all or none, each on what those before it made, and the difference as a value."""

import pytest

from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.delta import AclsChanged, PartitionsAdded, TopicConfigChanged, TopicCreated
from fencepost.coordinator.metadata.edits import CreateAcl, DeleteAcl
from fencepost.coordinator.metadata.image import Acl, MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_records import BeginTransactionRecord, EndTransactionRecord
from tests.unit.metadata.kit import PowerCut, started, user_topics

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
        ({"resource_type": 1}, "resource type"),
        ({"pattern_type": 2}, "patternType"),
        ({"permission_type": 1}, "permissionType"),
        ({"operation": 1}, "operationType"),
        ({"resource_name": ""}, "name"),
        ({"resource_type": 4}, "kafka-cluster"),
        ({"principal": "ann"}, "principal"),
        ({"host": ""}, "host"),
    ],
)
async def test_d_acls_that_can_not_be(changed: dict[str, object], part: str) -> None:
    """As Kafka's AclControlManager checks a new ACL."""
    cluster = await started()
    [outcome] = (await cluster.service.apply([CreateAcl(ALLOW._replace(**changed))])).outcomes  # type: ignore[arg-type]
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert part in (outcome.message or "")
