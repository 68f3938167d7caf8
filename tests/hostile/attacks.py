"""The attacks, by name. Each one returns what it saw; it raises AssertionError where a promise is broken."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import write_request_header
from fencepost.protocol.registry import API_BY_KEY
from tests.hostile import requests
from tests.kit.broker_process import BrokerProcess
from tests.kit.stable_apis import STABLE_APIS
from tests.kit.wire import FETCH, PRODUCE, ConnectionEnded, Wire, batch_of, fetch_request, produce_request

MIB = 1 << 20
ANSWER_SECONDS = 60.0


class Attack(NamedTuple):
    """One attack on a broker of its own; `scale` 1 is its full size."""

    run: Callable[[BrokerProcess, float], str]
    growth_mb: float
    """The most by which the broker's RSS may grow, in MB, at full size."""
    settings: Mapping[str, str] = {}
    memory: bool = False
    """The broker keeps everything in memory: responses are copies."""


def ask(broker: BrokerProcess, data: bytes) -> str:
    """Send one request, and wait for its answer or the end of the connection. Returns which it was."""
    with Wire(broker.connect(ANSWER_SECONDS)) as wire:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wire.socket.sendall(data)
        began = time.monotonic()
        try:
            size = len(wire.receive_frame())
        except ConnectionEnded:
            return f"{len(data):,} B refused after {time.monotonic() - began:.2f} s"
        return f"{len(data):,} B answered with {size:,} B after {time.monotonic() - began:.2f} s"


def quiet(_broker: BrokerProcess, scale: float) -> str:
    time.sleep(3 * scale)
    return "no attack"


def metadata_names(broker: BrokerProcess, scale: float) -> str:
    return ask(broker, requests.metadata_of_empty_names(int(2_100_000 * scale)))


def metadata_broken(broker: BrokerProcess, scale: float) -> str:
    return ask(broker, requests.broken_at_the_end(int(400_000 * scale)))


def fetch_repeated(broker: BrokerProcess, scale: float) -> str:
    return ask(broker, requests.fetch("other", int(857_000 * scale), distinct=False))


def fetch_distinct(broker: BrokerProcess, scale: float) -> str:
    seen = ask(broker, requests.fetch("other", int(20_000 * scale), distinct=True))
    assert "answered" in seen, seen
    return seen


def metadata_distinct(broker: BrokerProcess, scale: float) -> str:
    seen = ask(broker, requests.metadata_of_names(int(10_000 * scale)))
    assert "answered" in seen, seen
    return seen


def create_acls(broker: BrokerProcess, scale: float) -> str:
    seen = ask(broker, requests.create_acls(int(10_000 * scale)))
    assert "answered" in seen, seen
    return seen


def offset_fetch(broker: BrokerProcess, scale: float) -> str:
    ask(broker, requests.frame(10, 1, requests.text("group"), b"\0"))
    seen = ask(broker, requests.offset_fetch(int(50_000 * scale)))
    assert "answered" in seen, seen
    return seen


def produce_empty(broker: BrokerProcess, scale: float) -> str:
    return ask(broker, requests.produce_of_empty_partitions("other", int(3_000_000 * scale)))


def tags(broker: BrokerProcess, scale: float) -> str:
    return ask(broker, requests.many_tags(int(4_000_000 * scale)))


def every_array(broker: BrokerProcess, scale: float) -> str:
    """The first array of every API's newest version, in 4 MB of the smallest elements."""
    worst = (0.0, "")
    for key, api in STABLE_APIS.items():
        data = requests.flood_of_elements(api, api.served[1], int(4 * MIB * scale))
        if data is None or api.key == PRODUCE:  # acks=0 has no answer
            continue
        began = time.monotonic()
        seen = ask(broker, data)
        worst = max(worst, (time.monotonic() - began, f"{api.name} ({key}): {seen}"))
    return worst[1]


def bomb_compacted(broker: BrokerProcess, scale: float) -> str:
    with Wire(broker.connect(ANSWER_SECONDS)) as wire:
        wire.create_topic("compacted", 1, cleanup_policy="compact")
        answer = wire.produce("compacted", requests.bomb(int(8_000_000 * scale), ahead=False))
    return f"{ErrorCode(answer.error_code).name}: {answer.error_message}"


