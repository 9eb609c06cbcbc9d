"""Memory of a buffer that is filled before it is known which file it becomes part of."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ._leases import Lease
from ._session import Session

if TYPE_CHECKING:
    from ._client import Client

_EXTENT = 1 << 20
_COMMITS = 8  # that a segment has room for the records of
_ALIGN = 64


class Piece(np.ndarray[Any, np.dtype[np.uint8]]):
    """A part of a leased segment, which one file at most takes in.

    The segment is the client's as long as one of its pieces, or a view of one, is in use, even
    after the end of the session, the daemon or the file.
    """

    lease: Lease
    _of: _Segment
    _used = False

    def take_once(self) -> bool:
        """Report whether no file has taken it in yet; from now on one has."""
        first, self._used = not self._used, True
        return first


class _Segment:
    """Gives a lease back when no piece of it is in use any more."""

    def __init__(self, lease: Lease) -> None:
        lease.kept = True
        self.lease = lease
        self.extents = 0  # that its pieces may become
        weakref.finalize(self, lease.forget).atexit = False

    def take(self, n: int, part: bool) -> Piece | None:
        """Return n bytes, or with part at least 1 MiB of them, unless there is not so much room."""
        lease = self.lease
        room = lease.floor - lease.pos
        fits = room - records_of(self.extents + extents_of(min(n, room)))
        if part and _EXTENT <= fits < n:
            n = fits & -_ALIGN
        if not lease.may_be_filled() or fits < n:
            return None
        at = lease.pos
        lease.pos = (at + n + _ALIGN - 1) & -_ALIGN
        self.extents += extents_of(n)
        piece = lease.bytes[at : at + n].view(Piece)
        piece.lease, piece._of = lease, self
        return piece


def extents_of(n: int) -> int:
    """Return how many extents n bytes of a file are at most."""
    return n // _EXTENT + 2


def records_of(extents: int) -> int:
    """Return the most that the records of some commits of so many extents take, in bytes."""
    return Lease.cost_of(extents) + _COMMITS * Lease.cost_of(1) + 2 * _ALIGN


class Staging:
    """Takes pieces of leased segments of one buffer. One thread may use it."""

    def __init__(self, client: Client, buffer: str) -> None:
        self._client = client
        self._buffer = buffer
        self._segment: _Segment | None = None
        self._taken = 0

    def take(self, n: int, *, part: bool = False) -> Piece | None:
        """Return n bytes of memory, to be filled; None if bytes travel in messages.

        With part it may be fewer, a multiple of 64. NoSpace if n bytes are more than the daemon
        grants in one piece.
        """
        piece = self._segment.take(n, part) if self._segment is not None else None
        if piece is not None:
            return piece
        least = min(n, _EXTENT) if part else n
        need = least + records_of(extents_of(least))
        self._segment = None

        def lease(s: Session) -> None:
            if s.maps:
                # Which file it will be part of is not known, so the bytes belong into memory.
                got = self._client.leases(self._buffer).take(s, 0, need, max(self._taken, n))
                self._segment = _Segment(got)

        self._client.retry(lease)
        segment: _Segment | None = self._segment
        self._taken += n
        return segment.take(n, part) if segment is not None else None

    def take_all(self, n: int) -> list[Piece]:
        """Return pieces that have n bytes together; none if bytes travel in messages."""
        pieces = []
        while n > 0:
            piece = self.take(n, part=True)
            if piece is None:
                return []
            pieces.append(piece)
            n -= len(piece)
        return pieces
