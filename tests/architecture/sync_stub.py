"""What type checkers read of the blocking client, written from the async one: fencepost/sync/__init__.pyi.

The blocking classes mirror the async ones when they are made, which no type checker can see. `python -m
tests.architecture.sync_stub` writes the stub anew; test_sync_stub.py says when that is due.
"""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from fencepost.sync.mirror import _MIRRORS
from tests.architecture.project_files import ROOT
from tests.architecture.public_names import BETWEEN_PARTS

STUB = ROOT / "fencepost/sync/__init__.pyi"
HEAD = '"""Written by tests/architecture/sync_stub.py: the async client\'s signatures, blocking."""\n'
RENAMED = {
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Iterator",
    "AsyncContextManager": "ContextManager",
    "ConsumerOptions": "BlockingConsumerOptions",
}
EXTRA = {
    "Client": "    def __init__(self, bootstrap_servers: str | Iterable[str], *, timeout: Duration | None = ...,"
    " **options: Unpack[ClientOptions]) -> None: ...\n    @classmethod\n"
    "    def from_config(cls, config: Mapping[str, Any], *, timeout: Duration | None = ...) -> Self: ...\n",
    "Message": "    topic: str\n    partition: int\n    offset: int\n    timestamp_ms: int\n    key: K | None\n"
    "    value: V | None\n    headers: tuple[tuple[str, bytes | None], ...]\n    delivery_count: int\n",
    "Queue": "    topics: tuple[str, ...]\n    group_id: str\n"
    "    def run(self, handler: Callable[[Message[K, V]], object], *, workers: int = ...) -> None: ...\n",
}
WRITTEN_HERE = {"Client": {"from_config"}, "Queue": {"run"}}
TYPE_VARS = ("K", "V")
TOLD = "BlockingRebalanceCallback | None"
"""What a blocking callback is: a plain function, where the async one is awaited."""
FIXED = {
    "collections.abc": {"Callable", "Iterable", "Iterator", "Mapping"},
    "contextlib": {"AbstractContextManager"},
    "types": {"TracebackType"},
    "typing": {"Any", "Generic", "Self", "Unpack"},
    "fencepost.client.keywords": {"BlockingConsumerOptions", "BlockingRebalanceCallback", "ClientOptions", "Duration"},
    "fencepost.client.key_value": {"K", "V"},
    "fencepost.protocol.topics": {"TopicPartition"},
    "fencepost.sync.loop": {"TimedOutError as TimedOutError", "fail_after as fail_after"},
}


@cache
def tree_of(module: str) -> ast.Module:
    """The source of a module."""
    return ast.parse(Path(inspect.getfile(import_module(module))).read_text(encoding="utf-8"))


@cache
def origins_of(module: str) -> dict[str, str]:
    """The names that a module's annotations may use -> the module to import them from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module
        elif isinstance(node, ast.Assign):
            found |= {target.id: module for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = module
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: f"import {alias.name}" for alias in node.names}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: f"import {alias.name}" for alias in node.names}
    return found


def home_of(module: str, name: str) -> str | None:
    """Where a name that a module uses is defined in the end; None for what is built in."""
    origin = origins_of(module).get(name)
    if origin is None or origin == module or not origin.startswith("fencepost."):
        return origin
    return home_of(origin, name) or origin


class Writer(ast.NodeTransformer):
    """Turns annotations of async classes into those of blocking ones, and notes what they need imported."""

    def __init__(self, blocking: dict[str, str]) -> None:
        self.blocking = blocking
        self.imports: dict[str, set[str]] = {module: set(names) for module, names in FIXED.items()}
        self.module = ""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Annotations in quotes are annotations."""
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A class of the client becomes its mirror; whatever is not built in has to come from somewhere."""
        name = RENAMED.get(node.id, node.id)
        if name in self.blocking:
            return ast.Name(self.blocking[name])
        origin = home_of(self.module, name)
        if name == node.id and name not in TYPE_VARS and origin is not None:
            self.imports.setdefault(origin, set()).add(name)
        return ast.Name(name)

    def annotation(self, node: ast.expr | None) -> ast.expr | None:
        """One annotation, rewritten."""
        if node is None:
            return None
        found = self.visit(ast.parse(ast.unparse(node), mode="eval").body)
        assert isinstance(found, ast.expr)
        return found

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """One method, as it stands in the stub."""
        arguments = node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            argument.annotation = self.annotation(argument.annotation)
            if argument.arg.startswith("on_"):
                argument.annotation = ast.parse(TOLD, mode="eval").body
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                rest.annotation = self.annotation(rest.annotation)
        dots = ast.Constant(...)
        arguments.defaults = [dots for _ in arguments.defaults]
        arguments.kw_defaults = [None if one is None else dots for one in arguments.kw_defaults]
        returns = self.annotation(node.returns)
        told = "None" if returns is None else ast.unparse(returns)
        decorators = [ast.unparse(one) for one in node.decorator_list]
        lines = [f"    @{one}" for one in decorators]
        return "\n".join([*lines, f"    def {node.name}({ast.unparse(arguments)}) -> {told}: ..."])


def class_body(module: str, name: str) -> list[ast.stmt]:
    """What stands in a class, to be changed freely."""
    [found] = ast.parse(class_source(module, name)).body
    assert isinstance(found, ast.ClassDef)
    return found.body


@cache
def class_source(module: str, name: str) -> str:
    """A class without comments."""
    [found] = [node for node in tree_of(module).body if isinstance(node, ast.ClassDef) and node.name == name]
    return ast.unparse(found)


def delegated_by(body: list[ast.stmt]) -> list[str]:
    """The names of methods that are a part's: `name = delegate("_part", Part.name)`."""
    return [
        node.targets[0].id
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "delegate"
    ]


