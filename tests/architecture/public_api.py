"""The whole public API in one file, docs/public-api.txt: each class, function, method, property and field, with types.

`python -m tests.architecture.public_api` (a part of `make stubs`) writes it anew; test_public_api.py says when that is
due. A change of the API so shows in a diff, where a reviewer sees it.
"""

import ast
import enum
import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import get_origin, is_typeddict

from tests.architecture.project_files import ROOT
from tests.architecture.public_names import BETWEEN_PARTS, PACKAGES, public_classes
from tests.architecture.sync_stub import STUB, class_body, definitions_of, home_of, tree_of

LIST = ROOT / "docs/public-api.txt"
HEAD = """\
# The public API of fencepost, written by `make stubs` from the code. Nothing that is absent here is for programs.
"""
SPOKEN = {"__init__", "__aenter__", "__aiter__", "__anext__", "__enter__", "__iter__", "__next__", "__len__"}
"""Special methods that belong to the API."""
HANDED_OUT = {
    "Admin", "Consumer", "ConsumerBatch", "Delivery", "Fault", "LogView", "Message", "Producer", "ProducerBatch",
    "Queue", "Transaction", "TransactionBlock", "TransactionalProducer", "TwoPhaseProducer", "WholeTransaction",
    "WholeTransactions",
}  # fmt: skip
"""Classes whose objects come from a method: programs do not call their constructors."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Unquoted(ast.NodeTransformer):
    """Annotations in quotes, without the quotes."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Only annotations come here, so each text is one."""
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Literal["a"] holds texts."""
        return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)


def type_text(node: ast.expr | None) -> str:
    """An annotation, on one line."""
    return "None" if node is None else ast.unparse(Unquoted().visit(ast.parse(ast.unparse(node), mode="eval").body))


def function_line(node: Function) -> str:
    """A function or method with its signature, or a property with its type."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    if "property" in decorators or "cached_property" in decorators:
        return f"property {node.name}: {type_text(node.returns)}"
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = ast.parse(type_text(argument.annotation), mode="eval").body
    marks = [f"{one} " for one in decorators if one in {"classmethod", "staticmethod", "overload"}]
    marks += ["async "] * isinstance(node, ast.AsyncFunctionDef)
    return f"{''.join(marks)}def {node.name}({ast.unparse(node.args)}) -> {type_text(node.returns)}"


def is_public(name: str) -> bool:
    """Whether programs may use a member of that name."""
    return name in SPOKEN or not name.startswith("_")


def own_bases(kind: type) -> list[type]:
    """The class and those of its bases that the list does not name: their members count as the class's own."""
    public = set(public_classes().values()) - {kind}
    ours = [owner for owner in kind.__mro__ if owner.__module__.partition(".")[0] == "fencepost"]
    ours += [base for base in bases_of(kind) if is_typeddict(base) and base not in public]
    return [owner for owner in ours if not any(issubclass(base, owner) for base in set(ours) & public)]


def bases_of(kind: type) -> list[type]:
    """The bases as the source has them: Python forgets those of a TypedDict."""
    if not is_typeddict(kind):
        return list(kind.__bases__)
    [node] = [one for one in tree_of(kind.__module__).body if getattr(one, "name", None) == kind.__name__]
    assert isinstance(node, ast.ClassDef)
    module = import_module(kind.__module__)
    return [getattr(module, ast.unparse(base)) for base in node.bases]


def fields_of(kind: type) -> Iterator[tuple[str, str, ast.expr | None, ast.expr | None]]:
    """(module, name, type, default) of a tuple's or data class's fields and of what a constructor sets."""
    found: list[tuple[str, ast.expr | None, ast.expr | None]]
    hidden = BETWEEN_PARTS.get(kind.__name__, set())
    for owner in own_bases(kind):
        for node in class_body(owner.__module__, owner.__name__):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found = [(node.target.id, node.annotation, node.value)]
            elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found = [(name, annotation, None) for name, annotation in attributes_of(node)]
            else:
                continue
            yield from ((owner.__module__, *one) for one in found if is_public(one[0]) and one[0] not in hidden)


