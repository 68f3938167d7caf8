"""The output of `fencepost metadata-shell DIR history`: the changes, by transaction."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fencepost.cli.metadata.tree import ALL_BROKERS, SECTIONS, entity_name, escaped, mechanism_name, open_value, plain
from fencepost.cli.plain_text import cell, counted, moment, shown_id
from fencepost.client.admin.plan_types import shown_rule
from fencepost.client.admin.security_types import acl_of
from fencepost.protocol import metadata_record_types as types
from fencepost.protocol.metadata_entries import PartitionRun

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.history import MetadataChange

_SECRET = ("salt", "stored_key", "server_key")
_MARKERS = (types.BeginTransactionRecord, types.EndTransactionRecord, types.AbortTransactionRecord)


class HistoryText:
    """The lines of moments, in order. It remembers the topics' names from earlier records."""

    def __init__(self, under: list[str], everything: bool) -> None:
        self._under = under
        self._everything = everything
        self._names: dict[bytes, str] = {}
        self._rules: dict[bytes, str] = {}

    def lines(self, one: "MetadataChange") -> Iterator[str]:
        """One moment; nothing if it was not committed, or does not concern the path."""
        entries = [(entry.offset, *self._entry(one, entry.entry)) for entry in one.entries]
        if one.verdict.value != "committed" and not self._everything:
            return
        shown = [(offset, path, what) for offset, path, what in entries if path is not None and self._is_under(path)]
        if not shown and (self._under or not self._everything):
            return
        yield self._head(one)
        for offset, path, what in shown:
            yield f"  {offset:>8}  /{'/'.join(path)}{'  ' + what if what else ''}"

    def _head(self, one: "MetadataChange") -> str:
        count = one.next_offset - one.first_offset
        how = "transaction" if one.in_transaction else "batch"
        name = f" {cell(one.name)!r}" if one.name else ""
        why = f": {cell(one.reason)}" if one.reason else ""
        verdict = "" if one.verdict.value == "committed" else f", {one.verdict.value.upper()}{why}"
        until = one.next_offset - 1
        offsets = str(one.first_offset) if count == 1 else f"{one.first_offset}-{until}"
        return f"{offsets}  {moment(one.timestamp_ms)}  {how}{name}, {counted(count, 'record')}{verdict}"

    def _is_under(self, path: list[str]) -> bool:
        return path[: len(self._under)] == self._under

    # -- the path and the text of each record

    def _entry(self, one: "MetadataChange", entry: Any) -> tuple[list[str] | None, str]:
        match entry:
            case types.TopicRecord():
                self._names[entry.topic_id] = entry.name
                return ["topics", entry.name], f"created, id {shown_id(entry.topic_id)}"
            case types.RemoveTopicRecord():
                return ["topics", self._name(one, entry.topic_id)], "deleted"
            case PartitionRun():
                first = entry.first
                path = ["topics", self._name(one, first.topic_id), "partitions"]
                if entry.length == 1:
                    return [*path, str(first.partition_id)], _partition(first)
                last = first.partition_id + entry.length - 1
                return path, f"{first.partition_id} to {last}: {_partition(first)}"
            case types.PartitionRecord():
                path = ["topics", self._name(one, entry.topic_id), "partitions", str(entry.partition_id)]
                return path, _partition(entry)
            case types.PartitionChangeRecord():
                path = ["topics", self._name(one, entry.topic_id), "partitions", str(entry.partition_id)]
                return path, _fields(entry, ("partition_id", "topic_id"))
            case types.ConfigRecord():
                value = open_value(entry.name, entry.value)
                return _config_path(entry), "unset" if value is None else f"= {cell(value)}"
            case _:
                return self._other(one, entry)

    def _other(self, one: "MetadataChange", entry: Any) -> tuple[list[str] | None, str]:
        match entry:
            case types.FeatureLevelRecord():
                return ["features", entry.name], f"= {entry.feature_level}"
            case types.ProducerIdsRecord():
                return ["producer-ids", "next"], f"= {entry.next_producer_id}"
            case types.AccessControlEntryRecord():
                self._rules[entry.id] = _rule(entry)
                return ["acls", shown_id(entry.id)], self._rules[entry.id]
            case types.RemoveAccessControlEntryRecord():
                return ["acls", shown_id(entry.id)], f"deleted {self._rule(one, entry.id)}".rstrip()
            case types.ClientQuotaRecord():
                name = entity_name((part.entity_type, part.entity_name) for part in entry.entity)
                return ["quotas", escaped(name), entry.key], "unset" if entry.remove else f"= {entry.value:g}"
            case types.UserScramCredentialRecord():
                return _scram_path(entry), f"iterations {entry.iterations}"
            case types.RemoveUserScramCredentialRecord():
                return _scram_path(entry), "deleted"
            case types.RegisterBrokerRecord() | types.UnregisterBrokerRecord() | types.BrokerRegistrationChangeRecord():
                return ["brokers", str(entry.broker_id)], f"{_kind(entry)} {_fields(entry, ('broker_id',))}"
            case types.FenceBrokerRecord() | types.UnfenceBrokerRecord():
                return ["brokers", str(entry.id)], f"{_kind(entry)} {_fields(entry, ('id',))}"
            case types.NoOpRecord():
                return None, ""
            case _:
                return None if isinstance(entry, _MARKERS) else [_kind(entry)], _fields(entry, ())

    def _name(self, one: "MetadataChange", topic_id: bytes) -> str:
        """The topic's name, from an earlier record or from the state before."""
        known = self._names.get(topic_id)
        if known is None and one.delta is not None:
            topic = one.delta.before.topics_by_id.get(topic_id) or one.delta.image.topics_by_id.get(topic_id)
            known = None if topic is None else topic.name
        return known if known is not None else shown_id(topic_id)

    def _rule(self, one: "MetadataChange", acl_id: bytes) -> str:
        """The access rule, from an earlier record or from the state before."""
        if acl_id not in self._rules and one.delta is not None and acl_id in one.delta.before.acls:
            return _rule(one.delta.before.acls[acl_id])
        return self._rules.get(acl_id, "")


