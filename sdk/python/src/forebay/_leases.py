"""Memory that a client fills: leased segments, and bytes of its own that travel in a commit."""

from __future__ import annotations

import contextlib
import threading
from collections import deque

from . import _wire
from ._errors import Broken, Error, InternalError, NoSpace
from ._regions import Bytes, Region, RegionMap
from ._session import Call, Session

_MIN = 1 << 20
_MAX = 32 << 20

_OVERHEAD = 8 << 10  # of a segment, for its header and the end of its records, and more than that

#: The most bytes, records included, that a lease of the largest requested size has room for.
MOST = _MAX - _OVERHEAD

#: The room below which a lease is returned rather than kept for more bytes.
WORTH_KEEPING = 64 << 10

#: Leases up to so many bytes are kept for a while when nothing is written.
_KEEP_IDLE = 4 << 20
_IDLE_SECONDS = 1.0
_MAX_IDLE = 8

_ALIGN = 64

#: The cost of one commit's record, besides its extents (RecordCost in internal/wire).
_RECORD = 64
_RECORD_ITEM = 32


class Memory:
    """Where bytes wait to be committed. One file at a time fills it, front to back.

    ::

        0              pos                    floor - owed records         floor
        ├── filled ─────┤ free ─────────────────┤ owed to the next record ───┤ records ─▶
    """

    def __init__(self, data: Bytes, pos: int, floor: int) -> None:
        self.bytes = data
        self.pos = pos
        self.floor = floor
        self.extents = 0  # that wait for a commit
        self.kept = False  # for bytes that are part of no file yet, which a file that is closed leaves alone

    def cost(self, extents: int) -> int:
        """Return the cost of a commit's record in the memory."""
        return 0

    def room(self, begin: bool) -> int:
        """Return how many bytes can be added, beginning a new extent or going on with the last one."""
        return self.floor - self.cost(self.extents + begin) - self.pos

    def recorded(self) -> None:
        """Count the record of everything that waits as written."""
        self.floor -= self.cost(self.extents)

    def fits_again(self) -> bool:
        """Report whether the waiting bytes could be committed once more."""
        return self.room(False) >= 0


class Lease(Memory):
    """A segment that this client may fill.

    Its memory is locked in the region's file until it is released, even after the end of the session and the
    daemon, so that no other process gets it meanwhile.
    """

    def __init__(self, session: Session, m: _wire.Lease, tier: int, region: Region) -> None:
        """Lock it. Nothing may be written, and Broken is raised, if the session has ended by now."""
        begin = (m.data_start + _ALIGN - 1) & -_ALIGN
        super().__init__(region.writable(m.offset, m.length), begin, m.record_floor)
        self.session = session
        self.id = m.id
        self.length = m.length
        self.tier = tier
        self._region = region
        self._offset = m.offset
        self.locked = region.lock(m.offset, m.length)
        self._released = False
        if not session.alive():
            self.release()
            raise Broken("the daemon closed it", sent=False)

    @staticmethod
    def cost_of(extents: int) -> int:
        """Return the cost of the record of a commit of so many extents, in bytes."""
        return _RECORD + extents * _RECORD_ITEM if extents else 0

    def cost(self, extents: int) -> int:
        return self.cost_of(extents)

    def may_be_filled(self) -> bool:
        """Report whether bytes that are put into it by now can be committed, or be copied out of it.

        The memory is the client's as long as it is locked. Without a lock the kernel shows
        whether the session has ended by now.
        """
        return self.session.broken is None if self.locked else self.session.alive()

    def release(self) -> None:
        """Unlock the segment and return it to the daemon. It may be called twice."""
        if not self._released:
            self._released = True
            if self.locked:
                self._region.unlock(self._offset, self.length)
            _give_back(self.session, self.id)

    def forget(self) -> None:
        """Release it, in a finalizer."""
        if not self._released:
            self._released = True
            if self.locked:
                self._region.unlock(self._offset, self.length)
            if self.session.broken is None:
                self.session.give_up(_wire.TYPE_RETURN, _wire.ReturnLease(id=self.id))


def _give_back(session: Session, lease: int) -> None:
    if session.broken is None:
        session.post(_wire.TYPE_RETURN, _wire.ReturnLease(id=lease))


def grown(need: int, written: int) -> int:
    """Return the bytes that a lease should have room for. Leases grow with use.

    Args:
        need: bytes that it must have room for.
        written: bytes that the file has so far, or that are about to be written.
    """
    size = _MIN
    while size < _MAX and (size < written or size < need + WORTH_KEEPING):
        size *= 2
    return size - _OVERHEAD


class Asked:
    """A request for a lease that is sent before the lease is needed, while another one is filled.

    It ends with Leases.take, or with give_back.
    """

    def __init__(self, session: Session, tier: int, call: Call[_wire.Lease]) -> None:
        self.session = session
        self.tier = tier
        self.call = call

    def give_back(self) -> None:
        """Cancel the request, and return the lease if it was granted."""
        if self.session.broken is None:
            self.session.abandon(self.call, self._late)

    def _late(self, c: Call[_wire.Lease]) -> None:
        if c.reply is not None:
            _give_back(self.session, c.reply.id)