def attributes_of(constructor: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that a constructor sets, with their types where it says them."""
    types = {one.arg: one.annotation for one in [*constructor.args.args, *constructor.args.kwonlyargs]}
    for node in ast.walk(constructor):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Attribute):
            continue
        if ast.unparse(target.value) == "self":
            found = node.annotation if isinstance(node, ast.AnnAssign) else None
            if isinstance(node.value, ast.Name):
                found = found or types.get(node.value.id)
            yield target.attr, found


def methods_of(kind: type) -> Iterator[tuple[str, Function]]:
    """(module, definition) of the methods and properties of a class and of its bases."""
    hidden = BETWEEN_PARTS.get(kind.__name__, set()) | ({"__init__"} if kind.__name__ in HANDED_OUT else set())
    own = {name for owner in own_bases(kind) for name in vars(owner)}
    for module, nodes in definitions_of(kind):
        if is_public(nodes[0].name) and nodes[0].name in own - hidden:
            yield from ((module, node) for node in nodes)


def field_lines(kind: type) -> Iterator[str]:
    """The fields of a class, or the values of an enum."""
    if issubclass(kind, enum.Enum):
        yield from (f"{name} = {member.value!r}" for name, member in kind.__members__.items())
        return
    lines: dict[str, str] = {}
    for _, name, annotation, value in fields_of(kind):
        default = "" if value is None else f" = {ast.unparse(value)}"
        line = name if annotation is None else f"{name}: {type_text(annotation)}{default}"
        lines.setdefault(name, line)  # a class that declares a field may set it in its constructor as well
    yield from lines.values()


def class_lines(name: str, kind: type) -> list[str]:
    """A class with all that programs may use of it."""
    bases = ", ".join(base.__name__ for base in bases_of(kind) if base not in (object, tuple) and is_shown(base))
    bases = bases or "TypedDict" * is_typeddict(kind)
    methods = sorted(function_line(node) for _, node in methods_of(kind))
    return [f"class {name}({bases})" if bases else f"class {name}", *indented([*field_lines(kind), *methods])]


def is_shown(base: type) -> bool:
    """Whether a base class is named: one of ours that is not public is not, its members count as the class's own."""
    return base.__module__.partition(".")[0] != "fencepost" or base in public_classes().values()


def alias_value(package: str, name: str) -> tuple[str, ast.expr]:
    """Where a public alias of a type is defined, and as what."""
    home = home_of(package, name) or package
    [value] = [
        node.value
        for node in tree_of(home).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    return home, value


def indented(lines: Iterable[str]) -> list[str]:
    """Lines of a class."""
    return [f"    {line}" for line in lines]


def sync_lines() -> dict[str, list[str]]:
    """The blocking classes, as the generated stub has them."""
    found = {}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and is_public(one.name)]
            found[node.name] = [f"class fencepost.sync.{node.name}", *indented(sorted(map(function_line, methods)))]
    return found


@cache
def public_api() -> str:
    """The list as a whole."""
    lines: list[str] = []
    known: dict[int, str] = {}
    for package in (*PACKAGES, "fencepost.testing", "fencepost.testing.containers"):
        module = import_module(package)
        lines += ["", f"# {package}"]
        in_stub = sync_lines() if package == "fencepost.sync" else {}
        for name in sorted(module.__all__):
            thing, full = getattr(module, name), f"{package}.{name}"
            if name in in_stub:
                lines += in_stub[name]
            elif inspect.isclass(thing):
                lines += class_lines(full, thing) if id(thing) not in known else [f"{full} = {known[id(thing)]}"]
                known.setdefault(id(thing), full)
            elif inspect.isfunction(thing):
                [node] = [n for n in tree_of(thing.__module__).body if getattr(n, "name", None) == thing.__name__]
                assert isinstance(node, Function)
                lines.append(function_line(node).replace(f"def {name}(", f"def {full}("))
            elif get_origin(thing) is not None:
                lines.append(f"{full} = {type_text(alias_value(package, name)[1])}")
            else:
                lines.append(f"{full}: {type(thing).__name__}")
    return "\n".join([HEAD.strip(), *lines]) + "\n"


if __name__ == "__main__":
    LIST.write_text(public_api(), encoding="utf-8")
