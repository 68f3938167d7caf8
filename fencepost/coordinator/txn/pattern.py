"""Regular expressions for names, matched in linear time: a client's pattern must not be able to hold up the broker."""

from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias, assert_never

MAX_PATTERN_CHARS = 1_000
MAX_NESTING = 50
MAX_REPEAT = 1_000
MAX_STEPS = 1_000
MAX_CACHED_MOVES = 1_000

Range: TypeAlias = tuple[int, int]

DIGITS: tuple[Range, ...] = ((0x30, 0x39),)
SPACES: tuple[Range, ...] = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
WORD: tuple[Range, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
CLASSES = {"d": DIGITS, "s": SPACES, "w": WORD}
CONTROLS = {"a": 7, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class BadPattern(ValueError):
    """A pattern that is wrong, too large, or asks for more than linear time (back references, look-around)."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character in (or, `negated`, outside) the code point ranges."""

    ranges: tuple[Range, ...]
    negated: bool = False

    def has(self, code_point: int) -> bool:
        """Whether the character is meant."""
        return any(low <= code_point <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class Edge:
    """The start of the name (`start`) or its end."""

    start: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the parts."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part from `low` to `high` times; `high` None: any number."""

    part: "Node"
    low: int
    high: int | None


Node: TypeAlias = Chars | Edge | Sequence | OneOf | Repeat
ANY_CHARACTER = Chars(((10, 10),), negated=True)


class Parser:
    """Reads the core of RE2: literals, `.`, classes, `(..)`, `|`, `* + ? {n,m}`, `^ $`, `\\d \\w \\s`, `\\Q..\\E`."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_CHARS:
            raise BadPattern(f"the pattern has {len(text)} characters, more than {MAX_PATTERN_CHARS}")
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        """The whole pattern as a tree. Raises BadPattern."""
        node = self._alternatives()
        if self._at < len(self._text):
            self._fail("a ')' closes nothing")
        return node

    def _fail(self, why: str) -> NoReturn:
        raise BadPattern(f"{why}, at character {self._at} of {self._text!r}")

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        if self._at >= len(self._text):
            self._fail("the pattern ends too soon")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def _alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else OneOf(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next() not in ("", "|", ")"):
            if self._accept("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at += len(quoted) + (0 if end < 0 else 2)
                parts += [Chars(((ord(letter), ord(letter)),)) for letter in quoted]
                continue
            parts.append(self._quantified(self._atom()))
        return Sequence(tuple(parts))

    def _quantified(self, part: Node) -> Node:
        bounds: tuple[int, int | None] | None = None
        if self._accept("*"):
            bounds = (0, None)
        elif self._accept("+"):
            bounds = (1, None)
        elif self._accept("?"):
            bounds = (0, 1)
        elif self._next() == "{":
            bounds = self._counts()
        if bounds is None:
            return part
        self._accept("?")  # as few as possible: the same names match as a whole
        if self._next() in ("*", "+", "?", "{") and self._next():
            self._fail("a repetition of a repetition")
        return Repeat(part, *bounds)

    def _counts(self) -> tuple[int, int | None]:
        self._take()
        low = self._number()
        high: int | None = low
        if self._accept(","):
            high = None if self._next() == "}" else self._number()
        if not self._accept("}"):
            self._fail("a count without its '}'")
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            self._fail(f"counts must rise, up to {MAX_REPEAT}")
        return low, high

    def _number(self) -> int:
        digits = ""
        while self._next().isascii() and self._next().isdigit() and len(digits) < 6:
            digits += self._take()
        if not digits:
            self._fail("a count without a number")
        return int(digits)

    def _atom(self) -> Node:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return ANY_CHARACTER
            case "^":
                return Edge(start=True)
            case "$":
                return Edge(start=False)
            case "\\":
                return self._escape()
        if character in ("*", "+", "?"):
            self._fail(f"{character!r} repeats nothing")
        return Chars(((ord(character), ord(character)),))

    def _group(self) -> Node:
        if self._accept("?") and not self._accept(":"):
            self._fail("only (?:...) is known of the (?...) forms")
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._fail(f"more than {MAX_NESTING} groups in each other")
        node = self._alternatives()
        if not self._accept(")"):
            self._fail("a group without its ')'")
        self._depth -= 1
        return node

    def _escape(self) -> Node:
        if self._accept("A"):
            return Edge(start=True)
        if self._accept("z"):
            return Edge(start=False)
        return self._escaped_character()

    def _escaped_character(self) -> Chars:
        character = self._take()
        if character.lower() in CLASSES:
            return Chars(CLASSES[character.lower()], negated=character.isupper())
        if character in CONTROLS:
            return Chars(((CONTROLS[character], CONTROLS[character]),))
        if character == "x":
            code_point = self._hexadecimal()
            return Chars(((code_point, code_point),))
        if character.isascii() and character.isalnum():
            self._fail(f"'\\{character}' is not known")
        return Chars(((ord(character), ord(character)),))

    def _hexadecimal(self) -> int:
        if self._accept("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = max(end + 1, self._at)
        else:
            digits = self._take() + self._take()
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits) or int(digits, 16) > 0x10FFFF:
            self._fail("'\\x' without a code point")
        return int(digits, 16)

    def _class(self) -> Node:
        negated = self._accept("^")
        ranges: list[Range] = []
        first = True
        while first or self._next() != "]":
            first = False
            if self._accept("[:"):
                self._fail("named classes are not known")
            low = self._class_character()
            if low.negated:
                self._fail("a negated class inside a class")
            if len(low.ranges) > 1 or low.ranges[0][0] != low.ranges[0][1] or not self._is_range():
                ranges += low.ranges
                continue
            self._take()
            high = self._class_character()
            if high.negated or len(high.ranges) > 1 or high.ranges[0][0] < low.ranges[0][0]:
                self._fail("a range must rise")
            ranges.append((low.ranges[0][0], high.ranges[0][1]))
        self._take()
        return Chars(tuple(ranges), negated)

    def _is_range(self) -> bool:
        return self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "")

    def _class_character(self) -> Chars:
        character = self._take()
        if character == "\\":
            return self._escaped_character()
        return Chars(((ord(character), ord(character)),))


@dataclass(slots=True)
class Step:
    """One state of the automaton: a character or an edge to pass, or (neither) a fork; then the steps after it."""

    test: Chars | Edge | None
    then: list[int] = field(default_factory=list)


class Pattern:
    """A compiled pattern. Matching is a walk over sets of steps: linear in the name, whatever the pattern."""

    def __init__(self, text: str) -> None:
        """Raises BadPattern."""
        self._steps: list[Step] = []
        self._end = self._step(None)
        self._start = self._compile(Parser(text).parse(), self._end)
        self._moves: dict[tuple[frozenset[int], int], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole of `name`."""
        current = self._closure({self._start}, at_start=True, at_end=not name)
        for position, character in enumerate(name, 1):
            if not current:
                return False
            current = self._move(current, ord(character), at_end=position == len(name))
        return self._end in current

    def _step(self, test: Chars | Edge | None, *then: int) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise BadPattern(f"the pattern needs more than {MAX_STEPS} steps")
        self._steps.append(Step(test, list(then)))
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Add the steps of `node`, which lead on to `then`; the first of them."""
        match node:
            case Chars() | Edge():
                return self._step(node, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case OneOf(parts):
                return self._step(None, *[self._compile(part, then) for part in parts])
            case Repeat(part, low, high):
                if high is None:
                    loop = self._step(None, then)
                    self._steps[loop].then.insert(0, self._compile(part, loop))
                    then = loop
                else:
                    after = then
                    for _ in range(high - low):
                        then = self._step(None, self._compile(part, then), after)
                for _ in range(low):
                    then = self._compile(part, then)
                return then
            case _:
                assert_never(node)

    def _move(self, steps: frozenset[int], code_point: int, *, at_end: bool) -> frozenset[int]:
        key = (steps, -code_point - 1 if at_end else code_point)
        known = self._moves.get(key)
        if known is None:
            reached: set[int] = set()
            for number in steps:
                step = self._steps[number]
                if isinstance(step.test, Chars) and step.test.has(code_point):
                    reached.update(step.then)
            known = self._closure(reached, at_start=False, at_end=at_end)
            if len(self._moves) >= MAX_CACHED_MOVES:
                self._moves.clear()
            self._moves[key] = known
        return known

    def _closure(self, steps: set[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """`steps` and all that follow from them without a character."""
        found: set[int] = set()
        waiting = list(steps)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            step = self._steps[number]
            if step.test is None or (isinstance(step.test, Edge) and (at_start if step.test.start else at_end)):
                waiting += step.then
        return frozenset(found)
