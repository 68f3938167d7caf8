"""The output of `fencepost queue`."""

from typing import TYPE_CHECKING, Any

from fencepost.cli.connect import command_for
from fencepost.cli.plain_text import age, cell, counted, json_value, places, table
from fencepost.client.admin.queues import NEW

if TYPE_CHECKING:
    from fencepost.client.admin.queues import Queue, QueuePartition, Why
    from fencepost.protocol.topics import TopicPartition

PLACES_MAX = 12
"""How many partitions of one member a line names."""
DONE = ("acknowledged", "archived")


def depth(value: int | None) -> int | str:
    """A depth; "?" if a broker does not know it."""
    return "?" if value is None else value


def describe_text(queue: "Queue", now_ms: int, bootstrap: str) -> str:
    group = queue.group
    facts = [
        ("group", cell(group.group_id)),
        ("state", group.state),
        ("members", str(len(group.members))),
        ("depth", str(depth(queue.depth))),
        ("settings", ", ".join(f"{name}={cell(value)}" for name, value in queue.settings.items()) or "the broker's"),
    ]
    if queue.deliveries:
        facts.append(("delivered", ", ".join(_delivered(queue))))
    lines = [f"{name:<12}{value}" for name, value in facts]
    if queue.partitions:
        head = ("PARTITION", "START", "NEXT", "END", "DEPTH", "HELD", "WAIT", "PENDING", "DONE", "OLDEST")
        lines += ["", table(head, [_partition(one, now_ms) for one in queue.partitions])]
    else:
        lines += ["", "It has not begun to read: its first member's fetch begins it."]
    if group.members:
        held, knows = queue.held, any(one.offset.states is not None for one in queue.partitions)
        rows = [
            (
                member.member_id,
                member.client_id,
                member.client_host,
                held[member.member_id] if knows else "?",
                _reads(member.partitions),
            )
            for member in group.members
        ]
        lines += ["", table(("MEMBER", "CLIENT", "HOST", "HOLDS", "READS"), rows)]
    if queue.partitions and any(one.offset.states is None for one in queue.partitions):
        lines += [
            "",
            "?: not begun, or the leader does not answer. Only fencepost brokers report the states of records.",
        ]
    if any(one.offset.states is not None and not one.offset.states.complete for one in queue.partitions):
        lines += ["", "More records are in flight than one response shows: the counts are too low."]
    if any(one.offset.lag for one in queue.partitions):
        lines += [
            "",
            "Why a record does not move:",
            f"  {command_for(bootstrap, 'queue', 'why', group.group_id, *_first(queue))}",
        ]
    return "\n".join(lines)


def _first(queue: "Queue") -> tuple[str, str, str]:
    """The record that the start offset of the deepest partition waits for."""
    one = max(queue.partitions, key=lambda part: part.offset.lag or 0)
    return one.partition.topic, str(one.partition.partition), str(one.start_offset or 0)


def _delivered(queue: "Queue") -> list[str]:
    times = {0: "never", 1: "once"}
    return [
        f"{counted(count, 'record')} {times.get(number, f'{number} times')}"
        for number, count in sorted(queue.deliveries.items())
    ]


def _partition(one: "QueuePartition", now_ms: int) -> tuple[object, ...]:
    states, counts = one.offset.states, one.counts
    known: tuple[object, ...] = ("?",) * 5
    if states is not None:
        done = sum(counts[state] for state in DONE)
        known = (states.next_offset, counts["acquired"], counts["available"] + counts[NEW], counts["pending"], done)
    return (
        places([one.partition]),
        "none" if one.start_offset is None else one.start_offset,
        known[0],
        one.reach.high,
        depth(one.offset.lag),
        *known[1:],
        None if one.oldest_ms is None else age((now_ms - one.oldest_ms) / 1000),
    )


def _reads(partitions: Any) -> str:
    shown = places(sorted(partitions)[:PLACES_MAX])
    more = len(partitions) - PLACES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def queue_json(queue: "Queue") -> dict[str, Any]:
    return {
        **json_value(queue.group),
        "depth": queue.depth,
        "settings": dict(queue.settings),
        "held": dict(queue.held),
        "deliveries": {str(number): count for number, count in sorted(queue.deliveries.items())},
        "partitions": [
            {
                "partition": json_value(one.partition),
                "start_offset": one.start_offset,
                "high_watermark": one.reach.high,
                "last_stable_offset": one.reach.stable,
                "lag": one.offset.lag,
                "oldest_ms": one.oldest_ms,
                "states": None if one.offset.states is None else json_value(one.offset.states),
            }
            for one in queue.partitions
        ],
    }


def why_text(why: "Why", place: "TopicPartition", offset: int, bootstrap: str) -> str:
    lines = [f"{place.topic}:{place.partition} offset {offset}: {why.state}", f"  {why.text}"]
    if why.record is not None and why.record.producer_id is not None:
        command = command_for(bootstrap, "txn", "list", "--producer-id", str(why.record.producer_id))
        lines += ["Which one:", f"  {command}"]
    if why.state == "in an open transaction":
        lines += ["Which one:", f"  {command_for(bootstrap, 'txn', 'why', f'{place.topic}:{place.partition}')}"]
    return "\n".join(lines)
