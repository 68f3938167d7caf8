"""Whether the time of a refused login shows that a user exists.

    python -m bench.login_timing [--logins 1000]

It starts a broker in memory without a delay after refusals, and refuses two users in turns: one who exists, with a
wrong password, and one who does not exist. For each mechanism it prints the medians of the time that the broker takes
from the first message of the login to the refusal, and how much they differ. Exit code 1: by more than 5 %.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.scram import Scram
from tests.kit.broker_process import BrokerProcess
from tests.kit.sasl_broker import LISTEN, LISTENERS, add_scram_users, authenticate, connect, handshake

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"wrong password": "alice", "unknown user": "elsie"}
"""Names of one length."""
WORST_PERCENT = 5.0


def refused_seconds(broker: BrokerProcess, mechanism: str, user: str) -> float:
    """The seconds of one refused login, without the client's own hashing of the password."""
    with connect(broker) as wire:
        handshake(wire, mechanism)
        if mechanism == "PLAIN":
            began = time.perf_counter()
            answer = authenticate(wire, f"\0{user}\0wrong".encode())
            seconds = time.perf_counter() - began
        else:
            client = Scram(mechanism, user, "wrong", "client-nonce")
            began = time.perf_counter()
            challenge = authenticate(wire, client.first())
            seconds = time.perf_counter() - began
            final = client.step(challenge.auth_bytes)
            began = time.perf_counter()
            answer = authenticate(wire, final)
            seconds += time.perf_counter() - began
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    return seconds


def main() -> None:
    """Measure, print, and exit with 1 if a difference is too large."""
    parser = argparse.ArgumentParser(description="Compare the times of refused logins.")
    parser.add_argument("--logins", type=int, default=1000, help="logins of each kind and mechanism")
    count = parser.parse_args().logins
    settings = LISTENERS | {"connection.failed.authentication.delay.ms": "0"}
    worst = 0.0
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory), settings=settings, arguments=[*LISTEN, "--log-level", "error"]) as broker,
    ):
        add_scram_users(broker, alice="pencil")
        for mechanism in MECHANISMS:
            times: dict[str, list[float]] = {kind: [] for kind in USERS}
            for number in range(2 * count):
                kind = list(USERS)[number % 2]
                times[kind].append(refused_seconds(broker, mechanism, USERS[kind]))
            wrong, unknown = (statistics.median(one) for one in times.values())
            percent = 100 * abs(wrong - unknown) / wrong
            worst = max(worst, percent)
            medians = f"wrong password {wrong * 1e6:.0f} us, unknown user {unknown * 1e6:.0f} us"
            print(f"{mechanism}: {medians}, difference {percent:.1f} %", flush=True)
    sys.exit(worst > WORST_PERCENT)


if __name__ == "__main__":
    main()
