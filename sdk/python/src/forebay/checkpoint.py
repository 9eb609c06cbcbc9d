"""Checkpoints: directories that are there whole or not at all, and are found, thinned out and restored.

It needs numpy alone. forebay.torch lays PyTorch's distributed checkpoints on it. A checkpoint is a directory
whose name ends with its number::

    RUN/step-10/checkpoint.json     the index: {"checksum": CRC-64/NVME of the rest, "index": {…}}
    RUN/step-10/part-0              the part of one rank: items, each at a multiple of 64 bytes
    RUN/step-10/part-1

Everything in it becomes visible in one step, by a transaction::

    Saving.begin ──▶ part, part, … ──▶ commit ──▶ resident ──▶ durable
                          │ a rank, the coordinator or the daemon dies
                          ▼
                     aborted, when the transaction's lease runs out: nothing was ever visible
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _scope
from ._buffer import Buffer, clean
from ._crc import crc64
from ._errors import Busy, Cancelled, Error, Invalid, NotDirectory, NotFound, Unavailable
from ._file import File
from ._ladder import Attempt, Ladder, Record
from ._staging import Piece
from ._txn import Txn
from ._types import Entry, Progress, State, TxnState

__all__ = [
    "INDEX",
    "Attempt",
    "Found",
    "Index",
    "Item",
    "Ladder",
    "Opened",
    "Part",
    "PartInfo",
    "Place",
    "Record",
    "Saved",
    "Saving",
    "candidates",
    "expendable",
    "find",
    "keep",
    "latest",
    "load",
    "restore",
    "save",
    "step_of",
]

#: The name of a checkpoint's index.
INDEX = "checkpoint.json"

_FORMAT = 1
_ALIGN = 64
_MAX_INDEX = 1 << 30
_LEASE_SECONDS = 600.0
_NUMBERED = re.compile(r"(?:.*[^0-9])?([0-9]{1,18})", re.S)
_PADDING = bytes(_ALIGN)


@dataclass(frozen=True)
class Place:
    """The place of an item's bytes: length bytes of a part, from an offset on."""

    part: str
    offset: int
    length: int


@dataclass(frozen=True)
class PartInfo:
    """A part as it was written.

    Attributes:
        name: of the file in the checkpoint's directory.
        size: bytes.
        checksum: CRC-64/NVME of all of them.
    """

    name: str
    size: int
    checksum: int


