"""The changes that records about brokers, ACLs, quotas and SCRAM credentials make to an image."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Generic, TypeVar, assert_never

from fencepost.coordinator.metadata.delta import (
    AclsChanged,
    BrokersChanged,
    Change,
    MetadataCorrupt,
    QuotasChanged,
    ScramUsersChanged,
)
from fencepost.coordinator.metadata.image import Acl, MetadataImage, QuotaEntity, ScramCredential, ScramUser
from fencepost.protocol.metadata_record_types import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

AccessRecord = (
    RegisterBrokerRecord
    | RegisterControllerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
)


class AccessFold:
    """The part of `ImageFold` for records that are not about topics."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._brokers: _Overlay[int, RegisterBrokerRecord] = _Overlay(image.brokers)
        self._controllers: _Overlay[int, RegisterControllerRecord] = _Overlay(image.controllers)
        self._acls: _Overlay[bytes, Acl] = _Overlay(image.acls)
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._scram: _Overlay[ScramUser, ScramCredential] = _Overlay(image.scram)

    def replay(self, offset: int, record: AccessRecord) -> None:
        """Apply one record. Raises MetadataCorrupt if it contradicts the records before it."""
        match record:
            case RegisterBrokerRecord():
                features = tuple(sorted(record.features, key=attrgetter("name")))
                self._brokers.put(record.broker_id, record._replace(features=features))
            case RegisterControllerRecord():
                self._controllers.put(record.controller_id, record)
            case UnregisterBrokerRecord():
                self._broker(offset, record.broker_id, record.broker_epoch)
                self._brokers.put(record.broker_id, None)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                broker = self._broker(offset, record.id, record.epoch)
                self._brokers.put(record.id, broker._replace(fenced=isinstance(record, FenceBrokerRecord)))
            case BrokerRegistrationChangeRecord():
                self._change_broker(offset, record)
            case UserScramCredentialRecord():
                self._scram.put(ScramUser(*record[:2]), ScramCredential(*record[2:]))
            case RemoveUserScramCredentialRecord():
                user = ScramUser(*record)
                if self._scram.get(user) is None:
                    raise MetadataCorrupt(offset, f"user {record.name} has no password of mechanism {record.mechanism}")
                self._scram.put(user, None)
            case ClientQuotaRecord():
                self._set_quota(record)
            case AccessControlEntryRecord():
                if self._acls.get(record.id) is not None:
                    raise MetadataCorrupt(offset, f"the ACL id {record.id.hex()} is in use")
                self._acls.put(record.id, Acl(*record[1:]))
            case RemoveAccessControlEntryRecord():
                if self._acls.get(record.id) is None:
                    raise MetadataCorrupt(offset, f"no ACL has the id {record.id.hex()}")
                self._acls.put(record.id, None)
            case _:
                assert_never(record)

    def _broker(self, offset: int, broker_id: int, epoch: int) -> RegisterBrokerRecord:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.broker_epoch != epoch:
            raise MetadataCorrupt(offset, f"broker {broker_id} is not registered with epoch {epoch}")
        return broker

    def _change_broker(self, offset: int, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(offset, record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(log_dirs=record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=record.cordoned_log_dirs)
        self._brokers.put(record.broker_id, broker)

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=itemgetter(0)))
        if entity not in self._quotas:
            self._quotas[entity] = dict(self._image.quotas.get(entity, {}))
        if record.remove:
            self._quotas[entity].pop(record.key, None)
        else:
            self._quotas[entity][record.key] = record.value

    def apply(self, image: MetadataImage) -> MetadataImage:
        """`image` with all replayed records."""
        quotas = image.quotas
        if self._quotas:
            quotas = {entity: limits for entity, limits in {**quotas, **self._quotas}.items() if limits}
        return replace(
            image,
            brokers=self._brokers.result(),
            controllers=self._controllers.result(),
            acls=self._acls.result(),
            quotas=quotas,
            scram=self._scram.result(),
        )

    def changes(self) -> list[Change]:
        """The changes to report to observers."""
        changes: list[Change] = []
        if brokers := self._brokers.keys():
            changes.append(BrokersChanged(brokers))
        if acls := self._acls.keys():
            gone = frozenset(acl_id for acl_id in acls if self._acls.get(acl_id) is None)
            changes.append(AclsChanged(acls - gone, gone))
        before = self._image.quotas
        if quotas := frozenset(who for who, limits in self._quotas.items() if before.get(who, {}) != limits):
            changes.append(QuotasChanged(quotas))
        if users := self._scram.keys():
            changes.append(ScramUsersChanged(users))
        return changes


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class _Overlay(Generic[KeyT, ValueT]):
    """`base` with changes on top; only `result` merges them, so dropping the overlay undoes them."""

    def __init__(self, base: Mapping[KeyT, ValueT]) -> None:
        self._base = base
        self._changed: dict[KeyT, ValueT | None] = {}

    def get(self, key: KeyT) -> ValueT | None:
        return self._changed[key] if key in self._changed else self._base.get(key)

    def put(self, key: KeyT, value: ValueT | None) -> None:
        self._changed[key] = value

    def keys(self) -> frozenset[KeyT]:
        """The keys whose value differs from `base`."""
        base = self._base
        return frozenset(key for key, value in self._changed.items() if base.get(key) != value)

    def result(self) -> Mapping[KeyT, ValueT]:
        """The next mapping; `base` itself if nothing changed."""
        if not self._changed:
            return self._base
        merged = dict(self._base)
        for key, value in self._changed.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged
