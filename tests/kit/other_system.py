"""A program for tests: runs the client and a broker under test as on a system that has nothing of POSIX.

What Windows lacks is hidden once Python's own library and the event loops are imported: those choose by the true
system, and go on using it. All that is imported later finds modules without those names, and another `sys.platform`.
It prints what a consumer read under asyncio, under trio, and with a login, and why such a broker has no files.
"""

import asyncio
import ctypes
import ctypes.util
import multiprocessing.connection
import os
import select
import selectors
import signal
import socket
import ssl
import sys
import tempfile
import time
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import anyio
import trio

PRELOADED = (asyncio, ctypes, multiprocessing.connection, ssl, tempfile, anyio, trio)
NO_MODULES = ("crypt", "fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty")
NO_NAMES = {
    os: """chown chroot confstr copy_file_range ctermid eventfd fchdir fchown fdatasync fork forkpty fpathconf fstatvfs
        getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid getsid
        getuid getxattr initgroups killpg lchown listxattr lockf major makedev memfd_create minor mkfifo mknod nice
        openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_openpt posix_spawn posix_spawnp pread
        preadv pwrite pwritev readv register_at_fork removexattr sched_get_priority_max sched_get_priority_min
        sched_getaffinity sched_getparam sched_getscheduler sched_setaffinity sched_setparam sched_setscheduler
        sched_yield sendfile setegid seteuid setgid setgroups setns setpgid setpriority setregid setresgid setresuid
        setreuid setsid setuid setxattr splice statvfs sync sysconf sysconf_names tcgetpgrp tcsetpgrp timerfd_create
        ttyname uname unshare wait wait3 wait4 waitid writev F_LOCK F_TLOCK F_ULOCK MFD_CLOEXEC O_ASYNC O_CLOEXEC
        O_DIRECT O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC O_TMPFILE
        POSIX_FADV_DONTNEED POSIX_FADV_SEQUENTIAL SEEK_DATA SEEK_HOLE WEXITED WNOHANG WNOWAIT WUNTRACED""",
    select: "epoll kqueue poll EPOLLIN EPOLLOUT EPOLLERR EPOLLET POLLIN POLLOUT",
    selectors: "EpollSelector KqueueSelector PollSelector DevpollSelector",
    signal: """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pause
        pthread_kill pthread_sigmask setitimer sigpending sigwait""",
    socket: """AF_UNIX AF_NETLINK AF_PACKET CMSG_LEN CMSG_SPACE MSG_CMSG_CLOEXEC MSG_DONTWAIT MSG_MORE MSG_NOSIGNAL
        MSG_WAITALL SCM_RIGHTS SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_REUSEPORT TCP_CONGESTION TCP_CORK
        TCP_QUICKACK TCP_USER_TIMEOUT send_fds recv_fds""",
    time: """CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_TAI
        CLOCK_THREAD_CPUTIME_ID clock_getres clock_gettime clock_gettime_ns clock_settime tzset""",
}


class Absent:
    """Stands for a method that a class does not have."""

    def __get__(self, instance: object, owner: type | None = None) -> object:
        raise AttributeError


def hide() -> None:
    """Have later imports find what Windows has."""
    for name in NO_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's word for a module that is not there
    for module, names in NO_NAMES.items():
        gone = set(names.split())
        replaced(module, {name: value for name, value in vars(module).items() if name not in gone})
    for name in ("sendmsg", "recvmsg", "recvmsg_into", "sendmsg_afalg"):
        setattr(socket.socket, name, Absent())
    sys.modules["os"].name = "nt"
    replaced(sys, {**vars(sys), "platform": "win32"})


def replaced(module: ModuleType, names: dict[str, object]) -> None:
    """Have later imports of `module` find one with `names`."""
    other = ModuleType(module.__name__)
    vars(other).update(names)
    sys.modules[module.__name__] = other


async def through(config: dict[str, Any], topic: str) -> list[bytes]:
    """Send a record, and two in a transaction, and read them as a group."""
    import fencepost

    async with fencepost.Client.from_config(config) as kafka:
        async with kafka.producer() as producer:
            await producer.send(topic, b"plain")
        async with kafka.transactional_producer(f"of-{topic}") as producer, producer.transaction() as txn:
            await txn.send(topic, b"one")
            await txn.send(topic, b"two")
        async with kafka.consumer(topic, group=f"of-{topic}") as consumer:
            return [record.value async for batch in consumer.read_to_end() for record in batch if record.value]


def main() -> None:
    """Run it all in this process."""
    hide()
    from fencepost.testing import Broker

    with Broker() as broker:
        for name, run in (("asyncio", asyncio.run), ("trio", lambda coroutine: trio.run(lambda: coroutine))):
            broker.create_topic(name)
            print(name, run(through(broker.client_config(), name)))
            broker.assert_no_open_transactions()
            broker.assert_exactly_once(name, [b"plain", b"one", b"two"])
    with_tls = find_spec("cryptography") is not None  # it makes the certificate; not each environment has it
    with Broker(users={"alice": "secret"}, tls=with_tls) as broker:
        broker.create_topic("login")
        print("login", asyncio.run(through(broker.client_config(), "login")))
    try:
        Broker(directory="data").start()
    except OSError as error:
        print(error)


if __name__ == "__main__":
    main()
