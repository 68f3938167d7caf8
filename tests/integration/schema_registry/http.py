"""A client of the registry that sees what others hide: statuses, headers and bodies."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    user: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request. `user` is NAME:PASSWORD; a body of bytes is sent as it is."""
    sent = dict(headers or {})
    if user is not None:
        sent["authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return Answer(response.status, json.loads(response.read()), dict(response.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, json.loads(error.read()), dict(error.headers))


def register(url: str, subject: str, schema: str = ORDER, **more: Any) -> int:
    """The id of a schema."""
    answer = ask(url, "POST", f"/subjects/{subject}/versions", {"schema": schema}, **more)
    assert answer.status == 200, answer
    number: int = answer.body["id"]
    return number


def schema_of(number: int) -> str:
    """One of many schemas that differ."""
    return json.dumps({"type": "record", "name": f"R{number}", "fields": []}, separators=(",", ":"))
