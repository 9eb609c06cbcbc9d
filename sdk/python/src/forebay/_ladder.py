"""Where the bytes of a checkpoint are read from, when the nearest place does not have them as written.

::

    own memory ──▶ second copy ──▶ store ──▶ the checkpoint before
         each time: missing, lost, unreachable, or not of the checksum that it was written with
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from ._buffer import Buffer
from ._errors import ChecksumMismatch, Error, Kind, Lost, NotDirectory, NotFound, Unsupported
from ._file import File
from ._txn import Txn
from ._types import Entry, State

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt:
    """One step of a restore.

    Attributes:
        checkpoint: path of its directory.
        part: the file; "" is the checkpoint as a whole.
        rung: where the bytes were: "own memory", "memory of NODE", "second copy", "store"; "" is all.
        error: why they could not be had there; "": they were read, and equal the written ones.
    """

    checkpoint: str
    part: str
    rung: str
    error: str = ""

    def __str__(self) -> str:
        what = "/".join(p for p in (self.checkpoint, self.part) if p)
        return f"{what}: {self.rung or 'all rungs'}: {self.error or 'read'}"


@dataclass
class Record:
    """The steps of a restore, in their order.

    Attributes:
        attempts: which parts were read from which rungs, and which could not be, and why.
        checkpoint: path of the one that was read; "" until one was.
    """

    attempts: list[Attempt] = field(default_factory=list)
    checkpoint: str = ""

    def note(self, checkpoint: str, part: str, rung: str, error: str = "") -> None:
        """Add an attempt."""
        self.attempts.append(Attempt(checkpoint, part, rung, error))

    def failed(self, checkpoint: str, error: BaseException) -> None:
        """Add that a checkpoint could not be read from any rung."""
        self.note(checkpoint, "", "", str(error))

    @property
    def failures(self) -> list[Attempt]:
        """The attempts that failed."""
        return [a for a in self.attempts if a.error]

    def error(self, address: str) -> Error:
        """Return the error of a restore that found nothing to read."""
        if not self.attempts:
            return NotFound("restore", address, "there is no checkpoint")
        return Lost("restore", address, f"no checkpoint can be read:\n{self}")

    def __str__(self) -> str:
        return "\n".join(str(a) for a in self.attempts)


class Ladder:
    """The rungs from which checkpoints of a buffer are read.

    Attributes:
        buffer: through this node's daemon: its files in memory, and evicted ones.
    """

    def __init__(self, buffer: Buffer, *, second: Sequence[Buffer] = (), store: bool = True) -> None:
        """It does no I/O.

        Args:
            buffer: the buffer, through the nearest daemon.
            second: the same buffer, through daemons of other nodes, which hold second copies.
            store: whether to read the store's own files at the end, without a look at memory.
        """
        self.buffer = buffer
        self._second = tuple(second)
        self._store = store

    def parts(self, path: str, record: Record) -> Parts:
        """Return the files of a checkpoint's directory. Reads of them go into the record."""
        return Parts(self, path, record)

    def _rungs(self, copies: _StoreCopies, path: str) -> Iterator[_Rung]:
        yield _Rung("", lambda: self.buffer.open(path))
        for b in self._second:
            yield _Rung("second copy", partial(b.open, path))
        if self._store:
            yield _Rung("store", lambda: copies.open(path))


@dataclass(frozen=True)
class _Rung:
    """A place of a file, and how it is opened there. The name "" is this node's daemon."""

    name: str
    open: Callable[[], File]


def place_of(entry: Entry, node: str) -> str:
    """Return where the bytes of a file are that a node's daemon has opened."""
    if entry.state is State.EVICTED:
        return "store"
    owner = entry.holders[0] if entry.holders else node
    return "own memory" if owner == node else f"memory of {owner}"


