"""Settings of a topic, a broker or a group, and a change of one with a preview."""

from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.cli.connect import command_for
from fencepost.cli.setting_changes import changed, is_without_effect, settings_of
from fencepost.client import KafkaError
from fencepost.client.admin.plan_types import own_source
from fencepost.client.admin.types import HIDDEN, is_secret
from fencepost.console.errors import described
from fencepost.console.guard import form_of
from fencepost.console.numbers import whole_number
from fencepost.console.state import connection_of, console_of, record_action, render, session_of

KINDS: Final = ("topic", "broker", "group")
ALL_BROKERS: Final = "all"


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """The settings of the resource that the query names; without one, the brokers to choose from."""
    kind, name = request.query_params.get("kind", ""), request.query_params.get("name", "")
    cluster = await connection_of(request).admin.describe_cluster()
    if not kind:
        return "settings_index.html", {"cluster": cluster}
    return "settings.html", await _values(request, kind, name, request.query_params.get("all") == "1")


async def _values(request: Request, kind: str, name: str, everything: bool) -> dict[str, Any]:
    found = await settings_of(connection_of(request).admin, _subject(kind, name))
    wanted = request.query_params.get("q", "").strip().lower()
    own = own_source(kind, "" if name == ALL_BROKERS else name)
    rows = []
    for entry in sorted(found.values()):
        is_own = entry.source == own
        if wanted not in entry.name or not (everything or wanted or is_own or kind == "topic"):
            continue
        rows.append(
            {
                "name": entry.name,
                "value": HIDDEN if is_secret(entry.name, entry) else entry.value,
                "source": entry.source.name.removesuffix("_CONFIG").lower().replace("_", " "),
                "is_own": is_own,
                "read_only": entry.read_only,
                "without_effect": is_without_effect(entry),
                "documentation": entry.documentation or "",
            }
        )
    return {
        "kind": kind,
        "name": name,
        "rows": rows,
        "hidden": len(found) - len(rows),
        "everything": everything,
        "q": wanted,
        "names": sorted(entry.name for entry in found.values() if not entry.read_only),
        "steps": None,
        "setting": "",
        "new_value": "",
        "unset": False,
        "refused": None,
        "command": "",
    }


async def change(request: Request) -> Response:
    """Show what a change would do, or (with the field `apply`) do it."""
    form = await form_of(request)
    kind, name = str(form.get("kind", "")), str(form.get("name", ""))
    setting, new_value, unset = str(form.get("setting", "")).strip(), str(form.get("value", "")), "unset" in form
    apply = form.get("apply") == "yes"
    values = await _values(request, kind, name, False)
    values |= {"setting": setting, "new_value": new_value, "unset": unset}
    if not setting:
        return render(request, "settings.html", {**values, "refused": "Name a setting. Nothing was done."}, 400)
    admin, wanted = connection_of(request).admin, {setting: None if unset else new_value}
    try:
        steps = await changed(admin, _subject(kind, name), wanted, dry_run=not apply)
    except KafkaError as error:
        trouble = described(error)
        return render(request, "settings.html", {**values, "refused": f"{trouble.title} Nothing was done."}, 400)
    if apply:
        shown = "unset" if unset else f"= {HIDDEN if steps[0].sensitive else new_value!r}"
        record_action(request, f"changed {kind} {name!r}: {setting} {shown}")
        session_of(request).notice = f"{setting} of {kind} {name!r} is changed."
        return RedirectResponse(f"/settings?{urlencode({'kind': kind, 'name': name})}", 303)
    words = (
        ["config", "unset", kind, name, setting] if unset else ["config", "set", kind, name, f"{setting}={new_value}"]
    )
    secret = steps[0].sensitive and not unset  # no page and no command repeats it
    command = "" if secret else command_for(console_of(request).bootstrap, *words)
    return render(request, "settings.html", {**values, "steps": steps, "command": command})


def _subject(kind: str, name: str) -> dict[str, Any]:
    """The resource as the admin client takes it; raises HTTPException (404) for an unknown kind or broker."""
    if kind not in KINDS or not name:
        raise HTTPException(404)
    if kind != "broker":
        return {kind: name}
    if name == ALL_BROKERS:
        return {"broker": ""}
    number = whole_number(name)
    if number is None or number >= 1 << 31:
        raise HTTPException(404)
    return {"broker": number}
