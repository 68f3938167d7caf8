"""Our share partition behind the lines that SharePartitions.java answers for Kafka's: same line, same answer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import EXPIRED, NO_LOCK, InFlightBatch, InFlightState
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.values import (
    AckBatch,
    AcquireMode,
    DeadCause,
    DeadLetters,
    Fetched,
    Limits,
    Refused,
    Want,
)
from fencepost.coordinator.share.values import StateBatch, StoredState


class Lines:
    """A share partition that is asked by lines; writes and dead letters wait until a line settles them."""

    def __init__(self) -> None:
        self.now = 0
        self.limits = Limits()
        self.partition = SharePartition(lambda: self.limits)
        self.pending: list[Change] = []
        self.dead: list[DeadLetters] = []

    def answer(self, line: str) -> str:
        """The answer to a line, with what the partition then looks like."""
        kind, *words = line.split(" ")
        if kind == "play":
            self.__init__()  # type: ignore[misc]
            return ""
        before = len(self.pending)
        dead: Sequence[DeadLetters] = ()
        said = ""
        partition = self.partition
        match kind:
            case "restore":
                try:
                    dead = self._restore(words)
                except ValueError:
                    said = "failed"
            case "settings":
                self._settings(words)
            case "acquire":
                said = self._acquire(words)
            case "ack":
                try:
                    self._change(partition.acknowledge(words[0], ack_batches(words[1]), self.now))
                except Refused as refused:
                    said = f"refused {refused.error}"
            case "release":
                self._change(partition.release(words[0]))
            case "start":
                partition.log_start_moved(int(words[0]))
            case "pass":
                self.now += int(words[0])
                self._change(partition.expire(self.now))
            case "settle":
                dead = self.pending.pop(int(words[0])).settle(words[1] == "1")
                before -= 1
            case "dead":
                self._change(partition.archive(self.dead.pop(int(words[0]))))
        return said + self._effects(self.pending[before:], dead) + self._view()

    def _change(self, change: Change) -> None:
        """The offsets alone are stored by us only: Kafka answers NONE before the start is stored."""
        if change.batches:
            self.pending.append(change)

    def _settings(self, words: Sequence[str]) -> None:
        most, limit, lock_ms, renew, dead_letters = map(int, words)
        self.limits = Limits(most, limit, lock_ms, renew == 1, dead_letters == 1)

    def _restore(self, words: Sequence[str]) -> tuple[DeadLetters, ...]:
        self._settings(words[:5])
        epoch, start, first = map(int, words[5:8])
        self.partition = SharePartition(lambda: self.limits)
        self.pending, self.dead = [], []
        batches = tuple(StateBatch(*one) for one in ranges(words[8]))
        return self.partition.restore(StoredState(state_epoch=epoch, start_offset=start, batches=batches), first)

    def _acquire(self, words: Sequence[str]) -> str:
        member_id, mode, batch_size, most, fetch_offset, batches, aborted = words
        fetched = Fetched(int(fetch_offset), pairs(batches), pairs(aborted))
        want = Want(int(most), int(batch_size), AcquireMode(int(mode)))
        acquired = self.partition.acquire(member_id, fetched, want, self.now)
        return ",".join(f"{first}-{last}x{count}" for first, last, count in acquired)

    def _effects(self, changes: Sequence[Change], dead: Sequence[DeadLetters]) -> str:
        text = ""
        for change in changes:
            text += f" wrote {change.start_offset},{change.delivery_complete_count}"
            text += "".join(f",{b[0]}-{b[1]}/{b[2]}x{b[3]}" for b in joined(change.batches))
        for one in joined(dead):
            text += f" dead {one[0]}x{one[2]}{'l' if one[3] == DeadCause.LIMIT else 'r'}"
            self.dead.append(DeadLetters(*one))
        return text

    def _view(self) -> str:
        it = self.partition
        text = f" | {it.start_offset} {it.end_offset} {it.delivery_complete_count}"
        text += f" {it.next_fetch_offset()} {it.can_acquire():d}"
        return text + "".join(f" {batch.first}-{batch.last}{''.join(_states(batch))}" for batch in it._window.batches)


def _states(batch: InFlightBatch) -> Iterator[str]:
    if batch.offsets is None:
        yield ":" + _state(batch.whole)
        return
    before = None
    for state in batch.offsets:
        now = _state(state)
        yield "+" if now == before else f";{now}"
        before = now


def _state(state: InFlightState) -> str:
    lock = {NO_LOCK: "", EXPIRED: "@x"}.get(state.lock, f"@{state.lock}")
    return f"{state.state:d}{state.member_id}x{state.deliveries}{'~' if state.undo else ''}{lock}"


def joined(ranges: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Ranges in offset order, neighbours alike as one."""
    out: list[tuple[Any, ...]] = []
    for one in sorted(ranges):
        if out and out[-1][1] + 1 == one[0] and out[-1][2:] == tuple(one[2:]):
            out[-1] = (out[-1][0], *one[1:])
        else:
            out.append(tuple(one))
    return out


def ranges(text: str) -> list[list[int]]:
    """Numbers between colons, between commas."""
    return [[int(number) for number in one.split(":")] for one in text.split(",") if one]


def pairs(text: str) -> list[tuple[int, int]]:
    """Pairs of offsets."""
    return [(first, last) for first, last in ranges(text)]


def ack_batches(text: str) -> list[AckBatch]:
    """Acknowledgements, each `first:last:types` with one digit for a type."""
    parts = [one.split(":") for one in text.split(",")]
    return [AckBatch(int(first), int(last), [int(kind) for kind in kinds]) for first, last, kinds in parts]
