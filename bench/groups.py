"""A crowd of group members over bare sockets, one for each: what heartbeats cost, and how long a rebalance takes.

The members do what a Java consumer does (join, sync, beat; join again when a beat says so), without fetching.
"""

import heapq
import os
import selectors
import statistics
import time
from collections.abc import Callable
from typing import Any, Self, cast

from bench.raw import RawConnection, decoded, framed
from bench.target import Target
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.registry import API_BY_KEY

Result = dict[str, float]

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
VERSION = {JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5}
MEMBERS, GROUPS = 1000, 100
SUBSCRIPTION = b"\x00\x03" + bytes(60)
"""Stands for what a consumer sends: opaque to the broker, of the size of one topic's name and some partitions."""
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 60_000
ROUND_TIMEOUT_SECONDS = 60.0
HURRIED_BEAT_SECONDS = 0.3
WARM_UP_SECONDS = 1.5

CPU_SHARE = "broker CPU % of a core"
CPU_BEAT = "broker CPU µs per heartbeat"
CPU_REBALANCE = "broker CPU ms per full rebalance"
REBALANCE, CHANGE, ARRIVAL = "ms full rebalance", "ms one leaves, one joins", "ms all arrive"
GROUP_LESS_IS_BETTER = {REBALANCE, CHANGE, ARRIVAL}


class Member(RawConnection):
    """One member and its connection; one request at a time is under way, as with any client."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(address)
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.stable = False
        self.waits_for = 0
        """The API whose answer is under way, or 0."""
        self._subscription = SUBSCRIPTION
        self._sent = 0.0
        self._beat = b""

    def ask(self, api_key: int, request: Any) -> None:
        """Send a request whose answer `take` will find."""
        self.waits_for = api_key
        self.send(framed(API_BY_KEY[api_key], VERSION[api_key], request))

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def join(self, subscription: bytes | None = None) -> None:
        """Ask for a place in the next generation."""
        self.stable = False
        self._subscription = subscription or self._subscription
        protocol = JoinGroupRequestProtocol(name="range", metadata=self._subscription)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.ask(JOIN, request)

    def leave(self) -> None:
        """Give the place up; whoever joins on this connection later is somebody new."""
        self.stable = False
        self.ask(LEAVE, LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)]))

    def beat(self, now: float) -> None:
        """Say that one is alive."""
        self.waits_for, self._sent = HEARTBEAT, now
        self.send(self._beat)

    def take(self) -> float | None:
        """Receive an answer and do what follows from it; the seconds of a heartbeat's round trip."""
        api_key, self.waits_for = self.waits_for, 0
        answer: Any = decoded(API_BY_KEY[api_key], VERSION[api_key], self.receive())
        if api_key == HEARTBEAT:
            seconds = time.perf_counter() - self._sent
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            else:
                self._expect(answer.error_code, HEARTBEAT)
            return seconds
        if api_key == JOIN:
            self._joined(answer)
        elif api_key == SYNC and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif api_key == SYNC:
            self._expect(answer.error_code, SYNC)
            self.stable = True
        else:
            self._expect(answer.error_code, LEAVE)
            self.member_id = ""
        return None

    def _joined(self, answer: Any) -> None:
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join()
        self._expect(answer.error_code, JOIN)
        self.generation = answer.generation_id
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)
        self._beat = framed(API_BY_KEY[HEARTBEAT], VERSION[HEARTBEAT], beat)
        given = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=SUBSCRIPTION) for one in answer.members]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[] if answer.skip_assignment else given,
        )
        return self.ask(SYNC, request)

    def _expect(self, code: int, api_key: int) -> None:
        if code:
            raise RuntimeError(f"{API_BY_KEY[api_key].name} was answered with error {code}")


