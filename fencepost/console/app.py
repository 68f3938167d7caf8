"""The console's application: which page answers which path."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fencepost.client import KafkaError
from fencepost.console.guard import Guard, SecurityHeaders
from fencepost.console.pages import (
    audit,
    groups,
    login,
    metadata,
    overview,
    partition,
    queues,
    settings,
    stuck,
    tail,
    topics,
    transactions,
)
from fencepost.console.state import Body, Console, error_page, live, page, render

STATIC = Path(__file__).with_name("static")


def application(console: Console) -> Starlette:
    app = Starlette(
        routes=[
            *_refreshed("/", overview.body),
            *_refreshed("/topics", topics.list_body),
            *_refreshed("/topics/{topic}", topics.body),
            Route("/topics/{topic}/tail", tail.show),
            Route("/live-tail/{topic}", tail.stream),
            Route("/topics/{topic}/{partition:int}", partition.show),
            Route("/data/log/{topic}/{partition:int}", partition.data),
            Route("/live-log/{topic}/{partition:int}", partition.stream),
            *_refreshed("/transactions", transactions.list_body),
            *_refreshed("/transaction", transactions.body),
            Route("/transaction/abort", transactions.abort, methods=["POST"]),
            *_refreshed("/stuck", stuck.list_body),
            *_refreshed("/stuck/{topic}/{partition:int}", stuck.body),
            Route("/stuck/{topic}/{partition:int}/repair", stuck.repair, methods=["POST"]),
            Route("/hanging", page(stuck.hanging_body)),
            *_refreshed("/groups", groups.list_body),
            *_refreshed("/group", groups.body),
            Route("/group/reset", groups.reset, methods=["POST"]),
            *_refreshed("/queues", queues.list_body),
            *_refreshed("/queue", queues.body),
            *_refreshed("/metadata", metadata.body),
            Route("/settings", page(settings.body)),
            Route("/settings/change", settings.change, methods=["POST"]),
            *_refreshed("/audit", audit.body),
            Route("/audit/count", page(audit.count_body)),
            Route("/login", login.show, methods=["GET"]),
            Route("/login", login.log_in, methods=["POST"]),
            Route("/logout", login.log_out, methods=["POST"]),
            Route("/health", _health),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(Guard)],
        exception_handlers={KafkaError: error_page, HTTPException: _http_error},
    )
    app.state.console = console
    return app


def _refreshed(path: str, body: Body) -> list[Route]:
    return [Route(path, page(body)), Route(f"/live{path}", live(body))]


async def _health(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = "This page does not exist." if error.status_code == 404 else str(error.detail)
    return render(request, "error.html", {"title": title, "hint": None}, error.status_code)
