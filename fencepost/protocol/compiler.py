"""Generates an encode or decode function from the construct tree of one (message, version), on first use."""

import struct
from collections.abc import Callable
from typing import Any

from construct import Bytes, Flag, FormatField

from fencepost.protocol.codec_words import TAGS_MAX, get_tags, merged_tags
from fencepost.protocol.primitives import (
    ArrayOf,
    LengthPrefixed,
    NullableStruct,
    TaggedFields,
    VersionedStruct,
    minimum_size,
)
from fencepost.protocol.varints import Malformed, get_varint, put_varint

DecodeFunction = Callable[[memoryview, int], tuple[Any, int]]
EncodeFunction = Callable[[Any], list[Any]]


def fixed_format(subcon: Any) -> tuple[str, int] | None:
    """The struct format and size of a type of fixed width; None for other types."""
    if isinstance(subcon, FormatField):
        return subcon.fmtstr[1:], subcon.length
    if subcon is Flag:
        return "?", 1
    if isinstance(subcon, Bytes):
        return f"{subcon.length}s", subcon.length
    return None


class Source:
    """The lines of one generated function, and the names in them."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.scope = scope
        self._made = 0

    def name(self, prefix: str = "v") -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def constant(self, value: Any, prefix: str) -> str:
        """A name for `value` in the generated function's globals."""
        name = f"{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def packer(self, fmt: str) -> str:
        """The name of a big-endian struct for `fmt`; its bound functions are `U<name>` and `P<name>`."""
        name = "S" + fmt.replace("?", "F")
        if "U" + name not in self.scope:
            made = struct.Struct(">" + fmt)
            self.scope["U" + name], self.scope["P" + name] = made.unpack_from, made.pack
        return name

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def count(self, number: str, depth: int) -> None:
        """Called where the number of elements is known; `stepwise.py` adds lines here."""

    def element(self, depth: int) -> None:
        """Called at the start of each element's lines; `stepwise.py` adds lines here."""


