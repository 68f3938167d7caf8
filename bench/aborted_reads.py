"""How soon other people's clients are past a long stretch of aborted records: left out by the broker, or by them.

    python -m bench.aborted_reads [--mib 64] [--rounds 3] [--only kafkajs]

Each client is a process of the group tests (tests/interop/members). The time is that from its first assignment to its
first committed transaction, which holds the only records that are not aborted; both ways in turns, medians.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.interop.confluent_steps import admin_client
from tests.interop.group_play import PARTITIONS, Play, filtered_by, play_of
from tests.kit.broker_process import BrokerProcess
from tests.kit.settings import QUICK_GROUPS

KINDS = ["confluent eager", "aiokafka", "kafka-python", "kafkajs", "java consumer", "fencepost"]
RECORD_BYTES = 1000


def seconds_until_past(play: Play, group: str) -> float:
    """Of a new group with one member."""
    play.group = group
    member = play.enter("a", pause_s=0.0)
    while not member.held:
        time.sleep(0.002)
    began = time.monotonic()
    member.next("committed", 0)
    taken = time.monotonic() - began
    play.members.pop("a").kill()
    return taken


def main() -> None:
    """Measure all clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="aborted records in each of 4 partitions (64)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="clients whose name contains this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder), settings=QUICK_GROUPS) as broker:
        for kind in (kind for kind in KINDS if arguments.only in kind):
            with play_of(broker.address, kind.replace(" ", "-"), kind) as play:
                play.abort(arguments.mib * (1 << 20) // RECORD_BYTES, RECORD_BYTES)
                play.feed(1)
                times: dict[str, list[float]] = {"client": [], "broker": []}
                for number in range(2 * arguments.rounds):
                    who = "client" if number % 4 in (0, 3) else "broker"
                    filtered_by(admin_client(broker.address), play.source, who)
                    times[who].append(seconds_until_past(play, f"{kind.replace(' ', '-')}-{number}"))
            by_client, by_broker = (statistics.median(times[who]) for who in ("client", "broker"))
            print(
                f"{kind:16} past {PARTITIONS * arguments.mib} MiB: {by_client:.2f} s by the client,"
                f" {by_broker:.2f} s by the broker ({by_client / by_broker:.1f}x)",
                flush=True,
            )


if __name__ == "__main__":
    main()
