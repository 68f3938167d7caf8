"""The schema registry beside a broker under test: in the broker's loop, on a port that does not change."""

import trio

from fencepost.extras import needed_for
from fencepost.testing.faulty_node import FaultyNode
from fencepost.testing.reserved_port import reserve_port

HOST = "127.0.0.1"


class Registry:
    """Where the registry listens; the first start chooses the port."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._port = 0
        self.url = ""

    @property
    def address(self) -> str:
        """HOST:PORT, reserved as long as the owner exists. Raises OSError."""
        self._port = self._port or reserve_port(self._owner, HOST)
        return f"{HOST}:{self._port}"

    async def begin(self, node: FaultyNode, nursery: trio.Nursery) -> None:
        """Serve it until the nursery ends. Raises ImportError if its packages are missing, and OSError."""
        with needed_for("schema_registry=True", "registry"):
            from fencepost.schema_registry.in_broker import begin
        self.url = await begin(node, nursery, trio.Event())
        self._port = int(self.url.rpartition(":")[2])
