"""A schema registry over a real socket, with the part of the documented API that serializers use.

No package index has a registry that is small enough to install for tests, so this one stands in: subjects, versions,
ids and GUIDs, references, and the documented error codes. Of the levels of compatibility it knows NONE and BACKWARD,
which it checks for Avro without references.
"""

import json
import re
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse

from fencepost.schema_registry.errors import (
    RegistryError,
    incompatible,
    invalid_schema,
    schema_not_found,
    subject_not_found,
    version_not_found,
)


class SchemaRegistry:
    """`with SchemaRegistry() as registry:`; its address is `registry.url`. `stop` and `start` keep port and schemas."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        """What was asked, as "GET /schemas/ids/1"."""
        self.gate = threading.Event()
        """While it is not set, requests are not answered."""
        self.gate.set()
        self.refuse_with: int | None = None
        """An HTTP status for every request."""
        self.answer_with: bytes | None = None
        """A body for every request, as a proxy may send that knows no registry."""
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any] | None] = []
        self._subjects: dict[str, list[int]] = {}
        self._levels: dict[str, str] = {"": "BACKWARD"}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen."""
        registry = self

        class Handler(_Handler):
            owner = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, as a registry that is down."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def forget(self, subject: str) -> None:
        """Delete a subject for good, and its schemas, which no other subject may have."""
        with self._lock:
            for number in self._subjects.pop(subject):
                self._schemas[number - 1] = None

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """The JSON of an answer. Raises RegistryError."""
        self.requests.append(f"{method} {path}")
        self.gate.wait()
        if self.refuse_with is not None:
            raise RegistryError(self.refuse_with, "as the test wants it")
        for expected, pattern, function in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found is not None and expected == method:
                with self._lock:
                    return function(self, *map(unquote, found.groups()), body)
        raise RegistryError(404, "HTTP 404 Not Found")

    def _register(self, subject: str, body: Any) -> Any:
        versions = self._subjects.get(subject, [])
        known = self._find(body)
        if known is None or known not in versions:
            self._check(subject, body)
            if known is None:
                made = {"schemaType": "AVRO", "references": [], **body, "guid": str(uuid.uuid4())}
                self._schemas.append(made)
                known = len(self._schemas)
            self._subjects.setdefault(subject, []).append(known)
        return self._told(subject, known)

    def _look_up(self, subject: str, body: Any) -> Any:
        versions, known = self._versions(subject, None), self._find(body)
        if known not in versions:
            raise schema_not_found()
        assert known is not None
        return self._told(subject, known)

    def _versions(self, subject: str, body: Any) -> list[int]:
        if subject not in self._subjects:
            raise subject_not_found(subject)
        return self._subjects[subject]

    def _version(self, subject: str, version: str, body: Any) -> Any:
        ids = self._versions(subject, None)
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            raise version_not_found(version)
        return self._told(subject, ids[number - 1])

    def _schema(self, number: str, body: Any) -> Any:
        found = self._schemas[int(number) - 1] if 1 <= int(number) <= len(self._schemas) else None
        if found is None:
            raise schema_not_found(number)
        return found

    def _schema_of_guid(self, guid: str, body: Any) -> Any:
        for schema in self._schemas:
            if schema is not None and schema["guid"] == guid:
                return schema
        raise schema_not_found(guid)

    def _set_level(self, subject: str, body: Any) -> Any:
        self._levels[subject.lstrip("/")] = body["compatibility"]
        return body

    def _check(self, subject: str, body: Any) -> None:
        level = self._levels.get(subject, self._levels[""])
        if body.get("schemaType", "AVRO") != "AVRO" or body.get("references"):
            return
        try:
            new = parse(body["schema"])
        except Exception as error:
            raise invalid_schema(str(error)) from error
        if level == "NONE" or subject not in self._subjects:
            return
        old = parse(self._kept(self._subjects[subject][-1])["schema"])
        result = ReaderWriterCompatibilityChecker().get_compatibility(new, old)
        if result.compatibility is not SchemaCompatibilityType.compatible:
            raise incompatible(subject, sorted(result.messages))

    def _find(self, body: Any) -> int | None:
        wanted = _identity(body)
        known = (number for number, one in enumerate(self._schemas, 1) if one is not None and _identity(one) == wanted)
        return next(known, None)

    def _kept(self, number: int) -> dict[str, Any]:
        found = self._schemas[number - 1]
        assert found is not None
        return found

    def _told(self, subject: str, number: int) -> Any:
        version = self._subjects[subject].index(number) + 1
        return {**self._kept(number), "subject": subject, "version": version, "id": number}


_ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/subjects", lambda registry, body: list(registry._subjects)),
    ("POST", "/subjects/([^/]+)/versions", SchemaRegistry._register),
    ("POST", "/subjects/([^/]+)", SchemaRegistry._look_up),
    ("GET", "/subjects/([^/]+)/versions/([^/]+)", SchemaRegistry._version),
    ("GET", r"/schemas/ids/(\d+)", SchemaRegistry._schema),
    ("GET", "/schemas/guids/([^/]+)", SchemaRegistry._schema_of_guid),
    ("PUT", "/config((?:/[^/]+)?)", SchemaRegistry._set_level),
]


def _identity(body: Any) -> tuple[str, str, str]:
    kind = body.get("schemaType") or "AVRO"
    text = body["schema"] if kind == "PROTOBUF" else json.dumps(json.loads(body["schema"]), sort_keys=True)
    return kind, text, json.dumps(body.get("references") or [], sort_keys=True)


class _Handler(BaseHTTPRequestHandler):
    owner: SchemaRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    do_POST = do_PUT = do_GET

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        where = urlsplit(self.path)
        status = 200
        try:
            answer = self.owner.answer(self.command, where.path, parse_qs(where.query), body)
        except RegistryError as refused:
            status, answer = refused.status, {"error_code": refused.code, "message": str(refused)}
        text = json.dumps(answer).encode() if self.owner.answer_with is None else self.owner.answer_with
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
