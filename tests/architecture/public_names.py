"""The client's public names, and the table of them at the end of docs/client.md.

`python -m tests.architecture.public_names` writes the table anew; test_public_names.py says when that is due.
"""

import enum
import inspect
from importlib import import_module
from typing import get_origin

from tests.architecture.project_files import ROOT

GUIDE = ROOT / "docs/client.md"
BEGIN, END = "<!-- public names: written by tests/architecture/public_names.py -->", "<!-- end of public names -->"
PACKAGES = ("fencepost", "fencepost.client", "fencepost.client.admin", "fencepost.client.serializers", "fencepost.sync")
BETWEEN_PARTS: dict[str, set[str]] = {
    "Fault": {"action", "api", "awaited", "client_id", "held", "matches", "meet"},
    "ItemsFailedError": {"derive"},
}
"""By class: names without an underscore that the client's own parts call one another by. No program needs them."""


def public_classes() -> dict[str, type]:
    """Every class of the public packages, by the name under which a program finds it first."""
    found: dict[str, type] = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            if inspect.isclass(thing) and thing not in found.values():
                found[f"sync.{name}" if package == "fencepost.sync" else name] = thing
    return found


def public_functions() -> dict[str, object]:
    """Every function of the public packages."""
    found: dict[str, object] = {}
    for package in PACKAGES:
        module = import_module(package)
        found |= {name: getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    return found


def public_aliases() -> list[str]:
    """Every name of a public package that stands for a type with parts, such as a union."""
    modules = [import_module(package) for package in PACKAGES]
    return sorted(name for module in modules for name in module.__all__ if get_origin(getattr(module, name)))


def members_of(name: str, kind: type) -> list[str]:
    """The public methods and properties that a class of ours has beyond what Python gives it."""
    if issubclass(kind, enum.Enum) and not issubclass(kind, enum.IntEnum):
        return []
    hidden = BETWEEN_PARTS.get(name.rpartition(".")[2], set())
    found = set()
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] != "fencepost":
            continue
        for member, value in vars(owner).items():
            if member.startswith("_") or member in hidden:
                continue
            if inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod):
                found.add(member)
    return sorted(found)


def table() -> str:
    """The table as it stands in the guide."""
    classes = {name: kind for name, kind in public_classes().items() if not name.startswith("sync.")}
    rows = ["| class | methods and properties |", "|---|---|"]
    plain = []
    for name, kind in classes.items():
        members = members_of(name, kind)
        if members:
            rows.append(f"| `{name}` | {', '.join(f'`{member}`' for member in members)} |")
        else:
            plain.append(f"`{name}`")
    own = [name for name in public_classes() if name.startswith("sync.")]
    blocking = import_module("fencepost.sync").__all__
    functions = [f"`{name}`" for name in sorted(public_functions()) if name not in blocking]
    own += [name for name in public_functions() if name in blocking]
    return "\n".join(
        [
            *rows,
            "",
            f"Values, errors and numbers: {', '.join(sorted(plain))}.",
            "",
            f"Types, for annotations of your own: {', '.join(f'`{name}`' for name in public_aliases())}.",
            "",
            f"Functions: {', '.join(functions)}.",
            "",
            f"`fencepost.sync` has the same, as {', '.join(f'`{name}`' for name in own[:-1])}, and `{own[-1]}`.",
        ]
    )


def main() -> None:
    """Write the table into the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    GUIDE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