class _StoreCopies:
    """Copies of the store's files, made below a transaction that is never committed."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._txn: Txn | None = None

    def open(self, path: str) -> File:
        info = self._buffer.client.buffer_info(self._buffer.name)
        address = self._buffer.address(path)
        if not info.backing:
            raise Unsupported("restore", address, "the buffer has no store")
        if info.codec:
            raise Unsupported("restore", address, f"files of the store are compressed by {info.codec}")
        if self._txn is None:
            # Any destination will do, since it is never touched. One that is not there would be made.
            folder = path.rpartition("/")[0]
            if not self._buffer.stat(folder).is_directory:
                raise NotDirectory("restore", self._buffer.address(folder))
            self._txn = self._buffer.begin(folder)
        attempt = uuid.uuid4().hex
        copy = self._txn.path("restore", attempt)
        self._buffer.makedirs(copy)
        copy += "/copy"
        self._buffer.stage_in(copy, f"{info.backing.rstrip('/')}/{quote(path)}")
        return self._buffer.open(copy)

    def close(self) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            try:
                txn.abort()
            except Error:
                pass  # its lease runs out


#: The kinds of errors of rungs that do not have a file, and of a buffer that has no store.
_ABSENT = {Kind.NOT_FOUND, Kind.NOT_DIRECTORY, Kind.UNSUPPORTED}


class _Climb:
    """One file on its way down the ladder."""

    def __init__(self, rungs: Iterator[_Rung]) -> None:
        self.rungs = rungs
        self.rung = ""
        self.file: File | None = None
        self.noted = False
        self.errors: list[tuple[str, Error]] = []  # of rungs that do not have it

    def error(self, address: str, known: bool) -> Error:
        """Return the error of a file that no rung has.

        Args:
            address: the file's.
            known: whether it was there once.
        """
        if not known and {e.kind for _, e in self.errors} <= _ABSENT:
            return NotFound("restore", address, "there is no such file on any rung")
        why = "; ".join(f"{rung}: {e}" for rung, e in self.errors)
        return Lost("restore", address, f"no rung has it as it was written: {why}")


class Parts:
    """The files of one checkpoint, each read from the first rung that has it. It may be used concurrently."""

    def __init__(self, ladder: Ladder, path: str, record: Record) -> None:
        self._ladder = ladder
        self._path = path
        self._record = record
        self._copies = _StoreCopies(ladder.buffer)
        self._lock = threading.Lock()  # guards the fields below, and is held while a part is read
        self._climbs: dict[str, _Climb] = {}

    def read_into(self, name: str, size: int, checksum: int, offset: int, target: memoryview) -> None:
        """Fill target from an offset of a part on. Lost if no rung has its bytes as they were written."""

        def fill(f: File) -> None:
            if (f.entry.size, f.entry.checksum) != (size, checksum):
                raise ChecksumMismatch(
                    "read", f.name, "it is not the file that the checkpoint was written with"
                )
            if f.pread_into(offset, target, verify=True) != len(target):
                raise Lost("read", f.name, "the file is cut short")

        self._climb(name, fill, known=True)

    def read(self, name: str, decode: Callable[[bytes], T]) -> T:
        """Return the decoded content of a whole file, whose size and checksum are unknown.

        NotFound if it is on no rung. Lost if none has it undamaged.
        """

        def whole(f: File) -> T:
            data = bytearray(f.size)
            f.pread_into(0, data, verify=True)
            return decode(bytes(data))

        return self._climb(name, whole, known=False)

    def _climb(self, name: str, use: Callable[[File], T], known: bool) -> T:
        path = f"{self._path}/{name}"
        with self._lock:
            c = self._climbs.get(name)
            if c is None:
                c = self._climbs[name] = _Climb(self._ladder._rungs(self._copies, path))
            while True:
                if c.file is None and not self._next(c, name):
                    raise c.error(self._ladder.buffer.address(path), known)
                assert c.file is not None
                try:
                    got = use(c.file)
                except Error as e:
                    self._failed(c, name, e)
                    c.file.close()
                    c.file = None
                    continue
                if not c.noted:
                    c.noted = True
                    self._record.note(self._path, name, c.rung)
                return got

    def _failed(self, c: _Climb, name: str, e: Error) -> None:
        c.errors.append((c.rung, e))
        self._record.note(self._path, name, c.rung, str(e))

    def _next(self, c: _Climb, name: str) -> bool:
        """Open a file on the next rung that has it. Report whether there is one."""
        for rung in c.rungs:
            c.noted = False
            c.rung = rung.name or "own memory"
            try:
                c.file = rung.open()
            except Error as e:
                self._failed(c, name, e)
                continue
            if not rung.name:
                c.rung = place_of(c.file.entry, self._ladder.buffer.client.server.node)
            return True
        return False

    def close(self) -> None:
        """Let go of the files, and of copies of the store's. It may be called twice."""
        with self._lock:
            climbs, self._climbs = self._climbs, {}
            for c in climbs.values():
                if c.file is not None:
                    c.file.close()
            self._copies.close()
