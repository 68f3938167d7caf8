"""A bad network for chaos runs: a relay before the broker that cuts connections, also between request and answer."""

import random
import socket
import struct
from dataclasses import dataclass, field

import trio

LIFE_SECONDS = 5.0
"""Mean life of a connection."""
DEAF_SECONDS = 0.3
"""For so long, at most, requests still go through while their answers are lost."""
_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)


@dataclass
class _Relay:
    client: trio.SocketStream
    broker: trio.SocketStream
    chance: random.Random
    deaf: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Carry bytes both ways until either side ends or the connection's time is over."""
        if self.chance.random() < 0.5:  # the client hears a reset, not an orderly end
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        async with self.client, self.broker, trio.open_nursery() as nursery:
            nursery.start_soon(self._carry, self.client, self.broker, False, nursery.cancel_scope)
            nursery.start_soon(self._carry, self.broker, self.client, True, nursery.cancel_scope)
            await trio.sleep(self.chance.expovariate(1 / LIFE_SECONDS))
            if self.chance.random() < 0.7:
                self.deaf = True
                await trio.sleep(self.chance.uniform(0, DEAF_SECONDS))
            nursery.cancel_scope.cancel()

    async def _carry(
        self, source: trio.SocketStream, target: trio.SocketStream, answers: bool, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(_CHUNK_BYTES):
                if not (answers and self.deaf):
                    await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # as good as an end
        scope.cancel()


async def relay(listener: socket.socket, broker_port: int, seed: str) -> None:
    """Serve `listener` for ever, each connection with a life of its own; where no broker is, clients are closed."""
    chance = random.Random(f"{seed}/network")
    listener.setblocking(False)
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))

    async def serve(client: trio.SocketStream) -> None:
        try:
            broker = await trio.open_tcp_stream("127.0.0.1", broker_port)
        except OSError:
            await client.aclose()
            return
        await _Relay(client, broker, chance).run()

    await trio.serve_listeners(serve, [accepting])
