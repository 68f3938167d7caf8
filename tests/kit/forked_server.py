"""Server processes forked from one that has imported the server: imports are five sixths of the CPU time of a start.

Each test process has one such template, `python -m tests.kit.forked_server DESCRIPTOR`, which ends with it. For every
request it forks a keeper, which forks the server, and reports its process id and its exit code.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

_REQUEST_BYTES_MAX = 1 << 20
_NUMBER = 8
"""The bytes of a process id and of an exit code."""
_IMPORTS = ("fencepost.__main__", "fencepost.broker.node", "fencepost.cli.main", "fencepost.cli.serve")
# A socket of packets tells a request's end, and the end of the test process. Linux has it; elsewhere nothing is forked.
POSSIBLE = sys.platform == "linux"


class ForkedServer:
    """`fencepost ARGUMENTS`, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: int) -> None:
        wanted = {"arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd()}
        output, theirs = os.pipe()
        report, status = os.pipe()
        socket.send_fds(_template()[0], [json.dumps(wanted).encode()], [theirs, stderr, status])
        os.close(theirs)
        os.close(status)
        self.stdout: BinaryIO = os.fdopen(output, "rb")
        self._report = report
        self._ended = select.poll()  # select.select takes no descriptor from 1024 on
        self._ended.register(report, select.POLLIN)
        told = os.read(report, _NUMBER)
        if len(told) < _NUMBER:  # a process id of 0 would be the test's own group
            raise ChildProcessError("the template of the server processes has died")
        self.pid = int.from_bytes(told, signed=True)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while the process lives."""
        return self._reported(0)

    def wait(self, timeout: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        code = self._reported(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("fencepost", timeout)
        return code

    def _reported(self, timeout: float) -> int | None:
        if self.returncode is None and self._ended.poll(timeout * 1000):
            self.returncode = int.from_bytes(os.read(self._report, _NUMBER), signed=True)
            os.close(self._report)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it died, and its keeper has not said so yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _template() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """This process's template, and the socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.kit.forked_server", str(theirs.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours, process


def _fork_on_request(requests: socket.socket) -> None:
    """Until the test process has ended."""
    for name in _IMPORTS:
        import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _keep(json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(wanted: dict[str, Any], stdout: int, stderr: int, status: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become_server(wanted, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    os.write(status, pid.to_bytes(_NUMBER, signed=True))
    _, code = os.waitpid(pid, 0)
    os.write(status, os.waitstatus_to_exitcode(code).to_bytes(_NUMBER, signed=True))
    os._exit(0)


def _become_server(wanted: dict[str, Any], stdout: int, stderr: int) -> None:
    """As if the process had been started with the command; does not return."""
    from fencepost.__main__ import main

    gc.unfreeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, place in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["directory"])
    sys.argv = ["fencepost", *wanted["arguments"]]
    main()
    sys.exit()


if __name__ == "__main__":
    _fork_on_request(socket.socket(fileno=int(sys.argv[1])))
