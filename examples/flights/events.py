"""What the processes of the demo tell the stage: one JSON object a line on standard output."""

import json
import sys
from typing import Any


def tell(event: str, **facts: Any) -> None:
    """Say that something happened."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def read(line: str) -> dict[str, Any]:
    """The event of one line; a line that is none comes back as {"event": "said", "text": ...}."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) and "event" in event else {"event": "said", "text": line}
