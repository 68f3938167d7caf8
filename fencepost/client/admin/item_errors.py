"""The error of a method that names several things: one error for each thing, and the results of the others."""

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.client.errors import KafkaError


class ItemsFailedError(KafkaError, ExceptionGroup[KafkaError]):
    """A part of a request failed. Methods that can name several things (topics, partitions, groups, rules) raise it.

    `errors` has one KafkaError for each thing that failed, by the thing as the caller named it. `results` has what the
    method returns for the other things, which succeeded. It is a KafkaError, so `except KafkaError` catches it, and an
    ExceptionGroup, so `except* KafkaError` handles its members. `code`, `api` and `node` are those that all members
    share, None otherwise. These methods raise it also for a single thing.
    """

    errors: Mapping[Any, KafkaError]
    results: Mapping[Any, Any]

    def __new__(
        cls, what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any] | None = None
    ) -> "ItemsFailedError":
        return super().__new__(cls, what, list(errors.values()))

    def __init__(self, what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any] | None = None) -> None:
        found = list(errors.values())
        super().__init__(
            what,
            code=_shared([e.code for e in found]),
            api=_shared([e.api for e in found]),
            node=_shared([e.node for e in found]),
        )
        self.errors = dict(errors)
        self.results = dict(results or {})
        self.args = what, self.errors, self.results  # the arguments of `__new__`, for pickle

    @property
    def retriable(self) -> bool:
        """Whether all errors are retriable."""
        return all(error.retriable for error in self.errors.values())

    def derive(self, excs: Sequence[Exception]) -> "ItemsFailedError | ExceptionGroup[Exception]":  # type: ignore[override]
        """A part of the group, as `except*` and `split` need it."""
        kept = {item: error for item, error in self.errors.items() if any(error is one for one in excs)}
        if len(kept) != len(excs):
            return ExceptionGroup(self.message, excs)
        return ItemsFailedError(self.message, kept, self.results)

    def __str__(self) -> str:
        shown = [f"{item!s}: {error}" for item, error in list(self.errors.items())[:_SHOWN]]
        more = f" and {len(self.errors) - _SHOWN} more" if len(self.errors) > _SHOWN else ""
        return f"{self.message}: {'; '.join(shown)}{more}"

    def __repr__(self) -> str:
        return f"ItemsFailedError({str(self)!r})"


_SHOWN = 3


def _shared(values: Sequence[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else None
