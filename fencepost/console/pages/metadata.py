"""The metadata: features, the quorum, and (from a broker's directory) what each transaction changed."""

from typing import Any

from starlette.requests import Request

from fencepost.client import KafkaError
from fencepost.console.errors import described
from fencepost.console.metadata_history import History
from fencepost.console.state import connection_of, console_of
from fencepost.protocol.errors import ErrorCode

ELSEWHERE = (
    "The history is read from a broker's directory. Start the console on the broker's machine with --data DIR, or use"
    " `fencepost metadata-shell DIR history` there."
)


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """What any Kafka reports about its metadata, and the history if it is here."""
    console, admin = console_of(request), connection_of(request).admin
    values: dict[str, Any] = {"features": None, "quorum": None, "problems": [], "entries": [], "why_none": ELSEWHERE}
    for name, ask in (("features", admin.describe_features), ("quorum", admin.describe_quorum)):
        try:
            values[name] = await ask()
        except KafkaError as error:
            values["problems"].append(f"{name}: {described(error).title}")
    if console.metadata is None:
        return "metadata.html", values
    try:
        await admin.describe_acls()  # the history has all access rules: it needs the right to list them
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            return "metadata.html", {**values, "why_none": described(error).title}
    if console.history is None:
        console.history = History(console.metadata)
    values["entries"], values["why_none"] = await console.history.look()
    return "metadata.html", values
