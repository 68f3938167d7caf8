"""Groups: their state, their true lag, and a reset of their offsets with a preview."""

from typing import Any, Final, NamedTuple
from urllib.parse import quote

import click
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.cli.connect import command_for
from fencepost.cli.parameters import DurationType, MomentType
from fencepost.client.admin.lag import moves, reaches
from fencepost.console.guard import form_of
from fencepost.console.numbers import whole_number
from fencepost.console.pages.topics import PAGE, page_number, pages
from fencepost.console.state import connection_of, console_of, record_action, render, session_of
from fencepost.protocol.topics import TopicPartition

COUNT_BYTES: Final = 4 << 20
"""What one look at a group's lag reads of the logs at most; the rest is counted by offsets."""
WAYS: Final = {
    "to_earliest": "to the first record",
    "to_latest": "to the end (last stable offset)",
    "to_offset": "to this offset",
    "shift_by": "by this many offsets (may be negative)",
    "to_datetime": "to this time (ISO 8601, UTC)",
    "by_duration": "back by this duration, such as 2h30m",
}
VALUE_CHARACTERS_MAX: Final = 40
WITHOUT_VALUE: Final = ("to_earliest", "to_latest")
EMPTY_STATES: Final = ("Empty", "Dead")


class BadForm(Exception):
    """A value of the form cannot be used; the text says why."""


class Wanted(NamedTuple):
    """What a form wants to happen to a group."""

    places: list[TopicPartition]
    way: str
    value: int


async def list_body(request: Request) -> tuple[str, dict[str, Any]]:
    """A page of the groups whose id contains the query."""
    wanted = request.query_params.get("q", "").strip()
    found = [one for one in await connection_of(request).admin.list_groups() if wanted in one.group_id]
    number = page_number(request, len(found))
    return "groups.html", {
        "groups": found[(number - 1) * PAGE : number * PAGE],
        "found": len(found),
        "q": wanted,
        "number": number,
        "last": pages(len(found)),
    }


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    return "group.html", await _values(request, request.query_params.get("id", ""))


async def _values(request: Request, group_id: str) -> dict[str, Any]:
    admin = connection_of(request).admin
    group = (await admin.describe_groups(group_id))[group_id]
    lags = await admin.describe_group_lag(group_id, count_bytes=COUNT_BYTES)
    return {
        "group": group,
        "lags": lags,
        "total": sum(one.records or 0 for one in lags),
        "exact": all(one.exact for one in lags),
        "held": sum(one.held_back for one in lags),
        "ways": WAYS,
        "can_reset": not group.members and group.state in EMPTY_STATES,
        "moves": None,
        "way": "to_earliest",
        "value": "",
        "refused": None,
        "command": "",
    }


async def reset(request: Request) -> Response:
    """Show what a reset would do, or (with the preview's offsets) do it."""
    form = await form_of(request)
    group_id = str(form.get("id", ""))
    values = await _values(request, group_id)
    values |= {"way": str(form.get("way", "")), "value": str(form.get("value", ""))}
    if not values["can_reset"]:
        refused = f"The group is {values['group'].state}: stop its members first. Nothing was done."
        return render(request, "group.html", {**values, "refused": refused}, 409)
    try:
        if form.get("apply") == "yes":
            return await _apply(request, group_id, _previewed(form))
        committed = [one.partition for one in values["lags"] if one.committed is not None]
        wanted = _wanted(form, committed)
    except BadForm as error:
        return render(request, "group.html", {**values, "refused": f"{error} Nothing was done."}, 400)
    offsets = {one.partition: one.committed for one in values["lags"] if one.committed is not None}
    found = await moves(connection_of(request).parts, wanted.places, offsets, wanted.way, wanted.value)
    option = f"--{wanted.way.replace('_', '-')}"
    words = [option] if wanted.way in WITHOUT_VALUE else [option, str(form.get("value", "")).strip()]
    named = [f"{place.topic}:{place.partition}" for place in wanted.places]
    command = command_for(console_of(request).bootstrap, "group", "reset", group_id, *named, *words)
    return render(request, "group.html", {**values, "moves": found, "command": command})


async def _apply(request: Request, group_id: str, offsets: dict[TopicPartition, int]) -> Response:
    """Commit the offsets of the preview. Raises BadForm if the logs have changed too much since, and KafkaError."""
    for place, reach in (await reaches(connection_of(request).parts, sorted(offsets))).items():
        if not reach.start <= offsets[place] <= reach.stable:
            raise BadForm(f"{place} has no offset {offsets[place]} any more: look at a new preview.")
    await connection_of(request).admin.alter_group_offsets(group_id, offsets)
    places = ", ".join(f"{place.topic}:{place.partition} to {offset}" for place, offset in sorted(offsets.items()))
    record_action(request, f"reset group {group_id!r}: {places}")
    session_of(request).notice = f"Group {group_id!r} continues at the new offsets."
    return RedirectResponse(f"/group?id={quote(group_id, safe='')}", 303)


def _wanted(form: FormData, committed: list[TopicPartition]) -> Wanted:
    """What the form says. Raises BadForm."""
    way, text = str(form.get("way", "")), str(form.get("value", "")).strip()
    chosen = {str(one) for one in form.getlist("place")}
    places = [place for place in committed if f"{place.topic}:{place.partition}" in chosen]
    if way not in WAYS:
        raise BadForm("Choose where the group shall continue.")
    if not places:
        raise BadForm("Choose at least one partition.")
    return Wanted(places, way, _number(way, text))


def _number(way: str, text: str) -> int:
    """The number that `moves` takes for this way. Raises BadForm."""
    if way in WITHOUT_VALUE:
        return 0
    if len(text) > VALUE_CHARACTERS_MAX:
        raise BadForm("The value is too long.")
    try:
        if way == "to_datetime":
            return int(MomentType().convert(text, None, None))
        if way == "by_duration":
            return int(DurationType().convert(text, None, None))
        number = int(text)
        if abs(number) >= 1 << 62:
            raise BadForm(f"{text} is no offset.")
        return number
    except click.ClickException as error:
        raise BadForm(f"{error.message.rstrip('.')}.") from error
    except (ValueError, OverflowError) as error:
        raise BadForm(f"{text!r} is not a whole number.") from error


def _previewed(form: FormData) -> dict[TopicPartition, int]:
    """The offsets of the preview that the form repeats. Raises BadForm."""
    found = {}
    for one in form.getlist("move"):
        topic, partition, offset = str(one).rsplit(":", 2) if str(one).count(":") >= 2 else ("", "", "")
        number, value = whole_number(partition), whole_number(offset)
        if not topic or number is None or value is None:
            raise BadForm(f"{one!r} is not a place in a log.")
        found[TopicPartition(topic, number)] = value
    if not found:
        raise BadForm("There is no preview to apply.")
    return found
