"""Messages to the service manager that started this process: systemd's sd_notify protocol, a datagram for each.

Without $NOTIFY_SOCKET there is no such manager, and nothing is sent.
"""

import logging
import os
import socket

logger = logging.getLogger(__name__)
SEND_TIMEOUT_SECONDS = 1.0


def notify(*assignments: str) -> None:
    """Send assignments such as READY=1. A failure is logged, and the process continues."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    abstract = address.startswith("@")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT_SECONDS)
            sender.connect(f"\0{address[1:]}" if abstract else address)
            sender.send("\n".join(assignments).encode())
    except OSError as error:
        logger.warning("cannot notify the service manager socket=%s cause=%s", address, error)


def watchdog_seconds() -> float:
    """After how long without WATCHDOG=1 the manager starts this process anew; 0 if it watches nothing."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    return int(interval_us) / 1_000_000 if interval_us.isdigit() else 0.0


async def report_alive() -> None:
    """Send WATCHDOG=1 twice in each interval that the manager asks for; return at once if it asks for none.

    It is a task of the event loop: if the loop hangs, the messages stop, and the manager starts the process anew.
    """
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    if not interval_us.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    import trio

    while True:
        notify("WATCHDOG=1")
        await trio.sleep(int(interval_us) / 2_000_000)