def bomb_ahead(broker: BrokerProcess, scale: float) -> str:
    seen = []
    for codec in (Compression.ZSTD, Compression.GZIP, Compression.LZ4):
        batch = requests.bomb(int(3_000_000 * scale), ahead=True, codec=codec)
        if len(batch) < MIB:
            with Wire(broker.connect(ANSWER_SECONDS)) as wire:
                answer = wire.produce("other", batch)
            seen.append(f"{codec.name} {len(batch):,} B: {ErrorCode(answer.error_code).name}")
    return ", ".join(seen)


def bomb_stored(broker: BrokerProcess, scale: float) -> str:
    """A plain topic takes the bomb; ListOffsets by time must not call it damage."""
    with Wire(broker.connect(ANSWER_SECONDS)) as wire:
        wire.create_topic("plain")
        taken = wire.produce("plain", requests.bomb(int(8_000_000 * scale), ahead=False)).error_code
        found = wire.offset_of("plain", int(time.time() * 1000) - 60_000)
    assert found.error_code == ErrorCode.NONE, f"ListOffsets answers {ErrorCode(found.error_code).name}"
    return f"produce {ErrorCode(taken).name}, ListOffsets by time: offset {found.offset}"


def silent_frames(broker: BrokerProcess, scale: float) -> str:
    """20 connections send 60 MB of a frame, then nothing."""
    size, opened = int(60 * MIB * scale), []
    head = struct.pack(">i", size + MIB) + write_request_header(API_BY_KEY[PRODUCE], 9, 1, "hostile")
    data = bytes(MIB)
    for _ in range(20):
        sock = broker.connect(10)
        opened.append(sock)
        with contextlib.suppress(OSError):  # the broker stops reading, or closes: both bound its memory
            sock.settimeout(0.5)
            sock.sendall(head)
            for _ in range(size // MIB):
                sock.sendall(data)
    time.sleep(3 * scale)
    for sock in opened:
        sock.close()
    return "20 unfinished frames"


def unread_fetches(broker: BrokerProcess, scale: float) -> str:
    """200 clients ask for 50 MB each and read nothing."""
    count, opened = max(5, int(200 * scale)), []
    megabytes = max(2, int(50 * scale))
    with Wire(broker.connect(ANSWER_SECONDS)) as wire:
        wire.create_topic("large")
        for _ in range(megabytes):
            wire.produce("large", batch_of(bytes(MIB - 1000)))
    for _ in range(count):
        wire = Wire(broker.connect(10))
        opened.append(wire)
        wire.send(FETCH, 11, fetch_request("large", max_bytes=50 * MIB, partition_max_bytes=50 * MIB))
    time.sleep(8 * scale)
    for wire in opened:
        wire.close()
    return f"{count} fetches of {megabytes} MB"


def flood_of_connections(broker: BrokerProcess, scale: float) -> str:
    """3 threads connect and reset as fast as they can."""
    ends, opened = time.monotonic() + 8 * scale, [0, 0, 0]

    def flood(number: int) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                sock = broker.connect(5)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                opened[number] += 1

    _together(flood, 3)
    return f"{sum(opened):,} connections"


def one_byte_a_second(broker: BrokerProcess, scale: float) -> str:
    """After a whole request the bytes of the next one arrive one at a time."""
    limit = 75 * scale
    with Wire(broker.connect(ANSWER_SECONDS)) as wire:
        wire.produce("other", batch_of(b"x"))
        _, data = wire.frame(PRODUCE, 9, produce_request("other", batch_of(bytes(400))))
        began = time.monotonic()
        wire.socket.settimeout(limit / 75)
        for at in range(75):
            try:
                wire.socket.sendall(data[at : at + 1])
                if not wire.socket.recv(1):
                    return f"closed after {time.monotonic() - began:.0f} s"
            except TimeoutError:
                continue
            except OSError:
                return f"closed after {time.monotonic() - began:.0f} s"
    raise AssertionError(f"still open after {time.monotonic() - began:.0f} s")


def bad_frames(broker: BrokerProcess, scale: float) -> str:
    """4,000 connections with a bad frame each: log lines are limited for one cause."""
    before, began = broker.log().count("\n"), time.monotonic()
    for _ in range(int(4000 * scale)):
        with contextlib.suppress(OSError), broker.connect(5) as sock:
            sock.sendall(b"\xff\xff\xff\xff")
            sock.recv(1)
    seconds = time.monotonic() - began
    lines = broker.log().count("\n") - before
    assert lines <= 11 * (seconds + 2), f"{lines} log lines in {seconds:.1f} s"
    return f"{lines} log lines in {seconds:.1f} s"


def half_sent_heads(broker: BrokerProcess, scale: float) -> str:
    """16 half-sent heads at the metrics port: a scrape must not wait for them."""
    host, _, port = broker.facts["metrics"].removeprefix("http://").partition(":")
    address = host, int(port.partition("/")[0])
    opened = []
    for _ in range(max(16, int(64 * scale))):
        opened.append(socket.create_connection(address, 10))
        opened[-1].sendall(b"GET /metrics HT")
    time.sleep(0.2)
    began = time.monotonic()
    with socket.create_connection(address, 20) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = sock.recv(1 << 16)
    seconds = time.monotonic() - began
    for sock in opened:
        sock.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
    assert seconds < 2, f"a scrape waits for {seconds:.1f} s"
    return f"a scrape takes {seconds * 1000:.0f} ms"


def idle_connections(broker: BrokerProcess, scale: float) -> str:
    count = int(1000 * scale)
    opened = [broker.connect(10) for _ in range(count)]
    for sock in opened:
        sock.sendall(requests.frame(18, 0))
    for sock in opened:
        sock.recv(1 << 16)
    for sock in opened:  # 50 KB of a frame that stays unfinished
        sock.sendall(struct.pack(">i", 60_000) + bytes(50_000))
    time.sleep(1)
    for sock in opened:
        sock.close()
    return f"{count} connections with 50 KB of a frame each"


def max_connections(broker: BrokerProcess, scale: float) -> str:
    """A burst against `max.connections`: exactly as many as allowed are served."""
    limit, count = int(broker.settings["max.connections"]), int(1000 * scale)
    opened = [broker.connect(10) for _ in range(count)]
    served = 0
    for sock in opened:
        with contextlib.suppress(OSError):
            sock.settimeout(10)
            sock.sendall(requests.frame(18, 0))
            served += bool(sock.recv(1 << 16))
    for sock in opened:
        sock.close()
    allowed = limit - 1  # the other client has one
    assert served == allowed, f"{served} of {count} connections were served, {allowed} are allowed"
    return f"{served} of {count} connections were served, {allowed} are allowed"


def _together(target: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=target, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def names(attacks: Iterable[str], wanted: str) -> list[str]:
    """The attacks whose names contain `wanted`."""
    return [name for name in attacks if wanted in name]


GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ATTACKS: dict[str, Attack] = {
    "no attack": Attack(quiet, 5),
    "Metadata, 2.1 M empty names in 4 MB": Attack(metadata_names, 28),
    "Metadata, last of 400,000 names broken": Attack(metadata_broken, 18),
    "Metadata, 10,000 topics (legal)": Attack(metadata_distinct, 40),
    "Fetch, one partition repeated, 24 MB": Attack(fetch_repeated, 88),
    "Fetch, 20,000 partitions (legal)": Attack(fetch_distinct, 40),
    "OffsetFetch, 50,000 partitions (legal)": Attack(offset_fetch, 60),
    "CreateAcls, 10,000 rules (legal)": Attack(create_acls, 40, GUARDED),
    "Produce, 3 M empty partitions, 24 MB": Attack(produce_empty, 88),
    "ApiVersions, 4 M unknown tags, 20 MB": Attack(tags, 76),
    "every API, 4 MB of the smallest elements": Attack(every_array, 60),
    "zstd bomb, 8 M records, compacted topic": Attack(bomb_compacted, 32),
    "zstd, gzip, lz4 bombs, timestamps ahead": Attack(bomb_ahead, 32),
    "zstd bomb stored, then ListOffsets by time": Attack(bomb_stored, 32),
    "20 x 60 MB of a frame, then silence": Attack(silent_frames, 350),
    "200 fetches of 50 MB never read, --memory": Attack(unread_fetches, 400, memory=True),
    "200 fetches of 50 MB never read": Attack(unread_fetches, 120),
    "3 flooders connect and reset": Attack(flood_of_connections, 40),
    "1,000 connections with 50 KB each": Attack(idle_connections, 96),
    "1,000 connections, max.connections=60": Attack(max_connections, 30, {"max.connections": "60"}),
    "4,000 bad frames": Attack(bad_frames, 20),
    "16 half-sent HTTP heads": Attack(half_sent_heads, 5, {"metrics.listen": "127.0.0.1:0"}),
    "one byte a second": Attack(one_byte_a_second, 5),
}
