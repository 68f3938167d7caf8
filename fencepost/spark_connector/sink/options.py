"""The options of the Spark sink, with the names of Spark's Kafka sink. They are checked before any write."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from fencepost.client.config import ClientConfig, TransactionalProducerConfig
from fencepost.client.config_parsing import names_of, parse_kafka
from fencepost.client.errors import ConfigError
from fencepost.client.network.security import SecurityConfig
from fencepost.spark_connector.network import security
from fencepost.spark_connector.option_values import (
    ONLY_FOR_JAVA,
    OptionError,
    boolean,
    canonical,
    not_negative,
    positive,
)

T = TypeVar("T")

DEFAULT_MAX_TRANSACTION_BYTES = 128 << 20
DEFAULT_BATCH_BYTES = 512 << 10
DEFAULT_DECISION_TOPIC = "fencepost-spark-decisions"

SINK_NAMES = ("topic", "twoPhase", "decisionTopic", "maxTransactionBytes", "firstBatch", "queryId", "batchId")
# Options that Spark adds to a streaming query, and that Spark's Kafka sink accepts.
_ADDED_BY_SPARK = ("checkpointLocation", "queryName", "includeHeaders")
_BATCH_ONLY = ("queryId", "batchId")
# Settings of Java's producer and its sockets. They have no effect here.
_WITHOUT_EFFECT = ("kafka.retries", "kafka.receive.buffer.bytes", *ONLY_FOR_JAVA, *security.WITHOUT_EFFECT)
_REFUSED = {
    "kafka.key.serializer": "keys are strings or binary already; convert them with DataFrame functions",
    "kafka.value.serializer": "values are strings or binary already; convert them with DataFrame functions",
    "kafka.interceptor.classes": "there is no Java producer to call them",
    "kafka.partitioner.class": "use a column named partition, or keys",
    "kafka.group.id": "the sink's group has the name of its kafka.transactional.id",
    "kafka.transaction.two.phase.commit.enable": "set twoPhase = true",
}
_NOT_TEXT = ("partitioner", "key_serializer", "value_serializer", "bootstrap_servers")
_OF_CLIENTS = tuple(name for name in names_of(ClientConfig) if name not in names_of(SecurityConfig))
_OF_PRODUCERS = tuple(name for name in names_of(TransactionalProducerConfig) if name not in _NOT_TEXT)


def _dotted(name: str) -> str:
    return "kafka." + name.replace("_", ".")


_SPELLING = {
    name.lower(): name
    for name in (
        *SINK_NAMES,
        *_ADDED_BY_SPARK,
        "kafka.transactional.id",
        *map(_dotted, _OF_CLIENTS),
        *(_dotted(name) for name in _OF_PRODUCERS),
        *security.NAMES,
        *_WITHOUT_EFFECT,
        *_REFUSED,
    )
}


@dataclass(frozen=True)
class SinkOptions:
    """All options of a query's sink. Sizes are bytes.

    `client` and `producer` are checked options of fencepost's client. They may hold passwords, so
    `repr` leaves them out. With `batch_id` and `query_id` a batch write is done only once.
    """

    bootstrap: str
    transactional_id: str
    topic: str | None = None
    two_phase: bool = False
    decision_topic: str = DEFAULT_DECISION_TOPIC
    max_transaction_bytes: int = DEFAULT_MAX_TRANSACTION_BYTES
    first_batch: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    producer: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def group(self) -> str:
        """The group that holds the sink's commit marker."""
        return self.transactional_id

    @property
    def producer_config(self) -> TransactionalProducerConfig:
        return parse_kafka(TransactionalProducerConfig, self.producer)


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check a query's options. Raises OptionError with the reason, or with the nearest known name."""
    given = canonical(options, _SPELLING, _REFUSED, " to the sink")
    if streaming:
        for name in _BATCH_ONLY:
            if name in given:
                raise OptionError(f"option {name} is only for batch writes: Spark sets it for a stream")
    if ("queryId" in given) != ("batchId" in given):
        raise OptionError("set queryId and batchId together: the batch with that number is written once")
    if not given.get("kafka.bootstrap.servers", "").strip():
        raise OptionError("option kafka.bootstrap.servers is missing: the address of at least one broker, host:port")
    return SinkOptions(
        bootstrap=given["kafka.bootstrap.servers"].strip(),
        transactional_id=_transactional_id(given, streaming),
        topic=_maybe(given, "topic", _name),
        two_phase=_maybe(given, "twoPhase", boolean) or False,
        decision_topic=_maybe(given, "decisionTopic", _name) or DEFAULT_DECISION_TOPIC,
        max_transaction_bytes=_maybe(given, "maxTransactionBytes", positive) or DEFAULT_MAX_TRANSACTION_BYTES,
        first_batch=_maybe(given, "firstBatch", not_negative),
        query_id=_maybe(given, "queryId", _name),
        batch_id=_maybe(given, "batchId", not_negative),
        client=_client_options(given),
        producer=_producer_options(given),
    )


def _transactional_id(given: Mapping[str, str], streaming: bool) -> str:
    """The sink's name: the same after a restart, and different for every query.

    By default it is made of the checkpoint's location. If the checkpoint is deleted, the name stays the same. The
    commit marker with the old query's id then shows the deletion.
    """
    named = _maybe(given, "kafka.transactional.id", _name)
    if named is not None:
        return named
    if "batchId" in given:
        raise OptionError(
            "queryId and batchId need kafka.transactional.id, too: it names the group of the commit marker"
        )
    if not streaming:
        return f"fencepost-spark-{uuid.uuid4().hex[:16]}"
    place = given.get("checkpointLocation", "").strip()
    if not place:
        raise OptionError("the sink needs a stable name: set the option checkpointLocation or kafka.transactional.id")
    return f"fencepost-spark-{hashlib.sha256(place.rstrip('/').encode()).hexdigest()[:16]}"


def _client_options(given: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"client_id": "fencepost-spark"}
    options |= _picked(given, [name for name in _OF_CLIENTS if name != "bootstrap_servers"])
    try:
        secure = security.security_of(given)
        if secure is not None:
            options |= {entry.name: getattr(secure, entry.name) for entry in fields(secure)}
        parse_kafka(ClientConfig, {"bootstrap_servers": given["kafka.bootstrap.servers"], **options})
    except (ConfigError, ValueError) as error:
        raise OptionError(_with_dotted_names(error)) from None
    return options


def _producer_options(given: Mapping[str, str]) -> dict[str, Any]:
    options = {"batch_size": DEFAULT_BATCH_BYTES, **_picked(given, _OF_PRODUCERS)}
    try:
        parse_kafka(TransactionalProducerConfig, options)
    except (ConfigError, ValueError) as error:
        raise OptionError(_with_dotted_names(error)) from None
    return options


def _picked(given: Mapping[str, str], names: Any) -> dict[str, Any]:
    return {name: given[_dotted(name)].strip() for name in names if _dotted(name) in given}


def _with_dotted_names(error: Exception) -> str:
    """The error's text with Kafka's dotted names instead of the client's names in snake_case."""
    text = str(error)
    for name in sorted((*_OF_CLIENTS, *_OF_PRODUCERS, *names_of(SecurityConfig)), key=len, reverse=True):
        text = text.replace(f"'{name}'", _dotted(name))
    return text


def _maybe(given: Mapping[str, str], name: str, convert: Callable[[str], T]) -> T | None:
    if name not in given:
        return None
    try:
        return convert(given[name].strip())
    except ValueError as error:
        raise OptionError(f"option {name} = {given[name]!r}: {error}") from None


def _name(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text
