"""Quotas of one request: what it uses, for how long its client is throttled, and the response that says so (KIP-219).

The connection sends the response at once and reads nothing for the throttle time. So only that client waits.
"""

from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, cast

from fencepost.broker.network.reply import Durable, Encoded, Ready, Reply, Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.quotas import ClientQuotas, ClientUsages, QuotaType, Usage, quota_ms
from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.network.context import RequestContext
    from fencepost.broker.network.dispatch import Route
    from fencepost.protocol.messages.api01_fetch import FetchResponse

LENGTH_BYTES = 4
EXEMPT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""APIs whose time counts for no client: logins, and requests between brokers."""


class MutationQuota:
    """A request's share of its controller_mutation_rate, as Kafka's ControllerMutationQuota.

    A strict one refuses mutations while tokens are missing. A permissive one (for versions whose clients do not know
    THROTTLING_QUOTA_EXCEEDED) lets all pass, and only throttles.
    """

    __slots__ = ("_now_ms", "_until_ms", "is_strict", "usage")

    def __init__(self, usage: Usage, is_strict: bool, now_ms: Callable[[], int]) -> None:
        self.usage = usage
        self.is_strict = is_strict
        self._now_ms = now_ms
        self._until_ms = 0

    def __call__(self, count: int) -> bool:
        """Count the creation or deletion of `count` partitions. False: it must be refused."""
        now_ms = self._now_ms()
        usage = self.usage
        missing_ms = usage.bucket.throttle_ms(usage.limit, now_ms) if self.is_strict else 0
        if not missing_ms:
            usage.bucket.take(count, usage.limit, now_ms)
            usage.rate.record(count, now_ms)
            if self.is_strict:
                return True
            missing_ms = usage.bucket.throttle_ms(usage.limit, now_ms)
        self._until_ms = now_ms + missing_ms
        return not self.is_strict

    def throttle_ms(self, now_ms: int) -> int:
        return max(0, self._until_ms - now_ms)


class Meter:
    """Measures one request of a client that has a quota."""

    __slots__ = (
        "_began",
        "_node",
        "_quotas",
        "_request_bytes",
        "_route",
        "_seconds",
        "_usages",
        "mutations",
        "throttled_by",
    )

    def __init__(
        self, node: Broker, quotas: ClientQuotas, usages: ClientUsages, route: "Route", request_bytes: int
    ) -> None:
        self._node = node
        self._quotas = quotas
        self._usages = usages
        self._route = route
        self._request_bytes = request_bytes
        self._began = node.clock.monotonic()
        self._seconds = 0.0
        self.mutations: MutationQuota | None = None
        self.throttled_by: QuotaType | None = None

    def now_ms(self) -> int:
        return quota_ms(self._node.clock)

    def limit_mutations(self, strict: bool) -> MutationQuota | None:
        usage = self._usages.controller_mutation
        if usage is not None:
            self.mutations = MutationQuota(usage, strict, self.now_ms)
        return self.mutations

    def handled(self, reply: Reply) -> Reply:
        """The handler has returned. If it has to wait, its time is that of its steps, without the waits."""
        self._seconds = self._node.clock.monotonic() - self._began
        return self._timed(reply) if isinstance(reply, CoroutineType) else reply

    @coroutine
    def _timed(self, waiting: Coroutine[Any, Any, Ready]) -> Generator[Any, Any, Ready]:
        clock = self._node.clock
        step: Callable[[Any], Any] = waiting.send
        value: Any = None
        while True:
            began = clock.monotonic()
            try:
                trap = step(value)
            except StopIteration as end:
                reply: Ready = end.value
                return reply
            finally:
                self._seconds += clock.monotonic() - began
            try:
                value = yield trap
                step = waiting.send
            except BaseException as error:  # noqa: BLE001 - the handler must see its cancellation
                step, value = waiting.throw, error

    def finish(self, reply: Ready) -> tuple[Ready, int]:
        now_ms = self.now_ms()
        key, usages = self._route.api.key, self._usages
        by_time = by_amount = 0
        amount: tuple[QuotaType, Usage] | None = None
        if usages.request is not None and key not in EXEMPT and reply is not None:
            by_time = usages.request.record_percentage(self._seconds, now_ms)
        if key == ApiKey.PRODUCE and usages.produce is not None:
            amount = QuotaType.PRODUCE, usages.produce
            by_amount = usages.produce.record(self._request_bytes, now_ms)
        elif key == ApiKey.SHARE_FETCH and usages.fetch is not None and reply is not None:
            # Kafka drops the records of a throttled response, and they stay acquired. Here the client gets them.
            if isinstance(reply, Response):
                reply = Encoded(self._route.encode(reply))
            amount = QuotaType.FETCH, usages.fetch
            by_amount = usages.fetch.record(self._size_of(reply), now_ms)
        elif key == ApiKey.FETCH:
            return self._finish_fetch(cast("FetchResponse", reply), by_time, now_ms)
        elif self.mutations is not None:
            amount = QuotaType.CONTROLLER_MUTATION, self.mutations.usage
            by_amount = self.mutations.throttle_ms(now_ms)
        self._count(amount, by_amount, by_time, now_ms)
        throttle_ms = max(by_time, by_amount)
        return (self._stamped(reply, throttle_ms) if throttle_ms else reply), throttle_ms

    def _finish_fetch(self, response: "FetchResponse", by_time: int, now_ms: int) -> tuple[Ready, int]:
        """A client that is throttled receives no records, and they do not count (KafkaApis.handleFetchRequest)."""
        from fencepost.protocol.messages.api01_fetch import FetchResponse  # here: a broker may serve no Fetch

        usage, by_size, size = self._usages.fetch, 0, 0
        encoded = Encoded(self._route.encode(response))
        if usage is not None:
            size = self._size_of(encoded)
            by_size = usage.record(size, now_ms)
        self._count(None if usage is None else (QuotaType.FETCH, usage), by_size, by_time, now_ms)
        throttle_ms = max(by_time, by_size)
        if not throttle_ms:
            return encoded, 0
        if usage is not None:
            usage.unrecord(size, now_ms)
        topics = self._node.metrics.topics
        for topic in response.responses:
            if topic.topic in topics:
                unsent = sum(_size(part.records) for part in topic.partitions)
                topics[topic.topic].bytes_out -= unsent
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=response.session_id), throttle_ms

    def _size_of(self, reply: Encoded | Durable) -> int:
        response = reply if isinstance(reply, Encoded) else reply.response
        parts = response.parts if isinstance(response, Encoded) else self._route.encode(response)
        return LENGTH_BYTES + sum(map(len, parts))

    def _count(self, amount: tuple[QuotaType, Usage] | None, by_amount: int, by_time: int, now_ms: int) -> None:
        """Count a throttle for the quota that asks for more."""
        if amount is not None and by_amount > by_time:
            self.throttled_by = amount[0]
            amount[1].throttled(by_amount, now_ms)
        elif by_time and self._usages.request is not None:
            self.throttled_by = QuotaType.REQUEST
            self._usages.request.throttled(by_time, now_ms)

    def muted(self, change: int) -> None:
        if self.throttled_by is not None:
            self._quotas.muted[self.throttled_by] += change

    def _stamped(self, reply: Ready, throttle_ms: int) -> Ready:
        """The reply with its throttle time, if its version has that field."""
        field = self._route.api.response.fields.get("throttle_time_ms")
        if reply is None or field is None or not field.exists(self._route.version):
            return reply
        if isinstance(reply, Durable):
            return _Throttled(reply, throttle_ms)
        return _stamp(reply, throttle_ms)


class _Throttled(Durable):
    """A response that waits for its tickets, with a throttle time."""

    __slots__ = ("_reply", "_throttle_ms")

    def __init__(self, reply: Durable, throttle_ms: int) -> None:
        super().__init__(_stamp(reply.response, throttle_ms), reply.tickets)
        self._reply = reply
        self._throttle_ms = throttle_ms

    def revise(self) -> None:
        self._reply.revise()
        self.response = _stamp(self._reply.response, self._throttle_ms)


def _stamp(response: Response | Encoded, throttle_ms: int) -> Response | Encoded:
    if isinstance(response, Encoded):  # the throttle time is its first field: Metadata, JoinGroup, SyncGroup
        first, *rest = response.parts
        return Encoded([throttle_ms.to_bytes(4, "big") + bytes(first[4:]), *rest])
    response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
    return response


def _size(records: Any) -> int:
    """The bytes of a partition's records: a list of pieces, or one."""
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return 0 if records is None else len(records)


def meter_of(
    node: Broker, quotas: ClientQuotas, route: "Route", request: Any, context: "RequestContext", request_bytes: int
) -> Meter | None:
    """The meter of a request; None if no quota applies to its client."""
    usages = quotas.of(context.session.principal.name, context.client_id or "", quota_ms(node.clock))
    if usages is None:
        return None
    context.repeated = None  # its response is encoded without a throttle time
    if usages.fetch is not None and route.api.key in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
        request.max_bytes = min(request.max_bytes, usages.fetch.window_bytes)
    return Meter(node, quotas, usages, route, request_bytes)


def limit_mutations(context: "RequestContext", strict_since: int) -> Callable[[int], bool] | None:
    """The quota for partitions that a request creates or deletes, strict from an API version on (KIP-599)."""
    meter = context.meter
    return None if meter is None else meter.limit_mutations(context.api_version >= strict_since)
