"""Names the extra to install where an import fails: `pip install fencepost` brings the packages of the client only."""

from collections.abc import Callable, Iterator
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
def needed_for(
    part: str, extra: str | None = None, refuse: Callable[[str], BaseException] | None = None
) -> Iterator[None]:
    """Import modules of `part` in this block. Raises ModuleNotFoundError that says how to install what they lack.

    `extra` is the one to name if several have the module, or if it is not known what is missing. `refuse` makes another
    exception of the text, or ends the process.
    """
    try:
        yield
    except ImportError as error:
        lacks = error.name if isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF else None
        if lacks is None and extra is None:
            raise
        text = f"{part} needs {lacks or f'more packages ({error})'}: {install(extra or EXTRA_OF[lacks or ''])}"
        raise (ModuleNotFoundError(text, name=error.name) if refuse is None else refuse(text)) from error
