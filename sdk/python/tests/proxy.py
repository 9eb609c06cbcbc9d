"""Stands between a client and the daemon, and breaks connections at chosen requests."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from forebay import _wire as w

_HEADER = 24
_WRITERS = {w.TYPE_OPEN, w.TYPE_LEASE, w.TYPE_COMMIT, w.TYPE_EXTENTS}


class Proxy:
    """Forwards frames of any number of connections."""

    def __init__(self, path: Path, daemon: Path) -> None:
        self.address = f"unix://{path}"
        self._daemon = daemon
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._lock = threading.Lock()
        self._type: int | None = None
        self._then: Callable[[], object] | None = None
        self._until = 0
        self._early = False
        self._broke = False
        self._when: tuple[int, Callable[[], object]] | None = None
        self._unnoticed = False
        self._kept: list[socket.socket] = []
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(
        self, typ: int | None, then: Callable[[], object] | None = None, unnoticed: bool = False
    ) -> None:
        """Lose the reply to the next request of a type, after calling then.

        The connection breaks at both ends, or with unnoticed at the client's alone.
        """
        with self._lock:
            self._type, self._then, self.requests, self._early = typ, then, 0, False
            self._unnoticed = unnoticed

    def break_twice(self, typ: int, at: int, then: Callable[[], object]) -> None:
        """Lose the next request of a type, and the at-th of a writer that follows. Each time call then."""
        with self._lock:
            self._type, self._then, self._until, self._early = typ, then, at, True
            self._broke = False

    def when(self, typ: int | None, then: Callable[[], object] = lambda: None) -> None:
        """Call then when the next request of a type was passed on; None: not any more."""
        with self._lock:
            self._when = None if typ is None else (typ, then)

    @property
    def has_broken_twice(self) -> bool:
        """Whether both requests were lost."""
        with self._lock:
            return self._broke and self._until == 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                try:
                    far.connect(str(self._daemon))
                except OSError:
                    near.close()  # the daemon is away
                    far.close()
                    continue
                for args in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._forward, args=args, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, request: bool) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _receive(source, _HEADER)
                message, data, _, typ = struct.unpack_from("<IIQH", head)
                body = _receive(source, message + data)
                if self._loses(typ, request):
                    if self._unnoticed:
                        self._kept.append(source)
                    break
                target.sendall(head + body)
                with self._lock:
                    if request and self._when is not None and self._when[0] == typ:
                        (_, then), self._when = self._when, None
                        then()
        for s in (source, target):
            if s not in self._kept:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
        if source not in self._kept:
            source.close()

    def _loses(self, typ: int, request: bool) -> bool:
        with self._lock:
            if self._early:
                return self._loses_early(typ, request)
            if typ != self._type:
                return False
            if request:
                self.requests += 1
                return False
            if self.requests > 1:
                return False  # it was repeated, and the test detects that
            if self._then is not None:
                self._then()
            return True

    def _loses_early(self, typ: int, request: bool) -> bool:
        if not request:
            return False
        if not self._broke:
            self._broke = now = typ == self._type
        else:
            now = typ in _WRITERS and self._until == 1
            self._until -= typ in _WRITERS and self._until > 0
        if now and self._then is not None:
            self._then()
        return now

    def close(self) -> None:
        """Accept no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for s in self._kept:
            s.close()


def _receive(s: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        got = s.recv(min(n - len(data), 1 << 20))
        if not got:
            raise EOFError
        data += got
    return data
