"""What type checkers read of Kafka's messages and metadata records, written from their declarations: *.pyi beside them.

A declaration makes its class when the module runs, which no type checker can see. `python -m
tests.architecture.message_stubs` writes the stubs anew; test_message_stubs.py says when that is due.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from fencepost.protocol import metadata_record_types
from fencepost.protocol.metadata_schema import FORM_OF, MetadataValue
from fencepost.protocol.primitives import ArrayOf, Bool, Float64, LengthPrefixed, Uuid
from fencepost.protocol.schema import NO_VERSION, Field, MessageValue, RequestValue, ResponseValue, StructType, Value
from tests.architecture.project_files import ROOT

MESSAGES = ROOT / "fencepost/protocol/messages"
RECORDS = Path(metadata_record_types.__file__)
HEAD = '"""Written by tests/architecture/message_stubs.py from the declarations in {module}."""'
BLOBS = {"string": "str", "bytes": "bytes", "records": "memoryview"}
GIVEN_RECORDS = "Buffer | Sequence[Sized] | None"
"""What a records field takes. What was decoded is always a view."""


def modules() -> list[str]:
    """The names of the message modules."""
    return sorted(path.stem for path in MESSAGES.glob("api*.py"))


def declarations(module: str) -> list[StructType]:
    """The structs and messages of a module, in the order of its source."""
    found = vars(import_module(f"fencepost.protocol.messages.{module}"))
    return [value for name, value in found.items() if isinstance(value, StructType) and value.__name__ == name]


def type_of(field: Field) -> str:
    """The annotation of a field: that of its decoded value."""
    kind = field.subcon
    may_be_null = field.nullable < NO_VERSION or field.default is None or is_records(field)
    return plain_type(kind) + (" | None" if may_be_null else "")


def is_records(field: Field) -> bool:
    """Whether the field holds record batches."""
    return isinstance(field.subcon, LengthPrefixed) and field.subcon.kind == "records"


def plain_type(kind: Any) -> str:
    """The annotation of a wire type."""
    if isinstance(kind, StructType):
        return kind.__name__
    if isinstance(kind, ArrayOf):
        return f"list[{plain_type(kind.subcon)}]"
    if isinstance(kind, LengthPrefixed):
        return BLOBS[kind.kind]
    return {Uuid: "bytes", Bool: "bool", Float64: "float"}.get(kind, "int")


def class_lines(struct: StructType) -> Iterator[str]:
    """One class."""
    name = struct.__name__
    if issubclass(struct, RequestValue):
        base = f"RequestValue[{name.removesuffix('Request')}Response]"
    else:
        base = next(one.__name__ for one in (ResponseValue, MessageValue, Value) if issubclass(struct, one))
    yield f"class {name}({base}):"
    arguments = []
    for field_name, field in struct.fields.items():
        annotation = type_of(field)
        if is_records(field):
            arguments.append(f"{field_name}: {GIVEN_RECORDS} = ...")
            yield f"    @property\n    def {field_name}(self) -> {annotation}: ..."
            yield f"    @{field_name}.setter\n    def {field_name}(self, value: {GIVEN_RECORDS}) -> None: ..."
        else:
            arguments.append(f"{field_name}: {annotation} = ...")
            yield f"    {field_name}: {annotation}"
    keywords = f", *, {', '.join(arguments)}" if arguments else ""
    yield f"    def __init__(self{keywords}) -> None: ..."


def stub(module: str) -> str:
    """The stub of one module, not yet formatted."""
    lines = [
        HEAD.format(module=f"{module}.py"),
        "from collections.abc import Sequence, Sized",
        "from fencepost.protocol.schema import Buffer, MessageValue, RequestValue, ResponseValue, Value",
    ]
    for struct in declarations(module):
        lines += class_lines(struct)
    return "\n".join(lines) + "\n"


def record_stub() -> str:
    """The stub of the metadata records, not yet formatted."""
    lines = [HEAD.format(module=RECORDS.name), "from typing import NamedTuple"]
    for made in vars(metadata_record_types).values():
        if isinstance(made, type) and issubclass(made, MetadataValue):
            lines.append(f"class {made.__name__}(NamedTuple):")
            lines += [record_field(made, name) for name in made.wire.fields] or ["    pass"]
    lines.append(f"MetadataRecord = {' | '.join(made.__name__ for made in FORM_OF)}")
    return "\n".join(lines) + "\n"


def record_field(made: Any, name: str) -> str:
    """One field of a metadata record, whose arrays are tuples."""
    annotation = re.sub(r"list\[(\w+)\]", r"tuple[\1, ...]", type_of(made.wire.fields[name]))
    return f"    {name}: {annotation}" + (" = ..." if name in made._field_defaults else "")


def write_stubs(messages: Path, records: Path) -> None:
    """Write the stubs of all modules into two directories, formatted, without what is imported for nothing."""
    texts = {messages / f"{module}.pyi": stub(module) for module in modules()}
    texts[records / f"{RECORDS.stem}.pyi"] = record_stub()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    for command in (["check", "--fix", "-q", "--select", "F401,I001"], ["format", "-q"]):
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml"), *map(str, texts)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


if __name__ == "__main__":
    write_stubs(MESSAGES, RECORDS.parent)
