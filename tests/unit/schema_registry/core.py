"""The registry's core without a broker: requests are answered from a state, and their records folded into it."""

import json
from typing import Any

from fencepost.schema_registry.answers import Request, Text, find_route
from fencepost.schema_registry.changes import Decision
from fencepost.schema_registry.records import Record
from fencepost.schema_registry.state import State

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
ORDER_WITH_DEFAULT = ORDER[:-2] + ',{"name":"note","type":"string","default":""}]}'
ORDER_WITHOUT_DEFAULT = ORDER[:-2] + ',{"name":"note","type":"string"}]}'


class Core:
    """`ask("GET", "/subjects")`. `log` has the records, as the topic would."""

    def __init__(self, log: list[Record] | None = None) -> None:
        self.log: list[Record] = []
        self.state = State()
        for key, value in log or []:
            self._append(Record(key, value))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, **query: Any) -> Any:
        """The answer as a client gets it. Raises RegistryError."""
        route, names = find_route(method, path.strip("/").split("/"))
        texts = {name: one if isinstance(one, list) else [str(one).lower()] for name, one in query.items()}
        found = route.answer(self.state, Request(names, texts, body or {}))
        if isinstance(found, Decision):
            for record in found.records:
                self._append(record)
            found = found.answer
        return found.text if isinstance(found, Text) else json.loads(json.dumps(found))

    def register(self, subject: str, schema: str, **more: Any) -> int:
        """The id of a schema."""
        number: int = self.ask("POST", f"/subjects/{subject}/versions", {"schema": schema, **more})["id"]
        return number

    def restarted(self) -> "Core":
        """Another process that reads the same topic."""
        return Core(self.log)

    def compacted(self) -> "Core":
        """Another process that reads the topic after compaction, when deletions are gone, too."""
        newest = {key: offset for offset, (key, _) in enumerate(self.log)}
        return Core([one for offset, one in enumerate(self.log) if newest[one.key] == offset and one.value is not None])

    def _append(self, record: Record) -> None:
        self.log.append(record)
        self.state.apply(record.key, record.value)


def keys_of(core: Core) -> list[dict[str, Any]]:
    return [json.loads(key) for key, _ in core.log]
