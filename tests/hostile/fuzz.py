"""`python -m tests.hostile.fuzz [--frames 1000000] [--seed 1]`: mutated frames of real clients, and made ones.

The golden requests of four clients are mutated byte by byte. Other frames are made field by field for every API and
version, and some of them mutated, too. The broker must answer each, close its connection, or have a reason to wait.
"""

import argparse
import contextlib
import json
import random
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.protocol.headers import write_request_header
from fencepost.protocol.primitives import LengthPrefixed
from fencepost.protocol.registry import Api
from fencepost.protocol.schema import ArrayOf, StructType
from tests.hostile.requests import frame
from tests.kit.broker_process import BrokerProcess
from tests.kit.frames import framed
from tests.kit.stable_apis import STABLE_APIS
from tests.kit.wire import ConnectionEnded, Wire, batch_of

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.jsonl"))
MAY_WAIT = {1, 11, 14, 68}
"""Fetch, JoinGroup, SyncGroup, ConsumerGroupHeartbeat: they may wait for records or for other members."""
CREATES = {19, 37, 75}
"""Large numbers make many partitions: what is created for an allowed client is no matter of frames."""
WAIT_SECONDS, HUNG_SECONDS = 0.02, 30.0
PROBE_ID = 0x7EEDBEEF
PROBE = framed(struct.pack(">hhih", 18, 0, PROBE_ID, -1))
NUMBERS = (-(2**31), -2, -1, 0, 0, 1, 1, 2, 3, 7, 255, 1000, 2**15 - 1, 2**31 - 1)
NAMES = ("", "a", "g", "fuzz", "other", "fuzz-2", "__consumer_offsets", "x" * 300, "\u00e9\u4e16", "range", "consumer")


class Outcome(NamedTuple):
    """What became of all frames."""

    frames: int
    answered: int
    closed: int
    waiting: int
    hung: list[str]