class DecoderSource(Source):
    """Writes a decoder: in it `b` is the frame, `o` the offset, `end` the frame's length."""

    def value(self, subcon: Any, depth: int) -> str:
        """Add lines that read one value; return the variable that holds it."""
        fixed = fixed_format(subcon)
        if fixed:
            name = self.name()
            self.put(depth, f"({name},) = U{self.packer(fixed[0])}(b, o); o += {fixed[1]}")
            return name
        if isinstance(subcon, LengthPrefixed):
            return self.blob(subcon, depth)
        if isinstance(subcon, ArrayOf):
            return self.array(subcon, depth)
        if isinstance(subcon, NullableStruct):
            return self.nullable(subcon, depth)
        assert isinstance(subcon, VersionedStruct), subcon
        return self.struct(subcon, depth)

    def length(self, compact: bool, fmt: str, nullable: bool, depth: int) -> str:
        """Add lines that read a length or count and check its sign."""
        name = self.name("n")
        if compact:
            self.put(depth, f"{name} = b[o] - 1; o += 1")
            self.put(depth, f"if {name} > 126: {name}, o = get_varint(b, o - 1); {name} -= 1")
        else:
            self.put(depth, f"({name},) = U{self.packer(fmt)}(b, o); o += {struct.calcsize('>' + fmt)}")
        if not (compact and nullable):  # a varint is never below 0, so a compact length never below -1
            self.put(depth, f"if {name} < {-1 if nullable else 0}: raise Malformed")
        return name

    def blob(self, subcon: LengthPrefixed, depth: int) -> str:
        """A string, bytes or records field."""
        fmt = "h" if subcon.kind == "string" else "i"
        n, name = self.length(subcon.compact, fmt, subcon.nullable, depth), self.name()
        inner = depth
        if subcon.nullable:
            self.put(depth, f"if {n} < 0: {name} = None")
            self.put(depth, "else:")
            inner += 1
        read = {"string": "str(b[o:e], 'utf-8')", "bytes": "bytes(b[o:e])", "records": "b[o:e]"}[subcon.kind]
        self.put(inner, f"e = o + {n}; {name} = {read}; o = e")
        return name

    def array(self, subcon: ArrayOf, depth: int) -> str:
        """An array; its count times the least size of an element must fit into the rest of the frame."""
        n, name = self.length(subcon.compact, "i", subcon.nullable, depth), self.name("a")
        inner = depth
        if subcon.nullable:
            self.put(depth, f"if {n} < 0: {name} = None")
            self.put(depth, "else:")
            inner += 1
        self.put(inner, f"if {n} * {minimum_size(subcon.subcon)} > end - o: raise Malformed")
        self.count(n, inner)
        fixed = fixed_format(subcon.subcon)
        if fixed and len(fixed[0]) == 1:
            self.put(inner, f"{name} = list(unpack_from('>%d{fixed[0]}' % {n}, b, o)); o += {n} * {fixed[1]}")
            return name
        self.put(inner, f"{name} = []")
        self.put(inner, f"for _ in range({n}):")
        self.element(inner + 1)
        self.put(inner + 1, f"{name}.append({self.value(subcon.subcon, inner + 1)})")
        return name

    def nullable(self, subcon: NullableStruct, depth: int) -> str:
        """A struct behind its null byte."""
        name = self.name()
        self.put(depth, f"{name} = None; o += 1")
        self.put(depth, "if b[o - 1] < 128:")
        self.put(depth + 1, f"{name} = {self.struct(subcon.subcon, depth + 1)}")
        return name

    def struct(self, tree: VersionedStruct, depth: int) -> str:
        """A struct: runs of fixed fields in one unpack, the others one by one, absent ones with their default."""
        made = self.name("x")
        self.put(depth, f"{made} = new({self.constant(tree.maker, 'C')})")
        run: list[tuple[str, str, int]] = []

        def flush() -> None:
            if run:
                targets = ", ".join(f"{made}.{name}" for name, _, _ in run)
                packer = self.packer("".join(fmt for _, fmt, _ in run))
                self.put(depth, f"({targets},) = U{packer}(b, o); o += {sum(size for _, _, size in run)}")
                run.clear()

        for name, subcon in tree.fields:
            fixed = fixed_format(subcon)
            if fixed:
                run.append((name, *fixed))
                continue
            flush()
            self.put(depth, f"{made}.{name} = {self.value(subcon, depth)}")
        flush()
        self.defaults(tree, made, depth)
        if tree.tagged is not None:
            self.tags(tree.tagged, made, depth)
        return made

    def defaults(self, tree: VersionedStruct, made: str, depth: int) -> None:
        """Set fields that this version does not have to Kafka's default."""
        present = {name for name, _ in tree.fields}
        self.put(depth, f"{made}.unknown_tags = None")
        for name, field in tree.maker.fields.items():
            if name not in present:
                value = field.default
                default = f"{self.constant(value, 'D')}()" if callable(value) else repr(value)
                self.put(depth, f"{made}.{name} = {default}")

    def tags(self, tagged: TaggedFields, made: str, depth: int) -> None:
        """The tagged fields; nearly always there are none, which costs one comparison."""
        n, tag, size, last, stop = (self.name(p) for p in ("n", "t", "s", "l", "e"))
        if not tagged.known:
            self.put(depth, "if b[o]:")
            self.put(depth + 1, f"{made}.unknown_tags, o = get_tags(b, o)")
            self.count(f"len({made}.unknown_tags or ())", depth + 1)
            self.put(depth, "else: o += 1")
            return
        self.put(depth, f"{n} = b[o]; o += 1")
        self.put(depth, f"if {n}:")
        depth += 1
        self.put(depth, f"if {n} > 127: {n}, o = get_varint(b, o - 1)")
        self.put(depth, f"if {n} > {TAGS_MAX}: raise Malformed")
        self.count(n, depth)
        self.put(depth, f"{last} = -1")
        self.put(depth, f"for _ in range({n}):")
        depth += 1
        self.put(depth, f"{tag}, o = get_varint(b, o); {size}, o = get_varint(b, o); {stop} = o + {size}")
        self.put(depth, f"if {stop} > end or {tag} <= {last}: raise Malformed")
        self.put(depth, f"{last} = {tag}")
        for field in tagged.known.values():
            self.put(depth, f"if {tag} == {field.tag}:")
            self.put(depth + 1, f"{made}.{field.name} = {self.value(field.subcon, depth + 1)}")
            self.put(depth + 1, f"if o != {stop}: raise Malformed")
            self.put(depth + 1, "continue")
        self.put(depth, f"if {made}.unknown_tags is None: {made}.unknown_tags = {{}}")
        self.put(depth, f"{made}.unknown_tags[{tag}] = bytes(b[o:{stop}]); o = {stop}")


