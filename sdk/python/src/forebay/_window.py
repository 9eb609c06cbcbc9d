"""The daemon's answer with the places of a part of a file."""

from __future__ import annotations

import bisect
import weakref
from typing import Any

import numpy as np

from . import _wire
from ._crc import crc64
from ._errors import ChecksumMismatch, InternalError
from ._regions import Bytes, Held, Region, RegionMap
from ._session import Session

_MAX_FILE = 1 << 50


class Part:
    """One run [start, end) of a window.

    It is a hole, bytes that came with the answer, or the visible part of an extent.
    """

    __slots__ = ("_sum", "_whole", "address", "bytes", "end", "start", "verified")

    def __init__(
        self,
        start: int,
        end: int,
        data: Bytes | None,
        whole: Bytes | None = None,
        checksum: int = 0,
        address: tuple[int, int] | None = None,
    ) -> None:
        """address is the region's id and the offset in it; data None is a hole."""
        self.start = start
        self.end = end
        self.bytes = data
        self.address = address
        self._whole = whole
        self._sum = checksum
        self.verified = whole is None

    def verify(self) -> None:
        """Check the whole extent, unless that was done."""
        if not self.verified and self._whole is not None:
            self._check(crc64(self._whole.data, 0))

    def verify_now(self) -> None:
        """Check the whole extent."""
        if self._whole is not None:
            self._check(crc64(self._whole.data, 0))

    def _check(self, got: int) -> None:
        if got != self._sum:
            reason = f"bytes {self.start} to {self.end} do not have the checksum that they were written with"
            raise ChecksumMismatch("read", "", reason)
        self.verified = True

    def copy(self, offset: int, target: Bytes, check: bool) -> None:
        """Fill target from an offset of the file on. With check, with verified bytes alone."""
        if self.bytes is None:
            target[:] = 0
            return
        whole = not self.verified and self._whole is not None and len(target) == len(self._whole)
        if check and not whole:
            self.verify()
        at = offset - self.start
        np.copyto(target, self.bytes[at : at + len(target)])
        if whole:  # copied bytes are checked while they are in the cache
            self._check(crc64(target.data, 0))


class Handle:
    """A handle of a file that is open for reading, which is closed when nothing uses it any more.

    Closing it releases its pins. Each window uses it.
    """

    def __init__(self, session: Session, handle: int) -> None:
        self.session = session
        self.id = handle
        weakref.finalize(self, session.close_handle, handle).atexit = False


class Window:
    """A part [start, end) of a file: where its extents lie in mapped regions, or the bytes themselves.

    Bytes in regions are pinned. The pin is released after the last use of the window.
    """

    def __init__(
        self, region_map: RegionMap, handle: Handle, offset: int, m: _wire.Extents, data: bytearray | None
    ) -> None:
        self.start = offset
        self.session = handle.session
        self.pinned = m.pin != 0
        self._handle = handle
        if m.pin:
            unpin = _wire.Unpin(pins=[m.pin])
            weakref.finalize(self, handle.session.give_up, _wire.TYPE_UNPIN, unpin).atexit = False
        if data:
            self.end = offset + len(data)
            self.parts = [Part(offset, self.end, np.frombuffer(data, dtype=np.uint8))]
        else:
            self._regions = {r.id: region_map.acquire(r) for r in m.regions}
            self.parts = []
            at = offset
            for e in m.extents:
                region = self._regions.get(e.region)
                self.parts.append(_part(e, at, None if region is None else region.readable))
                at = self.parts[-1].end
            self.end = at
        self._ends = [p.end for p in self.parts]

    def at(self, offset: int) -> Part:
        """Return the part that holds an offset, which lies in the window."""
        return self.parts[bisect.bisect_right(self._ends, offset)]

    def region(self, region: int) -> Region:
        """Return the region that a part names."""
        return self._regions[region]

    def holds(self) -> bool:
        """Report whether its bytes are still pinned. A pin of a broken session is void."""
        return not self.pinned or self.session.alive()


def _part(e: _wire.Extent, offset: int, region: Bytes | None) -> Part:
    n = e.length
    if e.file_offset != offset or n <= 0 or n > _MAX_FILE - offset:
        raise _wrong(f"an extent of {n} bytes at {e.file_offset}")
    if e.region == 0:
        return Part(offset, offset + n, None)
    begin, size = e.check_offset, e.check_length
    if (
        region is None
        or begin < 0
        or size <= 0
        or begin + size > len(region)
        or e.offset < begin
        or e.offset + n > begin + size
    ):
        raise _wrong("an extent that is not within its region")
    data, whole = region[e.offset : e.offset + n], region[begin : begin + size]
    return Part(offset, offset + n, data, whole, e.checksum, (e.region, e.offset))


def _wrong(what: str) -> InternalError:
    return InternalError("read", "", f"the daemon named {what}")


class _Pinned(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of windows, which stay pinned while they, or a view of them, are in use."""

    windows: tuple[Window, ...]
    held: tuple[Held, ...] = ()


def pinned(
    data: Bytes, windows: tuple[Window, ...], held: tuple[Held, ...] = (), *, writable: bool = False
) -> memoryview:
    """Return a view, read-only unless writable, that keeps windows pinned and locks held."""
    array = data.view(_Pinned)
    array.windows, array.held = windows, held
    array.flags.writeable = writable
    return array.data
