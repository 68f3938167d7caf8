"""The specification of a cluster's database: every transaction of `Engine` on Python's own tables, and faults.

Several engines, as of several brokers, share one SimDatabase. A transaction checks first, so it is whole or nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from fencepost.broker.cluster.engine import (
    ROWS_MAX,
    Append,
    Changed,
    ClaimLost,
    Commit,
    Conflict,
    Head,
    Identity,
    LogIdTaken,
    Member,
    NewLog,
    Proposed,
    Replacement,
    Row,
    Session,
    Slot,
    Snapshot,
    Span,
    StillAlive,
    slot_of,
)
from tests.kit.sim_connection import SimConnection, transaction
from tests.kit.sim_tables import BrokerRow, ObjectRow, ObjectState, fenced, objects_of


class SimEngine(SimConnection):
    """A connection to a SimDatabase. A fault is a hook that raises StoreUnavailable."""

    @transaction
    def position(self) -> int:
        return self.database.position

    @transaction
    def reset(self, known_life: int) -> None:
        database = self.database
        newest = database.lives[-1]
        if newest.is_reset and newest.life.number > known_life and newest.start == database.starts:
            return
        for broker, row in database.brokers.items():
            database.brokers[broker] = row._replace(incarnation=row.incarnation + 1, left=True)
        self._vacate(set(database.brokers))
        database.begin_life(max(newest.life.number, known_life) + 1, is_reset=True)

    # Brokers and slots

    @transaction
    def cluster_id(self, wanted: str) -> str:
        self.database.id = self.database.id or wanted
        return self.database.id

    @transaction
    def join(self, broker: int, addresses: str, lease_ms: int) -> Session:
        self.database.bound_times()
        brokers, now = self.database.brokers, self.database.now_ms()
        old = brokers.get(broker, BrokerRow(0, 0, 0, (), now, True, ""))
        if not old.left and now - old.seen_ms < lease_ms:
            raise StillAlive(old.addresses, now - old.seen_ms)
        brokers[broker] = old._replace(
            incarnation=old.incarnation + 1, session=old.session + 1, seen_ms=now, left=False, addresses=addresses
        )
        self._vacate({broker})
        return self._session(broker)

    @transaction
    def open_session(self, identity: Identity) -> Session:
        row = self.database.brokers.get(identity.broker)
        if row is None or row.incarnation != identity.incarnation:
            raise fenced(identity, row)
        self.database.brokers[identity.broker] = row._replace(session=row.session + 1, seen_ms=self.database.now_ms())
        return self._session(identity.broker)

    @transaction
    def renew(self, identity: Identity) -> None:
        self._renew(identity)

    @transaction
    def take_over(self, identity: Identity, slots: Collection[int], lease_ms: int) -> list[Slot]:
        self._renew(identity)
        database = self.database
        wanted = [database.slots[number] for number in sorted(set(slots))]
        dead = {slot.broker for slot in wanted if slot.broker != identity.broker and self._is_dead(slot, lease_ms)}
        for broker in dead & database.brokers.keys():
            row = database.brokers[broker]
            database.brokers[broker] = row._replace(incarnation=row.incarnation + 1)
        taken = [
            Slot(slot.slot, identity.broker, slot.epoch + database.epochs_on(slot.slot))
            for slot in wanted
            if slot.broker in dead
        ]
        self._vacate(dead)
        for slot in taken:
            database.slots[slot.slot] = slot
            database.slot_lives[slot.slot] = database.life
        return taken

    @transaction
    def release(self, identity: Identity) -> None:
        self._renew(identity)
        row = self.database.brokers[identity.broker]
        self.database.brokers[identity.broker] = row._replace(incarnation=row.incarnation + 1, left=True)
        self._vacate({identity.broker})

    @transaction
    def ready(self, identity: Identity) -> None:
        self._renew(identity)
        row = self.database.brokers[identity.broker]
        self.database.brokers[identity.broker] = row._replace(ready_incarnation=row.incarnation)

    @transaction
    def give_up(self, identity: Identity, slots: Collection[int]) -> None:
        self._renew(identity)
        for number in slots:
            slot = self.database.slots[number]
            if slot.broker == identity.broker:
                self.database.slots[number] = slot._replace(broker=None)

    @transaction
    def drain(self, broker: int, draining: bool) -> bool:
        row = self.database.brokers.get(broker)
        if row is not None:
            self.database.brokers[broker] = row._replace(draining=draining)
        return row is not None

    @transaction
    def secret(self, wanted: bytes) -> bytes:
        self.database.secret = self.database.secret or wanted
        return self.database.secret

    @transaction
    def members(self) -> list[Member]:
        now = self.database.now_ms()
        rows = sorted(self.database.brokers.items())
        return [
            Member(
                broker,
                row.incarnation,
                now - row.seen_ms,
                row.left,
                row.addresses,
                row.draining,
                row.ready_incarnation == row.incarnation,
            )
            for broker, row in rows
        ]

    @transaction
    def slots(self) -> list[Slot]:
        return list(self.database.slots)

    # Order

    @transaction
    def commit(self, commit: Commit) -> tuple[int, ...]:
        identity, appends, database = commit.identity, commit.appends, self.database
        assert len({append.log for append in appends}) == len(appends), "two appends for one log"
        self._check_fence(identity)
        row = database.brokers[identity.broker]
        if row.commit_seq != commit.seq - 1:
            raise fenced(identity, row)
        heads = {append.log: self._head_for(append) for append in appends}
        conflicts = {append.log for append in appends if self._is_in_conflict(append, heads[append.log])}
        if conflicts:
            raise Conflict(conflicts)
        self._check_objects(commit.objects, [append.row for append in appends])
        bases = []
        for append in appends:
            head = heads[append.log]
            assert head is not None, "a conflict"
            bases.append(head.next)
            row_epoch = (
                database.slots[slot_of(append.log)].epoch if append.expected is None else append.row.leader_epoch
            )
            self._add(head, [append.row._replace(base=head.next, leader_epoch=row_epoch)])
            database.heads[append.log] = database.heads[append.log]._replace(next=head.next + append.row.count)
        self._make_live(commit.objects)
        database.brokers[identity.broker] = row._replace(
            commit_seq=commit.seq, bases=tuple(bases), seen_ms=database.now_ms()
        )
        return tuple(bases)

    # Reading

    @transaction
    def heads(self, slots: Collection[int] | None = None) -> list[Head]:
        return [head for log, head in sorted(self.database.heads.items()) if slots is None or slot_of(log) in slots]

    @transaction
    def heads_of(self, logs: Collection[int]) -> list[Head]:
        return [head for log, head in sorted(self.database.heads.items()) if log in logs]

    def rows(self, log: int, start: int, end: int, inline: bool = False, limit: int = ROWS_MAX) -> list[Row]:
        return self.many_rows([Span(log, start, end)], inline, limit)[0]

    @transaction
    def many_rows(self, spans: Sequence[Span], inline: bool = False, limit: int = ROWS_MAX) -> list[list[Row]]:
        found = [self._overlapping(*span)[:limit] for span in spans]
        return found if inline else [[row._replace(inline=None) for row in rows] for rows in found]

    @transaction
    def snapshots(self, logs: Collection[int], kind: str) -> list[Snapshot]:
        tables = self.database.snapshots
        return [tables[log, kind] for log in sorted(set(logs)) if (log, kind) in tables]

    # Growth

    @transaction
    def raise_start(self, identity: Identity, starts: Sequence[tuple[int, int]]) -> None:
        self._renew(identity)
        for log, wanted in starts:
            head = self.database.heads.get(log)
            if head is not None:
                start = max(head.start, min(wanted, head.next))
                self.database.heads[log] = head._replace(start=start)
                self._remove(log, [row for row in self.database.rows[log] if row.end <= start])

    @transaction
    def replace(self, identity: Identity, replacement: Replacement) -> None:
        self._check_fence(identity)
        log, start, end, bases, rows, objects, snapshots = replacement
        old = self._overlapping(log, start, end)
        is_inside = log in self.database.heads and end <= self.database.heads[log].next
        is_inside = is_inside and all(start <= row.base and row.end <= end for row in old)
        if not is_inside or [row.base for row in old] != sorted(bases):
            raise Changed(f"the rows of log {log} in [{start}, {end}) are not those that the caller has read")
        self._check_objects(objects, rows)
        self._renew(identity)
        self._remove(log, old)
        self._add(self.database.heads[log], rows)
        self._make_live(objects)
        for snapshot in snapshots:
            held = self.database.snapshots.get((snapshot.log, snapshot.kind))
            if held is None or held.base <= snapshot.base:
                self.database.snapshots[snapshot.log, snapshot.kind] = snapshot

    @transaction
    def drop(self, identity: Identity, logs: Collection[int]) -> None:
        self._renew(identity)
        for log in set(logs) & self.database.heads.keys():
            self._remove(log, self.database.rows[log])
            del self.database.heads[log], self.database.rows[log]
        for key in [key for key in self.database.snapshots if key[0] in logs]:
            del self.database.snapshots[key]

    # Proposals

    @transaction
    def propose(self, log: int, value: bytes) -> int:
        self.database.proposals.append(Proposed(len(self.database.proposals) + 1, log, value))
        return len(self.database.proposals)

    @transaction
    def proposed(self) -> list[Proposed]:
        return [one for one in self.database.proposals if one.number not in self.database.answers]

    @transaction
    def answer(self, identity: Identity, number: int, answer: str) -> None:
        self._renew(identity)
        if 0 < number <= len(self.database.proposals):
            self.database.answers.setdefault(number, answer)

    @transaction
    def answer_to(self, number: int) -> str | None:
        return self.database.answers.get(number)

    # Objects

    @transaction
    def claim(self, count: int) -> list[int]:
        self.database.last_object += count
        claimed = list(range(self.database.last_object - count + 1, self.database.last_object + 1))
        claim = ObjectRow(ObjectState.CLAIMED, 0, self.database.now_ms())
        self.database.objects.update(dict.fromkeys(claimed, claim))
        return claimed

    @transaction
    def doomed(self, idle_ms: int, limit: int = 1000) -> list[int]:
        self.database.bound_times()
        objects, now = self.database.objects, self.database.now_ms()
        unused = [
            number
            for number, row in sorted(objects.items())
            if (row.state == ObjectState.CLAIMED and now - row.at_ms >= idle_ms)
            or (row.state == ObjectState.LIVE and row.live == 0)
        ]
        for number in unused[:limit]:
            objects[number] = objects[number]._replace(state=ObjectState.DOOMED)
        return [number for number, row in sorted(objects.items()) if row.state == ObjectState.DOOMED][:limit]

    @transaction
    def forget(self, objects: Collection[int]) -> None:
        for number in set(objects) & self.database.objects.keys():
            if self.database.objects[number].state == ObjectState.DOOMED:
                del self.database.objects[number]

    @transaction
    def known(self, objects: Collection[int]) -> set[int]:
        return set(objects) & self.database.objects.keys()

    # What the transactions are made of

    def _session(self, broker: int) -> Session:
        row = self.database.brokers[broker]
        return Session(Identity(broker, row.incarnation, row.session), row.commit_seq, row.bases)

    def _check_fence(self, identity: Identity) -> None:
        row = self.database.brokers.get(identity.broker)
        if row is None or (row.incarnation, row.session) != (identity.incarnation, identity.session):
            raise fenced(identity, row)

    def _renew(self, identity: Identity) -> None:
        self._check_fence(identity)
        row = self.database.brokers[identity.broker]
        self.database.brokers[identity.broker] = row._replace(seen_ms=self.database.now_ms(), beats=row.beats + 1)
        self.database.bound_times()

    def _is_dead(self, slot: Slot, lease_ms: int) -> bool:
        row = None if slot.broker is None else self.database.brokers.get(slot.broker)
        return row is None or row.left or self.database.now_ms() - row.seen_ms >= lease_ms

    def _vacate(self, brokers: Collection[int | None]) -> None:
        self.database.slots[:] = [s._replace(broker=None) if s.broker in brokers else s for s in self.database.slots]

    def _head_for(self, append: Append) -> Head | None:
        """The head that the append meets; of a new log, the one that it makes."""
        head, new = self.database.heads.get(append.log), append.new_log
        if head is not None and new is not None and NewLog(head.name, head.topic_id) != new:
            raise LogIdTaken(append.log, head.name, new.name)
        return Head(append.log, *new, 0, 0, 0) if head is None and new is not None else head

    def _is_in_conflict(self, append: Append, head: Head | None) -> bool:
        expected = append.expected
        if head is None:
            return True
        if expected is None or expected == head.next:
            return False
        if append.fixed or head.next < expected or head.start > expected:
            return True
        missed = self._overlapping(append.log, expected, head.next)
        return any(set(append.row.producer_ids) & set(row.producer_ids) for row in missed)

    def _overlapping(self, log: int, start: int, end: int) -> list[Row]:
        rows = self.database.rows.get(log, [])
        return [row for row in rows if max(row.base, start) < min(row.end, end)]

    def _add(self, head: Head, rows: Sequence[Row]) -> None:
        old = self.database.rows.get(head.log, [])
        self.database.rows[head.log] = sorted([*old, *rows])
        size = sum(row.placement.size_bytes for row in rows)
        self.database.heads[head.log] = head._replace(size_bytes=head.size_bytes + size)
        self._count_references(rows, 1)

    def _remove(self, log: int, rows: Sequence[Row]) -> None:
        head, gone = self.database.heads[log], {row.base for row in rows}
        self.database.rows[log] = [row for row in self.database.rows[log] if row.base not in gone]
        size = sum(row.placement.size_bytes for row in rows)
        self.database.heads[log] = head._replace(size_bytes=head.size_bytes - size)
        self._count_references(rows, -1)

    def _count_references(self, rows: Sequence[Row], sign: int) -> None:
        for number, count in Counter(objects_of(rows)).items():
            row = self.database.objects[number]
            self.database.objects[number] = row._replace(live=row.live + sign * count)

    def _check_objects(self, claimed: Collection[int], rows: Sequence[Row]) -> None:
        """The listed objects are claims; all others that the rows refer to are live already."""
        needed = {**dict.fromkeys(objects_of(rows), ObjectState.LIVE), **dict.fromkeys(claimed, ObjectState.CLAIMED)}
        held = self.database.objects
        lost = [number for number, state in needed.items() if number not in held or held[number].state != state]
        if lost:
            raise ClaimLost(f"objects {sorted(lost)} are not claimed any more")

    def _make_live(self, objects: Collection[int]) -> None:
        for number in objects:
            self.database.objects[number] = self.database.objects[number]._replace(state=ObjectState.LIVE)
