"""A file that is open for writing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _fork, _scope, _wire
from ._crc import crc64
from ._errors import Broken, Error, Invalid, Kind, Lost, NotFound, Unavailable, unknown
from ._leases import MOST, Asked, Lease, Memory, grown
from ._reader import Reader
from ._regions import Bytes
from ._session import Session
from ._staging import Piece, extents_of, whole
from ._types import State

if TYPE_CHECKING:
    from ._client import Client

_EXTENT = 1 << 20  # no extent crosses a multiple of it in the file
_MAX_EXTENTS = 8000  # a commit of them fits into a message
_MAX_FILE = 1 << 50
_WORTH_TAKING = 64 << 10
_FLUSH_POLL_SECONDS = 0.05


@dataclass(eq=False)
class _Extent:
    """A run of the file's bytes that waits for a commit."""

    memory: Memory
    at: int  # in the memory
    offset: int  # in the file
    length: int = 0
    sum: int = 0
    of: Piece | None = None  # keeps the memory leased

    @property
    def bytes(self) -> Bytes:
        return self.memory.bytes[self.at : self.at + self.length]


@dataclass(frozen=True)
class OpenFlags:
    """The options of a file that is opened for writing.

    Attributes:
        create: make the file if it is missing.
        exclusive: with create, fail if it is there; its name is visible at once.
        truncate: begin from nothing; the old content is seen until the first commit.
        mode: permission bits of a new file.
        fence: end the writing by others: their commits stay.
    """

    create: bool = False
    exclusive: bool = False
    truncate: bool = False
    mode: int = 0o644
    fence: bool = False