class Crowd:
    """All members of all groups, served by one loop."""

    def __init__(self, address: str, members: int, groups: int) -> None:
        run = os.urandom(4).hex()
        self.members = [Member(address, f"bench-{run}-{number % groups}") for number in range(members)]
        self.groups = [self.members[number::groups] for number in range(groups)]
        self.round_trips: list[float] = []
        self._beat_seconds = 0.0
        self._beats: list[tuple[float, int, Member]] = []
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._selector.close()
        for member in self.members:
            member.close()

    def everybody(self, act: Callable[[Member], None]) -> float:
        """Have every member do something; the seconds until all groups are whole again."""
        began = time.perf_counter()
        for member in self.members:
            act(member)
        self._until(self._whole)
        return time.perf_counter() - began

    def arrive(self) -> float:
        """All join from nothing, and beat meanwhile; the seconds until all groups are whole."""
        self._beat_every(HURRIED_BEAT_SECONDS)
        return self.everybody(Member.join)

    def rebalance(self, subscription: bytes) -> float:
        """All join again with a new subscription, as after a beat that told them to; the seconds that takes."""
        self._quiet()
        return self.everybody(lambda member: member.join(subscription))

    def change(self) -> float:
        """One member of each group leaves and a new one arrives; the others hear of it by their beats."""
        self._beat_every(HURRIED_BEAT_SECONDS)
        self.serve(2 * HURRIED_BEAT_SECONDS)
        self._quiet()
        began = time.perf_counter()
        for group in self.groups:
            group[-1].leave()
        self._beat_every(HURRIED_BEAT_SECONDS)
        self._until(lambda: not any(group[-1].waits_for == LEAVE for group in self.groups))
        for group in self.groups:
            group[-1].join()
        self._until(self._whole)
        return time.perf_counter() - began

    def leave(self) -> None:
        """Everybody leaves in order, so that the next run finds a broker without members."""
        self._quiet()
        for member in self.members:
            member.leave()
        self._quiet()

    def beat(self, beat_seconds: float, seconds: float) -> list[float]:
        """Beat so often for so long; the seconds of each round trip."""
        self._beat_every(beat_seconds)
        self.round_trips = []
        self.serve(seconds)
        return self.round_trips

    def serve(self, seconds: float) -> None:
        """Serve for so long."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            self._serve_once(end - now)

    def _beat_every(self, beat_seconds: float) -> None:
        """Members take turns, as those of independent programs do."""
        self._beat_seconds = beat_seconds
        now, share = time.perf_counter(), beat_seconds / len(self.members)
        self._beats = [(now + number * share, number, member) for number, member in enumerate(self.members)]

    def _quiet(self) -> None:
        """No beats until they are asked for again, and no request under way."""
        self._beats = []
        self._until(lambda: not any(member.waits_for for member in self.members))

    def _until(self, reached: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + ROUND_TIMEOUT_SECONDS
        while not reached():
            if time.perf_counter() > deadline:
                raise RuntimeError("the groups did not come to where they should")
            self._serve_once(1.0)

    def _serve_once(self, wait_seconds: float) -> None:
        """Beat where it is time, then take what has come."""
        beats = self._beats
        while beats and beats[0][0] <= (now := time.perf_counter()):
            due, number, member = beats[0]
            if member.stable and not member.waits_for:
                member.beat(now)
            heapq.heapreplace(beats, (max(due + self._beat_seconds, now), number, member))
        if beats:
            wait_seconds = min(wait_seconds, max(beats[0][0] - time.perf_counter(), 0))
        for key, _ in self._selector.select(wait_seconds):
            seconds = cast(Member, key.fileobj).take()
            if seconds is not None:
                self.round_trips.append(seconds)

    def _whole(self) -> bool:
        """Whether all are stable, and each group in one generation."""
        return all(member.stable for member in self.members) and all(
            len({member.generation for member in group}) == 1 for group in self.groups
        )


def heartbeats(beat_seconds: float, seconds: float) -> Callable[[Target, float], Result]:
    """Members of whole groups do nothing but beat."""

    def run(target: Target, scale: float) -> Result:
        with Crowd(target.address, MEMBERS, GROUPS) as crowd:
            crowd.arrive()
            crowd.beat(HURRIED_BEAT_SECONDS, WARM_UP_SECONDS)
            before, began = target.cpu_seconds(), time.perf_counter()
            times = crowd.beat(beat_seconds, max(seconds * scale, beat_seconds))
            after, elapsed = target.cpu_seconds(), time.perf_counter() - began
            crowd.leave()
        times.sort()
        result = {"ms p50": times[len(times) // 2] * 1e3, "ms p99": times[len(times) * 99 // 100] * 1e3}
        if before is not None and after is not None:
            result |= {CPU_SHARE: (after - before) / elapsed * 100, CPU_BEAT: (after - before) / len(times) * 1e6}
        return result

    return run


def rebalances(rounds: int, groups: int = GROUPS) -> Callable[[Target, float], Result]:
    """All arrive; all join again at once, some times over; one of each group leaves and another one comes."""

    def run(target: Target, scale: float) -> Result:
        count = max(2, int(rounds * scale))
        with Crowd(target.address, MEMBERS, groups) as crowd:
            arrival = crowd.arrive()
            crowd.rebalance(SUBSCRIPTION[::-1])
            before = target.cpu_seconds()
            full = [crowd.rebalance(SUBSCRIPTION + bytes([number])) for number in range(count)]
            after = target.cpu_seconds()
            changes = [crowd.change() for _ in range(count)]
            crowd.leave()
        result = {ARRIVAL: arrival, REBALANCE: statistics.median(full), CHANGE: statistics.median(changes)}
        result = {metric: seconds * 1e3 for metric, seconds in result.items()}
        if before is not None and after is not None:
            result[CPU_REBALANCE] = (after - before) / count * 1e3
        return result

    return run
