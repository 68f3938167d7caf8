"""Receiving more requests while acknowledgements wait for a round of a cluster that puts an object.

Such a round waits for more bytes, and then for the object store. A connection that reads nothing meanwhile adds one
request to each round, however many its client has sent. Logs in files never need this, because a flush is short.
"""

import socket

import trio

from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.broker.ports import HasFlusher


async def more_arrives(broker: HasFlusher, sock: socket.socket, responses: ResponseQueue) -> bool:
    """Wait until the client sends more, or the responses can be sent. Returns True if the client was first.

    Returns False at once if the next round is full, or needs no object.
    """
    arrived = False

    async def wait_readable() -> None:
        nonlocal arrived
        await trio.lowlevel.wait_readable(sock)
        arrived = True
        nursery.cancel_scope.cancel()

    if not responses.tickets or not broker.commit.wants_more:
        return False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_readable)
        await broker.commit_all(responses.tickets)
        nursery.cancel_scope.cancel()
    return arrived