def definitions_of(kind: type) -> Iterator[tuple[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]]:
    """(module, all definitions of one name) of a class's public methods and properties, the nearest in its MRO."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("fencepost"):
            continue
        body = class_body(owner.__module__, owner.__name__)
        homes: dict[str, str] = {}
        here: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in seen:
                here.setdefault(node.name, []).append(node)
        for name in delegated_by(body):
            method = inspect.unwrap(vars(owner)[name])
            part, _, _ = method.__qualname__.rpartition(".")
            here[name] = [node for node in class_body(method.__module__, part) if getattr(node, "name", None) == name]
            homes[name] = method.__module__
        for name, nodes in here.items():
            overloads = [one for one in nodes if "overload" in map(ast.unparse, one.decorator_list)]
            yield homes.get(name, owner.__module__), overloads or nodes[:1]
        seen |= set(here)


def parameters_of(kind: type) -> list[str]:
    """The type variables of a class, as its bases name them."""
    for node in tree_of(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            named = {one.id for base in node.bases for one in ast.walk(base) if isinstance(one, ast.Name)}
            return [name for name in TYPE_VARS if name in named]
    return []


def class_text(writer: Writer, name: str, kind: type) -> str:
    """One blocking class."""
    generic = parameters_of(kind)
    lines = []
    enters = "Self"
    iterates = follows = None
    for module, nodes in definitions_of(kind):
        writer.module = module
        first = nodes[0].name
        if first == "__aenter__" and nodes[0].returns is not None:
            enters = ast.unparse(writer.annotation(nodes[0].returns) or ast.Constant(None))
        if first == "__aiter__" and nodes[0].returns is not None:
            iterates = ast.unparse(writer.annotation(nodes[0].returns) or ast.Constant(None))
        left_out = WRITTEN_HERE.get(name, set()) | BETWEEN_PARTS.get(kind.__name__, set())
        if first == "__anext__" and nodes[0].returns is not None:
            follows = ast.unparse(writer.annotation(nodes[0].returns) or ast.Constant(None))
        if not first.startswith("_") and first not in left_out:
            lines += [writer.function(node) for node in nodes]
    bases = f"(Generic[{', '.join(generic)}])" if generic else ""
    own = enters.partition("[")[0] == name
    body = EXTRA.get(name, "") + "\n".join(lines)
    if hasattr(kind, "__aenter__"):
        body += f"\n    def __enter__(self) -> {'Self' if own else enters}: ..."
        body += (
            "\n    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,"
            " trace: TracebackType | None) -> None: ..."
        )
    if iterates is not None:
        body += f"\n    def __iter__(self) -> {iterates}: ..."
    if follows is not None:
        body += f"\n    def __iter__(self) -> Self: ...\n    def __next__(self) -> {follows}: ..."
    return f"class {name}{bases}:\n{body}\n"


def stub() -> str:
    """The whole stub, formatted."""
    mirrors = {kind: mirror for kind, mirror in _MIRRORS.items() if mirror.__module__.startswith("fencepost.sync")}
    writer = Writer({kind.__name__: mirror.__name__ for kind, mirror in mirrors.items()})
    classes = [class_text(writer, mirror.__name__, kind) for kind, mirror in mirrors.items()]
    imports = []
    for module, names in sorted(writer.imports.items()):
        if module.startswith("import "):
            imports += [f"{module} as {name}" for name in names]
        else:
            imports.append(f"from {module} import {', '.join(sorted(names))}")
    return formatted("\n".join([HEAD, *imports, "", *classes]))


def formatted(text: str) -> str:
    """As ruff writes it, without what is imported for nothing."""
    for command in (["check", "--fix", "-q", "--select", "F401,I001"], ["format", "-q"]):
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        text = run.stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
