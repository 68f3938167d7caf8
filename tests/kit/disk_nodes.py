"""Files and directories of a simulated disk: what a reader sees, what is durable, and what lies between the two."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

SECTOR_BYTES = 512


class Write(NamedTuple):
    """Bytes that were written and not synced."""

    position: int
    data: bytes


class Resize(NamedTuple):
    """A truncation that was not synced."""

    size_bytes: int


Change = Write | Resize

NameChange = dict[str, "SimFile | SimDirectory | None"]
"""Names that change together: what each stands for from then on."""


class SimFile:
    """The bytes of a file, in the cache and on the platter."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.unsynced: list[Change] = []
        self.modified_ms = 0
        self.allocated = len(data)
        """Up to here it has its room on the disk; what a truncation put behind that is a hole."""

    def write(self, position: int, data: bytes) -> None:
        """Into the cache."""
        change = Write(position, data)
        _apply(self.data, change)
        self.unsynced.append(change)
        self.allocated = max(self.allocated, position + len(data))

    def truncate(self, size_bytes: int) -> None:
        """In the cache."""
        change = Resize(size_bytes)
        _apply(self.data, change)
        self.unsynced.append(change)
        self.allocated = min(self.allocated, size_bytes)

    def sync(self) -> None:
        """What was written is durable."""
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def forget_unsynced(self) -> None:
        """A sync failed: the pages count as clean from now on, though they are not on the platter."""
        self.unsynced.clear()

    def copy(self) -> "SimFile":
        """The same file in the hands of another process."""
        twin = SimFile()
        twin.data, twin.durable, twin.unsynced = bytearray(self.data), bytearray(self.durable), list(self.unsynced)
        twin.modified_ms, twin.allocated = self.modified_ms, self.allocated
        return twin

    def survivor(self, fate: "Fate", random: Random) -> "SimFile":
        """What a power cut leaves of the file."""
        data = bytearray(self.durable)
        last = len(self.unsynced) - 1
        for number, change in enumerate(self.unsynced):
            left = fate(change, number == last, random)
            if isinstance(left, Write) and isinstance(change, Write):
                left = _over_what_stood_there(data, change, left)
            if left is not None:
                _apply(data, left)
        left_over = SimFile(bytes(data))
        left_over.modified_ms = self.modified_ms
        written = len(data.rstrip(b"\0"))  # a batch may end in zeros, and room comes in whole sectors
        left_over.allocated = min(len(data), -(-written // SECTOR_BYTES) * SECTOR_BYTES)
        return left_over


Twins = dict[int, Any]
"""The copies of nodes, and of renames, by the id of what was copied."""


def twin_of(node: "SimFile | SimDirectory", twins: Twins) -> "SimFile | SimDirectory":
    """The copy of a node; each has one."""
    if id(node) not in twins:
        twins[id(node)] = node.copy(twins) if isinstance(node, SimDirectory) else node.copy()
    found: SimFile | SimDirectory = twins[id(node)]
    return found


class Half(dict[str, "SimFile | SimDirectory | None"]):
    """What one of two directories knows of a rename from one into the other."""

    def __init__(self, names: NameChange, rename: "Rename") -> None:
        super().__init__(names)
        self.rename = rename


class Rename:
    """A rename from one directory into another: one transaction of the journal, which survives whole or not at all.

    It is durable when both directories are synced, or one of them with a later change of the same name.
    """

    def __init__(self) -> None:
        self.halves: list[tuple[SimDirectory, Half]] = []
        self.unsynced_in: list[SimDirectory] = []

    def change(self, directory: "SimDirectory", names: NameChange) -> None:
        """One half of it, in the cache."""
        half = Half(names, self)
        self.halves.append((directory, half))
        self.unsynced_in.append(directory)
        directory.change(half)

    def waits(self, synced: "SimDirectory") -> bool:
        """Whether it waits for the other directory, when this one is synced."""
        self.unsynced_in = [one for one in self.unsynced_in if one is not synced]
        return bool(self.unsynced_in)

    def settle(self) -> None:
        """It is durable, with all that happened in these directories before."""
        for directory, half in self.halves:
            while any(one is half for one in directory.unsynced):
                directory.settle(directory.unsynced[0])

    def forget(self) -> None:
        """It is lost, with all that happened in these directories after it, and is not durable."""
        for directory, half in self.halves:
            numbers = [number for number, one in enumerate(directory.unsynced) if one is half]
            for number in numbers:
                lost = directory.unsynced[number:]
                del directory.unsynced[number:]
                for one in lost:
                    if isinstance(one, Half):
                        one.rename.forget()

    def copy(self, twins: Twins) -> "Rename":
        """Without its halves, which the copies of its directories add."""
        if id(self) not in twins:
            twin = twins[id(self)] = Rename()
            twin.unsynced_in = [twin_of(one, twins) for one in self.unsynced_in]  # type: ignore[misc]
        found: Rename = twins[id(self)]
        return found


class SimDirectory:
    """The names in a directory, in the cache and on the platter."""

    def __init__(self) -> None:
        self.entries: dict[str, SimFile | SimDirectory] = {}
        self.durable: dict[str, SimFile | SimDirectory] = {}
        self.unsynced: list[NameChange] = []

    def change(self, names: NameChange) -> None:
        """In the cache; all names at once or none, also over a power cut."""
        _apply_names(self.entries, names)
        self.unsynced.append(names)

    def sync(self) -> None:
        """The names are durable; a rename to or from another directory is when that is synced, too."""
        waiting: list[Half] = []
        for names in list(self.unsynced):
            if isinstance(names, Half) and names.rename.waits(self):
                waiting.append(names)
                continue
            for one in waiting:
                if one.keys() & names.keys():
                    one.rename.settle()
            self.settle(names)

    def settle(self, names: NameChange) -> None:
        """One change is durable, unless it is already."""
        if any(one is names for one in self.unsynced):
            self.unsynced = [one for one in self.unsynced if one is not names]
            _apply_names(self.durable, names)
            if isinstance(names, Half):
                names.rename.settle()

    def forget_unsynced(self) -> None:
        """A sync failed. Unlike pages, names stay in the journal until they are written, or for ever."""

    def copy(self, twins: "Twins | None" = None) -> "SimDirectory":
        """The same directory, with all that is in it, in the hands of another process."""
        twins = {} if twins is None else twins
        twin = twins[id(self)] = SimDirectory()
        twin.entries = {name: twin_of(node, twins) for name, node in self.entries.items()}
        twin.durable = {name: twin_of(node, twins) for name, node in self.durable.items()}
        for names in self.unsynced:
            copied = {name: None if node is None else twin_of(node, twins) for name, node in names.items()}
            if isinstance(names, Half):
                rename = names.rename.copy(twins)
                copied = Half(copied, rename)
                rename.halves.append((twin, copied))
            twin.unsynced.append(copied)
        return twin

    def survivor(self, fate: "Fate", random: Random) -> "SimDirectory":
        """What a power cut leaves of the names and, below them, of the files.

        The names of one directory reach the platter in the order in which they changed, as on a file system with a
        journal: after the first that is lost none survives. Between directories there is no order, but for renames.
        """
        root = self if not self._renames() else self.copy()
        while renames := root._renames():
            if fate(renames[0].halves[0][1], False, random) is None:
                renames[0].forget()
            else:
                renames[0].settle()
        return root._left(fate, random)

    def _left(self, fate: "Fate", random: Random) -> "SimDirectory":
        left = dict(self.durable)
        for names in self.unsynced:
            if fate(names, False, random) is None:
                break
            _apply_names(left, names)
        twin = SimDirectory()
        twin.entries = {
            name: node._left(fate, random) if isinstance(node, SimDirectory) else node.survivor(fate, random)
            for name, node in sorted(left.items())
        }
        twin.durable = dict(twin.entries)
        return twin

    def _renames(self) -> list[Rename]:
        """Those between directories from here on down that are not durable."""
        found = [names.rename for names in self.unsynced if isinstance(names, Half)]
        below = {**self.durable, **self.entries}
        for _, node in sorted(below.items()):
            if isinstance(node, SimDirectory):
                found += node._renames()
        return found


Fate = Callable[[Change | NameChange, bool, Random], Change | None]
"""What a power cut leaves of one unsynced change, told whether it is the last of its file: the change itself, a part of
it, or None. Of a change of names anything but None means that it survives, if those before it did."""


def everything(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
    """All unsynced changes have reached the platter all the same."""
    return Resize(0) if isinstance(change, dict) else change


def nothing(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
    """No unsynced change has reached the platter."""
    return None


def names_only(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
    """The journal with names and sizes has reached the platter, the bytes have not: they read as zeros."""
    if isinstance(change, Write):
        return Write(change.position, bytes(len(change.data)))
    return everything(change, is_last, random)


def data_only(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
    """Bytes have reached the platter, but no name that was made, changed or taken away."""
    return None if isinstance(change, dict) else change


def sampled(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
    """Each change for itself: kept, lost, torn at a byte or a sector, or zeros in place of its bytes."""
    kind = random.choice(("kept", "kept", "lost", "lost", "torn", "sectors", "zeros"))
    if not isinstance(change, Write):
        return everything(change, is_last, random) if kind in ("kept", "torn", "sectors") else None
    if kind == "kept":
        return change
    if kind == "lost":
        return None
    if kind == "torn":
        return Write(change.position, change.data[: random.randrange(len(change.data) + 1)])
    if kind == "zeros":
        return names_only(change, is_last, random)
    data = bytearray(change.data)
    for start in range(-(change.position % SECTOR_BYTES), len(data), SECTOR_BYTES):
        if random.random() < 0.5:
            begin, end = max(0, start), min(len(data), start + SECTOR_BYTES)
            data[begin:end] = bytes(end - begin)
    return Write(change.position, bytes(data))


def torn_at(size_bytes: int, *, zeros: bool = False) -> Fate:
    """All is kept, but of each file no unsynced byte from `size_bytes` on; with `zeros` they read as zeros."""

    def fate(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
        if not isinstance(change, Write):
            return everything(change, is_last, random)
        kept = change.data[: max(0, size_bytes - change.position)]
        if zeros:
            return Write(change.position, kept.ljust(len(change.data), b"\0"))
        return Write(change.position, kept) if kept else None

    return fate


def _over_what_stood_there(data: bytearray, wanted: Write, left: Write) -> Write:
    """Lost bytes read as zeros only in room that was new: a write in place that is lost leaves what was there."""
    if wanted.data.startswith(left.data):
        return left
    there = data[left.position : left.position + len(left.data)].ljust(len(left.data), b"\0")
    return Write(
        left.position,
        bytes(
            old if new == 0 != meant else new for old, new, meant in zip(there, left.data, wanted.data, strict=False)
        ),
    )


def _apply(data: bytearray, change: Change) -> None:
    """Bytes between the end and a write beyond it are zeros, as in any file."""
    size = change.size_bytes if isinstance(change, Resize) else change.position
    if len(data) < size:
        data += bytes(size - len(data))
    if isinstance(change, Resize):
        del data[change.size_bytes :]
    else:
        data[change.position : change.position + len(change.data)] = change.data


def _apply_names(entries: "dict[str, SimFile | SimDirectory]", names: NameChange) -> None:
    """A name that is taken away may be gone already: then a change before this one was lost."""
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
