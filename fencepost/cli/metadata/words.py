"""The commands of the metadata shell: ls, cat, find, tree."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from fencepost.cli.metadata.tree import Folder, Leaf, Node, absolute, at, root, walk, whole
from fencepost.cli.plain_text import cell

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import MetadataImage

LONG = "-l"
DEPTH = "--depth"
WIDE = 100


class BadCommand(Exception):
    """An unknown command or unknown arguments; the text says what is valid."""


USAGES = {
    "ls": "ls [-l] [PATH]...                  names; -l also shows values",
    "cat": "cat PATH...                        a value, or all of a folder as JSON",
    "find": "find [PATH] [PATTERN]              paths; PATTERN may hold * and ?, and means the name or the whole path",
    "tree": "tree [PATH] [--depth N]            folders and values, as a tree",
    "history": "history [PATH] [--all]             changes, by transaction; --all: also those not committed",
}


def run(image: "MetadataImage", here: str, words: list[str]) -> Iterator[str]:
    """The lines of one command. Raises BadCommand and NoSuchPath."""
    name, *rest = words
    known = {"ls": _ls, "cat": _cat, "find": _find, "tree": _tree}
    if name not in known:
        raise BadCommand(f"{name!r} is not a command; the commands are {', '.join(USAGES)}")
    return known[name](root(image), here, rest)


def options(name: str, words: list[str], flags: tuple[str, ...] = (), valued: tuple[str, ...] = ()) -> Any:
    """Split a command's words into flags, values by option, and the rest. Raises BadCommand."""
    found: set[str] = set()
    values: dict[str, str] = {}
    rest: list[str] = []
    given = iter(words)
    for word in given:
        if word in flags:
            found.add(word)
        elif word in valued:
            values[word] = next(given, "")
        elif word.startswith("-") and len(word) > 1:
            raise BadCommand(f"{word!r} is not an option here: {USAGES[name]}")
        else:
            rest.append(word)
    return found, values, rest


def _ls(tree: Folder, here: str, words: list[str]) -> Iterator[str]:
    flags, _, paths = options("ls", words, (LONG,))
    for number, path in enumerate(paths or ["."]):
        node = at(tree, absolute(here, path))
        if len(paths) > 1:
            yield f"{chr(10) if number else ''}{path}:"
        if not isinstance(node, Folder):
            yield path
            continue
        for name in node.names():
            child = node.child(name)
            shown = f"{name}/" if isinstance(child, Folder) else name
            yield f"{shown:<40}  {_brief(child)}".rstrip() if LONG in flags else shown


def _brief(node: Node) -> str:
    if isinstance(node, Folder):
        return f"{sum(1 for _ in node.names())} in it"
    return _value(node)


def _value(leaf: Leaf) -> str:
    return cell(leaf) if isinstance(leaf, str) else json.dumps(leaf)


def _cat(tree: Folder, here: str, words: list[str]) -> Iterator[str]:
    _, _, paths = options("cat", words)
    if not paths:
        raise BadCommand(f"cat needs a path: {USAGES['cat']}")
    for path in paths:
        found = whole(at(tree, absolute(here, path)))
        yield found if isinstance(found, str) else json.dumps(found, indent=2)


def _find(tree: Folder, here: str, words: list[str]) -> Iterator[str]:
    _, _, rest = options("find", words)
    if len(rest) > 2:
        raise BadCommand(f"too many arguments: {USAGES['find']}")
    path, pattern = (rest[0], rest[1]) if len(rest) == 2 else _path_or_pattern(rest)
    start = absolute(here, path)
    for parts, _ in walk(at(tree, start), start):
        shown = "/" + "/".join(parts)
        if pattern is None or fnmatchcase(parts[-1] if parts else "", pattern) or fnmatchcase(shown, pattern):
            yield shown


def _path_or_pattern(rest: list[str]) -> tuple[str, str | None]:
    if not rest:
        return ".", None
    return (".", rest[0]) if {"*", "?", "["} & set(rest[0]) else (rest[0], None)


def _tree(tree: Folder, here: str, words: list[str]) -> Iterator[str]:
    _, values, rest = options("tree", words, (), (DEPTH,))
    depth = values.get(DEPTH, "99")
    if not depth.isdigit() or len(rest) > 1:
        raise BadCommand(f"wrong arguments: {USAGES['tree']}")
    start = absolute(here, rest[0] if rest else ".")
    node = at(tree, start)
    yield "/" + "/".join(start)
    yield from _branches(node, "", int(depth)) if isinstance(node, Folder) else [_value(node)]


def _branches(folder: Folder, before: str, depth: int) -> Iterator[str]:
    names = list(folder.names())
    for name in names:
        child, is_last = folder.child(name), name == names[-1]
        shown = "" if isinstance(child, Folder) else f": {_value(child)}"
        yield f"{before}{'`-- ' if is_last else '|-- '}{name}{shown}"
        if isinstance(child, Folder):
            if depth > 1:
                yield from _branches(child, f"{before}{'    ' if is_last else '|   '}", depth - 1)
            elif any(True for _ in child.names()):
                yield f"{before}{'    ' if is_last else '|   '}`-- ..."
