"""A schema registry beside each broker of a cluster: both see what the other wrote, over the broker that leads."""

import urllib.request
from pathlib import Path

from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer

BODY = b'{"schema": "\\"string\\""}'


def test_each_registry_of_a_cluster_has_the_schemas_of_all(server: PostgresServer, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, server) as cluster:
        first, second = (
            cluster.start(number, **{"schema.registry.listen": "127.0.0.1:0"}).facts["schema_registry"]
            for number in (1, 2)
        )
        assert _ask(f"{first}/subjects/a/versions", BODY).startswith(b'{"id":1,')
        assert _ask(f"{second}/subjects") == b'["a"]'
        assert _ask(f"{second}/subjects/b/versions", BODY.replace(b"string", b"long")).startswith(b'{"id":2,')
        assert _ask(f"{first}/subjects") == b'["a","b"]'


def _ask(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=60) as response:
        found: bytes = response.read()
    return found
