"""The topics of the cluster, and one topic with its partitions."""

from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fencepost.client.admin.lag import reaches
from fencepost.console.cached import topics_of
from fencepost.console.numbers import whole_number
from fencepost.console.state import connection_of
from fencepost.protocol.topics import TopicPartition

PAGE: Final = 100
"""Topics or partitions on one page."""


async def list_body(request: Request) -> tuple[str, dict[str, Any]]:
    """A page of the topics whose name contains the query."""
    topics = await topics_of(connection_of(request))
    wanted = request.query_params.get("q", "").strip().lower()
    internal = request.query_params.get("internal") == "1"
    found = [topic for topic in topics if wanted in topic.name.lower() and (internal or not topic.internal)]
    number = page_number(request, len(found))
    return "topics.html", {
        "topics": found[(number - 1) * PAGE : number * PAGE],
        "found": len(found),
        "q": wanted,
        "internal": internal,
        "number": number,
        "last": pages(len(found)),
    }


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """One topic: a page of its partitions with their offsets."""
    name = request.path_params["topic"]
    connection = connection_of(request)
    topic = (await connection.admin.describe_topics(name))[name]
    number = page_number(request, len(topic.partitions))
    shown = list(enumerate(topic.partitions))[(number - 1) * PAGE : number * PAGE]
    found = await reaches(connection.parts, [TopicPartition(name, n) for n, info in shown if info.leader >= 0])
    rows = [(n, info, found.get(TopicPartition(name, n))) for n, info in shown]
    return "topic.html", {
        "topic": topic,
        "rows": rows,
        "held": sum(reach is not None and reach.high > reach.stable for _, _, reach in rows),
        "number": number,
        "last": pages(len(topic.partitions)),
    }


def pages(count: int) -> int:
    return max(1, -(-count // PAGE))


def page_number(request: Request, count: int) -> int:
    """The page that the query names, from 1; raises HTTPException (404) if it does not exist."""
    number = whole_number(request.query_params.get("page", "1"))
    if number is None or not 1 <= number <= pages(count):
        raise HTTPException(404)
    return number
