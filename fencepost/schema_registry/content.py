"""What a schema is: its type, text, references and rules; and which texts are the same schema. Pure."""

import hashlib
import json
import uuid
from typing import Any, Final, NamedTuple, NoReturn

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
KINDS: Final = (JSON, PROTOBUF, AVRO)
INT_MAX: Final = (1 << 31) - 1
NAMED: Final = ("record", "error", "enum", "fixed")
_HOLDS: Final = {"record": "fields", "error": "fields", "enum": "symbols", "fixed": "size"}


class Reference(NamedTuple):
    """A schema that another one names: under `name`, the version of a subject; -1 is its latest."""

    name: str
    subject: str
    version: int


class Content(NamedTuple):
    """A schema without its places in subjects. `metadata` and `rules` are JSON, kept and not applied."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rules: str | None = None

    @property
    def guid(self) -> str:
        """As Confluent derives it, if there is neither metadata nor a rule set."""
        digest = hashlib.md5(self.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        for one in self.references:
            digest.update((one.name + one.subject).encode("utf-8", "surrogatepass") + one.version.to_bytes(4, "big"))
        for text in (self.metadata, self.rules):
            digest.update(b"" if text is None else b"\1" + text.encode("utf-8", "surrogatepass"))
        return str(uuid.UUID(bytes=digest.digest()))

    def as_json(self) -> dict[str, Any]:
        """The fields that responses and records share. AVRO and empty fields are left out, as Confluent does."""
        found: dict[str, Any] = {} if self.kind == AVRO else {"schemaType": self.kind}
        if self.references:
            found["references"] = [one._asdict() for one in self.references]
        if self.metadata is not None:
            found["metadata"] = json.loads(self.metadata)
        if self.rules is not None:
            found["ruleSet"] = json.loads(self.rules)
        return found | {"schema": self.text}


def content_of(fields: dict[str, Any]) -> Content:
    """The schema in a request or in a record, as it is written there. Raises ValueError."""
    kind, text, references = fields.get("schemaType") or AVRO, fields.get("schema"), fields.get("references") or []
    if not isinstance(kind, str) or not isinstance(text, str) or not isinstance(references, list):
        raise ValueError("schema and schemaType are texts, and references a list")
    rules = {name: _compact(fields[name]) for name in ("metadata", "ruleSet") if fields.get(name) is not None}
    return Content(kind, text, tuple(map(_reference, references)), rules.get("metadata"), rules.get("ruleSet"))


def _reference(one: Any) -> Reference:
    match one:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if (
            version == -1 or 0 < version <= INT_MAX
        ):
            return Reference(name, subject, version)
    raise ValueError("a reference has a name, a subject and a version")


def whole_number(value: Any, least: int, default: int = -1) -> int:
    """A number of a JSON field, from `least` up to what Confluent keeps in 32 bits. Raises ValueError."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= INT_MAX:
        raise ValueError(f"{value!r} is not a number from {least} to {INT_MAX}")
    return value


def canonical(content: Content) -> Content:
    """The same for all texts of one schema. Raises ValueError if the text is not JSON; Protobuf's is not read."""
    if content.kind == PROTOBUF:
        return content._replace(text=content.text.strip())
    try:
        parsed = read_json(content.text)
        return content._replace(text=_compact(canonical_avro(parsed) if content.kind == AVRO else parsed))
    except (AttributeError, KeyError, TypeError, RecursionError) as error:  # what no Avro schema is
        raise ValueError(f"it is no Avro schema ({error!r})") from None


def normalized(content: Content) -> Content:
    """What `normalize=true` asks for: keys of JSON Schema in order. Avro's canonical form is it already."""
    if content.kind != JSON:
        return content
    return content._replace(text=_compact(read_json(content.text), sort_keys=True))


def identity(content: Content) -> Content:
    """`canonical`, or the schema as it is if its text cannot be read: another program wrote it."""
    try:
        return canonical(content)
    except ValueError:
        return content


def read_json(text: str) -> Any:
    """Parsed JSON. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _compact(value: Any, *, sort_keys: bool = False) -> str:
    """Raises ValueError for numbers that JSON cannot write, such as 1e999, and for too deep nesting."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def canonical_avro(node: Any, namespace: str = "") -> Any:
    """The schema as Java's Avro writes it: names split, no namespace twice, attributes in one order, no layout."""
    if isinstance(node, str):
        return node.removeprefix(f"{namespace}.") if namespace and node.count(".") == namespace.count(".") + 1 else node
    if isinstance(node, list):
        return [canonical_avro(one, namespace) for one in node]
    kind, left = node["type"], dict(node)
    if not isinstance(kind, str):
        return canonical_avro(kind, namespace)
    del left["type"]
    if kind in NAMED:
        return _canonical_named(kind, left, namespace)
    for inner in ("items", "values"):
        if kind == {"items": "array", "values": "map"}[inner]:
            return {"type": kind, inner: canonical_avro(left.pop(inner), namespace), **left}
    return {"type": kind, **left} if left else canonical_avro(kind, namespace)


def _canonical_named(kind: str, left: dict[str, Any], namespace: str) -> dict[str, Any]:
    prefix, _, name = left.pop("name").rpartition(".")
    given = left.pop("namespace", None)
    inner = prefix or (namespace if given is None else given)
    holds = _HOLDS[kind]
    body = left.pop(holds)
    if holds == "fields":
        body = [_canonical_field(field, inner) for field in body]
    found = {"type": kind, "name": name} | ({"namespace": inner} if inner != namespace else {})
    found |= {"doc": left.pop("doc")} if "doc" in left else {}
    return found | {holds: body} | _aliases_last(left)


def _canonical_field(field: dict[str, Any], namespace: str) -> dict[str, Any]:
    left = dict(field)
    found = {"name": left.pop("name"), "type": canonical_avro(left.pop("type"), namespace)}
    found |= {name: left.pop(name) for name in ("doc", "default") if name in left}
    return found | ({} if left.pop("order", "ascending") == "ascending" else {"order": field["order"]}) | left


def _aliases_last(left: dict[str, Any]) -> dict[str, Any]:
    return {name: left[name] for name in sorted(left, key="aliases".__eq__)}
