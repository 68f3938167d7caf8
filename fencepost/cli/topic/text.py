"""The output of `fencepost topic`: topics, their partitions, and the outcomes of changes."""

from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.cli.connect import command_for
from fencepost.cli.hints import sentence
from fencepost.cli.plain_text import cell, counted, shown_id, size, table
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.client import KafkaError
    from fencepost.client.admin import ConfigEntry, CreatedTopic, TopicDescription

ID_BYTES = 16


class Outcome(NamedTuple):
    """The outcome for one topic: its name, a description, and the error if there is one."""

    name: str
    what: str
    error: "KafkaError | None" = None
    skipped: bool = False


def id_of(text: str) -> bytes:
    """The topic id of this text. Raises ValueError."""
    try:
        found = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        found = b""
    if len(found) != ID_BYTES:
        raise ValueError(f"{text!r} is not a topic id")
    return found


# -- existing topics


def _replicas(one: "TopicDescription") -> int:
    return max((len(partition.replicas) for partition in one.partitions), default=0)


def _lacking(one: "TopicDescription") -> int:
    """Partitions without a leader, or whose replicas are not all in sync."""
    return sum(p.leader < 0 or len(p.isr) < len(p.replicas) for p in one.partitions)


def list_text(found: "Sequence[TopicDescription]", sizes: "Mapping[str, int]") -> str:
    rows = [
        (one.name, len(one.partitions), _replicas(one), _lacking(one), size(sizes.get(one.name, -1))) for one in found
    ]
    return table(("TOPIC", "PARTITIONS", "REPLICAS", "NOT IN SYNC", "SIZE"), rows)


def summary_json(one: "TopicDescription") -> dict[str, Any]:
    return {
        "name": one.name,
        "topic_id": shown_id(one.topic_id),
        "partitions": len(one.partitions),
        "replication_factor": _replicas(one),
        "not_in_sync": _lacking(one),
        "internal": one.internal,
    }


def describe_text(one: "TopicDescription", configs: "Mapping[str, ConfigEntry]", bootstrap: str) -> str:
    """One topic with its partitions and its own settings."""
    own = [entry for entry in configs.values() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG]
    facts = [
        ("topic", cell(one.name)),
        ("id", shown_id(one.topic_id)),
        ("partitions", len(one.partitions)),
        ("replicas", _replicas(one)),
        ("set on it", "; ".join(f"{e.name}={cell(e.value)}" for e in own) or "nothing: the broker's settings hold"),
    ]
    if one.internal:
        facts.append(("internal", "the broker's own"))
    rows = [
        (number, p.leader if p.leader >= 0 else "none", p.leader_epoch, _ids(p.replicas), _ids(p.isr))
        for number, p in enumerate(one.partitions)
    ]
    return "\n".join(
        [
            *(f"{name:<12}{value}" for name, value in facts),
            "",
            table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"), rows),
            "",
            "Show all settings, and where each comes from:",
            f"  {command_for(bootstrap, 'config', 'get', 'topic', one.name, '--all')}",
        ]
    )


def describe_json(one: "TopicDescription", configs: "Mapping[str, ConfigEntry]") -> dict[str, Any]:
    return {
        **summary_json(one),
        "configs": {e.name: e.value for e in configs.values() if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG},
        "partitions": [
            {
                "partition": number,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "in_sync": list(p.isr),
            }
            for number, p in enumerate(one.partitions)
        ],
    }


def _ids(brokers: "Sequence[int]") -> str:
    return ",".join(map(str, brokers))


# -- outcomes


def creation(name: str, made: "CreatedTopic | None", error: "KafkaError | None", lenient: bool) -> Outcome:
    if made is not None:
        partitions = "" if made.partitions < 0 else f" with {counted(made.partitions, 'partition')}"
        return Outcome(name, f"{cell(name)!r}{partitions}")
    assert error is not None
    if lenient and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return Outcome(name, f"{cell(name)!r}: it exists already", skipped=True)
    return Outcome(name, f"{cell(name)!r}", error)


def deletion(
    ref: str | bytes, there: "Mapping[str, TopicDescription]", error: "KafkaError | None", lenient: bool
) -> Outcome:
    shown = shown_id(ref) if isinstance(ref, bytes) else ref
    found = next((one for one in there.values() if ref in (one.name, one.topic_id)), None)
    name = shown if found is None else found.name
    partitions = "" if found is None else f" with {counted(len(found.partitions), 'partition')}"
    if error is None:
        return Outcome(name, f"{cell(name)!r}{partitions}")
    if lenient and error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return Outcome(name, f"{cell(name)!r}: it does not exist", skipped=True)
    return Outcome(name, f"{cell(name)!r}", error)


def outcome_text(one: Outcome, done: str, dry_run: bool) -> str:
    """One topic's line; `done` is the participle of the command."""
    if one.error is not None:
        return f"Not {done}: {sentence(one.error)}"
    if one.skipped:
        return f"Unchanged: topic {one.what}."
    return f"{'Would be ' + done if dry_run else done.capitalize()}: topic {one.what}."


def outcome_json(one: Outcome, done: str, dry_run: bool) -> dict[str, Any]:
    code = None if one.error is None or one.error.code is None else one.error.code.name
    return {
        "topic": one.name,
        done: one.error is None and not one.skipped and not dry_run,
        "error": code,
        "message": None if one.error is None else str(one.error),
        "dry_run": dry_run,
    }
