"""The compiled path for records: the module `_hot`, which exists if there was a C compiler at installation.

`FENCEPOST_PURE=1` in the environment forbids it; it is read once, when this module is imported. Both paths give the
same results and the same errors (docs/decisions/0025-a-compiled-part.md).
"""

from types import ModuleType

INTERFACE = 3
"""The version of the signatures in `_hot`. A module from older source, in an editable install, is not used."""


def load() -> ModuleType | None:
    """The compiled part, or None if it is not built, forbidden, or of another interface."""
    try:
        from fencepost.protocol import _hot
    except (ImportError, SystemError):  # SystemError: a free-threaded Python finds it in a source tree, cannot load it
        return None
    return _hot if getattr(_hot, "INTERFACE", 0) == INTERFACE else None


hot = load()


def record_code() -> str:
    """How records are encoded and decoded in this process: "compiled" or "pure Python"."""
    return "pure Python" if hot is None else "compiled"