class Leases:
    """Where the files of one buffer that are written get segments from.

    A file fills a lease alone. The next one continues in its rest, so that many small files
    share a segment. It may be used concurrently.
    """

    def __init__(self, buffer: str, region_map: RegionMap) -> None:
        self._buffer = buffer
        self._region_map = region_map
        self.after_fork()
        self._closed = False

    def after_fork(self) -> None:
        """Forget the parent's leases in a child."""
        self._lock = threading.Lock()
        self._idle: deque[Lease] = deque()
        self._writers = 0
        self._bursts = 0  # counts the times when a file was opened

    def enter(self) -> None:
        """Count a file that is written."""
        with self._lock:
            self._writers += 1
            self._bursts += 1

    def leave(self) -> None:
        """Count a file as closed. After the last one, the rest of a burst is returned.

        A leased segment can be neither evicted nor spilled, however full it is.
        """
        with self._lock:
            self._writers -= 1
            if self._writers > 0:
                return
            burst = self._bursts
        self._return(_KEEP_IDLE, burst)
        with self._lock:
            if self._idle and not self._closed:
                timer = threading.Timer(_IDLE_SECONDS, self._return, (0, burst))
                timer.daemon = True
                timer.start()

    def _return(self, keep: int, burst: int) -> None:
        with self._lock:
            if self._writers > 0 or self._bursts != burst:
                return
            gone = [lease for lease in self._idle if lease.length > keep]
            self._idle = deque(lease for lease in self._idle if lease.length <= keep)
        for lease in gone:
            lease.release()

    def take(self, session: Session, tier: int, need: int, size: int, asked: Asked | None = None) -> Lease:
        """Return a lease with room for need bytes at least, waiting for one if there is none.

        Args:
            session: the session that it has to be of.
            tier: where the bytes belong.
            need: bytes, records included.
            size: bytes, records included, that the lease should have room for.
            asked: a request for it that was sent before, which ends here.
        """
        lease = self._arrived(asked, session, tier, need) if asked is not None else None
        lease = lease or self._idle_one(session, tier, need)
        if lease is None:
            lease = self._granted(self.ask(session, tier, need, size))
        if lease.room(True) < need:
            lease.release()
            reason = f"the daemon grants no segment with room for {need} bytes"
            raise NoSpace("lease", f"bb://{self._buffer}/", reason)
        return lease

    def _arrived(self, asked: Asked, session: Session, tier: int, need: int) -> Lease | None:
        """Return the lease of a request that was sent before, if it fits the present need."""
        if asked.session is not session or asked.tier != tier:
            asked.give_back()
            return None
        try:
            lease = self._granted(asked)
        except Error:  # it may be out of date, and the next request has the answer
            return None
        if lease.room(True) < need:
            self.put(lease)
            return None
        return lease

    def _idle_one(self, session: Session, tier: int, need: int) -> Lease | None:
        """Return one of the idle leases, and release those of other sessions."""
        found: Lease | None = None
        useless = []
        with self._lock:
            for lease in list(self._idle):
                if lease.session is not session:
                    self._idle.remove(lease)
                    useless.append(lease)
                elif found is None and lease.tier == tier and lease.room(True) >= need:
                    self._idle.remove(lease)
                    found = lease
        for lease in useless:
            lease.release()
        return found

    def ask(self, session: Session, tier: int, need: int, size: int) -> Asked:
        """Send a request for a lease as take describes it. Its result is had by take."""
        fits = need + Lease.cost_of(2) + 2 * _ALIGN
        bytes_ = max(min(size + _OVERHEAD, _MAX), fits)
        m = _wire.LeaseRequest(buffer=self._buffer, bytes=bytes_, fits=fits, tier=tier)
        return Asked(session, tier, session.start(_wire.TYPE_LEASE, m, _wire.Lease))

    def _granted(self, asked: Asked) -> Lease:
        """Wait until a request is answered."""
        session = asked.session
        try:
            got = session.wait(asked.call).result()
        except (Error, Broken):
            raise
        except BaseException:
            asked.give_back()
            raise
        try:
            return self._lease(session, got, asked.tier)
        except (Error, OSError):
            _give_back(session, got.id)
            raise

    def _lease(self, session: Session, m: _wire.Lease, tier: int) -> Lease:
        if not (
            m.offset >= 0
            and m.length > 0
            and m.offset + m.length <= m.region.length
            and 0 <= m.data_start <= m.record_floor <= m.length
        ):
            reason = "the daemon granted a segment that is not within its region"
            raise InternalError("lease", f"bb://{self._buffer}/", reason)
        return Lease(session, m, tier, self._region_map.acquire(m.region))

    def put(self, lease: Lease) -> None:
        """Take back a lease in which nothing waits."""
        with self._lock:
            keep = (
                not self._closed
                and lease.session.broken is None
                and lease.room(True) >= WORTH_KEEPING
                and len(self._idle) < _MAX_IDLE
            )
            if keep:
                self._idle.appendleft(lease)
        if not keep:
            lease.release()

    def close(self) -> None:
        """Return all leases."""
        with self._lock:
            self._closed = True
            gone, self._idle = self._idle, deque()
        for lease in gone:
            with contextlib.suppress(Error, Broken):
                lease.release()
