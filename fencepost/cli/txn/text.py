"""The output of `fencepost txn`: transactions, producers and the groups that wait."""

from typing import TYPE_CHECKING

from fencepost.cli.connect import command_for
from fencepost.cli.plain_text import age, cell, counted, moment, places, table
from fencepost.client.admin.last_stable_offset import NO_TIMEOUT_MS, reason
from fencepost.client.admin.types import Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from fencepost.client.admin.types import (
        Holder,
        LastStableOffsetInfo,
        ProducerState,
        TransactionDescription,
        TransactionHistory,
    )

NO_HISTORY = "unknown: only a fencepost broker reports it, and only since its start"


def times_out(listing: "TransactionDescription", now_ms: int) -> str:
    """When the coordinator will end it."""
    if listing.timeout_ms == NO_TIMEOUT_MS:
        return "never (two-phase commit)"
    if listing.started is None or listing.state != "Ongoing":
        return "-"
    left = listing.started.timestamp() + listing.timeout_ms / 1000 - now_ms / 1000
    return f"in {age(left)}" if left > 0 else "now"


def open_for(started: "datetime | None", now_ms: int) -> str:
    """The age of an open transaction; a dash if none is open."""
    return "-" if started is None else age(now_ms / 1000 - started.timestamp())


def client_of(history: "TransactionHistory | None") -> str:
    if history is None:
        return NO_HISTORY
    host, client_id = history.writer_host or history.owner_host, history.writer_client_id or history.owner_client_id
    return f"{cell(client_id)} at {host}" if host else "not seen since the broker started"


def describe_text(described: "TransactionDescription", now_ms: int) -> str:
    history = described.history
    facts = [
        ("transactional.id", cell(described.transactional_id)),
        ("state", described.state),
        ("producer", f"id {described.producer_id}, epoch {described.producer_epoch}"),
        (
            "timeout",
            "none (two-phase commit)" if described.timeout_ms == NO_TIMEOUT_MS else age(described.timeout_ms / 1000),
        ),
        ("client", client_of(history)),
    ]
    if described.started is not None:
        began_ms = round(described.started.timestamp() * 1000)
        facts.append(("open since", f"{moment(began_ms)}, {age((now_ms - began_ms) / 1000)} ago"))
        facts.append(("times out", times_out(described, now_ms)))
    if described.partitions:
        facts.append(("partitions", places(described.partitions)))
        facts.append(
            (
                "blocks",
                places(described.blocks)
                or "no reader: other transactions hold these partitions back, or they have no records",
            )
        )
    lines = [f"{name:<18}{value}" for name, value in facts]
    if history is not None and history.lines:
        lines += ["", "What happened, oldest first:"]
        for line in history.lines:
            times = f" ({line.times} times, last {moment(line.last_ms)})" if line.times > 1 else ""
            what = f"refused {line.code.name}" if line.code is not None else "changed"
            lines.append(f"  {moment(line.time_ms)}  {what}, {line.reason}{times}")
            lines.append(f"    {line.text}")
    return "\n".join(lines)


def producers_text(producers: "list[ProducerState]", now_ms: int) -> str:
    rows = [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            moment(p.last_timestamp_ms),
            age((now_ms - p.last_timestamp_ms) / 1000) if p.last_timestamp_ms >= 0 else "-",
            p.coordinator_epoch,
            "-" if p.transaction_start_offset is None else p.transaction_start_offset,
        )
        for p in sorted(producers)
    ]
    head = ("PRODUCER", "EPOCH", "LAST SEQ", "LAST WRITE", "AGO", "COORDINATOR EPOCH", "OPEN SINCE OFFSET")
    return table(head, rows)


