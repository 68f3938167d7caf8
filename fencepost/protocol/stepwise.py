"""Generates decoders and encoders that pause: for messages of many elements, which would keep an event loop busy.

They are generators. They yield after every `STEP_ELEMENTS` elements, and return what the plain ones return.
"""

from collections.abc import Callable, Generator
from typing import Any

from fencepost.protocol.compiler import DecoderSource, EncoderSource, Source, compiled, decoder_scope, encoder_scope
from fencepost.protocol.schema import MessageValue, TooManyElements

ELEMENTS_MAX = 100_000
"""The most elements of all arrays of one request. The broker refuses larger requests before it decodes them."""
STEP_ELEMENTS = 500
"""Elements between two pauses: about a millisecond of work."""

Steps = Generator[None, None, Any]
"""Work in steps; its return value is the result."""


class _Pauses(Source):
    """Adds the lines that pause: `left` are the elements until the next pause."""

    def element(self, depth: int) -> None:
        self.put(depth, "left -= 1")
        self.put(depth, f"if left < 0: yield; left = {STEP_ELEMENTS}")


class _DecoderInSteps(_Pauses, DecoderSource):
    """Also counts: `spent` are the elements so far, those of the array that begins included."""

    def count(self, number: str, depth: int) -> None:
        self.put(depth, f"spent += {number}; left -= {number} >> 2")
        self.put(depth, "if spent > MOST: raise TooManyElements(too_many(spent, MOST))")
        self.put(depth, f"if left < 0: yield; left = {STEP_ELEMENTS}")


class _EncoderInSteps(_Pauses, EncoderSource):
    """Pauses only: the broker itself made the value."""


def too_many(count: int, most: int) -> str:
    return f"at least {count} elements in its arrays, at most {most} are allowed"


def decoder_in_steps(
    message: type[MessageValue], version: int, most: int = ELEMENTS_MAX
) -> Callable[[memoryview, int], Steps]:
    """Generate a decoder in steps: (frame, offset) -> steps to (value, its end).

    It raises TooManyElements before it decodes an array that brings the elements above `most`.
    """
    bound = {"TooManyElements": TooManyElements, "too_many": too_many, "MOST": most}
    writer = _DecoderInSteps(decoder_scope() | bound)
    writer.put(0, "def decode(b, o):")
    writer.put(1, f"end = len(b); spent = 0; left = {STEP_ELEMENTS}")
    made = writer.struct(message.tree(version), 1)
    writer.put(1, "if o > end: raise Malformed")
    writer.put(1, f"return {made}, o")
    writer.put(1, "yield")  # a generator, also without arrays
    function: Callable[[memoryview, int], Steps] = compiled(writer, f"{message.__name__}V{version}", "decode")
    return function


def encoder_in_steps(message: type[MessageValue], version: int) -> Callable[[Any], Steps]:
    """Generate an encoder in steps: value -> steps to a list of buffers."""
    writer = _EncoderInSteps(encoder_scope())
    writer.put(0, "def encode(root):")
    writer.put(1, f"parts = []; out = bytearray(); left = {STEP_ELEMENTS}")
    writer.struct(message.tree(version), "root", 1)
    writer.put(1, "parts.append(out)")
    writer.put(1, "return parts")
    writer.put(1, "yield")
    function: Callable[[Any], Steps] = compiled(writer, f"{message.__name__}V{version}", "encode")
    return function
