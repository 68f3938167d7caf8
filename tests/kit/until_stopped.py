"""Threads that work until they are stopped; what one of them raises fails the test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Undone(Exception):
    """Aborts a transaction."""


class UntilStopped:
    """Work of several threads, which looks at `stopped`."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._errors: list[BaseException] = []

    @contextmanager
    def running(self, *works: Callable[[], None]) -> Iterator[None]:
        """Do each of them in a thread of its own."""
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join()
        assert self._errors == []

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001, the test shows it
            self._errors.append(error)