class Fuzzer:
    """Makes frames, and sends them one by one; every frame is followed by a probe that must be answered."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._golden = [
            bytes.fromhex(json.loads(line)["request"])
            for path in GOLDEN
            for line in path.read_text("ascii").splitlines()
        ]
        self._wire: Wire | None = None

    def run(self, count: int) -> Outcome:
        """Send `count` frames."""
        found = {"answered": 0, "closed": 0, "waiting": 0}
        hung: list[str] = []
        for _ in range(count):
            data = self.next_frame()
            what = self._send(data)
            if what == "hung":
                hung.append(data[:400].hex())
            else:
                found[what] += 1
        if self._wire is not None:
            self._wire.close()
        return Outcome(count, found["answered"], found["closed"], found["waiting"], hung)

    def next_frame(self) -> bytes:
        """A frame without its length."""
        choice = self._random
        if choice.random() < 0.5:
            data = choice.choice(self._golden)
            while int.from_bytes(data[:2], "big") in CREATES:
                data = choice.choice(self._golden)
            return self._mutated(data)
        api = choice.choice([api for key, api in STABLE_APIS.items() if key not in CREATES])
        data = self._made(api, choice.randint(*api.served))
        return self._mutated(data) if choice.random() < 0.5 else data

    def _mutated(self, data: bytes) -> bytes:
        choice, changed = self._random, bytearray(data)
        for _ in range(choice.choice((1, 1, 1, 2, 4, 16))):
            at = choice.randrange(8, len(changed)) if len(changed) > 8 else 0
            match choice.randrange(7):
                case 0:
                    changed[at] ^= 1 << choice.randrange(8)
                case 1:
                    changed[at] = choice.choice((0, 1, 127, 128, 255))
                case 2:
                    del changed[at:]
                case 3:
                    changed[at:at] = choice.randbytes(choice.randrange(1, 9))
                case 4:
                    changed[at : at + 4] = struct.pack(">i", choice.choice(NUMBERS))
                case 5:
                    changed[at:at] = changed[at : at + 30]
                case _:
                    changed[at : at + 2] = struct.pack(">h", choice.randrange(-(2**15), 2**15))
            if not changed:
                return b"\0"
        if int.from_bytes(changed[:2], "big") in CREATES:
            changed[:2] = b"\0\3"
        return bytes(changed)

    def _made(self, api: Api, version: int) -> bytes:
        head = write_request_header(api, version, self._random.randrange(1000), self._random.choice(NAMES))
        try:
            return head + api.request.encode(self._struct(api.request, version), version)
        except ValueError:  # null where this version has none
            return head

    def _struct(self, kind: Any, version: int) -> Any:
        given = {
            name: self._value(field.subcon, version)
            for name, field in kind.fields.items()
            if field.exists(version) and not (field.tag is not None and self._random.random() < 0.7)
        }
        return kind(**given)

    def _value(self, kind: Any, version: int) -> Any:
        choice = self._random
        if isinstance(kind, StructType):
            return self._struct(kind, version)
        if isinstance(kind, ArrayOf):
            return [self._value(kind.subcon, version) for _ in range(choice.choice((0, 1, 1, 1, 2, 3)))]
        if isinstance(kind, LengthPrefixed):
            if kind.kind == "string":
                return choice.choice(NAMES)
            batch = bytes(batch_of(b"fuzz"))
            return choice.choice((b"", choice.randbytes(20), batch, batch))
        if (size := kind.sizeof()) == 16:
            return bytes(16)
        number = choice.choice(NUMBERS)
        bits = 8 * size - 1
        return max(-(1 << bits), min((1 << bits) - 1, number)) if size > 1 else choice.randint(0, 1)

    def _send(self, data: bytes) -> str:
        for _ in range(2):
            wire = self._wire = self._wire or Wire(self._broker.connect(HUNG_SECONDS))
            try:
                wire.socket.sendall(framed(data) + PROBE)
                return self._result(wire, int.from_bytes(data[:2], "big"))
            except (ConnectionEnded, ConnectionResetError, BrokenPipeError):
                self._drop()
                return "closed"
        raise AssertionError("unreachable")

    def _result(self, wire: Wire, key: int) -> str:
        wire.socket.settimeout(WAIT_SECONDS if key in MAY_WAIT else HUNG_SECONDS)
        try:
            while int.from_bytes(wire.receive_frame()[:4], "big") != PROBE_ID:
                pass
        except TimeoutError:
            self._drop()
            return "waiting" if key in MAY_WAIT else "hung"
        return "answered"

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def fuzz(broker: BrokerProcess, frames: int, seed: int) -> Outcome:
    """Send the frames to a broker with the topic `fuzz`, and fail if it does not answer afterwards."""
    with Wire(broker.connect()) as wire, contextlib.suppress(AssertionError):
        wire.create_topic("fuzz", 2)
    outcome = Fuzzer(broker, seed).run(frames)
    with Wire(broker.connect(HUNG_SECONDS)) as wire:
        wire.socket.sendall(frame(18, 0))
        assert wire.receive_frame()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="How many. [default: 1000000]")
    parser.add_argument("--seed", type=int, default=1, help="Other seeds make other frames. [default: 1]")
    options = parser.parse_args()
    step = 20_000
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        settings = {"auto.create.topics.enable": "false"}
        with BrokerProcess(Path(folder), settings=settings) as broker:
            for number in range(max(1, options.frames // step)):
                outcome = fuzz(broker, min(step, options.frames), options.seed + number)
                tracebacks = broker.log().count("Traceback")
                sent = (number + 1) * outcome.frames
                rss = broker.rss_bytes() / 1e6
                print(f"{sent:,} frames, RSS {rss:.0f} MB, {tracebacks} tracebacks, {outcome}", flush=True)
                code |= bool(tracebacks or outcome.hung)
            if code:
                print(broker.log()[-20_000:])
    return code


if __name__ == "__main__":
    sys.exit(main())
