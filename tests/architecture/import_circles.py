"""Which files import each other in a circle, those that import for a type checker only included."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.project_files import ROOT, name_of
from tests.architecture.source_facts import facts

THE_BROKER = "fencepost.broker.ports"
"""It names the types of a broker's parts, and its parts name it. What it imports is left out: it has no code."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((ROOT / "fencepost").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, anywhere in it."""
    for _, module, names in facts()[name_of(path)].imports:
        if module is None:
            yield from (name for name in names if name in known)
        elif module in known:
            for name in names:
                whole = f"{module}.{name}"
                yield whole if whole in known else module


@cache
def circles() -> list[list[str]]:
    """The strongly connected components of more than one file, each sorted (Tarjan)."""
    known = modules()
    graph = {name: sorted(set(imports_of(path, known)) - {name}) for name, path in known.items()}
    graph[THE_BROKER] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            at = stack.index(name)
            component, stack[at:] = sorted(stack[at:]), []
            if len(component) > 1:
                found.append(component)

    for name in graph:
        if name not in order:
            visit(name)
    return sorted(found)


if __name__ == "__main__":
    for circle in circles():
        print(len(circle), *circle, sep="\n  ")
