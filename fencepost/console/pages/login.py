"""The login: a user's own name and password of the cluster, by SASL."""

import math
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.client import AuthenticationError, KafkaError
from fencepost.console.connections import TooManyGuesses
from fencepost.console.errors import described
from fencepost.console.guard import cookie_name, fields_of, form_of
from fencepost.console.state import console_of, render

FIRST: Final = "/"


async def show(request: Request) -> Response:
    if not console_of(request).sessions.login:
        return RedirectResponse(FIRST, 303)
    return render(request, "login.html", {"to": _own_path(request.query_params.get("to")), "refused": None})


async def log_in(request: Request) -> Response:
    """Begin a session whose client has the user's name and password. The password is kept in memory only."""
    console = console_of(request)
    if not console.sessions.login:
        return RedirectResponse(FIRST, 303)
    form = await fields_of(request)
    user, password, to = str(form.get("user", "")), str(form.get("password", "")), _own_path(str(form.get("to", "")))
    values = {"to": to, "refused": "Give a name and a password."}
    if not user or not password:
        return render(request, "login.html", values, 400)
    try:
        session = await console.sessions.log_in(user, password, request.client.host if request.client else "")
    except TooManyGuesses as error:
        wait = math.ceil(error.wait)
        refused = f"Too many wrong passwords came from your address. Try again in {wait} s."
        response = render(request, "login.html", {**values, "refused": refused}, 429)
        response.headers["retry-after"] = str(wait)
        return response
    except AuthenticationError:
        return render(request, "login.html", {**values, "refused": "The name or the password is wrong."}, 403)
    except KafkaError as error:
        return render(request, "login.html", {**values, "refused": described(error).title}, 502)
    old = console.sessions.find(request.cookies.get(cookie_name(request)))
    if old is not None:
        console.sessions.end(old)
    request.state.session = session
    return RedirectResponse(to, 303)


async def log_out(request: Request) -> Response:
    """End the session and close its client."""
    await form_of(request)
    console_of(request).sessions.end(request.state.session)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(cookie_name(request))
    return response


def _own_path(to: str | None) -> str:
    """A path of this console; anything else could lead to another site."""
    if to and to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable():
        return to
    return FIRST
