"""Who this broker is: the cluster's id and the node's number, kept in `meta.properties` as Kafka keeps them."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

META_PROPERTIES = "meta.properties"
VERSION = "1"
_UUID_BYTES = 16


class WrongDirectory(Exception):
    """The data directory belongs to another cluster or another node; the text says to which."""


def cluster_id_of(
    directory: Path | None, node_id: int, wanted: str | None, entropy: Callable[[int], bytes] = os.urandom
) -> str:
    """The cluster's id: as the directory has it, or `wanted`, or a new one, which the directory then keeps.

    Raises WrongDirectory where the directory says otherwise than `node_id` and `wanted`, and OSError.
    """
    if directory is None:
        return wanted or _new_id(entropy)
    path = directory / META_PROPERTIES
    found = _read(path)
    known_cluster, known_node = found.get("cluster.id"), found.get("node.id", found.get("broker.id"))
    if wanted is not None and known_cluster is not None and wanted != known_cluster:
        raise WrongDirectory(f"{path} is of cluster {known_cluster}, not {wanted} (cluster.id)")
    if known_node is not None and known_node != str(node_id):
        raise WrongDirectory(f"{path} is of node {known_node}, not {node_id} (node.id)")
    cluster_id = known_cluster or wanted or _new_id(entropy)
    if known_cluster is None or known_node is None:
        _write(path, {**found, "version": VERSION, "cluster.id": cluster_id, "node.id": str(node_id)})
    return cluster_id


def _new_id(entropy: Callable[[int], bytes]) -> str:
    """A random id in Kafka's form: 16 bytes in URL-safe base64. A first dash, which tools take for an option, goes."""
    text = base64.urlsafe_b64encode(entropy(_UUID_BYTES)).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _write(path: Path, properties: dict[str, str]) -> None:
    """Put the file in place whole and durable."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.writelines(f"{name}={value}\n" for name, value in sorted(properties.items()))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
