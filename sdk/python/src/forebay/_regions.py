"""The region files that a client has mapped, each once."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading

import numpy as np
import numpy.typing as npt

from . import _fork, _wire
from ._errors import Unavailable

Bytes = npt.NDArray[np.uint8]

_UNIT = 1 << 20
_MADV_POPULATE_WRITE = 23  # of Linux 5.14
_MAP_NORESERVE = 0x4000  # pages without writes need no memory
_FLOCK = struct.Struct("hhqqi0q")  # struct flock of 64-bit Linux


class Region:
    """One region file. Its memory stays mapped while something uses this object.

    Memory that is read is mapped for reading alone. A program that ignores that a view is read-only ends with
    a fault, and does not change the file of another one.
    """

    def __init__(self, m: _wire.Region) -> None:
        self.path = m.path
        self.length = m.length
        if not m.path or m.length <= 0:
            raise Unavailable("map", m.path, "the daemon names no file for a region")
        try:
            self._fd = os.open(m.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise Unavailable("map", m.path, str(e)) from e
        try:
            info = os.fstat(self._fd)
            if info.st_size < m.length:  # touching a page behind the file's end would be a fault
                reason = f"the region has {m.length} bytes, its file only {info.st_size}"
                raise Unavailable("map", m.path, reason)
            self._identity = (info.st_dev, info.st_ino)
            self.readable = _array(self._map(mmap.PROT_READ))
        except BaseException:
            os.close(self._fd)
            raise
        self._writable: mmap.mmap | None = None
        self._populated = bytearray()
        self._locks = -1  # a descriptor of its own, that a child closes (lock)
        _fork.register(self)

    def _after_fork(self) -> None:
        if self._locks >= 0:
            os.close(self._locks)
            self._locks = -1

    def _map(self, protection: int) -> mmap.mmap:
        try:
            return mmap.mmap(self._fd, self.length, mmap.MAP_SHARED, protection)
        except OSError as e:
            raise Unavailable("map", self.path, str(e)) from e

    def private(self, begin: int, end: int) -> Bytes:
        """Return bytes [begin, end) such that a page that is written to becomes the caller's own copy.

        Each call maps them anew. Writes through one are not visible through another, nor to a process that
        maps the memory when other bytes lie there.
        """
        first = begin - begin % mmap.ALLOCATIONGRANULARITY
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        try:
            m = mmap.mmap(self._fd, end - first, flags, mmap.PROT_READ | mmap.PROT_WRITE, offset=first)
        except OSError as e:
            raise Unavailable("map", self.path, str(e)) from e
        return _array(m)[begin - first :]

    def writable(self, offset: int, n: int) -> Bytes:
        """Return bytes that this process has a lease of."""
        if self._writable is None:
            self._writable = self._map(mmap.PROT_READ | mmap.PROT_WRITE)
            self._populated = bytearray(self.length // _UNIT + 1)
        self._populate(self._writable, offset // _UNIT, -(-(offset + n) // _UNIT))
        return _array(self._writable)[offset : offset + n]

    def _populate(self, m: mmap.mmap, first: int, end: int) -> None:
        """Enter the pages of units [first, end) into this process's page table, unless that was done.

        The pages are there, so it is one call instead of one fault for each. Where the kernel does not
        support that, faults do it.
        """
        while first < end:
            if self._populated[first]:
                first += 1
                continue
            stop = self._populated.find(1, first, end)
            stop = end if stop < 0 else stop
            self._populated[first:stop] = b"\1" * (stop - first)
            at = first * _UNIT
            with contextlib.suppress(OSError, ValueError):
                m.madvise(_MADV_POPULATE_WRITE, at, min(stop * _UNIT, self.length) - at)
            first = stop

    def hold(self, ranges: list[tuple[int, int]]) -> Held | None:
        """Lock ranges [begin, end) as lock does, until the result is released or dropped.

        None if they cannot be locked.
        """
        held = Held()
        try:
            held.fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            info = os.fstat(held.fd)
            if (info.st_dev, info.st_ino) != self._identity:
                return None
            for begin, end in ranges:
                lock = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, begin, end - begin, 0)
                fcntl.fcntl(held.fd, fcntl.F_OFD_SETLK, lock)
        except OSError:
            return None
        return held

    def lock(self, offset: int, n: int) -> bool:
        """Mark bytes as memory that this process may be writing to. See internal/leaselock.

        The kernel's lock outlives the session and the daemon, and goes with the process. It is one of
        an open file, since a process loses its own when it closes any descriptor of the file. It
        reports whether the lock could be had.
        """
        try:
            if self._locks < 0:
                fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                info = os.fstat(fd)
                if (info.st_dev, info.st_ino) != self._identity:
                    os.close(fd)
                    return False
                self._locks = fd
            fcntl.fcntl(self._locks, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, offset, n, 0))
        except OSError:
            return False
        return True

    def unlock(self, offset: int, n: int) -> None:
        """Take the mark away. In a child it does nothing, since the mark is the parent's."""
        if self._locks >= 0:
            with contextlib.suppress(OSError):
                fcntl.fcntl(
                    self._locks, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, n, 0)
                )

    def is_current(self) -> bool:
        """Report whether the file is still there, and the same."""
        try:
            info = os.lstat(self.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._fd)
            if self._locks >= 0:
                os.close(self._locks)


class Held:
    """Locks on a region's file, of a descriptor of their own, which goes with the object.

    A child of fork shares them. The memory stays as it is until both have released it.
    """

    fd = -1

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)


def _array(m: mmap.mmap) -> Bytes:
    return np.frombuffer(m, dtype=np.uint8)


class RegionMap:
    """The regions that are mapped, by their ids. It may be used concurrently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._regions: dict[int, Region] = {}

    def after_fork(self) -> None:
        """Begin anew in a child. Pages that the parent wrote to are shared with it all the same."""
        self._lock = threading.Lock()
        self._regions = {}

    def acquire(self, m: _wire.Region) -> Region:
        """Map a region, unless it is mapped already."""
        with self._lock:
            r = self._regions.get(m.id)
            if r is not None and r.path == m.path and r.length >= m.length:
                return r
            self._sweep()
            r = Region(m)
            self._regions[m.id] = r
            return r

    def sweep(self) -> None:
        """Drop regions whose files are gone, since their pages stay in memory while they are mapped."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        self._regions = {i: r for i, r in self._regions.items() if r.is_current()}

    def close(self) -> None:
        """Forget all regions."""
        with self._lock:
            self._regions = {}
