"""A crowd of group members: what their heartbeats cost, and how long a rebalance takes."""

import heapq
import os
import selectors
import statistics
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar, cast

from bench import workers
from bench.members import SUBSCRIPTION, ClassicMember, ConsumerMember, Member
from bench.target import Target

Result = dict[str, float]
MemberT = TypeVar("MemberT", bound=Member)

MEMBERS, GROUPS = 1000, 100
ROUND_TIMEOUT_SECONDS = 60.0
HURRIED_BEAT_SECONDS = 0.3
WARM_UP_SECONDS = 1.5

CPU_SHARE = "broker CPU % of a core"
CPU_BEAT = "broker CPU µs per heartbeat"
CPU_REBALANCE = "broker CPU ms per full rebalance"
REBALANCE, CHANGE, ARRIVAL = "ms full rebalance", "ms one leaves, one joins", "ms all arrive"
GROUP_LESS_IS_BETTER = {REBALANCE, CHANGE, ARRIVAL}


class Crowd(Generic[MemberT]):
    """All members of all groups, served by one loop."""

    def __init__(self, kind: type[MemberT], address: str, members: int, groups: int) -> None:
        run = os.urandom(4).hex()
        self.members = [kind(address, f"bench-{run}-{number % groups}") for number in range(members)]
        self.groups = [self.members[number::groups] for number in range(groups)]
        self.round_trips: list[float] = []
        self._are_whole = kind.are_whole
        self._beat_seconds = 0.0
        self._beats: list[tuple[float, int, MemberT]] = []
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._selector.close()
        for member in self.members:
            member.close()

    def everybody(self, act: Callable[[MemberT], None]) -> float:
        """Have every member do something; the seconds until all groups are whole again."""
        began = time.perf_counter()
        for member in self.members:
            act(member)
        self._until(self._whole)
        return time.perf_counter() - began

    def arrive(self) -> float:
        """All join from nothing, and beat meanwhile; the seconds until all groups are whole."""
        self._beat_every(HURRIED_BEAT_SECONDS)
        return self.everybody(lambda member: member.join())

    def change(self) -> float:
        """One member of each group leaves and a new one arrives; the others hear of it by their beats."""
        self._beat_every(HURRIED_BEAT_SECONDS)
        self.serve(2 * HURRIED_BEAT_SECONDS)
        self.quiet()
        began = time.perf_counter()
        for group in self.groups:
            group[-1].leave()
        self._beat_every(HURRIED_BEAT_SECONDS)
        self._until(lambda: not any(group[-1].waits_for for group in self.groups))
        for group in self.groups:
            group[-1].join()
        self._until(self._whole)
        return time.perf_counter() - began

    def leave(self) -> None:
        """Everybody leaves in order, so that the next run finds a broker without members."""
        self.quiet()
        for member in self.members:
            member.leave()
        self.quiet()

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

    def quiet(self) -> None:
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
            seconds = cast(MemberT, key.fileobj).take()
            if seconds is not None:
                self.round_trips.append(seconds)

    def _whole(self) -> bool:
        """Whether all are stable, and each group through its rebalance."""
        return all(member.stable for member in self.members) and all(map(self._are_whole, self.groups))


def crowd_of(kind: type[MemberT], target: Target, groups: int = GROUPS) -> Crowd[MemberT]:
    """A thousand members, connected; those of the consumer protocol have a topic with a partition for each."""
    if issubclass(kind, ConsumerMember):
        kind.topic = f"bench-{os.urandom(4).hex()}"
        workers.create_topic(target.address, kind.topic, MEMBERS // groups)
    return Crowd(kind, target.address, MEMBERS, groups)


def heartbeats(
    beat_seconds: float, seconds: float, kind: type[Member] = ClassicMember
) -> Callable[[Target, float], Result]:
    """Members of whole groups do nothing but beat."""

    def run(target: Target, scale: float) -> Result:
        with crowd_of(kind, target) as crowd:
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


def changes(rounds: int, kind: type[Member] = ClassicMember) -> Callable[[Target, float], Result]:
    """All arrive; then, some times over, one of each group leaves and another one comes."""

    def run(target: Target, scale: float) -> Result:
        with crowd_of(kind, target) as crowd:
            arrival = crowd.arrive()
            times = [crowd.change() for _ in range(max(2, int(rounds * scale)))]
            crowd.leave()
        return {ARRIVAL: arrival * 1e3, CHANGE: statistics.median(times) * 1e3}

    return run


def rebalances(rounds: int, groups: int = GROUPS) -> Callable[[Target, float], Result]:
    """All of a group join again at once with something new to say, as after a beat that told them to."""

    def run(target: Target, scale: float) -> Result:
        count = max(2, int(rounds * scale))

        def rebalance(number: int) -> float:
            subscription = SUBSCRIPTION + bytes([number])
            crowd.quiet()
            return crowd.everybody(lambda member: member.join(subscription))

        with crowd_of(ClassicMember, target, groups) as crowd:
            crowd.arrive()
            rebalance(count)
            before = target.cpu_seconds()
            times = [rebalance(number) for number in range(count)]
            after = target.cpu_seconds()
            crowd.leave()
        result = {REBALANCE: statistics.median(times) * 1e3}
        if before is not None and after is not None:
            result[CPU_REBALANCE] = (after - before) / count * 1e3
        return result

    return run
