"""The subject of a certificate as Java prints it (`X500Principal.getName()`, RFC 2253): `CN=alice,OU=ops,O=Example`.

Python's own form of a subject loses the types of the strings, and prints attributes otherwise. ACLs written for Kafka
name Java's form.
"""

from collections.abc import Iterator

_SEQUENCE, _OBJECT_ID, _VERSION = 0x30, 0x06, 0xA0
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXT = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""The string types that Java prints as text, all read as UTF-8: UTF8, Printable, T61, IA5, General, BMP."""
_ESCAPED = ',=+<>#;"\\'
_BLANK = " \r"


def subject_name(certificate: bytes) -> str:
    """The subject of a DER certificate. OpenSSL must have accepted the certificate: other bytes raise any error."""
    _, start, _ = _element(certificate, 0)
    _, start, end = _element(certificate, start)
    parts = list(_elements(certificate, start, end))
    tag, start, end = parts[5 if parts[0][0] == _VERSION else 4]  # version?, serial, algorithm, issuer, validity
    assert tag == _SEQUENCE, "a certificate's subject is a sequence"
    names = [
        "+".join(_attribute(certificate, *attribute[1:]) for attribute in _elements(certificate, *name[1:]))
        for name in _elements(certificate, start, end)
    ]
    return ",".join(reversed(names))


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the DER element at `at`, and where its content starts and ends."""
    length, start = data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    return data[at], start, start + length


def _elements(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    while at < end:
        found = _element(data, at)
        yield found
        at = found[2]


def _attribute(data: bytes, start: int, end: int) -> str:
    (kind, type_start, type_end), (tag, value_start, value_end) = _elements(data, start, end)
    assert kind == _OBJECT_ID, "an attribute of a name begins with its type"
    object_id = _object_id(data[type_start:type_end])
    keyword = _KEYWORDS.get(object_id)
    if keyword is None or tag not in _TEXT:
        return f"{keyword or object_id}=#{data[type_end:value_end].hex()}"
    return f"{keyword}={_escaped(data[value_start:value_end].decode('utf-8', 'replace'))}"


def _object_id(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    text = "".join(f"\\{char}" if char in _ESCAPED else char for char in text).replace("\0", "\\00")
    lead = len(text) - len(text.lstrip(_BLANK))
    trail = len(text) - len(text.rstrip(_BLANK)) if lead < len(text) else 0
    inner = text[lead : len(text) - trail]
    return (
        "".join(f"\\{c}" for c in text[:lead]) + inner + "".join(f"\\{c}" for c in text[len(text) - trail :] if trail)
    )
