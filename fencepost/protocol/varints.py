"""Varints, encoded and decoded: the lengths of the flexible protocol (KIP-482), and the fields of records."""


class Malformed(Exception):
    """The bytes are not a message. The reader's own error names the field."""


_SHIFTS = (7, 14, 21, 28)
_SMALL = [bytes((number,)) for number in range(128)]


def put_varint(number: int) -> bytes:
    """Encode `number`, which is not negative, in base 128; small ones come from a table."""
    if number < 128:
        return _SMALL[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def get_varint(b: bytes | memoryview, o: int) -> tuple[int, int]:
    """A varint of at most five bytes at `o`, and its end. Raises Malformed, or IndexError if the bytes end before."""
    number = b[o]
    o += 1
    if number < 128:
        return number, o
    number &= 127
    for shift in _SHIFTS:
        byte = b[o]
        o += 1
        if byte < 128:
            number |= byte << shift
            if number > 0xFFFFFFFF:
                raise Malformed("varint")
            return number, o
        number |= (byte & 127) << shift
    raise Malformed("varint")


def put_signed_varint(number: int) -> bytes:
    """Encode a signed number as in a record (zigzag). Raises OverflowError outside of 64 bits."""
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    if zigzag >> 64:
        raise OverflowError(f"{number} does not fit 64 bits")
    return put_varint(zigzag)


LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


def wrapped(number: int) -> int:
    """The number in 64 bits, as Java's arithmetic leaves it: sums beyond their range wrap around."""
    return (number - LONG_MIN) % 2**64 + LONG_MIN
