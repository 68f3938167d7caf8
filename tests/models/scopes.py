"""The scopes in which TLC checks the model, and the rules without which it finds a violation.

A scope is a change of the constants in docs/models/commit.cfg; one of `CORES` in docs/models/cores.cfg.
"""

from typing import NamedTuple

Scope = dict[str, str]

NO_PRODUCER, NO_PLAIN = {"Producers": "{}"}, {"Plain": "{}"}
ONE_BROKER_OWNS_ALL = {"Coordinator": '"b2"'}

SMALL: dict[str, Scope] = {
    "transactions": {},
    "faults": {**NO_PLAIN, "MaxBreaks": "1", "MaxRestarts": "1"},
    "next transaction": {**NO_PLAIN, "MaxTxn": "2"},
    "handover": {"MaxHandovers": "1"},
    "fixed": {"FixedPlain": '{"q"}'},
    "objects": {**NO_PRODUCER, "Objects": "{1, 2}", "MaxPlain": "2", "MaxBreaks": "1"},
    "losses": {**NO_PRODUCER, "MaxPlain": "2", "MaxLosses": "1", "MaxRestarts": "1"},
}
"""Seconds each."""

LARGE: dict[str, Scope] = {
    "two logs": {**NO_PLAIN, "DataLogs": '{"a", "b"}', "MaxBreaks": "1"},
    "one owner": {**ONE_BROKER_OWNS_ALL, "MaxTakeovers": "2"},
    "order": {"MaxSeq": "2", "MaxTxn": "2"},
    "all faults": {**NO_PLAIN, "MaxTakeovers": "2", "MaxBreaks": "1", "MaxRestarts": "1"},
    "handovers": {**NO_PLAIN, "MaxHandovers": "2", "MaxTakeovers": "2", "MaxBreaks": "1"},
    "three brokers": {**NO_PLAIN, "Brokers": '{"b1", "b2", "b3"}', "MaxTakeovers": "2", "MaxBreaks": "1"},
    "sessions": {**NO_PRODUCER, "MaxBreaks": "3", "MaxPlain": "2", "MaxRestarts": "1", "MaxTakeovers": "2"},
    "lost transactions": {**NO_PLAIN, "MaxLosses": "1", "MaxRestarts": "1"},
    "claims": {**NO_PRODUCER, "Objects": "{1, 2, 3}", "MaxPlain": "3", "MaxBreaks": "1"},
}
"""Up to minutes each."""


class Control(NamedTuple):
    """Rules that are left out, and the property that TLC refutes then."""

    rules: tuple[str, ...]
    scope: str
    violated: str


CONTROLS = (
    Control(("FenceRule",), "transactions", "NothingWrong"),
    Control(("SessionRule",), "objects", "NothingWrong"),
    Control(("SessionRule", "SeqRule"), "objects", "NothingDoubled"),
    Control(("PidRule",), "transactions", "NothingLate"),
    Control(("FixedRule",), "fixed", "FixedStayInPlace"),
    Control(("ClaimRule",), "objects", "ObjectsExist"),
    Control(("MarkRule",), "objects", "ObjectsExist"),
    Control(("CutRule",), "transactions", "EndIsWhole"),
    Control(("RecheckRule",), "transactions", "NothingLate"),
    Control(("AbsorbRule",), "transactions", "ViewIsPrefix"),
    Control(("TakeoverRule",), "transactions", "ViewIsPrefix"),
    Control(("SettleRule",), "handover", "EndIsWhole"),
    Control(("DurableAddRule",), "transactions", "NothingHangs"),
    Control(("StampRule",), "transactions", "EpochsRise"),
    Control(("NewLogRule",), "transactions", "NothingWrong"),
    Control(("HistoryRule",), "losses", "ViewIsPrefix"),
    Control(("PeerRule",), "lost transactions", "NothingHangs"),
)

REDUNDANT = Control(("SeqRule",), "objects", "")
"""The session rule covers it: nothing is violated."""

CORES: dict[str, Scope] = {
    "markers of TV1": {"Version": "1"},
    "markers of TV2": {},
    "moves under TV1": {"Version": "1", "MaxMoves": "1", "MaxRestarts": "0"},
    "moves under TV2": {"Leaders": '{"a"}', "MaxMoves": "2"},
}
"""Those of docs/models/cores.cfg."""

CORES_CONTROLS = (
    Control(("DurableRule",), "markers of TV2", "EndsAsDecided"),
    Control(("MarkerRule",), "markers of TV2", "EndsAsDecided"),
    Control(("RetryRule",), "markers of TV2", "AnsweredIsWhole"),
    Control(("EpochRule",), "markers of TV1", "EndsAsDecided"),
    Control(("FenceRule",), "markers of TV1", "EndsAsDecided"),
    Control(("OnceRule",), "markers of TV1", "EndsAsDecided"),
    Control(("LeadRule",), "moves under TV2", "AnsweredIsWhole"),
    Control(("TakeRule",), "moves under TV1", "EndsAsDecided"),
)


def constants(scope: str, without: tuple[str, ...] = ()) -> Scope:
    """The constants of a scope, without some rules."""
    return {**{**SMALL, **LARGE, **CORES}[scope], **dict.fromkeys(without, "FALSE")}
