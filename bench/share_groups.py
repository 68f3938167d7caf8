"""Groups of workers on one topic (KIP-932): what a record costs that one of them takes and accepts."""

import os
import selectors
import time
from collections.abc import Callable, Mapping

from bench import workers
from bench.raw import RawProducer
from bench.share_members import POLL_RECORDS, RECORD_LIMIT, Poll, ShareMember
from bench.target import Target
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

Result = dict[str, float]

ONE_BY_ONE = Poll(1, 1, RECORD_LIMIT, accepts_apart=True)
IN_BATCHES = Poll(POLL_RECORDS, POLL_RECORDS)
SIZE_BYTES = 100
BATCH_RECORDS = 140
"""Of 100 bytes in a batch of 16 KiB, the default of Java's producer."""
TIMEOUT_SECONDS = 40.0
"""Before the broker takes a member for dead: while it works, it sends no heartbeat."""
WARM_UP_SHARE = 5
"""A fifth of the load comes before, unmeasured."""
LOCKS_MAX = 4000
"""The most that a group may ask for by default (`group.share.max.partition.max.record.locks`)."""
FROM_BEGIN = {"share.auto.offset.reset": "earliest"}
LOCK_SECONDS = 60
"""How long a million records stay in flight: the longest that a group may ask for by default."""
LOCKED_FOR_LONG = FROM_BEGIN | {
    "share.partition.max.record.locks": str(LOCKS_MAX),
    "share.record.lock.duration.ms": f"{LOCK_SECONDS}000",
    "share.session.timeout.ms": f"{LOCK_SECONDS}000",
}

RECORDS, CPU_EACH = "records/s", "broker CPU µs per record"
MEMORY_BEFORE, MEMORY = "MiB before", "MiB with all of them in flight"
MEMORY_EACH = "bytes of the broker's memory per record in flight"
SHARE_LESS_IS_BETTER = {MEMORY_BEFORE, MEMORY, MEMORY_EACH}


class ShareGroup:
    """A topic that has records, and members of a new group that reads it from the beginning."""

    def __init__(self, target: Target, partitions: int, batches: int, batch_records: int) -> None:
        self._target = target
        self.name = f"bench-{os.urandom(4).hex()}"
        workers.create_topic(target.address, self.name, partitions)
        producer = RawProducer(target.address, self.name, SIZE_BYTES, partitions, batch_records)
        producer.begin()
        for _ in range(batches - 1):
            producer.produce()
        producer.close()
        self.members: list[ShareMember] = []

    def join(self, count: int, poll: Poll, config: Mapping[str, str]) -> None:
        """Configure the group, and let members join until each has partitions."""
        self.members = [ShareMember(self._target.address, self.name, poll) for _ in range(count)]
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP,
            resource_name=self.name,
            configs=[AlterableConfig(name=name, value=value) for name, value in config.items()],
        )
        answer = self.members[0].ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])
        )
        if answer.responses[0].error_code:
            raise RuntimeError(f"the group's configuration was refused: {answer.responses[0]}")
        waiting, deadline = self.members, time.monotonic() + TIMEOUT_SECONDS
        while waiting := [member for member in waiting if not member.join(self.name)]:
            if time.monotonic() > deadline:
                raise RuntimeError("not every member has partitions")
            time.sleep(0.1)

    def leave(self) -> None:
        """Let all leave, and delete the topic."""
        for member in self.members:
            member.leave()
        workers.delete_topic(self._target.address, self.name)

    def work(self, warm_up: int, count: int) -> tuple[float, float | None]:
        """Have `count` records accepted after others unmeasured; the seconds that took, and those of the broker's CPU.

        The CPU is None where it is not known.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        done, marks = 0, []
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                member.register(selector)
                member.poll()
            for goal in (warm_up, warm_up + count):
                while done < goal:
                    for key, _ in selector.select(1.0):
                        done += key.data.take()
                        key.data.poll()
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"{done} records were accepted within {TIMEOUT_SECONDS} s")
                marks.append((time.perf_counter(), self._target.cpu_seconds(), done))
            for member in self.members:
                member.take()
        (began, cpu_before, before), (ended, cpu_after, after) = marks
        share = (after - before) / count
        cpu = None if cpu_before is None or cpu_after is None else (cpu_after - cpu_before) / share
        return (ended - began) / share, cpu


def accepted(
    members: int, records: int, poll: Poll, batch_records: int = BATCH_RECORDS
) -> Callable[[Target, float], Result]:
    """Members of one partition take and accept what was written before."""

    def run(target: Target, scale: float) -> Result:
        count = int(records * scale)
        warm_up = count // WARM_UP_SHARE
        left = members * max(poll.records_max, batch_records)  # so that no member waits for records at the end
        group = ShareGroup(target, 1, (warm_up + count + 2 * left) // batch_records, batch_records)
        group.join(members, poll, FROM_BEGIN)
        seconds, cpu_seconds = group.work(warm_up, count)
        group.leave()
        result = {RECORDS: count / seconds}
        return result if cpu_seconds is None else result | {CPU_EACH: cpu_seconds / count * 1e6}

    return run


def in_flight(partitions: int, batch_records: int) -> Callable[[Target, float], Result]:
    """One member acquires 4,000 records of each partition; each record batch has a state of its own. Never scaled."""

    def run(target: Target, scale: float) -> Result:
        count = partitions * LOCKS_MAX
        group = ShareGroup(target, partitions, LOCKS_MAX // batch_records + 1, batch_records)
        group.join(1, Poll(10_000, 1), LOCKED_FOR_LONG)
        member, before = group.members[0], target.rss_bytes()
        deadline = time.monotonic() + LOCK_SECONDS - 5
        while member.acquired < count:
            member.held.clear()  # nothing is to be accepted
            member.poll()
            member.take()
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {member.acquired} records were acquired before the first locks end")
        after = target.rss_bytes()
        group.leave()
        if before is None or after is None:
            return {}
        return {MEMORY_BEFORE: before / 2**20, MEMORY: after / 2**20, MEMORY_EACH: after / member.acquired}

    return run
