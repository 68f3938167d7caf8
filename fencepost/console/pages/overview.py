"""The first page: the cluster, its brokers, and what needs attention."""

from collections import Counter
from typing import Any

from starlette.requests import Request

from fencepost.client import KafkaError
from fencepost.console.cached import topics_of
from fencepost.console.errors import described
from fencepost.console.state import connection_of

LONG_SECONDS = 60
"""A transaction that is open for longer is shown."""


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """Counts come with the first refresh, so that the page of a large cluster is there at once."""
    connection = connection_of(request)
    cluster = await connection.admin.describe_cluster()
    values: dict[str, Any] = {"cluster": cluster, "counts": None, "problems": [], "long": [], "states": {}}
    if not request.url.path.startswith("/live") and "topics" not in connection.cache:
        return "overview.html", values
    problems = values["problems"]
    try:
        topics = await topics_of(connection)
        own = [topic for topic in topics if not topic.internal]
        values["counts"] = {
            "topics": len(own),
            "internal": len(topics) - len(own),
            "partitions": sum(topic.partitions for topic in own),
            "leaderless": sum(topic.leaderless for topic in topics),
            "under_replicated": sum(topic.under_replicated for topic in topics),
        }
        values["groups"] = Counter(group.state or "unknown" for group in await connection.admin.list_groups())
    except KafkaError as error:
        problems.append(described(error).title)
    try:
        transactions = await connection.admin.list_transactions()
        values["states"] = dict(sorted(Counter(one.state for one in transactions).items()))
        if any(one.state == "Ongoing" for one in transactions):
            values["long"] = await connection.admin.list_transactions(
                states="Ongoing", running_longer_than=LONG_SECONDS
            )
    except KafkaError as error:
        problems.append(described(error).title)
    return "overview.html", values