class EncoderSource(Source):
    """Writes an encoder: in it `out` has the bytes since the last records field."""

    def value(self, subcon: Any, expression: str, depth: int) -> None:
        """Add lines that write the value of `expression`."""
        fixed = fixed_format(subcon)
        if fixed:
            self.put(depth, f"out += P{self.packer(fixed[0])}({expression})")
        elif isinstance(subcon, LengthPrefixed):
            self.blob(subcon, expression, depth)
        elif isinstance(subcon, ArrayOf):
            self.array(subcon, expression, depth)
        elif isinstance(subcon, NullableStruct):
            name = self.name()
            self.put(depth, f"{name} = {expression}")
            self.put(depth, f"if {name} is None: out += b'\\xff'")
            self.put(depth, "else:")
            self.put(depth + 1, "out += b'\\x01'")
            self.struct(subcon.subcon, name, depth + 1)
        else:
            assert isinstance(subcon, VersionedStruct), subcon
            self.struct(subcon, expression, depth)

    def null(self, name: str, subcon: Any, null: bytes, depth: int) -> int:
        """Add the branch for None, if the field may be null; return the depth of the other branch."""
        if not subcon.nullable:
            return depth
        self.put(depth, f"if {name} is None: out += {null!r}")
        self.put(depth, "else:")
        return depth + 1

    def length(self, number: str, compact: bool, fmt: str, depth: int) -> None:
        """Add lines that write a length or count, which the variable `number` holds."""
        if compact:
            self.put(depth, f"if {number} < 127: out.append({number} + 1)")
            self.put(depth, f"else: out += put_varint({number} + 1)")
        else:
            self.put(depth, f"out += P{self.packer(fmt)}({number})")

    def blob(self, subcon: LengthPrefixed, expression: str, depth: int) -> None:
        """A string, bytes or records field."""
        text, records = subcon.kind == "string", subcon.kind == "records"
        name, number, fmt = self.name(), self.name("n"), "h" if text else "i"
        self.put(depth, f"{name} = {expression}")
        depth = self.null(name, subcon, b"\0" if subcon.compact else b"\xff" * struct.calcsize(fmt), depth)
        if records:
            self.put(depth, f"{name} = {name} if isinstance({name}, list) else [{name}]")
        if text:
            self.put(depth, f"{name} = {name}.encode()")
        self.put(depth, f"{number} = " + (f"sum(map(len, {name}))" if records else f"len({name})"))
        self.length(number, subcon.compact, fmt, depth)
        if records:
            self.put(depth, f"parts.append(out); parts += {name}; out = bytearray()")
        else:
            self.put(depth, f"out += {name}")

    def array(self, subcon: ArrayOf, expression: str, depth: int) -> None:
        """An array; one of plain numbers is packed in one call."""
        name, number = self.name("a"), self.name("n")
        self.put(depth, f"{name} = {expression}")
        depth = self.null(name, subcon, b"\0" if subcon.compact else b"\xff" * 4, depth)
        self.put(depth, f"{number} = len({name})")
        self.length(number, subcon.compact, "i", depth)
        fixed = fixed_format(subcon.subcon)
        if fixed and len(fixed[0]) == 1:
            self.put(depth, f"out += pack('>%d{fixed[0]}' % {number}, *{name})")
            return
        element = self.name("x")
        self.put(depth, f"for {element} in {name}:")
        self.element(depth + 1)
        self.value(subcon.subcon, element, depth + 1)

    def struct(self, tree: VersionedStruct, expression: str, depth: int) -> None:
        """A struct: runs of fixed fields in one pack, then the others, then the tagged fields."""
        run: list[tuple[str, str]] = []

        def flush() -> None:
            if run:
                packer = self.packer("".join(fmt for _, fmt in run))
                self.put(depth, f"out += P{packer}({', '.join(f'{expression}.{name}' for name, _ in run)})")
                run.clear()

        for name, subcon in tree.fields:
            fixed = fixed_format(subcon)
            if fixed:
                run.append((name, fixed[0]))
                continue
            flush()
            self.value(subcon, f"{expression}.{name}", depth)
        flush()
        if tree.tagged is not None:
            self.tags(tree.tagged, expression, depth)

    def tags(self, tagged: TaggedFields, expression: str, depth: int) -> None:
        """The known tagged fields that differ from their default, in the order of tags, and the unknown ones."""
        count, known = (self.name("k"), self.name("t")) if tagged.known else ("0", "b''")
        if tagged.known:
            self.put(depth, f"{count} = 0; {known} = bytearray()")
        for number, field in sorted(tagged.known.items()):
            value, saved, fixed, tag = self.name(), self.name("w"), fixed_format(field.subcon), put_varint(number)
            self.put(depth, f"{value} = {expression}.{field.name}")
            self.put(depth, f"if {self.differs(value, field.default)}:")
            if fixed:
                head = tag + put_varint(fixed[1])
                self.put(depth + 1, f"{count} += 1; {known} += {head!r}; {known} += P{self.packer(fixed[0])}({value})")
                continue
            self.put(depth + 1, f"{saved} = out; out = bytearray()")
            self.value(field.subcon, value, depth + 1)
            self.put(depth + 1, f"{count} += 1; {known} += {tag!r}; {known} += put_varint(len(out)); {known} += out")
            self.put(depth + 1, f"out = {saved}")
        section = f"out.append({count}); out += {known}" if tagged.known else "out.append(0)"
        self.put(depth, f"if {expression}.unknown_tags is None: {section}")
        self.put(depth, f"else: out += merged_tags({count}, {known}, {expression}.unknown_tags)")

    def differs(self, value: str, default: Any) -> str:
        """Whether a tagged field is to be written, as an expression."""
        if default is None:
            return f"{value} is not None"
        return f"len({value})" if default is list else f"{value} != {default!r}"


