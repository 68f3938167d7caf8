"""Adapts confluent-kafka's serializers with a schema registry (Avro, Protobuf, JSON Schema) to this client.

They send HTTP requests to the registry, and wait for them, when they meet a schema for the first time. This client may
not wait in the event loop's thread. So a serializer is called in another thread for the first record of a topic, and a
deserializer for the first record with a schema id; both cache the registry's responses.
"""

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

Header = tuple[str, bytes | None]

_CONFLUENT = "confluent_kafka.serialization"
ID_SIZES = {0: 5, 1: 17}
"""By magic byte: the size of it and the id behind it in bytes. 0: a number, 1: a GUID."""
_REJECTED = (401, 403)
_NOT_FOUND = 404
_CONFLICT = 409


def adapted(given: Any, field: str) -> Any:
    """`given` with this client's methods if it is a serializer or deserializer of confluent-kafka; else `given` itself.

    `field` is "key" or "value". Raises ValueError for its classes for asyncio.
    """
    confluent = sys.modules.get(_CONFLUENT)  # not imported: no object of it can be given
    if confluent is None or not isinstance(given, confluent.Serializer | confluent.Deserializer):
        return given
    kind = type(given)
    if any(base.__name__.startswith("Async") for base in kind.__mro__):
        raise ValueError(f"must not be {kind.__name__}: give confluent-kafka's class without Async, under asyncio too")
    return _Deserializer(given, field) if isinstance(given, confluent.Deserializer) else _Serializer(given, field)


class _Adapted:
    """Both directions: the known schemas, and the failures for others."""

    def __init__(self, inner: Callable[..., Any], field: str) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._inner = inner
        self._field = MessageField(field)
        self._context = SerializationContext
        self._known: set[Hashable] = set()
        self._failed: dict[Hashable, tuple[str, Exception]] = {}
        self._asks_again = _asks_again(inner)

    def _call(self, topic: str, headers: list[Any], item: Any) -> Any:
        return self._inner(item, self._context(topic, self._field, headers))

    def _unless_known(self, schema: Hashable) -> Hashable | None:
        return None if schema in self._known and not self._asks_again else schema

    def _try(self, schema: Hashable, topic: str, headers: Sequence[Header], item: Any) -> None:
        """Call in this thread, to fetch from the registry. The next call raises a failure of the registry."""
        try:
            self._call(topic, list(headers), item)
        except Exception as error:  # noqa: BLE001 - the next call raises it again, for its record
            reason = explained(error, schema)
            if reason is not None:
                self._failed[schema] = reason, error.with_traceback(None)
            return
        self._known.add(schema)
        self._failed.pop(schema, None)

    def _raise_if_failed(self, schema: Hashable) -> None:
        failed = self._failed.get(schema)
        if failed is not None:
            raise ValueError(failed[0]) from failed[1]


class _Serializer(_Adapted):
    """A serializer of confluent-kafka. It finds or registers its schema once for each topic."""

    def unknown(self, topic: str, headers: Sequence[Header], item: Any) -> Hashable | None:
        return self._unless_known(topic)

    def look_up(self, topic: str, headers: Sequence[Header], item: Any) -> None:
        self._try(topic, topic, headers, item)

    def serialize(self, topic: str, headers: list[Header], value: Any) -> Any:
        """The bytes, with the id of their schema in front or in a header. Raises ValueError, or what `inner` raises."""
        self._raise_if_failed(topic)
        return self._call(topic, headers, value)


class _Deserializer(_Adapted):
    """A deserializer of confluent-kafka. It fetches each schema once, by its id."""

    def unknown(self, topic: str, headers: Sequence[Header], item: bytes) -> Hashable | None:
        """See `LooksUp`. Data without a schema id is rejected without a request."""
        schema_id = self._id_of(headers, item)
        return None if schema_id is None else self._unless_known((topic, schema_id))

    def look_up(self, topic: str, headers: Sequence[Header], item: bytes) -> None:
        self._try((topic, self._id_of(headers, item)), topic, headers, item)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> Any:
        """The value of `data`. Raises ValueError, or what `inner` raises."""
        schema_id = self._id_of(headers, data)
        if schema_id is None:
            raise ValueError(
                "its bytes do not begin with magic byte 0 and a schema id, and no header has the id. It was not "
                "written with a schema registry: use the deserializer of its own format"
            )
        self._raise_if_failed((topic, schema_id))
        return self._call(topic, list(headers), data)

    def _id_of(self, headers: Sequence[Header], data: bytes) -> bytes | None:
        """The schema id with its magic byte, from the header that newer serializers write, or from the data."""
        for name, content in headers:
            if content is not None and name == f"__{self._field.value}_schema_id":
                return content[: ID_SIZES[1]]
        size = ID_SIZES.get(data[0]) if data else None
        return None if size is None or len(data) < size else data[:size]


def _asks_again(inner: Any) -> bool:
    """Whether it fetches the latest version again when `cache.latest.ttl.sec` is over; no public API shows when."""
    latest = getattr(inner, "_use_latest_version", False) or getattr(inner, "_use_latest_with_metadata", None)
    registry = getattr(inner, "_registry", None)
    return bool(latest) and registry is not None and registry.config().get("cache.latest.ttl.sec") is not None


def explained(error: BaseException, schema: Hashable) -> str | None:
    """The message for a registry's failure, with what to do; None if the record or the program is the cause.

    `schema` is the topic for a serializer, or (topic, schema id) for a deserializer.
    """
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    at: BaseException | None = error
    while at is not None:
        if isinstance(at, SchemaRegistryError):
            return _answered(at, schema)
        if isinstance(at, OAuthTokenError):
            return f"no OAuth token for the schema registry: {at}. Check bearer.auth.* of the SchemaRegistryClient"
        if type(at).__module__.partition(".")[0] in ("httpx", "httpx2"):
            # Their errors have the request, unless it could not be made.
            request = getattr(at, "_request", None)
            where = f" at {request.url.scheme}://{request.url.netloc.decode()}" if request is not None else ""
            return f"the schema registry{where} does not answer ({at}). Start it or correct its URL, and try again"
        at = at.__cause__ or at.__context__
    return None


def _answered(error: Any, schema: Hashable) -> str:
    status, message = error.http_status_code, str(error.error_message).rstrip(".")
    if status in _REJECTED:
        return (
            f"the schema registry refuses this client (HTTP {status}: {message}). Check basic.auth.user.info or "
            "bearer.auth.* of the SchemaRegistryClient"
        )
    if status == _CONFLICT:
        return (
            f"the schema registry rejects the schema: it is incompatible with an earlier version ({message}). Change "
            "the schema, or the compatibility level of its subject"
        )
    if status == _NOT_FOUND and isinstance(schema, tuple):
        name = shown_id(schema[1])
        return (
            f"the schema registry does not have schema {name} ({message}). Check that the producer uses the "
            "same registry, and that the schema was not deleted there"
        )
    if status == _NOT_FOUND:
        return (
            f"the schema registry does not have the schema ({message}), and the serializer does not register it. "
            "Register the schema, or set auto.register.schemas"
        )
    return f"the schema registry answered HTTP {status}: {message}. See its log for the cause"


def shown_id(schema_id: bytes) -> str:
    """A schema id, with its magic byte, as people write it."""
    return str(int.from_bytes(schema_id[1:])) if schema_id[0] == 0 else schema_id[1:].hex()
