"""What the rules ask of every Python file, from one parse of each: seconds, so not where tests are only collected."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.project_files import PYTHON_FILES, name_of, statements


class Facts(NamedTuple):
    """What the rules ask of one file."""

    is_silent: bool
    """It has code, and no sentence in front."""
    functions: dict[str, int]
    """The lines of each, by line number and name."""
    imports: list[tuple[int, str | None, tuple[str, ...]]]
    """Each import statement, anywhere in it: the line, from where (None: `import x`), and the names."""
    texts: list[tuple[int, str]]
    """The strings of a file of the product, the docstrings aside: what a log, an error or a help text may say."""


def is_product(path: Path) -> bool:
    """Whether a file is a part of what is installed."""
    return name_of(path).startswith(("fencepost/", "pyspark_fencepost/"))


@cache
def facts() -> dict[str, Facts]:
    """By file. No tree is kept, since Python's collector of garbage would go through them again and again."""
    return {name_of(path): facts_of(ast.parse(path.read_bytes()), texts=is_product(path)) for path in PYTHON_FILES}


def facts_of(tree: ast.Module, *, texts: bool = True) -> Facts:
    """The facts of one parsed file; its texts only on request, since they need a look at every expression."""
    functions: dict[str, int] = {}
    imports: list[tuple[int, str | None, tuple[str, ...]]] = []
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[f"{node.lineno} {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.lineno, node.module, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Import):
            imports.append((node.lineno, None, tuple(alias.name for alias in node.names)))
    first = (ast.get_docstring(tree) or "").split("\n\n")[0]
    is_silent = bool(tree.body) and "." not in first
    return Facts(is_silent, functions, imports, list(texts_in(tree)) if texts else [])


def texts_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string but the docstrings. A statement comes before what it consists of, so one walk is enough."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docstrings:
                yield node.lineno, node.value
        elif isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