def decoder_scope() -> dict[str, Any]:
    """The globals of a generated decoder."""
    return {
        "Malformed": Malformed,
        "get_tags": get_tags,
        "get_varint": get_varint,
        "new": object.__new__,
        "unpack_from": struct.unpack_from,
    }


def encoder_scope() -> dict[str, Any]:
    return {"pack": struct.pack, "merged_tags": merged_tags, "put_varint": put_varint}


def generate_decoder(tree: VersionedStruct, name: str) -> DecodeFunction:
    """Generate and compile the decoder of one tree: (frame, offset) -> (value, its end)."""
    writer = DecoderSource(decoder_scope())
    writer.put(0, "def decode(b, o):")
    writer.put(1, "end = len(b)")
    made = writer.struct(tree, 1)
    writer.put(1, "if o > end: raise Malformed")  # a truncated field is shorter than its length
    writer.put(1, f"return {made}, o")
    decode: DecodeFunction = compiled(writer, name, "decode")
    return decode


def generate_encoder(tree: VersionedStruct, name: str) -> EncodeFunction:
    """Generate and compile the encoder of one tree: value -> list of buffers.

    The buffers of records fields are the given ones; all others are new and belong to the caller.
    """
    writer = EncoderSource(encoder_scope())
    writer.put(0, "def encode(root):")
    writer.put(1, "parts = []; out = bytearray()")
    writer.struct(tree, "root", 1)
    writer.put(1, "parts.append(out)")
    writer.put(1, "return parts")
    encode: EncodeFunction = compiled(writer, name, "encode")
    return encode


def compiled(writer: Source, name: str, function: str) -> Any:
    """Run the lines of `writer` and return the function that they define; this is most of the cost of a codec."""
    exec(compile("\n".join(writer.lines), f"<generated {function} {name}>", "exec"), writer.scope)
    return writer.scope[function]