@dataclass(frozen=True)
class Item:
    """An array of a checkpoint that was written without torch.

    Attributes:
        place: where its bytes lie, in C order.
        dtype: as numpy's ``dtype.str`` has it.
        shape: the lengths of its dimensions.
    """

    place: Place
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """The content of a checkpoint.

    Attributes:
        parts: every file besides the index.
        items: arrays by name; empty where another layer keeps its own record in a part.
        note: the program's addition: any JSON value.
    """

    parts: tuple[PartInfo, ...]
    items: Mapping[str, Item] = field(default_factory=dict)
    note: Any = None

    def part(self, name: str) -> PartInfo:
        """Return the part of a name. NotFound if there is none."""
        for p in self.parts:
            if p.name == name:
                return p
        raise NotFound("checkpoint", name, "the checkpoint has no such part")

    def encode(self) -> bytes:
        """Return the index as a file holds it."""
        text = _canonical(
            {
                "format": _FORMAT,
                "parts": [{**asdict(p), "checksum": f"{p.checksum:016x}"} for p in self.parts],
                "items": {name: asdict(i) for name, i in self.items.items()},
                "note": self.note,
            }
        )
        return f'{{"checksum":"{crc64(text, 0):016x}","index":'.encode() + text + b"}"

    @classmethod
    def decode(cls, data: bytes, address: str = "") -> Index:
        """Return the index that a file holds. Invalid if it does not hold one as it was written."""
        try:
            outer = json.loads(data)
            inner = outer["index"]
            if crc64(_canonical(inner), 0) != int(outer["checksum"], 16):
                raise ValueError("it does not have the checksum that it was written with")
            if inner["format"] != _FORMAT:
                raise ValueError(f"its format is {inner['format']!r}, and this package reads {_FORMAT}")
            parts = tuple(
                PartInfo(str(p["name"]), int(p["size"]), int(p["checksum"], 16)) for p in inner["parts"]
            )
            items = {
                str(name): Item(Place(**i["place"]), str(i["dtype"]), tuple(int(n) for n in i["shape"]))
                for name, i in inner["items"].items()
            }
            return cls(parts, items, inner["note"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise Invalid("checkpoint", address, f"the index of a checkpoint cannot be read: {e}") from e


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass
class Saved:
    """A checkpoint that was committed.

    Attributes:
        buffer: the buffer that has it.
        path: of its directory.
        resident: done: all of it is visible, and survives the processes and the daemon.
    """

    buffer: Buffer
    path: str
    resident: Future[str] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.resident.set_result(self.path)

    @cached_property
    def durable(self) -> Future[Progress]:
        """Done when all of it is on the buffer's store, or with the error.

        The first use begins to wait, on a thread of its own. A checkpoint that is removed meanwhile
        (``keep``) has nothing left to save, and is done, too. Where a flush rule of the buffer keeps the
        checkpoint in memory, the wait flushes it all the same. One that a newer checkpoint has superseded
        never is, and fails with Cancelled.
        """
        done: Future[Progress] = Future()
        done.set_running_or_notify_cancel()

        def wait() -> None:
            try:
                progress = self.buffer.drain(self.path)
                if progress.superseded_total:
                    reason = "a newer checkpoint is complete, and a flush rule leaves this one out"
                    raise Cancelled("drain", self.buffer.address(self.path), reason)
                done.set_result(progress)
            except NotFound:
                done.set_result(Progress(done=True))
            except BaseException as e:
                done.set_exception(e)

        threading.Thread(target=wait, name=f"forebay durable {self.path}", daemon=True).start()
        return done


def _settled(change: Callable[[], object]) -> None:
    """Carry out a change that only this process makes again, until its outcome is known.

    Where the daemon died before it answered, the change may have been carried out, or not.
    """
    while True:
        try:
            change()
        except Unavailable as e:
            if not e.outcome_unknown:
                raise
        else:
            return


class Part:
    """A file of a checkpoint that is being saved. One thread at a time may use it.

    A ``with`` block that ends with an exception leaves nothing.
    """

    def __init__(self, saving: Saving, name: str) -> None:
        self._saving = saving
        self._attempt = uuid.uuid4().hex
        self.name = name
        folder = saving.txn.path(name, self._attempt)
        _settled(lambda: saving.buffer.makedirs(folder))
        self._path = f"{folder}/{name}"
        self._file: File = saving.buffer.open(self._path, "wb")

    def add(self, data: Any) -> Place:
        """Write the bytes of any contiguous buffer as the next item. Return where they lie.

        It keeps the transaction alive, however long the saving takes.
        """
        self._saving.renew()
        self._pad()
        begin = self._file.tell()
        return Place(self.name, begin, self._file.write(data))

    def add_staged(self, pieces: Sequence[Piece]) -> Place:
        """Make memory of the buffer, which is filled already, the next item, one piece after the other.

        It is not copied, unless it is part of a file already.
        """
        self._saving.renew()
        self._pad()
        begin = self._file.tell()
        for piece in pieces:
            if piece.take_once():
                self._file._place(piece)
            else:
                self._file.write(np.asarray(piece))
        return Place(self.name, begin, self._file.tell() - begin)

    def _pad(self) -> None:
        n = -self._file.tell() % _ALIGN
        if n:
            self._file.write(_PADDING[:n])

    def close(self) -> PartInfo:
        """Commit the file and make it the part of the checkpoint. Return its entry.

        Busy if another process has written the part of this name.
        """
        self._file.close()
        entry = self._saving.buffer.stat(self._path)
        winner = self._saving.txn.adopt(self.name, self._attempt)
        if winner != self._attempt:
            reason = "another process has written this part of the checkpoint"
            raise Busy("save", self._saving.buffer.address(f"{self._saving.path}/{self.name}"), reason)
        return PartInfo(self.name, entry.size, entry.checksum)

    def abort(self) -> None:
        """Discard the written bytes. After close it does nothing."""
        self._file.abort()

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()  # close gives the PartInfo, so a block that has not called it has no part


class Saving:
    """A checkpoint that is being written, by many processes at the same time.

    One of them begins it and commits it. The others join it by its transaction's id. It may be used
    concurrently.

    Attributes:
        buffer: where it goes.
        path: of its directory.
        txn: the transaction.
    """

    def __init__(self, buffer: Buffer, path: str, txn: Txn, lease: float = _LEASE_SECONDS) -> None:
        self.buffer = buffer
        self.path = clean(path)
        self.txn = txn
        self._lease = lease
        self._renewed = time.monotonic()

    @classmethod
    def begin(cls, buffer: Buffer, path: str, *, lease: float = _LEASE_SECONDS) -> Saving:
        """Begin a checkpoint, which replaces the one that the directory holds, if any.

        Args:
            buffer: where it goes.
            path: of its directory.
            lease: for how many seconds written parts stay when no process writes or commits any more.
        """
        return cls(buffer, path, buffer.begin(path, lease=lease), lease)

    @classmethod
    def join(cls, buffer: Buffer, path: str, txn: str, *, lease: float = _LEASE_SECONDS) -> Saving:
        """Return the checkpoint that another process has begun. It does no I/O."""
        return cls(buffer, path, buffer.txn(txn), lease)

    def renew(self) -> None:
        """Keep the transaction for another lease, if a third of it has passed. Cancelled if it is aborted."""
        now = time.monotonic()
        if now - self._renewed > self._lease / 3:
            self.txn.renew()
            self._renewed = now

    def part(self, name: str) -> Part:
        """Begin a part, whose name no other part of the checkpoint has."""
        if not name or "/" in name or name == INDEX:
            raise Invalid("save", name, "a part's name is that of one file, and not the index's")
        return Part(self, name)

    def commit(
        self, parts: Sequence[PartInfo], *, items: Mapping[str, Item] | None = None, note: Any = None
    ) -> Saved:
        """Make the checkpoint visible in one step. The former content of the directory is removed with it.

        It may be repeated. Cancelled if the transaction was aborted.

        Args:
            parts: those that were written, of all processes.
            items: where arrays lie.
            note: the program's addition, as JSON.
        """
        index = Index(tuple(parts), items or {}, note).encode()
        attempt = uuid.uuid4().hex
        folder = self.txn.path("index", attempt)
        if self.txn.info().state is TxnState.OPEN:
            _settled(lambda: self.buffer.makedirs(folder))
            self.buffer.write_bytes(f"{folder}/{INDEX}", index)
            self.txn.adopt("index", attempt)
        self.txn.commit(["."])
        return Saved(self.buffer, self.path)

    def abort(self) -> None:
        """Remove all that was written, unless it is committed. An error is left to the lease."""
        try:
            with _scope.shielded():
                self.txn.abort()
        except Error:
            pass


# Listings.


@dataclass(frozen=True)
class Found:
    """A directory that holds a checkpoint, or the rest of one.

    Attributes:
        path: of the directory.
        step: the number at the end of its name.
        whole: whether every part is there, and has its size and checksum.
        durable: whether it is whole, and all of it is on the store.
        why: why it is not whole or not durable; "" otherwise.
    """

    path: str
    step: int
    whole: bool
    durable: bool
    why: str = ""


def step_of(name: str) -> int | None:
    """Return the number at the end of a directory's name, or None if it does not end with one."""
    m = _NUMBERED.fullmatch(name)
    return int(m[1]) if m else None


def _numbered(buffer: Buffer, path: str) -> list[Entry]:
    """Return the directories of a directory whose names end with a number, the highest first."""
    try:
        entries = [e for e in buffer.scan(path) if e.is_directory and step_of(e.name) is not None]
    except NotFound:
        return []
    return sorted(entries, key=lambda e: (step_of(e.name), e.name), reverse=True)


def read_index(buffer: Buffer, path: str) -> Index:
    """Return the index of the checkpoint that lies in a directory.

    NotFound if there is none. ChecksumMismatch or Invalid if it was damaged.
    """
    p = f"{clean(path)}/{INDEX}"
    with buffer.open(p) as f:
        if f.size > _MAX_INDEX:
            raise Invalid("checkpoint", buffer.address(p), f"an index of {f.size} bytes")
        data = bytearray(f.size)
        f.pread_into(0, data, verify=True)
    return Index.decode(bytes(data), buffer.address(p))


def judge(path: str, step: int, index: Index, entries: Mapping[str, Entry]) -> Found:
    """Return the state of a checkpoint, from its index and the entries of its directory by name."""
    for p in index.parts:
        e = entries.get(p.name)
        if e is None:
            return Found(path, step, False, False, f"{p.name} is missing")
        if e.state is State.LOST:
            return Found(path, step, False, False, f"{p.name} is lost: {e.reason}")
        if (e.size, e.checksum) != (p.size, p.checksum):
            return Found(path, step, False, False, f"{p.name} is not as it was written")
    for name in (INDEX, *(p.name for p in index.parts)):
        if entries[name].state not in (State.CLEAN, State.EVICTED):
            return Found(path, step, True, False, f"{name} is not on the store yet")
    return Found(path, step, True, True)


def find(buffer: Buffer, path: str) -> Iterator[Found]:
    """Yield the checkpoints of a directory, the newest (that of the highest number) first.

    Directories without an index are none of it.
    """
    for d in _numbered(buffer, path):
        step = step_of(d.name) or 0
        try:
            entries = {e.name: e for e in buffer.scan(d.path)}
            if INDEX not in entries:
                continue
            index = read_index(buffer, d.path)
        except (NotFound, NotDirectory):
            continue  # it was removed meanwhile
        except Error as e:
            yield Found(d.path, step, False, False, str(e))
            continue
        yield judge(d.path, step, index, entries)


def candidates(buffer: Buffer, path: str) -> list[str]:
    """Return the paths of a directory's checkpoints, whole or not, the newest first."""
    return [d.path for d in _numbered(buffer, path) if buffer.exists(f"{d.path}/{INDEX}")]


def _durable(state: str) -> bool:
    if state not in ("resident", "durable"):
        raise Invalid("checkpoint", state, 'the state of a checkpoint is "resident" or "durable"')
    return state == "durable"


def latest(buffer: Buffer, path: str, *, state: str = "resident") -> Found | None:
    """Return the newest checkpoint of a directory that is whole, or None if there is none.

    Its bytes are not read. ``restore`` does that, and continues with the one before if they are damaged.

    Args:
        buffer: where it lies.
        path: the directory of the checkpoints.
        state: "resident": it is whole; "durable": all of it is on the store.
    """
    need_durable = _durable(state)
    return next((f for f in find(buffer, path) if (f.durable if need_durable else f.whole)), None)


def expendable(found: Sequence[Found], *, last: int, every: int = 0, state: str = "durable") -> list[Found]:
    """Return those of some checkpoints, the newest first, that are no longer needed.

    Needed are the last whole ones, those whose number is a multiple of every, and each that has no
    newer one in the state.
    """
    need_durable = _durable(state)
    if last < 1 or every < 0:
        raise Invalid("keep", "", f"last is {last}, every is {every}", "keep at least the last one")
    gone = []
    whole = 0
    successor = False
    for f in found:
        recent = f.whole and whole < last
        landmark = f.whole and every > 0 and f.step % every == 0
        if successor and not recent and not landmark:
            gone.append(f)
        whole += f.whole
        successor |= f.durable if need_durable else f.whole
    return gone


def keep(buffer: Buffer, path: str, *, last: int = 3, every: int = 0, state: str = "durable") -> list[Found]:
    """Remove the checkpoints of a directory that are no longer needed. Return them.

    A checkpoint is removed only while a newer one is on the store, under any other options, so
    that there is always one to restore. One process at a time may do it.

    Args:
        buffer: where they lie.
        path: the directory of the checkpoints.
        last: how many of the newest that are whole stay.
        every: those whose number is a multiple of it stay, too; 0: no others.
        state: of the newer one: "durable", or "resident" for a buffer without a store.
    """
    gone = expendable([*find(buffer, path)], last=last, every=every, state=state)
    for f in gone:
        # Without its index it is none any more, wherever the removal of the rest is interrupted.
        for remove, what in ((buffer.remove, f"{f.path}/{INDEX}"), (buffer.rmtree, f.path)):
            try:
                _settled(partial(remove, what))
            except NotFound:
                pass
    return gone


# Reading.


class Opened:
    """A checkpoint that is being read. Every byte that it returns was checked.

    Bytes that a rung lacks, or has damaged, are read from the next one (Ladder). It may be used concurrently.

    Attributes:
        path: of the directory.
        index: its content.
        record: from which rungs it was read, and why not from others.
    """

    def __init__(self, ladder: Ladder, path: str, record: Record | None = None) -> None:
        """Read the index. NotFound if no rung has one. Another error has the reasons, as the record."""
        self.path = clean(path)
        self.record = record if record is not None else Record()
        self._parts = ladder.parts(self.path, self.record)
        self.index = self._parts.read(INDEX, lambda data: Index.decode(data, ladder.buffer.address(path)))

    def read_into(self, place: Place, target: Any, offset: int = 0) -> None:
        """Fill a writable buffer with the bytes of an item, from an offset in it on.

        Lost if no rung has them as they were written.
        """
        part = self.index.part(place.part)
        view = memoryview(target).cast("B")
        if offset < 0 or offset + len(view) > place.length or place.offset + place.length > part.size:
            reason = f"{len(view)} bytes from {offset} on are not within an item of {place.length} bytes"
            raise Invalid("load", f"{self.path}/{place.part}", reason)
        if len(view):
            self._parts.read_into(part.name, part.size, part.checksum, place.offset + offset, view)

    def read(self, place: Place) -> bytearray:
        """Return the bytes of an item."""
        data = bytearray(place.length)
        self.read_into(place, data)
        return data

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array of a checkpoint that ``save`` or ``Saving.commit`` has named."""
        item = self.index.items.get(name)
        if item is None:
            raise NotFound("load", f"{self.path}: {name}", "the checkpoint has no such item")
        try:
            got = np.empty(item.shape, dtype=np.dtype(item.dtype))
        except (TypeError, ValueError, MemoryError) as e:
            raise Invalid("load", f"{self.path}: {name}", str(e)) from e
        if got.dtype.hasobject or got.nbytes != item.place.length:
            raise Invalid("load", f"{self.path}: {name}", f"{item.place.length} bytes are not such an array")
        if got.nbytes:
            self.read_into(item.place, got.reshape(-1).view(np.uint8).data)
        return got

    def close(self) -> None:
        """Let go of the files. It may be called twice."""
        self._parts.close()

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def restore(
    ladder: Ladder | Buffer, path: str, read: Callable[[Opened], Any], *, record: Record | None = None
) -> tuple[Any, Record]:
    """Read the newest checkpoint of a directory that can be read, and return it as it was read.

    The ladder is climbed down for each part on its own. Where it ends, the checkpoint before is read from the
    beginning. NotFound if there is no checkpoint at all. Lost if none can be read. Either error's text is the
    record's.

    Args:
        ladder: where bytes are read from; a buffer is its own memory, and its store.
        path: the directory of the checkpoints.
        read: is called with the checkpoint; when it raises a forebay.Error, the one before is tried.
        record: where attempts are noted, as they happen; None: in a new one.
    """
    record = record if record is not None else Record()
    if isinstance(ladder, Buffer):
        ladder = Ladder(ladder)
    for one in candidates(ladder.buffer, path):
        try:
            with Opened(ladder, one, record) as opened:
                value = read(opened)
        except Error as e:
            record.failed(one, e)
            continue
        record.checkpoint = one
        return value, record
    raise record.error(ladder.buffer.address(path))


def save(buffer: Buffer, path: str, arrays: Mapping[str, Any], *, note: Any = None) -> Saved:
    """Write arrays as a checkpoint, from one process.

    Args:
        buffer: where it goes.
        path: of its directory, whose name ends with its number.
        arrays: all that numpy makes arrays of, without Python objects in them.
        note: the program's addition, as JSON.
    """
    saving = Saving.begin(buffer, path)
    try:
        with saving.part("part-0") as part:
            items = {name: _add_named(part, name, array) for name, array in arrays.items()}
            info = part.close()
        return saving.commit([info], items=items, note=note)
    except BaseException:
        saving.abort()
        raise


def add_array(part: Part, array: Any) -> Item:
    """Write an array as the next item of a part. Return its entry in the index."""
    a = np.asarray(array)
    if a.dtype.hasobject or a.dtype.names is not None:
        raise Invalid("save", part.name, f"an array of {a.dtype} cannot be written as its bytes")
    flat = np.ascontiguousarray(a).reshape(-1)
    return Item(part.add(flat.view(np.uint8)), a.dtype.str, a.shape)


def _add_named(part: Part, name: str, array: Any) -> Item:
    try:
        return add_array(part, array)
    except Invalid as e:
        raise Invalid(
            "save", f"{part.name}: {name}", e.reason, "give arrays by name, not in dictionaries"
        ) from e


def load(buffer: Buffer, path: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a checkpoint that ``save`` has written. NotFound if there is none."""
    with Opened(Ladder(buffer), path) as opened:
        return {name: opened.array(name) for name in opened.index.items}
