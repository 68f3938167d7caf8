"""What a call about many things raises: one error per thing, and with them what became of the others."""

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.client.errors import KafkaError


class ItemsFailedError(KafkaError, ExceptionGroup[KafkaError]):
    """Some of what was asked for failed. Calls that name several things (topics, partitions, groups, rules) raise it.

    `errors` has one KafkaError for each thing that failed, by the thing as it was asked for; `results` has what the
    call would have returned for the others, which did happen. It is a KafkaError, so `except KafkaError` meets it, and
    an ExceptionGroup, so `except* KafkaError` goes through its members. `code`, `api` and `node` are those that all
    members share, None otherwise. It is raised also when only one thing was named; calls that can name only one
    raise its KafkaError itself.
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

    def derive(self, excs: Sequence[Exception]) -> "ItemsFailedError | ExceptionGroup[Exception]":  # type: ignore[override]
        """A part of the group, as `except*` and `split` make them."""
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
