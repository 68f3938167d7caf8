"""Brokers of a cluster that are wrong in one way each: the search for lost records has to find them."""

from typing import Any

from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.engine import ClaimLost, Commit, Fenced, Identity
from tests.kit.stepped_broker import BEFORE_LATE_COMMITS, BETWEEN_PARTS, reach

SURELY_ACKNOWLEDGED = 3
"""With so many commits held, clients have the answers of all but the last: a round begins when that before it ended."""
HEADER = 61
"""Bytes of a batch's header: where a row keeps more for its batches, it has markers."""


def acknowledge_before_commit() -> None:
    """Commits are acknowledged at once, and sent together when the lease is renewed."""
    commit, renew = PostgresEngine.commit, PostgresEngine.renew

    def hold(self: Any, wanted: Commit) -> tuple[int, ...]:
        self.__dict__.setdefault("held", []).append(wanted)
        return tuple(append.expected for append in wanted.appends if append.expected is not None)

    def renew_after(self: Any, identity: Identity) -> None:
        late = self.__dict__.pop("held", [])
        if len(late) >= SURELY_ACKNOWLEDGED:
            reach(BEFORE_LATE_COMMITS)
        for held in late:
            commit(self, held)
        renew(self, identity)

    PostgresEngine.commit = hold  # type: ignore[method-assign]
    PostgresEngine.renew = renew_after  # type: ignore[method-assign]


def commit_without_fence() -> None:
    """A broker that was taken over goes on: it takes the newest identity, and believes its own positions."""
    commit = PostgresEngine.commit

    def unfenced(self: Any, wanted: Commit) -> tuple[int, ...]:
        appends = [append._replace(expected=None, fixed=False) for append in wanted.appends]
        while True:
            ((*facts, seq),) = self._run(
                "SELECT incarnation, session, commit_seq FROM {}.broker WHERE id = %s", wanted.identity.broker
            )
            identity = Identity(wanted.identity.broker, *facts)
            try:
                bases = commit(self, Commit(identity, seq + 1, appends, wanted.objects))
            except Fenced:
                continue  # another thread or broker was faster
            pairs = zip(wanted.appends, bases, strict=True)
            return tuple(base if append.expected is None else append.expected for append, base in pairs)

    PostgresEngine.commit = unfenced  # type: ignore[method-assign]
    PostgresEngine.renew = lambda self, identity: None  # type: ignore[method-assign]


def commit_without_claims() -> None:
    """A commit revives an object that garbage collection has deleted."""
    commit = PostgresEngine.commit

    def unclaimed(self: Any, wanted: Commit) -> tuple[int, ...]:
        try:
            return commit(self, wanted)
        except ClaimLost:
            self._run(
                "INSERT INTO {}.object (id) OVERRIDING SYSTEM VALUE SELECT unnest(%s::bigint[])"
                " ON CONFLICT (id) DO UPDATE SET state = 0 RETURNING id",
                list(wanted.objects),
            )
            return commit(self, wanted)

    PostgresEngine.commit = unclaimed  # type: ignore[method-assign]


def commit_in_parts() -> None:
    """One of a commit's markers has a transaction of its own, before the others and the decision."""
    commit = PostgresEngine.commit

    def torn(self: Any, wanted: Commit) -> tuple[int, ...]:
        marked = [n for n, one in enumerate(wanted.appends) if len(one.row.heads or b"") > HEADER * one.row.batches]
        if not marked or len(wanted.appends) < 2:
            return commit(self, wanted)
        first = wanted.appends[marked[-1]]
        (base,) = commit(self, wanted._replace(appends=[first]))
        reach(BETWEEN_PARTS)
        self._run("UPDATE {}.broker SET commit_seq = commit_seq - 1 WHERE id = %s RETURNING id", wanted.identity.broker)
        rest = [one for one in wanted.appends if one is not first]
        bases = list(commit(self, wanted._replace(appends=rest, objects=())))
        bases.insert(marked[-1], base)
        return tuple(bases)

    PostgresEngine.commit = torn  # type: ignore[method-assign]
