"""The broker's identity: the cluster id and the node id, in `meta.properties` as in Kafka.

A comment in the file holds its checksum, and a second file holds a copy: a flipped bit must neither change the cluster
id nor prevent a start (docs/decisions/0013-damaged-files.md).
"""

import base64
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import crc32c

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition

META_PROPERTIES = "meta.properties"
META_PROPERTIES_TWIN = META_PROPERTIES + ".twin"
VERSION = "1"
"""The format of the data directory, as in Kafka. A new one is needed when older versions must not write a directory."""
CORES_VERSION = "2"
"""Once several cores have used the directory. An older version would not find the partitions of the others, and after
them its transaction markers would be refused: their epochs go on in `core-starts`."""
READ_VERSIONS = ("0", VERSION)
_CHECKSUM = "#crc32c "
_COUNT = "partitions."
"""Before the name of an internal topic: how many partitions it has. Kafka, which has that elsewhere, ignores it."""
_UUID_BYTES = 16
_DASH = 62
"""The value that URL-safe base64 encodes as a dash."""

COUNT_SETTINGS = {
    GROUP_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_TOPIC: "transaction.state.log.num.partitions",
}
"""The settings of the numbers of partitions that internal topics are made with."""

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another cluster or node, which the text names."""


def check_format(directory: Path | None, *, cores: bool = False) -> None:
    """Raise WrongDirectory if a newer version wrote the directory. Call it before anything there is changed.

    `cores`: whether the caller knows the directories of several cores; if not, a directory with them is wrong, too.
    """
    if directory is None:
        return
    path = directory / META_PROPERTIES
    (found, checked), (spare, _) = read_properties(path), read_properties(directory / META_PROPERTIES_TWIN)
    version = ((found if checked or spare is None else spare) or {}).get("version", VERSION)
    if version == CORES_VERSION:
        if not cores:
            raise WrongDirectory(
                f"several cores have used {directory}, and {directory}/cores may have partitions, too: only `fencepost"
                " serve --data` can use it"
            )
    elif version not in READ_VERSIONS:
        raise WrongDirectory(
            f"{path} has format {version}, and this version of fencepost reads formats up to {CORES_VERSION}: run the"
            " version that wrote it, or restore a backup"
        )


def cluster_id_of(
    directory: Path | None, node_id: int, wanted: str | None, entropy: Callable[[int], bytes] = os.urandom
) -> str:
    """The cluster id: from the directory, or `wanted`, or a new one. The function stores it in the directory.

    Raises WrongDirectory if the directory contradicts `node_id` or `wanted`, and OSError.
    """
    if directory is None:
        return wanted or _new_id(entropy)
    path = directory / META_PROPERTIES
    found, whole = _whole(path, wanted is not None)
    known_cluster, known_node = found.get("cluster.id"), found.get("node.id", found.get("broker.id"))
    if wanted is not None and known_cluster is not None and wanted != known_cluster:
        raise WrongDirectory(f"{path} is of cluster {known_cluster}, not {wanted} (cluster.id)")
    if known_node is not None and known_node != str(node_id):
        raise WrongDirectory(f"{path} is of node {known_node}, not {node_id} (node.id)")
    cluster_id = known_cluster or wanted or _new_id(entropy)
    if known_cluster is None or known_node is None or not whole:
        version = CORES_VERSION if found.get("version") == CORES_VERSION else VERSION
        _write(path, {**found, "version": version, "cluster.id": cluster_id, "node.id": str(node_id)})
    return cluster_id


def partition_counts(
    directory: Path | None, settings: Mapping[str, int], logs: Collection[TopicPartition]
) -> dict[str, int]:
    """How many partitions internal topics have: as many as they were made with, else as `settings` says.

    An existing topic's count wins over the setting, as in Kafka (the `numPartitions` of GroupCoordinator.startup):
    otherwise ids would be looked for in other partitions than those that have them. The function stores the counts in
    the directory, for which `cluster_id_of` was called. Raises WrongDirectory for a topic of an earlier version that
    has more partitions than `settings` says, and OSError.
    """
    found = {} if directory is None else _whole(directory / META_PROPERTIES, replaceable=False)[0]
    counts: dict[str, int] = {}
    for topic, count in settings.items():
        highest = max((tp.partition for tp in logs if tp.topic == topic), default=-1)
        known = found.get(f"{_COUNT}{topic}", "")
        counts[topic] = int(known) if highest >= 0 and known.isdigit() else count
        if highest >= counts[topic]:
            raise WrongDirectory(
                f"{topic} has a partition {highest}, and is set to have {count} partitions: set the number that it was"
                " made with (50, unless it was set)"
            )
    stored = {f"{_COUNT}{topic}": str(count) for topic, count in counts.items()}
    if directory is not None and not stored.items() <= found.items():
        _write(directory / META_PROPERTIES, {**found, **stored})
    return counts


def with_counts(config: BrokerConfig, logs: Collection[TopicPartition]) -> BrokerConfig:
    """The configuration with the numbers of partitions that the internal topics have."""
    wanted = {topic: int(str(config.value(name))) for topic, name in COUNT_SETTINGS.items()}
    counts = partition_counts(config.data_directory, wanted, logs)
    kept = {COUNT_SETTINGS[topic]: str(count) for topic, count in counts.items() if count != wanted[topic]}
    for name, count in kept.items():
        logger.warning(
            "%s=%s has no effect: the topic has %s partitions, and keeps them", name, config.value(name), count
        )
    return config.with_dynamic(kept, {}) if kept else config


def set_format(directory: Path, version: str) -> None:
    """Durably write which format the directory has from now on. Raises WrongDirectory and OSError."""
    path = directory / META_PROPERTIES
    found, _ = _whole(path, False)
    if found and found.get("version") != version:
        _write(path, {**found, "version": version})


def _new_id(entropy: Callable[[int], bytes]) -> str:
    """A random id in Kafka's form: 16 bytes in URL-safe base64. A first dash is replaced: to tools it is an option."""
    text = base64.urlsafe_b64encode(entropy(_UUID_BYTES)).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text


