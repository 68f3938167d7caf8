"""A client's line to the simulated broker: one request, one answer, and a new connection after each that was lost."""

from collections.abc import Mapping
from typing import Any

import trio

from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from tests.kit.sim_network import Call, SimNetwork, exchange

TIMEOUT_SECONDS = 1.0


class Lost(Exception):
    """No answer came. `sent`: what was asked may have happened all the same, or may happen still."""

    def __init__(self, sent: bool) -> None:
        super().__init__("no answer")
        self.sent = sent


class Line:
    """Asks one thing after the other."""

    def __init__(self, network: SimNetwork, client_id: str) -> None:
        self.client_id = client_id
        self._network = network
        self._call: Call | None = None
        self._correlation = 0

    async def ask(self, version: int, request: Any, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        """The answer. Raises Lost; the next request then goes over a connection of its own."""
        sent, whole = False, False
        try:
            with trio.move_on_after(timeout_seconds):
                if self._call is None:
                    self._call = await self._network.call(self.client_id)
                sent = True
                answer = await self._exchange(self._call, version, request)
                whole = True
                return answer
        except OSError:
            pass  # no answer, as after a timeout: told below
        finally:
            if not whole:
                self.close()
        raise Lost(sent)

    async def _exchange(self, call: Call, version: int, request: Any) -> Any:
        self._correlation += 1
        return await exchange(call, self._correlation, version, request, self.client_id)

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._call is not None:
            self._call.cut()
            self._call = None


async def create_topics(line: Line, partitions: Mapping[str, int]) -> dict[str, bytes]:
    """Make topics with these numbers of partitions; their ids by name."""
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in partitions.items()
    ]
    answer = await line.ask(7, CreateTopicsRequest(topics=topics, timeout_ms=1000))
    assert not any(topic.error_code for topic in answer.topics)
    return {topic.name: topic.topic_id for topic in answer.topics}
