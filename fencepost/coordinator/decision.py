"""The result of a pure decision: first the records to append, then the reply, then the follow-ups to start."""

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass

ReplyT = TypeVar("ReplyT")
RecordT = TypeVar("RecordT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, ReplyT, EffectT]):
    """The outcome of one command against one state.

    `log` is appended as one atomic batch and applied. `reply` may be sent only once `log` is durable. `then` holds
    follow-ups that may start only after that (wake members, set timers, ...). The markers of a transaction are none:
    they follow from its state, and may be durable first (docs/decisions/0080-one-round-for-endtxn.md).
    """

    reply: ReplyT
    log: tuple[RecordT, ...] = ()
    then: tuple[EffectT, ...] = ()