def new_topic_id(entropy: Callable[[int], bytes]) -> bytes:
    """16 random bytes whose base64 text does not begin with a dash, as from Kafka's `Uuid.randomUuid`."""
    first, *rest = entropy(_UUID_BYTES)
    return bytes((first & 0x7F if first >> 2 == _DASH else first, *rest))


def _whole(path: Path, replaceable: bool) -> tuple[dict[str, str], bool]:
    """The directory's properties, and whether both files hold them with a valid checksum.

    Raises WrongDirectory if both files are damaged and `cluster.id` is not set.
    """
    twin = path.with_name(META_PROPERTIES_TWIN)
    (found, checked), (spare, spare_checked) = read_properties(path), read_properties(twin)
    if checked:
        return found or {}, spare_checked
    if spare_checked and spare is not None:
        logger.warning("%s is damaged or was changed by hand: the broker uses %s instead", path, twin.name)
        return spare, False
    if found is not None:
        return found, False  # written by an older version, or by Kafka
    if not path.exists() and not twin.exists():
        return {}, False
    if not replaceable:
        raise WrongDirectory(f"{path} and its copy are damaged; set cluster.id to the cluster's id")
    logger.warning("%s is damaged; the broker writes it again from the settings", path)
    return {}, False


def read_properties(path: Path) -> tuple[dict[str, str] | None, bool]:
    """The properties of a file, or None if they are invalid; and whether a checksum confirms them."""
    try:
        lines = path.read_bytes().decode("ascii").split("\n")
    except FileNotFoundError:
        return None, False
    except UnicodeDecodeError:
        return None, False
    sums = [line for line in lines if line.startswith(_CHECKSUM)]
    text = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if sums and sums != [_checksum(text)]:
        return None, False
    pairs = (line.partition("=") for line in text)
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    if not sums and "version" not in properties:
        return None, False  # Kafka's file has it, too: this file is truncated or not a meta.properties
    return properties, bool(sums)


def _checksum(lines: Iterable[str]) -> str:
    return f"{_CHECKSUM}{crc32c.crc32c(chr(10).join(lines).encode())}"


def _write(path: Path, properties: dict[str, str]) -> None:
    """Replace the file and its copy, atomically and durably."""
    lines = [f"{name}={value}" for name, value in sorted(properties.items())]
    text = "\n".join([*lines, _checksum(lines), ""])
    for target in (path.with_name(META_PROPERTIES_TWIN), path):
        temporary = target.with_name(target.name + ".tmp")
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
