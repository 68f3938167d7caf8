"""Many connections with one request each in flight: what group commit makes of writers on their own."""

import selectors
import time
from collections.abc import Callable

from bench.raw import RawProducer, produce_error
from bench.target import Target
from bench.workers import create_topic

TIMEOUT_SECONDS = 30
WARM_UP_REQUESTS = 30


def acknowledged(
    address: str, topic: str, connections: int, requests: int, size_bytes: int
) -> tuple[float, list[float]]:
    """Seconds for `requests` acknowledged records over so many connections, and the seconds of each.

    Raises RuntimeError when one is refused, and TimeoutError when nothing comes for half a minute.
    """
    selector = selectors.DefaultSelector()
    producers = [RawProducer(address, topic, size_bytes) for _ in range(connections)]
    for producer in producers:
        producer.begin()
        producer.register(selector)
    try:
        _turns(selector, producers, WARM_UP_REQUESTS * connections)
        began = time.perf_counter()
        times = _turns(selector, producers, requests)
        return time.perf_counter() - began, times
    finally:
        for producer in producers:
            producer.close()
        selector.close()


def _turns(selector: selectors.BaseSelector, producers: list[RawProducer], requests: int) -> list[float]:
    """Let each connection send its next request when its last was answered, until all have been answered."""
    times: list[float] = []
    sent: dict[RawProducer, float] = {}
    left = requests
    for producer in producers[:left]:
        sent[producer] = time.perf_counter()
        producer.send(producer.frame)
        left -= 1
    while sent:
        ready = selector.select(TIMEOUT_SECONDS)
        if not ready:
            raise TimeoutError(f"no answer within {TIMEOUT_SECONDS} s")
        for key, _ in ready:
            producer = key.data
            answer = producer.receive()
            now = time.perf_counter()
            times.append(now - sent.pop(producer))
            if code := produce_error(answer):
                raise RuntimeError(f"produce was answered with error {code}")
            if left:
                sent[producer] = now
                producer.send(producer.frame)
                left -= 1
    return times


def side_by_side(
    connections: int, requests: int, percentiles: Callable[[list[float]], dict[str, float]], size_bytes: int = 100
) -> Callable[[Target, float], dict[str, float]]:
    """The case: one partition, so that every acknowledgement waits for the same file."""

    def run(target: Target, scale: float) -> dict[str, float]:
        topic = f"bench-{time.monotonic_ns():x}"
        create_topic(target.address, topic, 1)
        before = target.cpu_seconds()
        elapsed, times = acknowledged(target.address, topic, connections, int(requests * scale), size_bytes)
        after = target.cpu_seconds()
        result = {"acks/s": len(times) / elapsed, **percentiles(times)}
        if before is not None and after is not None:
            result["broker CPU ms per ack"] = (after - before) / (len(times) + WARM_UP_REQUESTS * connections) * 1e3
        return result

    return run
