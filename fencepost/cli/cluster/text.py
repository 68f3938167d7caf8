"""The output of `fencepost cluster`: brokers, features, directories, elections, replicas that move."""

from typing import TYPE_CHECKING, Any

from fencepost.cli.plain_text import cell, counted, json_value, places, size, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.client import KafkaError
    from fencepost.client.admin import (
        BrokerInfo,
        ClusterDescription,
        FeatureLevels,
        LogDir,
        QuorumDescription,
        Reassignment,
    )
    from fencepost.protocol.topics import TopicPartition

# -- the cluster


def cluster_text(described: "ClusterDescription", features: "FeatureLevels", quorum: "QuorumDescription | None") -> str:
    """The cluster in a few lines and two tables."""
    facts = [
        ("cluster id", cell(described.cluster_id)),
        ("controller", f"broker {described.controller_id}" if described.controller_id >= 0 else "none now"),
    ]
    if quorum is not None:
        voters = ", ".join(str(one.replica_id) for one in quorum.voters) or "none"
        facts.append(
            (
                "metadata",
                f"led by {quorum.leader_id} in epoch {quorum.leader_epoch}, voters {voters},"
                f" high watermark {quorum.high_watermark}",
            )
        )
    lines = [f"{name:<12}{value}" for name, value in facts]
    return "\n".join([*lines, "", brokers_text(described), "", features_text(features)])


def cluster_json(
    described: "ClusterDescription", features: "FeatureLevels", quorum: "QuorumDescription | None"
) -> dict[str, Any]:
    voters = None
    if quorum is not None:
        voters = {
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "voters": [one.replica_id for one in quorum.voters],
            "observers": [one.replica_id for one in quorum.observers],
        }
    return {
        "cluster_id": described.cluster_id,
        "controller_id": described.controller_id,
        "brokers": [broker_json(one, described.controller_id) for one in described.brokers],
        "features": features_json(features)["features"],
        "quorum": voters,
    }


def brokers_text(described: "ClusterDescription") -> str:
    rows = []
    for one in described.brokers:
        notes = ["controller"] if one.broker_id == described.controller_id else []
        notes += ["fenced"] if one.fenced else []
        rows.append((one.broker_id, one.host, str(one.port), one.rack, ", ".join(notes)))
    return table(("BROKER", "HOST", "PORT", "RACK", ""), rows)


def broker_json(one: "BrokerInfo", controller_id: int) -> dict[str, Any]:
    return {**one._asdict(), "controller": one.broker_id == controller_id}


def features_text(described: "FeatureLevels") -> str:
    if not described.finalized and not described.supported:
        return "The broker reports no features."
    rows = []
    for name in sorted({*described.finalized, *described.supported}):
        low, high = described.supported.get(name, (0, 0))
        rows.append(
            (name, described.finalized.get(name, 0), f"{low} to {high}" if name in described.supported else "unknown")
        )
    return table(("FEATURE", "LEVEL", "POSSIBLE"), rows)


def features_json(described: "FeatureLevels") -> dict[str, Any]:
    return {
        "epoch": described.epoch,
        "features": {
            name: {
                "level": described.finalized.get(name, 0),
                "supported": list(described.supported[name]) if name in described.supported else None,
            }
            for name in sorted({*described.finalized, *described.supported})
        },
    }


def log_dirs_text(found: "Mapping[int, tuple[LogDir, ...]]") -> str:
    rows = [
        (
            broker,
            one.path,
            len(one.replicas),
            size(sum(replica.size_bytes for replica in one.replicas.values())),
            size(one.usable_bytes),
            size(one.total_bytes),
            f"offline: {one.error.name}" if one.error is not None else "",
        )
        for broker, dirs in sorted(found.items())
        for one in dirs
    ]
    return table(("BROKER", "DIRECTORY", "REPLICAS", "SIZE", "FREE", "VOLUME", ""), rows)


def sizes_text(found: "Mapping[int, tuple[LogDir, ...]]", by_partition: bool) -> str:
    """One line for each replica, or for each topic; the largest first."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for broker, dirs in found.items():
        for one in dirs:
            for partition, replica in one.replicas.items():
                key = (places([partition]), str(broker)) if by_partition else (partition.topic, "")
                sizes.setdefault(key, []).append(replica.size_bytes)
    ordered = sorted(sizes.items(), key=lambda entry: (-sum(entry[1]), entry[0]))
    if by_partition:
        rows: list[tuple[object, ...]] = [(name, broker, size(sum(parts))) for (name, broker), parts in ordered]
        return table(("PARTITION", "BROKER", "SIZE"), rows)
    return table(("TOPIC", "REPLICAS", "SIZE"), [(name, len(parts), size(sum(parts))) for (name, _), parts in ordered])


def log_dir_json(broker: int, one: "LogDir") -> dict[str, Any]:
    return {
        "broker": broker,
        "path": one.path,
        "error": None if one.error is None else one.error.name,
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
        "replicas": [
            {"partition": json_value(partition), **replica._asdict()}
            for partition, replica in sorted(one.replicas.items())
        ],
    }


# -- leaders and moves


def elections_text(elected: "Mapping[TopicPartition, bool]", refused: "Mapping[TopicPartition, KafkaError]") -> str:
    """The outcome for each partition; unchanged partitions are counted in one line."""
    stayed = sum(not new for new in elected.values())
    rows: list[tuple[object, ...]] = [(places([p]), "elected") for p, new in sorted(elected.items()) if new]
    rows += [(places([p]), f"refused: {error}") for p, error in sorted(refused.items())]
    lines = [table(("PARTITION", "LEADER"), rows)] if rows else []
    if stayed:
        lines.append(f"{counted(stayed, 'partition')} led by the preferred replica already")
    return "\n".join(lines) or "Every partition is led by its preferred replica."


def elections_json(
    elected: "Mapping[TopicPartition, bool]", refused: "Mapping[TopicPartition, KafkaError]"
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"partition": json_value(p), "elected": new, "refused": None} for p, new in sorted(elected.items())
    ]
    rows += [
        {"partition": json_value(p), "elected": False, "refused": str(error)} for p, error in sorted(refused.items())
    ]
    return rows


def moves_text(found: "Mapping[TopicPartition, Reassignment]") -> str:
    rows = [(places([p]), *(",".join(map(str, ids)) for ids in move)) for p, move in sorted(found.items())]
    return table(("PARTITION", "REPLICAS", "COMING", "GOING"), rows)


def moves_json(found: "Mapping[TopicPartition, Reassignment]") -> list[dict[str, Any]]:
    return [{"partition": json_value(p), **json_value(move)} for p, move in sorted(found.items())]
