"""Memory of a buffer that is filled before its file is chosen."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import Broken, Error
from ._leases import MOST, Asked, Lease
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
        """Report whether no file has taken it in yet. From now on one has."""
        first, self._used = not self._used, True
        return first


class _Segment:
    """Gives a lease back when no piece of it is in use any more."""

    def __init__(self, lease: Lease) -> None:
        lease.kept = True
        self.lease = lease
        self.extents = 0  # that its pieces may become
        weakref.finalize(self, lease.forget).atexit = False

    def _fits(self, n: int, part: bool) -> int:
        """Return how many of n bytes there is room for: all, with part at least 1 MiB of them, or 0."""
        lease = self.lease
        room = lease.floor - lease.pos
        fits = room - records_of(self.extents + extents_of(min(n, room)))
        if fits >= n:
            return n
        return fits & -_ALIGN if part and fits >= _EXTENT else 0

    def has_room(self, n: int, part: bool) -> bool:
        """Report whether take would return something."""
        return self._fits(n, part) > 0

    def take(self, n: int, part: bool) -> Piece | None:
        """Return n bytes, or with part at least 1 MiB of them, unless there is not so much room."""
        lease = self.lease
        n = self._fits(n, part)
        if not n or not lease.may_be_filled():
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


def whole(sizes: Iterable[int], most: int = MOST) -> int:
    """Return the bytes, records included, of as many pieces as a lease of at most so many bytes can have.

    No piece is split, so that a lease of that size wastes nothing. It is one piece at least, and a
    later one only if it fits.
    """
    total = extents = 0
    for n in sizes:
        end, more = total + (n + _ALIGN - 1) // _ALIGN * _ALIGN, extents + extents_of(n)
        if total and end + records_of(more) > most:
            break
        total, extents = end, more
    return total + records_of(extents)


class Staging:
    """Takes pieces of leased segments of one buffer. One thread may use it. Close ends the use.

    The lease of the next piece is requested while the present piece is filled, if the sizes of the pieces are
    given. It is never larger than their sum.
    """

    def __init__(self, client: Client, buffer: str, sizes: Iterable[int] = ()) -> None:
        """Do no I/O.

        Args:
            client: whose leases they are.
            buffer: whose memory it is.
            sizes: the bytes of the pieces that will be taken, in their order.
        """
        self._client = client
        self._buffer = buffer
        self._segment: _Segment | None = None
        self._coming = deque(sizes)
        self._asked: Asked | None = None

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the memory that no piece was taken of. Pieces stay. It may be called twice."""
        asked, self._asked = self._asked, None
        self._segment = None
        if asked is not None:
            asked.give_back()

    def take(self, n: int, *, part: bool = False) -> Piece | None:
        """Return n bytes of memory, to be filled, or None if bytes travel in messages.

        With part it may be fewer, a multiple of 64. NoSpace if n bytes are more than the daemon
        grants in one piece.
        """
        if not part:
            self._announced(n)
        piece = self._segment.take(n, part) if self._segment is not None else None
        if piece is None:
            self._lease(n, part)
            piece = self._segment.take(n, part) if self._segment is not None else None
        if piece is not None:
            self._ask_ahead(n - len(piece))
        return piece

    def _announced(self, n: int) -> None:
        """Take a piece off those that will be taken. If it is not the next of them, the sizes are wrong."""
        if self._coming and self._coming[0] == n:
            self._coming.popleft()
        else:
            self._coming.clear()

    def _lease(self, n: int, part: bool) -> None:
        """Begin another segment, which has room for n bytes. With part, for 1 MiB of them."""
        need = _need(n, part)
        size = self._size(n if part else 0, chain([n], self._coming))
        self._segment = None

        def lease(s: Session) -> None:
            asked, self._asked = self._asked, None
            if s.maps:
                # Its file is not chosen yet, so the bytes belong into memory.
                got = self._client.leases(self._buffer).take(s, 0, need, size, asked)
                self._segment = _Segment(got)

        self._client.retry(lease)

    def _size(self, parts: int, pieces: Iterable[int]) -> int:
        """Return the bytes, records included, of the next lease.

        It is for pieces, of which the first may be taken in parts, and has so many bytes then.
        """
        return MOST if parts > MOST else whole(pieces)

    def _ask_ahead(self, rest: int) -> None:
        """Request the next segment if the present one has no room for the next bytes.

        That is the rest of a piece that is taken in parts, or the next piece.
        """
        segment = self._segment
        if self._asked is not None or segment is None or not (rest or self._coming):
            return
        pieces = chain([rest], self._coming) if rest else iter(self._coming)
        n, part = rest or self._coming[0], rest > 0
        need = _need(n, part)
        lease = segment.lease
        if need > MOST or segment.has_room(n, part) or not lease.may_be_filled():
            return
        try:
            self._asked = self._client.leases(self._buffer).ask(
                lease.session, 0, need, self._size(rest, pieces)
            )
        except (Broken, Error):
            pass  # the next piece is requested again

    def take_all(self, n: int) -> list[Piece]:
        """Return pieces that have n bytes together, or none if bytes travel in messages."""
        pieces = []
        while n > 0:
            piece = self.take(n, part=True)
            if piece is None:
                return []
            pieces.append(piece)
            n -= len(piece)
        return pieces


def _need(n: int, part: bool) -> int:
    least = min(n, _EXTENT) if part else n
    return least + records_of(extents_of(least))
