"""Names the extra to install where an import fails: `pip install fencepost` brings the packages of the client only."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA_OF = {
    "avro": "registry",
    "click": "broker",
    "cryptography": "tls",
    "h11": "console",
    "hypercorn": "console",
    "jinja2": "console",
    "joserfc": "oauth",
    "msgspec": "json",
    "obstore": "cluster",
    "outcome": "broker",
    "prometheus_client": "broker",
    "psycopg": "cluster",
    "starlette": "console",
    "trio": "broker",
}
"""The extra that brings a top-level module."""


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'fencepost[{extra}]'"


@contextmanager
def needed_for(part: str, extra: str | None = None) -> Iterator[None]:
    """Import modules of `part` in this block. Raises ModuleNotFoundError that says how to install what they lack.

    `extra` is the one to name if several have the module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        how = install(extra or EXTRA_OF[error.name])
        raise ModuleNotFoundError(f"{part} needs {error.name}: {how}", name=error.name) from error
