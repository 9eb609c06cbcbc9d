"""A file that is open for reading: its committed content at the open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import _fork, _wire
from ._errors import Broken, Error, InternalError, Invalid, Unavailable
from ._regions import Bytes, Held
from ._session import Call, Session
from ._types import Entry
from ._window import Handle, Part, Window, pinned

if TYPE_CHECKING:
    from ._client import Client

_MAPPED_WINDOW = 32 << 20  # pinned meanwhile
_INLINE_WINDOW = 1 << 20  # the bytes travel, and are kept
_MAX_WINDOWS = 8
_SEQUENTIAL_WINDOWS = 2  # while the file is read from front to back
_ZEROS = np.zeros(1 << 20, dtype=np.uint8)
_ZEROS.flags.writeable = False


class Mapping:
    """A part of a file where it lies in memory. Nothing was copied, and nothing checked.

    The memory stays unchanged as long as the mapping, or any view of it, is in use, even if
    the file is replaced, renamed, removed, flushed or evicted. If the connection to the
    daemon breaks, the views' bytes are only certain after verify().

    Attributes:
        views: memoryviews, in order: neighbours in memory are one view. They are read-only unless they were
            requested as copies on write.
    """

    def __init__(
        self, address: str, parts: list[tuple[Window, Part, int, int]], copy_on_write: bool = False
    ) -> None:
        self.views: list[memoryview] = [*(_own_views if copy_on_write else _views)(_runs(parts))]
        self._address = address
        self._parts = parts
        self._length = sum(end - start for _, _, start, end in parts)

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> memoryview:
        """All of it as one memoryview. BufferError if it does not lie in one piece."""
        if len(self.views) > 1:
            raise BufferError(
                f"{self._address}: the range lies in {len(self.views)} pieces: use views, or read it"
            )
        return self.views[0] if self.views else memoryview(b"")

    def verify(self) -> None:
        """Check the bytes against the checksums of the extents that they are in."""
        try:
            for _, part, _, _ in self._parts:
                part.verify_now()
        except Error as e:
            raise e._about("verify", self._address) from e

    def release(self) -> None:
        """Release the memory. Views of it that were taken keep theirs. It may be called twice."""
        self.views = []
        self._parts = []

    def __enter__(self) -> Mapping:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Reader:
    """Reads one file. After a connection broke it opens the file again and makes sure that it is the same.

    Bytes that are read in sequence, or come as a whole extent, are checked against the checksum that
    it was written with; with verify everything is. It may be used concurrently.
    """

    def __init__(self, client: Client, buffer: str, path: str) -> None:
        self._client = client
        self._buffer = buffer
        self._path = path
        self._entry: Entry | None = None
        self._session: Session | None = None
        self._handle: Handle | None = None
        self._windows: list[Window] = []  # oldest first
        self._last = 0  # end of the last read, from which a read is sequential
        self._closed = False
        self._new_locks()
        _fork.register(self)
        try:
            client.retry(self._bind)
        except Error as e:
            raise e._about("open", self.address) from e

    def _new_locks(self) -> None:
        self._fetching = threading.RLock()  # held during a request to the daemon
        self._lock = threading.Lock()  # guards the windows, the session and the handle

    def _after_fork(self) -> None:
        self._new_locks()
        self._windows = []

    @property
    def address(self) -> str:
        """The file's bb:// address."""
        return f"bb://{self._buffer}/{self._path}"

    @property
    def entry(self) -> Entry:
        """The entry as it was when the file was opened."""
        assert self._entry is not None
        return self._entry

    def _bind(self, s: Session) -> None:
        """Make sure that the file is open in a session."""
        if self._session is s:
            return
        handle = Handle(s, s.next_handle())  # an open that fails leaves one, too
        m = _wire.Open(
            handle=handle.id,
            buffer=self._buffer,
            path=self._path,
            want=_MAPPED_WINDOW if s.maps else s.welcome.inline_threshold,
        )
        call = s.wait(s.start(_wire.TYPE_OPEN, m, _wire.Opened))
        self._adopt(s, handle, call.result(), call.data)

    def _adopt(self, s: Session, handle: Handle, m: _wire.Opened, data: bytearray | None) -> None:
        """Take the answer to an open over, unless it is about another content than before."""
        now = Entry.of(self._path, m.entry)
        was = self._entry
        if was is not None and (
            now.file != was.file or m.generation != was.generation or now.size < was.size
        ):
            raise Unavailable(
                "read",
                self.address,
                "the connection broke, and the file has other content since",
                "open it again",
            )
        if was is None:
            m.entry.generation = m.generation
            self._entry = Entry.of(self._path, m.entry)
        window: Window | None = None
        if m.HasField("extents") and self.entry.size > 0:
            try:
                window = Window(self._client.region_map, handle, 0, m.extents, data)
            except Error:
                window = None  # the read sends a request, in another way or for the reason
        with self._lock:
            self._windows = [window] if window is not None and window.end > 0 else []
            self._session, self._handle = s, handle

    def _check(self) -> None:
        if self._closed:
            raise Invalid("read", self.address, "the file is closed")

    def read_into(self, offset: int, target: Bytes, *, verify: bool = False) -> int:
        """Read bytes at an offset into target, fewer only at the end of the file. Return how many.

        With verify, the extents that the bytes are part of are checked, wherever they are read.
        """
        self._check()
        if offset < 0:
            raise Invalid("read", self.address, "the offset is negative")
        want = min(len(target), max(0, self.entry.size - offset))
        checked = verify or self._last == offset or self._client.verify
        self._last = offset + want
        n = 0
        while n < want:
            w = self._window(offset + n)
            try:
                part = w.at(offset + n)
                k = min(want - n, part.end - offset - n)
                part.copy(offset + n, target[n : n + k], checked)
            except Error as e:
                if w.holds():
                    raise e._about("read", self.address) from e
                k = 0
            if w.holds():
                n += k
            else:  # the pin was void, and the copied bytes may be anything
                w.session.fail("the daemon closed it")
        return n

    def map(self, offset: int, length: int, *, copy_on_write: bool = False) -> Mapping:
        """Return up to length bytes from an offset on where they lie in memory, which stays pinned.

        Where bytes travel in messages it is a checked copy. With copy_on_write the views can be written
        to, which changes the file in no case.
        """
        self._check()
        if offset < 0 or length < 0:
            reason = f"{length} bytes at {offset} are out of bounds"
            raise Invalid("map", self.address, reason)
        parts: list[tuple[Window, Part, int, int]] = []
        end = offset + min(length, max(0, self.entry.size - offset))
        while offset < end:
            w = self._window(offset)
            while offset < min(end, w.end):
                part = w.at(offset)
                parts.append((w, part, offset, min(part.end, end)))
                offset = parts[-1][3]
        m = Mapping(self.address, parts, copy_on_write)
        if self._client.verify:
            m.verify()
        return m

    def _window(self, offset: int) -> Window:
        """Return the window that holds an offset, which lies in the file."""
        w = self._find(offset)
        if w is not None:
            return w

        def fetch(s: Session) -> Window:
            with self._fetching:
                self._bind(s)
                return self._find(offset) or self._fetch(s, offset)

        try:
            return self._client.retry(fetch)
        except Error as e:
            raise e._about("read", self.address) from e

    def _find(self, offset: int) -> Window | None:
        with self._lock:
            self._check()
            if self._session is None or self._session.broken is not None:
                return None
            for w in reversed(self._windows):
                if w.start <= offset < w.end:
                    return w
            return None

    def _fetch(self, s: Session, offset: int) -> Window:
        size = _MAPPED_WINDOW if s.maps else _INLINE_WINDOW
        rest = size - offset % size
        start, length = offset - offset % size, size
        with self._lock:
            if any(w.start == start or w.end == offset for w in self._windows):
                start, length = offset, rest  # the answer for all of it was short
        w = self._ask(s, start, length)
        if w.end <= offset:
            w = self._ask(s, offset, rest)  # this one was short, too
        if w.end <= offset:
            reason = "the daemon answered a question for bytes with none"
            raise InternalError("read", self.address, reason)
        with self._lock:
            self._check()
            sequential = bool(self._windows) and self._windows[-1].end == w.start
            keep = _SEQUENTIAL_WINDOWS if sequential else _MAX_WINDOWS
            self._windows = [*self._windows, w][-keep:]
        return w

    def _ask(self, s: Session, offset: int, length: int) -> Window:
        handle = self._handle
        assert handle is not None
        m = _wire.ExtentsRequest(handle=handle.id, offset=offset, length=length, inline=not s.maps)
        call = s.start(_wire.TYPE_EXTENTS, m, _wire.Extents)

        def late(c: Call[_wire.Extents]) -> None:
            if c.reply is not None and c.reply.pin:
                s.give_up(_wire.TYPE_UNPIN, _wire.Unpin(pins=[c.reply.pin]))

        try:
            got = s.wait(call).result()
        except (Error, Broken):
            raise
        except BaseException:
            s.abandon(call, late)
            raise
        return Window(self._client.region_map, handle, offset, got, call.data)

    def close(self) -> None:
        """Let go of the file. Mappings stay. It may be called twice."""
        with self._lock:
            self._closed = True
            windows, self._windows = self._windows, []
            handle, self._handle = self._handle, None
        del windows, handle