def why_text(described: "LastStableOffsetInfo", now_ms: int, bootstrap: str) -> str:
    """The transaction that holds the last stable offset, and what to do."""
    place = f"{described.partition.topic}:{described.partition.partition}"
    behind = described.high_watermark - described.last_stable_offset
    lines = [f"{place}: last stable offset {described.last_stable_offset}, high watermark {described.high_watermark}"]
    if not described.holders:
        rest = "nothing holds readers back." if not behind else "the last one has just ended; run the command again."
        return "\n".join([*lines, f"No transaction is open here: {rest}"])
    lines.append(f"read_committed readers are held back by {counted(behind, 'offset')}.")
    holder = described.holders[0]
    lines += ["", *_holder(holder, now_ms)]
    if len(described.holders) > 1:
        lines += ["", f"Behind it, {counted(len(described.holders) - 1, 'more open transaction')}:"]
        rows = [
            (
                other.first_offset,
                f"{other.producer.producer_id}:{other.producer.producer_epoch}",
                other.transaction.transactional_id if other.transaction else None,
                other.verdict.value,
            )
            for other in described.holders[1:]
        ]
        lines += _indented(table(("FROM OFFSET", "PRODUCER", "TRANSACTIONAL.ID", "VERDICT"), rows))
    lines += ["", "Groups that wait:"]
    if described.groups:
        waiting = [(g.group_id, g.state, g.committed, g.own_lag, g.held_back) for g in described.groups]
        lines += _indented(table(("GROUP", "STATE", "COMMITTED", "LAG TO THE LSO", "HELD BACK"), waiting))
    else:
        lines.append("  none has committed a position at or below the last stable offset here")
    sentence, command = remedy(described, holder, now_ms, bootstrap)
    return "\n".join([*lines, "", sentence, f"  {command}"])


def _holder(holder: "Holder", now_ms: int) -> list[str]:
    producer, known = holder.producer, holder.transaction
    name = f", transactional.id {cell(known.transactional_id)}" if known is not None else ""
    lines = [f"Held by producer {producer.producer_id} epoch {producer.producer_epoch}{name}"]
    return lines + [f"  {name:<13}{value}" for name, value in holder_facts(holder, now_ms)]


def holder_facts(holder: "Holder", now_ms: int) -> list[tuple[str, str]]:
    """What is known about an open transaction: pairs of a name and a value."""
    producer, known = holder.producer, holder.transaction
    since = f"offset {holder.first_offset}"
    if known is not None and known.started is not None:
        since += f", {age(now_ms / 1000 - known.started.timestamp())} ago"
    facts = [
        ("open since", since),
        ("last write", f"{age((now_ms - producer.last_timestamp_ms) / 1000)} ago, by its records' timestamps"),
        ("client", client_of(None if known is None else known.history) if known is not None else "unknown"),
    ]
    if holder.verdict in (Verdict.HANGING, Verdict.UNOWNED):
        facts.append(("coordinator", reason(producer, known)))
    elif holder.verdict is Verdict.HIDDEN:
        facts.append(("coordinator", "unknown: your user may not see all transactional ids"))
    elif known is not None:
        facts.append(("coordinator", f"{known.state}, times out {times_out(known, now_ms)}"))
    return facts


def remedy(described: "LastStableOffsetInfo", holder: "Holder", now_ms: int, bootstrap: str) -> tuple[str, str]:
    """The safest remedy in a sentence, and the command to copy."""
    topic, partition = described.partition
    known = holder.transaction
    again = command_for(bootstrap, "txn", "why", f"{topic}:{partition}")
    match holder.verdict:
        case Verdict.HANGING:
            repair = ("txn", "hanging", "--topic", topic, "--partition", str(partition), "--repair")
            return (
                "It hangs: nothing will end it, and it is older than the longest transaction timeout. Abort it:",
                command_for(bootstrap, *repair),
            )
        case Verdict.UNOWNED:
            return ("The coordinator does not own it, and it is recent: it may be ending now. Check again:", again)
        case Verdict.HIDDEN:
            return (
                "It may be alive, or it hangs: only a user who may DESCRIBE all transactional ids can know. As such a"
                " user:",
                again,
            )
        case Verdict.COMPLETING:
            return (
                "Its outcome is decided; its markers are being written. If this lasts, the broker's log says why a"
                " marker cannot be written. Check again:",
                again,
            )
        case Verdict.PREPARED:
            assert known is not None
            words = ("txn", "abort", known.transactional_id, "--even-two-phase")
            return (
                "It is part of a two-phase commit: the program that owns it must complete it. Only if the"
                " outside database has NOT committed its half, abort it:",
                command_for(bootstrap, *words),
            )
        case Verdict.OPEN:
            assert known is not None
            return (
                f"Its client may yet commit it; else the timeout aborts it {times_out(known, now_ms)}. To abort it now,"
                " and fence that client:",
                command_for(bootstrap, "txn", "abort", known.transactional_id),
            )


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
