"""Client quotas as Kafka has them: which limit applies to a client, and how much of it the client has used. Pure.

Limits are for users, client ids, pairs of both, and their defaults (KIP-55, KIP-546). The limit that applies also
decides which clients share it: those of a user, those of a client id, or only those of the pair.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from fencepost.broker.security.rates import Rate, TokenBucket, WindowedSum, Windows
from fencepost.coordinator.ports import Clock

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs by type; a name of None is the default of its type."""
Limits = Mapping[QuotaEntity, Mapping[str, float]]
USER, CLIENT_ID, IP = "user", "client-id", "ip"
CONNECTION_RATE = "connection_creation_rate"
CLIENTS_MAX = 1000
"""At this many clients with a quota, those that use nothing are forgotten."""
THROTTLE_TIME_WINDOWS = Windows(2, 30)
"""The period of the metric throttle-time (Kafka's metrics.num.samples and metrics.sample.window.ms)."""


class QuotaType(Enum):
    """The kinds of quotas of users and client ids. The value is the name of the quota."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


def quota_ms(clock: Clock) -> int:
    return round(clock.monotonic() * 1000)


class Applicable(NamedTuple):
    """A limit that applies to a client. Clients of the same `user` and `client_id` share it; "" stands for any."""

    user: str
    client_id: str
    limit: float


def applicable(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Applicable | None:
    """The limit for a client, by Kafka's precedence (KIP-55); None if there is none.

    A client without a client id has only the limits of its user (ClientQuotaManager.DefaultQuotaCallback).
    """
    by_user: QuotaEntity = ((USER, user),)
    by_default_user: QuotaEntity = ((USER, None),)
    by_id: QuotaEntity = ((CLIENT_ID, client_id),)
    by_default_id: QuotaEntity = ((CLIENT_ID, None),)
    if not client_id:
        entity = by_user if by_user in limits else by_default_user
        return Applicable(user, "", limits[entity]) if entity in limits else None
    for entity, shared_by in (
        (by_id + by_user, (user, client_id)),
        (by_default_id + by_user, (user, client_id)),
        (by_user, (user, "")),
        (by_id + by_default_user, (user, client_id)),
        (by_default_id + by_default_user, (user, client_id)),
        (by_default_user, (user, "")),
        (by_id, ("", client_id)),
        (by_default_id, ("", client_id)),
    ):
        if entity in limits:
            return Applicable(*shared_by, limits[entity])
    return None


def connection_creation_rate(limits: Limits, address: str) -> float | None:
    """How many connections an address may open per second (KIP-612); None if there is no such quota."""
    for entity in (((IP, address),), ((IP, None),)):
        if CONNECTION_RATE in limits.get(entity, {}):
            return limits[entity][CONNECTION_RATE]
    return None


class Usage:
    """How much the clients that share a limit have used of it."""

    __slots__ = ("_throttle_count", "_throttle_sum_ms", "applies", "bucket", "limit", "rate")

    def __init__(self, applies: Applicable, windows: Windows) -> None:
        self.applies = applies
        self.limit = applies.limit
        self.rate = Rate(windows)
        self.bucket = TokenBucket(windows)
        """The tokens of a controller_mutation_rate; the other quotas do not use them."""
        self._throttle_sum_ms = WindowedSum(THROTTLE_TIME_WINDOWS)
        self._throttle_count = WindowedSum(THROTTLE_TIME_WINDOWS)

    @property
    def window_bytes(self) -> int:
        """The most that can be recorded at once without a certain throttle (getMaxValueInQuotaWindow)."""
        windows = self.rate.windows
        return int(self.limit * (windows.samples - 1) * windows.seconds)

    def record(self, value: float, now_ms: int) -> int:
        """Record a value. Returns for how many ms the client has to be throttled, or 0."""
        self.rate.record(value, now_ms)
        return self.rate.throttle_ms(self.limit, now_ms)

    def record_percentage(self, seconds: float, now_ms: int) -> int:
        """As `record`, for the time of a handler. One throttle lasts at most a window (ClientRequestQuotaManager)."""
        return min(self.record(seconds * 100, now_ms), self.rate.windows.ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        """Take back a recorded value: its response is not sent (unrecordQuotaSensor)."""
        self.rate.record(-value, now_ms)

    def throttled(self, ms: int, now_ms: int) -> None:
        self._throttle_sum_ms.record(ms, now_ms)
        self._throttle_count.record(1, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """The mean of the latest throttles, in ms."""
        count = self._throttle_count.total(now_ms)
        return self._throttle_sum_ms.total(now_ms) / count if count else 0.0

    def is_unused(self, now_ms: int) -> bool:
        """Whether it equals a new one."""
        parts = self.rate, self._throttle_count
        return all(part.is_unused(now_ms) for part in parts) and self.bucket.is_unused(self.limit, now_ms)


class ClientUsages(NamedTuple):
    """The usages that one client shares; None where no limit applies."""

    produce: Usage | None
    fetch: Usage | None
    request: Usage | None
    controller_mutation: Usage | None


class ClientQuotas:
    """The limits of clients, and what clients have used of them. It exists only while there is a limit."""

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        self._windows = dict.fromkeys(QuotaType, windows) | {QuotaType.CONTROLLER_MUTATION: controller_windows}
        self.limits: Limits = {}
        """All limits, also those of addresses."""
        self._limits: dict[QuotaType, dict[QuotaEntity, float]] = {kind: {} for kind in QuotaType}
        self._usages: dict[QuotaType, dict[tuple[str, str], Usage]] = {kind: {} for kind in QuotaType}
        self._clients: dict[tuple[str, str], ClientUsages | None] = {}
        self._connections: dict[str, Rate] = {}
        """By address, if it has a connection_creation_rate."""
        self.muted = dict.fromkeys(QuotaType, 0)
        """The number of connections that are throttled now, by the quota that did it."""

    def set_limits(self, limits: Limits) -> None:
        """Replace all limits. What clients have used so far counts on."""
        self.limits = limits
        for kind in QuotaType:
            self._limits[kind] = {entity: one[kind.value] for entity, one in limits.items() if kind.value in one}
        self._clients.clear()

    def of(self, user: str, client_id: str, now_ms: int) -> ClientUsages | None:
        """The usages of a client; None if no limit applies to it."""
        client = user, client_id
        try:
            return self._clients[client]
        except KeyError:
            if len(self._clients) >= CLIENTS_MAX:
                self._forget_unused(now_ms)
            found = ClientUsages(*(self._usage(kind, user, client_id) for kind in QuotaType))
            usages = self._clients[client] = found if any(found) else None
            return usages

    def record_connection(self, address: str, now_ms: int) -> int:
        """Count a new connection. Returns 0, or after how many ms to close it, because it is one too many (KIP-612)."""
        limit = connection_creation_rate(self.limits, address)
        if limit is None:
            return 0
        rate = self._connections.get(address)
        if rate is None:
            if len(self._connections) >= CLIENTS_MAX:
                self._connections = {who: one for who, one in self._connections.items() if not one.is_unused(now_ms)}
            rate = self._connections[address] = Rate(self._windows[QuotaType.REQUEST])
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return min(throttle_ms, rate.windows.ms)

    def usages(self, kind: QuotaType) -> Iterator[Usage]:
        return iter(tuple(self._usages[kind].values()))

    def _usage(self, kind: QuotaType, user: str, client_id: str) -> Usage | None:
        applies = applicable(self._limits[kind], user, client_id)
        if applies is None:
            return None
        shared_by = applies.user, applies.client_id
        usage = self._usages[kind].get(shared_by)
        if usage is None:
            usage = self._usages[kind][shared_by] = Usage(applies, self._windows[kind])
        usage.applies, usage.limit = applies, applies.limit
        return usage

    def _forget_unused(self, now_ms: int) -> None:
        """Bound the memory: clients choose their client ids."""
        self._clients.clear()
        for usages in self._usages.values():
            for shared_by in [key for key, usage in usages.items() if usage.is_unused(now_ms)]:
                del usages[shared_by]


def updated_quotas(
    quotas: ClientQuotas | None, limits: Limits, windows: tuple[Windows, Windows]
) -> ClientQuotas | None:
    """The quotas with these limits; None if there are none. `windows`: see `ClientQuotas`."""
    if quotas is not None and quotas.limits is limits:
        return quotas
    if not limits:
        return None
    quotas = quotas or ClientQuotas(*windows)
    quotas.set_limits(limits)
    return quotas
