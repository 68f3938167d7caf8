"""What a broker answers at /ready."""

import json
import urllib.error
import urllib.request
from typing import Any


def ready(address: str) -> tuple[int, dict[str, Any]]:
    """The status of /ready, and its facts."""
    try:
        with urllib.request.urlopen(f"http://{address}/ready", timeout=100) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