class Writer:
    """Writes one file. Bytes are copied once, into a region, and nothing is visible before a commit.

    ::

        open ──commit──▶ open ──commit (close)──▶ closed ◀── abort
          ▲ connection broke: resume

    Resuming opens the same generation again and writes unacknowledged bytes a second time, from
    the old leases, which stay mapped, into new ones. Calls are carried out one after the other.
    """

    def __init__(self, client: Client, buffer: str, path: str, flags: OpenFlags) -> None:
        self._client = client
        self._leases = client.leases(buffer)
        self._buffer = buffer
        self._path = path
        self._flags = flags
        self._turn = threading.RLock()  # guards the fields below

        self._session: Session
        self._handle = 0
        self._file = 0
        self._goes_on = 0  # the file of which a generation was closed, and the next one continues
        self._generation = 0
        self._tier = 0  # where its bytes belong
        self._acknowledged = False  # something of this generation
        self._doubt = False  # a commit may have landed whose answer was lost
        self._base = 0  # the file's committed generation when it was opened; 0: there was no file
        self._closing = False
        self._landed = False  # the closing commit has
        self._closed = False
        self._forked = False
        self._broken: Error | None = None  # the error that ends all use of the file

        self._writer = random.SystemRandom().getrandbits(64) | 1
        self._number = 0  # of the last commit that was sent
        self._remembered = 0  # the number of our last commit in a generation that was closed
        self._sent = -1  # bytes written at that time, if they are not acknowledged

        self._pending: list[_Extent] = []
        self._asides: list[list[_Extent]] = []  # was pending, and is being written again elsewhere
        self._memory: Memory | None = None  # being filled
        self._asked: Asked | None = None  # the lease that a write needs next
        self._inline: Memory | None = None  # bytes that travel in the commit
        self._small = True  # it is not worth a lease yet
        self._reserved: tuple[Lease, int, int, int] | None = None  # at, bytes, offset in the file

        self.size = 0  # bytes of the file, uncommitted ones included
        self._written = 0

        sent = False

        def open_first(s: Session) -> None:
            nonlocal sent
            if sent and (flags.exclusive or flags.fence):
                raise self._unknown_open()
            try:
                self._open(s, flags.create, flags.exclusive, flags.truncate)
            except Broken as e:
                sent |= e.sent
                raise

        client.retry(open_first)
        self._leases.enter()
        client.opened(self)
        _fork.register(self)

    def _after_fork(self) -> None:
        self._turn = threading.RLock()
        self._forked = True
        self._reserved = None
        self._asked = None

    @property
    def address(self) -> str:
        """The file's bb:// address."""
        return f"bb://{self._buffer}/{self._path}"

    @property
    def closed(self) -> bool:
        """Whether close or abort was called."""
        return self._closed

    def _unknown_open(self) -> Error:
        fence = self._flags.fence
        return unknown(
            "recover" if fence else "create",
            self.address,
            "the connection broke before the daemon answered",
            "do it again: it does no harm where nobody writes" if fence else "check whether the file exists",
        )

    def _open(self, s: Session, create: bool, exclusive: bool, truncate: bool) -> bool:
        """Open the file in a session. Return whether the generation was closed meanwhile."""
        handle = s.next_handle()
        m = _wire.Open(
            handle=handle,
            buffer=self._buffer,
            path=self._path,
            write=True,
            create=create,
            exclusive=exclusive,
            truncate=truncate,
            mode=self._flags.mode,
            resume_file=self._file,
            resume_generation=self._generation,
            resume_committed=self._acknowledged,
            resume_writer=self._writer if self._file else 0,
            fence=self._flags.fence and not self._file,
        )
        try:
            opened = s.ask(_wire.TYPE_OPEN, m, _wire.Opened)
        except Broken:
            raise
        except BaseException:
            s.close_handle(handle)  # an open that failed leaves a handle, too
            raise
        self._session, self._handle = s, handle
        if opened.already_closed:
            self._remembered = opened.committed
            return True
        e = opened.entry
        if self._goes_on and self._goes_on != e.file:
            raise self._fail(
                Unavailable(
                    "open",
                    self.address,
                    "the connection broke, and another file has this name since",
                    "write the file again",
                )
            )
        self._file = e.file
        self._generation = opened.generation
        self._base = e.generation
        self._tier = opened.tier
        self.size = max(self.size, e.size)
        self._acknowledged |= exclusive  # its name is visible
        return False

    def _live(self, step: Callable[[Session], None]) -> None:
        """Run a step while the file is open in a live session, resuming it if need be."""

        def run(s: Session) -> None:
            self._raise_if_broken()
            if self._session is not s:
                self._resume(s)
            step(s)

        self._client.retry(run)

    def _resume(self, s: Session) -> None:
        """Open the file again at its position, and write unacknowledged bytes again."""
        old = (self._file, self._generation, self._base)
        old_size = self.size
        f = self._flags
        try:
            closed = self._open(s, f.create, f.exclusive, f.truncate)
        except Error as e:
            if self._doubt and e.kind in (Kind.NOT_FOUND, Kind.LOST):
                raise self._fail(self._unknown_commit()) from e  # gone, with the commit or without
            raise
        if closed:
            self._reopen(s)
        elif self._doubt and not self._may_send_again(*old):
            self._resolve(old_size)
        if self._landed:
            return
        if any(isinstance(e.memory, Lease) and e.memory.session is not s for e in self._pending):
            self._move()
        elif isinstance(self._memory, Lease) and self._memory.session is not s:
            self._memory.release()
            self._memory = None

    def _may_send_again(self, file: int, generation: int, base: int) -> bool:
        """Report whether a commit that was not answered may be sent again to the file opened now.

        That is the generation that it was sent to, whose owner carries it out once, or a file without a
        commit by others since it was first opened.
        """
        if self._base == 0 and base == 0:
            return True
        return self._file == file and (self._generation == generation or self._base == base)

    def _resolve(self, with_it: int) -> None:
        """Determine the outcome of an unanswered commit, after the file got another content.

        Either the commit is that content, or the outcome is unknown.
        """
        try:
            r = Reader(self._client, self._buffer, self._path)
            try:
                if r.entry.size != with_it or not self._holds_pending(r):
                    raise self._fail(self._unknown_commit())
                at, generation = r.entry.file, r.entry.generation
            finally:
                r.close()
        except NotFound as e:
            raise self._fail(self._unknown_commit()) from e
        self._doubt = False
        if not self._closing:
            # No commit was ever acknowledged, so all that was written is pending still. It goes
            # into the reopened file, which may have begun without it.
            self._sent = -1
            return
        leave = _wire.Commit(handle=self._handle, close=True, abort=True)
        self._session.post(_wire.TYPE_COMMIT, leave)
        self._file, self._generation = at, generation
        self._all_committed()
        self._landed = True
        self._await_flush()

    def _unknown_commit(self) -> Error:
        return unknown(
            "close" if self._closing else "sync",
            self.address,
            "the connection broke before the daemon answered, and the file has other content since",
            "check the file's content, and write it again if needed",
        )

    def _fail(self, e: Error) -> Error:
        self._broken = e
        return e

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _reopen(self, s: Session) -> None:
        """Go on after the generation was closed.

        The daemon closed it when it missed its writer, or the closing commit landed and its answer
        was lost.
        """
        s.close_handle(self._handle)
        if self._doubt:
            # While something is aside, the last commit may have been of a part.
            last = not self._asides and self._sent == self._written and 0 < self._number <= self._remembered
            there = last or self._pending_is_there()
            self._doubt = False
            if there:
                self._all_committed()
                if self._closing:
                    self._landed = True
                    self._await_flush()
                    return
        # A new generation, on top of the closed one. Pending bytes go to the same places.
        self._goes_on = self._file
        self._file = self._generation = 0
        self._acknowledged = False
        self._open(s, False, False, False)

    def _await_flush(self) -> None:
        """Wait, where the buffer's durability requires it, until the file is on the store.

        The answer with that result was lost.
        """
        if self._client.buffer_info(self._buffer).durability != "flushed":
            return
        while True:
            e = self._client.buffer(self._buffer).stat(self._path)
            if e.file != self._file or e.generation != self._generation:
                reason = "it was committed, but replaced before it was known to be on the store"
                raise Unavailable("close", self.address, reason)
            if e.state in (State.CLEAN, State.EVICTED):
                return
            _scope.sleep(_FLUSH_POLL_SECONDS)

    def _pending_is_there(self) -> bool:
        """Report whether everything uncommitted is in the file as it is now."""
        try:
            r = Reader(self._client, self._buffer, self._path)
        except NotFound as e:
            raise self._fail(self._unknown_commit()) from e
        try:
            if r.entry.file != self._file or r.entry.generation != self._generation:
                raise self._fail(self._unknown_commit())
            return self._holds_pending(r)
        finally:
            r.close()

    def _holds_pending(self, r: Reader) -> bool:
        p = np.empty(_EXTENT, dtype=np.uint8)
        for e in [*self._pending, *(x for aside in self._asides for x in aside)]:
            q = p[: e.length]
            if r.read_into(e.offset, q) < e.length or crc64(q.data, 0) != e.sum:
                return False
        return True

    def _move(self) -> None:
        """Write everything pending to other memory.

        If the connection breaks meanwhile, nothing is lost. Bytes written again by then are put aside, too.
        """
        aside = self._pending
        self._asides.append(aside)
        self._pending = []
        old = _distinct([e.memory for e in aside])
        if self._memory is not None and self._memory not in old:
            _drop(self._memory)
        self._memory = None
        if self._inline in old:
            self._inline = None
        before = self._written
        try:
            for m in old:
                mine = [e for e in aside if e.memory is m]
                copies = self._copy_out(mine)
                # It is given up first, since it may be all that the daemon can lease next.
                _drop(m)
                for e, data in zip(mine, copies, strict=True):
                    self._put(data, e.offset)
                    if not any(a is aside for a in self._asides):
                        return  # it turned out to be committed when the connection broke on the way
        except BaseException as e:  # not all bytes put aside are back
            if isinstance(e, Error):
                self._broken = e
            else:
                reason = f"it was interrupted while it was written again: {e}"
                self._broken = Unavailable("write", self.address, reason, "write the file again")
            raise
        finally:
            self._written = before
            self._asides = [a for a in self._asides if a is not aside]
            for m in old:
                _drop(m)

    def _copy_out(self, extents: list[_Extent]) -> list[Bytes]:
        """Return checked copies of extents of a memory, since bytes in a void lease may change."""
        copies = []
        for e in extents:
            data = e.bytes.copy()
            if crc64(data.data, 0) != e.sum:
                raise Lost(
                    "write",
                    self.address,
                    f"bytes {e.offset} to {e.offset + e.length}, which were written but not "
                    "committed, went with the connection to the daemon",
                    "write the file again",
                )
            copies.append(data)
        return copies

    def check(self, op: str) -> None:
        """Raise an error if the file cannot be used."""
        if self._forked:
            raise Invalid(
                op,
                self.address,
                "the process that opened the file has forked this one: it alone writes the file",
                "open files for writing after the fork",
            )
        if self._closed:
            raise Invalid(op, self.address, "the file is closed")

    def write(self, data: Any, offset: int) -> int:
        """Write bytes at an offset. Return how many. It waits only for room."""
        with self._turn:
            self.check("write")
            try:
                self._publish()
                view = memoryview(data)
                if view.nbytes:
                    flat = view if view.c_contiguous else memoryview(view.tobytes())
                    self._put(np.frombuffer(flat.cast("B"), dtype=np.uint8), offset)
                return view.nbytes
            except Error as e:
                raise e._about("write", self.address) from e

    def _put(self, source: Bytes, offset: int) -> None:
        self._raise_if_broken()
        if offset < 0 or offset > _MAX_FILE - len(source):
            reason = f"{len(source)} bytes at {offset} are out of bounds"
            raise Invalid("write", self.address, reason)
        try:
            self._fill(source, offset)
        finally:
            self._give_back_asked()

    def _fill(self, source: Bytes, offset: int) -> None:
        at, left = 0, len(source)
        while left > 0:
            e = self._extent(left, offset)
            m = e.memory
            n = min(left, m.room(False), _EXTENT - offset % _EXTENT)
            part = source[at : at + n]
            np.copyto(m.bytes[m.pos : m.pos + n], part)
            e.sum = crc64(part.data, e.sum)
            e.length += n
            m.pos += n
            at += n
            left -= n
            offset += n
            self._written += n
            self.size = max(self.size, offset)

    def _extent(self, length: int, offset: int) -> _Extent:
        """Return the extent to which bytes at an offset are added: the last one, or a new one."""
        while True:
            m = self._memory
            if isinstance(m, Lease) and not m.may_be_filled():
                self._live(_nothing)  # goes to another lease
                m = self._memory
            if m is not None and self._pending:
                e = self._pending[-1]
                if (
                    e.memory is m
                    and e.at + e.length == m.pos
                    and e.offset + e.length == offset
                    and offset % _EXTENT
                    and m.room(False) > 0
                ):
                    return e
            if len(self._pending) >= _MAX_EXTENTS:
                self._commit(False)
            m = self._memory
            if m is None or m.room(True) < min(length, _wanted(m)):
                self._provide(length)
                continue  # a commit or a move may have changed everything
            e = _Extent(m, m.pos, offset)
            m.extents += 1
            self._pending.append(e)
            return e

    def _provide(self, length: int) -> None:
        """Make memory for at least some of so many bytes the one being filled."""
        if not self._session.maps:
            self._provide_message()
            return
        if self._small:
            limit = self._session.welcome.inline_threshold
            if self._written + length <= limit and self._inline is None:
                self._memory = self._inline = _own(limit)
                return
            self._small = False
            self._memory = None
            if self._inline is not None and self._inline.extents > 0:
                self._move()  # bytes already there go to a lease, too
                return
            self._inline = None
        self._take(min(length, _WORTH_TAKING), length)

    def _take(self, need: int, length: int) -> None:
        """Make another lease the memory being filled, by a write of so many bytes."""
        self._take_lease(need, grown(need, max(self._written, length)))
        m = self._memory
        if isinstance(m, Lease) and self._asked is None:
            rest = length - m.room(True) + m.cost(extents_of(length))
            if rest > 0:
                self._ask_ahead(m.session, rest)

    def _take_lease(self, need: int, size: int) -> None:
        """Make another lease, with room for so many bytes, the memory being filled."""
        full, self._memory = self._memory, None
        if isinstance(full, Lease) and full.extents == 0:
            self._leases.put(full)

        def take(s: Session) -> None:
            asked, self._asked = self._asked, None
            self._memory = self._leases.take(s, self._tier, need, size, asked)

        self._live(take)

    def _ask_ahead(self, s: Session, rest: int) -> None:
        """Ask for the lease that a write needs for its last bytes, while those before are copied."""
        need = min(rest, _WORTH_TAKING)
        try:
            self._asked = self._leases.ask(s, self._tier, need, grown(need, max(self._written, rest)))
        except (Broken, Error):
            pass  # it is requested again when it is needed

    def _give_back_asked(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.give_back()

    def _provide_message(self) -> None:
        limit = self._session.welcome.max_data
        if self._inline is not None and self._inline.extents > 0:
            self._commit(False)
        if self._inline is None or len(self._inline.bytes) < limit:
            self._inline = _own(limit)
        self._memory = self._inline

    def reserve(self, n: int, offset: int, then: Sequence[int] | None = None) -> memoryview | None:
        """Return n bytes of the file's own memory, which are the file's at an offset with the next call.

        None if bytes travel in messages. Bytes that are not filled hold anything. A lease is made for a
        whole number of reservations: of the sizes that follow then, or of n bytes if they are not given.
        """
        with self._turn:
            self.check("reserve")
            try:
                self._publish()
                self._raise_if_broken()
                if not self._session.maps:
                    return None
                extents = extents_of(n)
                self._to_leases(extents)
                m = self._memory
                while not (
                    isinstance(m, Lease)
                    and m.session is self._session
                    and m.room(True) >= n + m.cost(extents)
                ):
                    self._take_lease(n + Lease.cost_of(extents), self._room_for(n, then))
                    m = self._memory
                self._reserved = (m, m.pos, n, offset)
                return m.bytes[m.pos : m.pos + n].data
            except Error as e:
                raise e._about("reserve", self.address) from e

    def _room_for(self, n: int, then: Sequence[int] | None) -> int:
        if then is not None:
            return whole(chain([n], then))
        return whole(repeat(n), min(MOST, grown(n, max(self._written, n))))

    def place(self, piece: Piece, offset: int) -> int:
        """Make a piece of staged memory part of the file at an offset. Return how many bytes it has.

        It is not copied, unless the session that it was leased in has ended.
        """
        with self._turn:
            self.check("write")
            try:
                self._publish()
                self._raise_if_broken()
                self._live(_nothing)
                m = piece.lease
                if m.session is not self._session or not self._session.alive():
                    if not m.locked:
                        reason = "memory that was filled before the connection broke may have changed since"
                        raise Lost("write", self.address, reason, "write the file again")
                    self._put(np.asarray(piece), offset)
                    return len(piece)
                self._to_leases(extents_of(len(piece)))
                if m.session is self._session:
                    base = int(piece.ctypes.data) - int(m.bytes.ctypes.data)
                    self._add(m, base, len(piece), offset, piece)
                else:
                    self._put(np.asarray(piece), offset)
                return len(piece)
            except Error as e:
                raise e._about("write", self.address) from e

    def _to_leases(self, extents: int) -> None:
        """Make sure that so many extents of leases can be added to the pending ones."""
        if self._pending and not isinstance(self._pending[-1].memory, Lease):
            self._small = False
            self._memory = None
            self._live(_nothing)
            self._move()
        self._small = False
        if not isinstance(self._memory, Lease):
            self._memory = self._inline = None
        if len(self._pending) + extents > _MAX_EXTENTS:
            self._commit(False)

    def _add(self, m: Lease, at: int, n: int, offset: int, of: Piece | None = None) -> None:
        """Make bytes of a lease, from at on, part of the file at an offset."""
        while n > 0:
            k = min(n, _EXTENT - offset % _EXTENT)
            e = _Extent(m, at, offset, k, of=of)
            e.sum = crc64(e.bytes.data, 0)
            m.extents += 1
            self._pending.append(e)
            self._written += k
            at, n, offset = at + k, n - k, offset + k
            self.size = max(self.size, offset)

    def _publish(self) -> None:
        """Make reserved bytes part of the file."""
        if self._reserved is None:
            return
        (m, at, n, offset), self._reserved = self._reserved, None
        if m.session is not self._session or not self._session.alive():
            own = m.bytes[at : at + n].copy()
            if m is self._memory and m.extents == 0:
                self._memory = None
                m.release()
            self._put(own, offset)
            return
        m.pos = at + n
        self._add(m, at, n, offset)

    def _commit(self, close: bool) -> None:
        """Make everything pending part of the file. Closing closes the handle too."""

        def step(s: Session) -> None:
            if not self._landed or not close:
                self._commit_on(s, close)

        self._live(step)

    def _commit_on(self, s: Session, close: bool) -> None:
        if self._number == 0 or self._sent != self._written:
            self._number += 1
        self._sent = self._written
        extents = []
        data: Bytes | None = None
        for e in self._pending:
            x = _wire.NewExtent(file_offset=e.offset, length=e.length, checksum=e.sum)
            if isinstance(e.memory, Lease):
                x.lease, x.segment_offset = e.memory.id, e.at
            elif data is None:
                data = e.memory.bytes[e.at : e.memory.pos]  # one after the other
            extents.append(x)
        m = _wire.Commit(
            handle=self._handle,
            extents=extents,
            close=close,
            mtime_ns=time.time_ns(),
            writer=self._writer,
            number=self._number,
        )
        try:
            call = s.start(_wire.TYPE_COMMIT, m, _wire.Committed, None if data is None else data.data)
            reply = s.wait(call).result()
        except Broken as e:
            self._doubt |= e.sent
            raise
        except Error:
            if not self._may_be_written():
                self._move()
            raise
        except BaseException:  # interrupted, and the commit may have been carried out
            self._may_be_written()
            raise
        self._file, self._generation = reply.file, reply.generation
        self.size = max(self.size, reply.size)
        self._acknowledged = True
        self._doubt = False
        self._committed()

    def _in_use(self) -> list[Memory]:
        return _distinct([e.memory for e in self._pending])

    def _may_be_written(self) -> bool:
        """Count the room of records that may have been written as gone."""
        used = self._in_use()
        for m in used:
            m.recorded()
        return all(m.fits_again() for m in used)

    def _all_committed(self) -> None:
        """Count the records of everything uncommitted as written."""
        self._asides = []
        self._committed()

    def _committed(self) -> None:
        """Count the records of everything pending as written."""
        for m in self._in_use():
            m.recorded()
            m.extents = 0
            if not isinstance(m, Lease):
                m.pos = 0
            elif m is not self._memory and not m.kept:
                self._leases.put(m)
        self._pending = []
        self._sent = -1  # the next commit is another one

    def sync(self) -> None:
        """Commit the written bytes, which are then visible, and survive this process and the daemon.

        When it fails it may be called again.
        """
        with self._turn:
            self.check("sync")
            try:
                self._publish()
                if not self._pending and self._acknowledged and self._broken is None:
                    return
                self._commit(False)
                if self._small and self._session.maps and self._written > 0:
                    self._small = False  # a file that is synced is written to its lease directly
                    self._memory = self._inline = None
            except Error as e:
                raise e._about("sync", self.address) from e

    def close(self) -> None:
        """Commit the written bytes and close the file. If it fails, uncommitted bytes are discarded.

        On a buffer whose durability is "flushed" it waits until the bytes are on the backing store.
        """
        with self._turn:
            if self._closed or self._forked:
                self._closed = True
                return
            done = False
            try:
                self._publish()
                self._closing = True
                self._commit(True)
                done = True
            except Error as e:
                raise e._about("close", self.address) from e
            finally:
                self._end(not done)

    def abort(self) -> None:
        """Close the file and discard uncommitted bytes. After close it does nothing."""
        with self._turn:
            if self._forked:
                self._closed = True
            if not self._closed:
                self._end(True)

    def _end(self, abort: bool) -> None:
        with _scope.shielded():
            self._put_away(abort)

    def _put_away(self, abort: bool) -> None:
        self._closed = True
        self._client.forget(self)
        used = self._in_use()
        if self._memory is not None and self._memory not in used:
            used.append(self._memory)
        self._pending = []
        self._reserved = None
        self._memory = self._inline = None

        def rest(_: object = None) -> None:
            for m in used:
                if isinstance(m, Lease) and not m.kept:
                    if m.extents == 0:
                        self._leases.put(m)
                    else:
                        m.release()  # a commit of the pending bytes may be under way
            self._leases.leave()

        if not abort or not self._session.alive():
            rest()
            return
        # Leases go back after the abort is through, since a commit may be ahead of it.
        leave = _wire.Commit(handle=self._handle, close=True, abort=True)
        s = self._session
        try:
            call = s.start(_wire.TYPE_COMMIT, leave, _wire.Committed)
            s.wait(call)
        except (Broken, Error):
            pass  # the session broke, so its grants are void
        rest()


def _nothing(_: Session) -> None:
    pass


def _own(n: int) -> Memory:
    return Memory(np.empty(n, dtype=np.uint8), 0, n)


def _wanted(m: Memory) -> int:
    """Return how much room a piece of memory must have left for another extent."""
    return 1 if isinstance(m, Lease) else min(_WORTH_TAKING, len(m.bytes))


def _distinct(memories: list[Memory]) -> list[Memory]:
    """Return each piece of memory once. They are filled one after the other."""
    return list({id(m): m for m in memories}.values())


def _drop(m: Memory) -> None:
    m.extents = 0
    if isinstance(m, Lease) and not m.kept:
        m.release()
