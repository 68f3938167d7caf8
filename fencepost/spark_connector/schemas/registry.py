"""The registry as Spark's driver and workers ask it: schemas with all they refer to, once for each process."""

import base64
import binascii
import pickle
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fencepost.client.schema_registry import explained
from fencepost.spark_connector.schemas.errors import RegistryError, SchemaError

AVRO, JSON, PROTOBUF = FORMATS = ("AVRO", "JSON", "PROTOBUF")
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40402, 40403
_NOT_FOUND = 404
_SERIALIZED = "serialized"
_ANSWER = TypeVar("_ANSWER")
_clients: dict[bytes, Any] = {}
"""The registries that this process asks, by their settings. A worker lives longer than a task: so do its schemas."""
_clients_lock = threading.Lock()


class UnknownSchemaError(ValueError):
    """The registry does not have a schema with this id."""


@dataclass(frozen=True)
class SchemaText:
    """A schema with the schemas that it refers to. It needs no registry any more."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    """JSON, or with Protobuf the descriptor of the file in base64."""
    schema_id: int | None = None
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each, those first to which others refer."""
    rules: bool = False
    """It has rules, for example to encrypt fields, that a reader and a writer must run."""


@dataclass(frozen=True)
class Registry:
    """Where a registry is and how to log in to it. Its text shows the address only."""

    url: str
    """Without user and password."""
    _settings: bytes = field(repr=False)

    @classmethod
    def of(cls, given: "str | Mapping[str, Any]") -> "Registry":
        """From a URL, or the settings of confluent-kafka's SchemaRegistryClient. Raises ValueError."""
        settings = {"url": given} if isinstance(given, str) else dict(given)
        url = settings.get("url")
        if not isinstance(url, str):
            raise ValueError('registry has no "url". Give a URL, or a dict of SchemaRegistryClient settings')
        shown = ",".join(_without_user(one.strip()) for one in url.split(","))
        return cls(shown, _pickled(sorted(settings.items())))

    def latest(self, subject: str, version: int | None = None) -> SchemaText:
        """A version of the subject; without one, the newest. Raises RegistryError."""

        def fetch(client: Any, form: str | None) -> Any:
            if version is None:
                return client.get_latest_version(subject, form)
            return client.get_version(subject, version, False, form)

        what = f"subject {subject}" + (f", version {version}" if version is not None else "")
        found = self._ask(lambda client: fetch(client, None), what, fresh=True)
        if found.schema.schema_type == PROTOBUF and not _is_descriptor(found.schema.schema_str):
            found = self._ask(lambda client: fetch(client, _SERIALIZED), what, fresh=True)
        return self._whole(found.schema, found.schema_id, what)

    def by_id(self, schema_id: int, kind: str | None = None) -> SchemaText:
        """The schema with this number. Raises UnknownSchemaError or RegistryError. `kind` saves a request."""
        form, what = _SERIALIZED if kind == PROTOBUF else None, f"schema {schema_id}"
        found = self._ask(lambda client: client.get_schema(schema_id, None, form), what)
        if found.schema_type == PROTOBUF and not _is_descriptor(found.schema_str) and form is None:
            found = self._ask(lambda client: client.get_schema(schema_id, None, _SERIALIZED), what, fresh=True)
        return self._whole(found, schema_id, what)

    def by_guid(self, guid: bytes, kind: str) -> SchemaText:
        """The schema with this GUID. Raises UnknownSchemaError or RegistryError."""
        form, what = _SERIALIZED if kind == PROTOBUF else None, f"schema {guid.hex()}"
        found = self._ask(lambda client: client.get_schema_by_guid(str(uuid.UUID(bytes=guid)), form), what)
        return self._whole(found, None, what)

    def id_of(self, subject: str, kind: str, text: str, *, register: bool) -> int:
        """The number of the schema in this subject. Raises RegistryError, or SchemaError if it is not registered."""
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        if register:
            made = self._ask(lambda client: client.register_schema(subject, schema), f"subject {subject}", fresh=True)
            return int(made)
        try:
            found = self._ask(lambda client: client.lookup_schema(subject, schema), f"subject {subject}", fresh=True)
        except UnknownSchemaError:
            raise SchemaError(
                f"subject {subject} of {self.url} does not have the given schema. Register it, or set register=True"
            ) from None
        return int(found.schema_id)

    def _whole(self, schema: Any, schema_id: int | None, what: str) -> SchemaText:
        kind = schema.schema_type or AVRO
        if not isinstance(schema.schema_str, str):
            raise RegistryError(f"{what}: {self.url} answered without a schema, as no schema registry does")
        if kind not in FORMATS:
            raise SchemaError(f"{what} is {kind}, but only {', '.join(FORMATS)} can be read and written")
        references: dict[str, str] = {}
        self._collect(schema, kind, references)
        texts = [schema.schema_str, *references.values()]
        if kind == PROTOBUF and not all(map(_is_descriptor, texts)):
            raise SchemaError(
                f"{self.url} gives {what} as .proto text. Reading Protobuf needs a registry that gives descriptors "
                "(format=serialized), as Confluent's does"
            )
        rules = schema.rule_set
        has_rules = bool(rules and any(getattr(rules, name, None) for name in ("domain_rules", "encoding_rules")))
        return SchemaText(kind, schema.schema_str, schema_id, tuple(references.items()), has_rules)

    def _collect(self, schema: Any, kind: str, into: dict[str, str]) -> None:
        """The schemas that it refers to, those first to which others refer."""
        form = _SERIALIZED if kind == PROTOBUF else None
        for reference in schema.references or ():
            if reference.name in into or reference.name.startswith(("google/protobuf/", "confluent/", "google/type/")):
                continue
            subject, version = reference.subject, reference.version
            what = f"subject {subject}, version {version}"
            found = self._ask(partial(_version_of, subject, version, form), what, fresh=True)
            self._collect(found.schema, kind, into)
            into[reference.name] = found.schema.schema_str

    def _ask(self, request: Callable[[Any], _ANSWER], what: str, *, fresh: bool = False) -> _ANSWER:
        """The answer; a `fresh` one is not the client's memory.

        The client's memory mixes up versions that took another's number, and the forms of a schema. It never replaces
        the newest version.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            client = self._client()
            if fresh:
                client.clear_caches()
            return request(client)
        except SchemaRegistryError as error:
            if error.error_code == _SCHEMA_NOT_FOUND:
                raise UnknownSchemaError(f"the schema registry does not have {what}") from error
            if error.error_code in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
                raise SchemaError(f"the schema registry at {self.url} does not have {what}") from error
            if error.http_status_code == _NOT_FOUND:
                raise RegistryError(
                    f"{what}: {self.url} answered HTTP 404 ({error.error_message}), as if no schema registry were "
                    "there. Check the path of its URL, and any proxy before it"
                ) from error
            raise RegistryError(f"{what}: {explained(error, what)}") from error
        except Exception as error:
            strange = f"{self.url} cannot be asked, or its answer is none of a schema registry"
            reason = explained(error, what) or f"{strange} ({type(error).__name__}: {error})"
            raise RegistryError(f"{what}: {reason}") from error

    def _client(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        with _clients_lock:
            client = _clients.get(self._settings)
            if client is None:
                client = _clients[self._settings] = SchemaRegistryClient(dict(pickle.loads(self._settings)))
            return client


def _pickled(settings: Any) -> bytes:
    """With functions that stand in a notebook, which pickle alone cannot take."""
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps(settings)


def _version_of(subject: str, version: int, form: str | None, client: Any) -> Any:
    return client.get_version(subject, version, True, form)  # with deleted ones: a schema may still refer to them


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _is_descriptor(text: str) -> bool:
    """Whether it is a file's descriptor in base64, and no .proto text."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False
