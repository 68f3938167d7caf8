"""The types in the signatures of the public API, and which of them a program cannot import from a public module."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import TypeVar, get_origin

from tests.architecture.public_api import Function, Unquoted, alias_value, fields_of, methods_of
from tests.architecture.public_names import PACKAGES
from tests.architecture.sync_stub import STUB, home_of, tree_of

Annotation = tuple[str, str, ast.expr]
"""Where it stands, the module that gives its names their meaning, and the annotation."""


def private_types() -> set[str]:
    """Each type of ours that stands in a public signature and is not public, with a place where it stands."""
    modules = {package: import_module(package) for package in (*PACKAGES, "fencepost.testing")}
    public = [getattr(module, name) for module in modules.values() for name in module.__all__]
    found = {}
    for place, module, name in [*names_in_annotations(), *names_in_stub()]:
        home = home_of(module, name)
        if home is None or home.partition(".")[0] != "fencepost":
            continue  # Python's, or another package's
        kind = getattr(import_module(home), name)
        if not isinstance(kind, TypeVar) and not any(kind is one for one in public):
            found[f"{home}.{name}"] = place
    return {f"{name} (in {place})" for name, place in found.items()}


def names_in_annotations() -> Iterator[tuple[str, str, str]]:
    """(place, module, name) of every name in a public annotation."""
    for place, module, annotation in annotations():
        for node in ast.walk(Unquoted().visit(ast.parse(ast.unparse(annotation), mode="eval").body)):
            if isinstance(node, ast.Name):
                yield place, module, node.id


def names_in_stub() -> Iterator[tuple[str, str, str]]:
    """What the stub of the blocking client imports, it imports for its annotations."""
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield from (("fencepost.sync", node.module, alias.name) for alias in node.names)


def annotations() -> Iterator[Annotation]:
    """Every annotation of the public classes, functions and aliases of types."""
    for package in (*PACKAGES, "fencepost.testing"):
        module = import_module(package)
        for name in module.__all__ if package != "fencepost.sync" else ():
            thing, place = getattr(module, name), f"{package}.{name}"
            if inspect.isclass(thing):
                yield from class_annotations(place, thing)
            elif inspect.isfunction(thing):
                [node] = [n for n in tree_of(thing.__module__).body if getattr(n, "name", None) == thing.__name__]
                yield from function_annotations(place, thing.__module__, node)
            elif get_origin(thing) is not None:
                yield place, *alias_value(package, name)


def class_annotations(place: str, kind: type) -> Iterator[Annotation]:
    """Every annotation of a class's public fields, methods and properties."""
    for module, name, annotation, _ in fields_of(kind):
        if annotation is not None:
            yield f"{place}.{name}", module, annotation
    for module, node in methods_of(kind):
        yield from function_annotations(f"{place}.{node.name}", module, node)


def function_annotations(place: str, module: str, node: ast.stmt) -> Iterator[Annotation]:
    """Every annotation of a function's arguments and of its result."""
    assert isinstance(node, Function)
    for one in ast.walk(node.args):
        if isinstance(one, ast.arg) and one.annotation is not None:
            yield place, module, one.annotation
    if node.returns is not None:
        yield place, module, node.returns
