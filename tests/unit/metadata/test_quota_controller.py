"""Which changes of quotas are accepted: the rules of Kafka's ClientQuotaControlManager."""

import math

import pytest

from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage, QuotaEntity
from fencepost.coordinator.metadata.image_fold import ImageFold
from fencepost.coordinator.metadata.quota_controller import QuotaEdits, alter_quotas, quota_entity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import ClientQuotaRecord

ALICE = quota_entity({"user": "alice"})
ADDRESS = quota_entity({"ip": "10.0.0.1"})


def changed(image: MetadataImage, *changes: tuple[QuotaEntity, dict[str, float | None]]) -> MetadataImage:
    decision = alter_quotas(image, [QuotaEdits(entity, tuple(values.items())) for entity, values in changes])
    assert not any(outcome.code for outcome in decision.reply.values()), decision.reply
    fold = ImageFold(image)
    for record in decision.log:
        fold.replay(0, record)
    return fold.apply(0).image


def refusal(entity: QuotaEntity, key: str = "producer_byte_rate", value: float | None = 1.0) -> str | None:
    decision = alter_quotas(EMPTY_IMAGE, [QuotaEdits(entity, ((key, value),))])
    [outcome] = decision.reply.values()
    assert outcome.code is (ErrorCode.NONE if outcome.message is None else ErrorCode.INVALID_REQUEST)
    assert bool(decision.log) is (outcome.message is None and value is not None)
    return outcome.message


def test_quotas_are_set_changed_and_removed() -> None:
    """ClientQuotaControlManagerTest.testAlterAndRemove."""
    image = changed(EMPTY_IMAGE, (ALICE, {"producer_byte_rate": 100.0, "request_percentage": 12.5}))
    assert image.quotas == {ALICE: {"producer_byte_rate": 100.0, "request_percentage": 12.5}}
    image = changed(image, (ALICE, {"producer_byte_rate": None, "request_percentage": 50.0}))
    assert image.quotas == {ALICE: {"request_percentage": 50.0}}
    assert changed(image, (ALICE, {"request_percentage": None})).quotas == {}


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    image = changed(EMPTY_IMAGE, (ALICE, {"producer_byte_rate": 100.0}))
    same = QuotaEdits(ALICE, (("producer_byte_rate", 100.0), ("consumer_byte_rate", None)))
    assert not alter_quotas(image, [same]).log


def test_a_validation_writes_nothing() -> None:
    decision = alter_quotas(EMPTY_IMAGE, [QuotaEdits(ALICE, (("producer_byte_rate", 1.0),))], validate_only=True)
    assert decision.reply[ALICE].code is ErrorCode.NONE
    assert not decision.log


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"user": ""}, "Empty user not supported"),
        ({"client-id": ""}, "Empty client-id not supported"),
        ({"group": "g"}, "Unhandled client quota entity type: group"),
        (
            {"ip": "10.0.0.1", "user": "alice"},
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ({"ip": "no address"}, "no address is not a valid IP address; host names are not resolved"),
    ],
)
def test_an_invalid_entity_is_refused(parts: dict[str, str | None], why: str) -> None:
    """ClientQuotaControlManagerTest.testEntityTypes."""
    key = "connection_creation_rate" if "ip" in parts else "producer_byte_rate"
    assert refusal(quota_entity(parts), key) == why


@pytest.mark.parametrize(
    "parts", [{"user": None}, {"client-id": None}, {"user": "a", "client-id": None}, {"user": None, "client-id": "b"}]
)
def test_defaults_and_pairs_are_entities(parts: dict[str, str | None]) -> None:
    assert refusal(quota_entity(parts)) is None


@pytest.mark.parametrize(
    ("entity", "key", "value", "why"),
    [
        (ALICE, "not.existing", 1.0, "Invalid configuration key not.existing"),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (ADDRESS, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (ALICE, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, "request_percentage", -1.0, "Quota request_percentage must be greater than 0"),
        (ALICE, "request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        (ALICE, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, "consumer_byte_rate", 2.0**64, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (ADDRESS, "connection_creation_rate", 2.0**31,
         "Proposed value for connection_creation_rate is too large for an INT."),
        (ALICE, "request_percentage", 0.5, None),
        (ALICE, "controller_mutation_rate", 0.1, None),
        (ADDRESS, "connection_creation_rate", 20.0, None),
        (quota_entity({"ip": None}), "connection_creation_rate", 20.0, None),
        (quota_entity({"ip": "::1"}), "connection_creation_rate", 20.0, None),
    ],
)  # fmt: skip
def test_values_are_checked(entity: QuotaEntity, key: str, value: float, why: str | None) -> None:
    """ClientQuotaControlManagerTest.testInvalidQuotaValue and others; NaN, which Kafka accepts, would limit nothing."""
    assert refusal(entity, key, value) == why


def test_an_entity_that_is_named_twice_is_refused_once() -> None:
    """The first change stands, as in Kafka, and the answer for the entity is the error."""
    twice = [QuotaEdits(ALICE, (("producer_byte_rate", rate),)) for rate in (1.0, 2.0)]
    decision = alter_quotas(EMPTY_IMAGE, twice)
    assert decision.reply[ALICE].message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert [record.value for record in decision.log if isinstance(record, ClientQuotaRecord)] == [1.0]


def test_a_key_that_is_named_twice_is_refused() -> None:
    change = QuotaEdits(ALICE, (("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)))
    decision = alter_quotas(EMPTY_IMAGE, [change])
    assert decision.reply[ALICE].code is ErrorCode.INVALID_REQUEST
    assert not decision.log