@dataclass
class _Run:
    """Neighbours in a region's memory, or a part of a file that lies in no region.

    Attributes:
        region: its id; None: bytes that came with an answer, or a hole.
        begin: in the region.
        end: in the region.
        data: bytes that came with an answer.
        windows: that pin it.
    """

    region: int | None
    begin: int
    end: int
    data: Bytes | None
    windows: list[Window]


def _runs(parts: list[tuple[Window, Part, int, int]]) -> list[_Run]:
    """Return the runs that the ranges [start, end) of parts lie in, in order."""
    runs: list[_Run] = []
    for w, part, start, end in parts:
        if part.address is None:
            data = None if part.bytes is None else part.bytes[start - part.start : end - part.start]
            runs.append(_Run(None, 0, end - start, data, [w]))
            continue
        region, at = part.address
        begin = at + start - part.start
        if runs and runs[-1].region == region and runs[-1].end == begin:
            runs[-1].end += end - start
            if runs[-1].windows[-1] is not w:
                runs[-1].windows.append(w)
        else:
            runs.append(_Run(region, begin, begin + end - start, None, [w]))
    return runs


def _views(runs: list[_Run]) -> Iterator[memoryview]:
    """Yield read-only views of runs."""
    for r in runs:
        windows = tuple(r.windows)
        if r.region is not None:
            yield pinned(windows[0].region(r.region).readable[r.begin : r.end], windows)
        elif r.data is not None:
            yield pinned(r.data, windows)
        else:
            for at in range(0, r.end, len(_ZEROS)):
                yield pinned(_ZEROS[: min(r.end - at, len(_ZEROS))], windows)


def _own_views(runs: list[_Run]) -> Iterator[memoryview]:
    """Yield views of runs whose pages become this process's own when it writes to them.

    The memory is locked besides, so that it stays as it is also when the daemon dies, and with it the pins.
    """
    held: dict[int, Held] = {}
    for region in {r.region for r in runs if r.region is not None}:
        mine = [r for r in runs if r.region == region]
        locks = mine[0].windows[0].region(region).hold([(r.begin, r.end) for r in mine])
        if locks is not None:
            held[region] = locks
    for r in runs:
        windows = tuple(r.windows)
        if r.region is not None:
            data = windows[0].region(r.region).private(r.begin, r.end)
            locked = tuple(h for h in [held.get(r.region)] if h is not None)
            yield pinned(data, windows, locked, writable=True)
        else:
            own = np.zeros(r.end, dtype=np.uint8) if r.data is None else r.data.copy()
            yield pinned(own, windows, writable=True)