def _partition(record: Any) -> str:
    return f"leader {record.leader}, replicas {list(record.replicas)}, isr {list(record.isr)}"


def _config_path(record: Any) -> list[str]:
    section = SECTIONS.get(record.resource_type, f"resources-{record.resource_type}")
    name = record.resource_name or ALL_BROKERS
    return [section, escaped(name), "configs", record.name]


def _scram_path(record: Any) -> list[str]:
    return ["scram", escaped(record.name), mechanism_name(record.mechanism)]


def _rule(record: Any) -> str:
    return cell(shown_rule(acl_of(record, record)))


def _kind(record: Any) -> str:
    return type(record).__name__.removesuffix("Record")


def _fields(record: Any, without: tuple[str, ...]) -> str:
    fields = {name: value for name, value in plain(record).items() if name not in (*without, *_SECRET)}
    return cell(" ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, [], "")))


def moment_json(one: "MetadataChange") -> dict[str, Any]:
    entries = [{"offset": entry.offset, "type": _kind(entry.entry), **_open(entry.entry)} for entry in one.entries]
    return {
        "first_offset": one.first_offset,
        "next_offset": one.next_offset,
        "timestamp_ms": one.timestamp_ms,
        "verdict": one.verdict.value,
        "transaction": one.in_transaction,
        "name": one.name,
        "reason": one.reason,
        "records": entries,
    }


def _open(record: Any) -> dict[str, Any]:
    """The content of a record, without secrets."""
    fields = {name: value for name, value in plain(record).items() if name not in _SECRET}
    if isinstance(record, types.ConfigRecord):
        fields["value"] = open_value(record.name, record.value)
    return fields
