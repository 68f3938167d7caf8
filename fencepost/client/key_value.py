"""The type variables of keys and values, K and V: bytes unless a serializer or deserializer has another type."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers bring it; Python's own has `default` from 3.13 on

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
