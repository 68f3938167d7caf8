"""The other client: it produces 100 B with acks=all every 20 ms in its own process, and measures each latency.

It ends when its standard input ends, and then prints the latencies in ms, as JSON.
"""

import json
import selectors
import socket
import subprocess
import sys
import time
from typing import Self

from tests.kit.wire import ConnectionEnded, Wire, batch_of

TOPIC = "other"
EVERY_SECONDS = 0.02


class OtherClient:
    """The process, from `with` to the end of its block; then `latencies_ms` has its measurements."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.latencies_ms: list[float] = []

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.hostile.other_client", str(self._port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_error: object) -> None:
        out, _ = self._process.communicate()
        self.latencies_ms = json.loads(out.splitlines()[-1])


def main(port: int) -> None:
    latencies: list[float] = []
    with Wire(socket.create_connection(("127.0.0.1", port), 60)) as wire, selectors.DefaultSelector() as stdin:
        stdin.register(sys.stdin, selectors.EVENT_READ)
        for _ in range(3):
            wire.produce(TOPIC, batch_of(b"x" * 100))
        print("ready", flush=True)
        while not stdin.select(EVERY_SECONDS):
            began = time.monotonic()
            try:
                wire.produce(TOPIC, batch_of(b"x" * 100))
            except (ConnectionEnded, TimeoutError):
                latencies.append(float("inf"))
                break
            latencies.append((time.monotonic() - began) * 1000)
    print(json.dumps(latencies))


if __name__ == "__main__":
    main(int(sys.argv[1]))
