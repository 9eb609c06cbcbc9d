"""One connection to a daemon, with many requests in flight.

There is no thread behind it. One of the callers that wait for replies reads them for all.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from . import _fork, _frames, _scope, _wire
from ._errors import Broken, Error, InternalError, Invalid, from_wire
from ._repeat import check_version, may_be_done

M = TypeVar("M", bound=Message)

#: Part of the daemon's bound that is reserved for cleanup: cancellations, unpinning.
_SPARE = 64

#: The time that an interrupted caller waits for the end of its request, in seconds.
_CANCEL_WAIT = 5.0

_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | select.POLLRDHUP


class Call(Generic[M]):
    """One request in flight. Its fields may be read when it is done."""

    def __init__(self, request: int, typ: int, reply: type[M]) -> None:
        self.id = request
        self.type = typ
        self.reply_type = reply
        self.counted = False
        self.done = False
        self.reply: M | None = None
        self.data: bytearray | None = None
        self.error: Exception | None = None
        self.late: Callable[[Call[M]], None] | None = None

    def result(self) -> M:
        """Return the reply of a call that is done, or raise its error."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class Session:
    """A connection on which the handshake is done.

    A session that broke stays broken. Everything that the daemon granted in it (handles, leases,
    pins) is void then. It may be used concurrently.
    """

    def __init__(
        self, conn: socket.socket, reader: _frames.Reader, welcome: _wire.Welcome, address: str
    ) -> None:
        self.welcome = welcome
        self.address = address
        self.maps = welcome.map_regions
        self._conn = conn
        self._in = reader
        self._ids = itertools.count(16)  # those before are the handshake's
        self._handles = itertools.count(1)
        self._calls: dict[int, Call[Any]] = {}
        self._garbage: deque[tuple[int, Message]] = deque()  # requests of finalizers
        self.broken: BaseException | str | None = None
        self._new_locks()
        _fork.register(self)

    def _new_locks(self) -> None:
        self._lock = threading.Condition(threading.Lock())  # guards calls and reading
        self._reading = False
        self._writing = threading.Lock()
        self._slots = threading.Semaphore(max(1, self.welcome.max_in_flight - _SPARE))

    def _after_fork(self) -> None:
        self.broken = self.broken or "this process was forked"
        self._new_locks()
        self._calls = {}
        self._garbage = deque()
        self._conn.close()  # of this process's copy; the parent's stays open

    def next_handle(self) -> int:
        """Return a handle that was not used in the session."""
        return next(self._handles)

    def alive(self) -> bool:
        """Report whether the daemon's grants of this session are still the client's.

        It checks with the kernel, so that bytes that were copied before the call were the client's.
        """
        if self.broken is not None:
            return False
        p = select.poll()
        try:
            p.register(self._conn, select.POLLRDHUP)
            gone = any(events & _GONE for _, events in p.poll(0))
        except (OSError, ValueError):
            gone = True
        return not gone and self.broken is None

    def ask(self, typ: int, m: Message | None, reply: type[M]) -> M:
        """Send a request and return its reply. Interrupted, it cancels the request."""
        return self.wait(self.start(typ, m, reply)).result()

    def start(self, typ: int, m: Message | None, reply: type[M], data: Any = None) -> Call[M]:
        """Send a request, when there are few enough in flight."""
        check_version(self.welcome.version, self.welcome.server, typ, m)
        while not self._slots.acquire(timeout=0.2):
            _scope.check()
            if self.broken is not None:
                raise Broken(self.broken, sent=False)
        c = Call(next(self._ids), typ, reply)
        c.counted = True
        try:
            self._send(c, m, data)
        except BaseException as e:
            self._finish(c, error=e if isinstance(e, Exception) else Broken(e, sent=True))
            raise
        return c

    def post(self, typ: int, m: Message, late: Callable[[Call[_wire.Empty]], None] | None = None) -> None:
        """Send a request without waiting. The outcome, if it comes, is passed to late."""
        c = Call(next(self._ids), typ, _wire.Empty)
        c.late = late
        try:
            self._send(c, m, None)
        except (Broken, Error) as e:
            self._finish(c, error=e)

    def give_up(self, typ: int, m: Message) -> None:
        """Send a request that releases a pin, or a handle.

        It may be called anywhere, by a finalizer also, since it never waits for a lock.
        """
        self._garbage.append((typ, m))
        self._collect()

    def _collect(self) -> None:
        """Send requests left by give_up. The holder of the lock for writing calls it after releasing that."""
        while self._garbage and self.broken is None and self._writing.acquire(blocking=False):
            try:
                frames = b""
                while self._garbage:
                    typ, m = self._garbage.popleft()
                    c = Call(next(self._ids), typ, _wire.Empty)
                    self._calls[c.id] = c
                    frames += _frames.encode(typ, c.id, m)
                with contextlib.suppress(OSError):  # the next request fails, too
                    self._conn.sendall(frames)
            finally:
                self._writing.release()

    def _send(self, c: Call[Any], m: Message | None, data: Any) -> None:
        try:
            frame = _frames.encode(c.type, c.id, m, 0 if data is None else len(data))
        except _frames.MalformedFrame as e:
            raise Invalid("request", "", str(e)) from e
        with self._lock:
            if self.broken is not None:
                raise Broken(self.broken, sent=False)
            self._calls[c.id] = c
        try:
            with self._writing:
                if self.broken is not None:
                    raise Broken(self.broken, sent=False)
                try:
                    self._write(frame, data)
                except BaseException as e:  # a part of the frame may have left
                    self.fail(e)
                    if isinstance(e, OSError):
                        raise Broken(e, sent=True) from e
                    raise
        finally:
            self._collect()
            self._close_if_idle()

    def _write(self, frame: bytes, data: Any) -> None:
        if data is None or isinstance(self._conn, ssl.SSLSocket):
            self._conn.sendall(frame)
            if data is not None:
                self._conn.sendall(data)
            return
        view = memoryview(data)
        n = self._conn.sendmsg([frame, view])
        if n < len(frame):
            self._conn.sendall(frame[n:])
            n = len(frame)
        if n < len(frame) + len(view):
            self._conn.sendall(view[n - len(frame) :])

    def wait(self, c: Call[M]) -> Call[M]:
        """Wait until a call is done. Interrupted, or in a scope that is cancelled, it cancels the request."""
        try:
            with _scope.waiting(lambda: self.give_up(_wire.TYPE_CANCEL, _wire.Cancel(request=c.id))):
                self._await(c, None)
        except BaseException:
            self.abandon(c)
            raise
        return c

    def abandon(self, c: Call[M], late: Callable[[Call[M]], None] | None = None) -> None:
        """Cancel a request. Late is called with the outcome when that comes."""
        with self._lock:
            over = c.done
            if not over:
                c.late = late or c.late
        if over:
            if late is not None:
                late(c)
            return
        self.post(_wire.TYPE_CANCEL, _wire.Cancel(request=c.id))
        self._await(c, _CANCEL_WAIT)

    def _await(self, c: Call[M], timeout: float | None) -> None:
        """Wait until a call is done, reading the replies of all unless another caller does."""
        with self._lock:
            while not c.done and self._reading:
                if not self._lock.wait(timeout) and timeout is not None:
                    return
            if c.done:
                return
            self._reading = True
        try:
            while not c.done:
                if not self._readable(timeout):
                    return
                self._read()
        finally:
            with self._lock:
                self._reading = False
                self._lock.notify_all()
            self._close_if_idle()

    def _readable(self, timeout: float | None) -> bool:
        """Wait until something can be read. An interrupt here does no harm."""
        if self._in.buffered() or (isinstance(self._conn, ssl.SSLSocket) and self._conn.pending()):
            return True
        p = select.poll()
        try:
            p.register(self._conn, select.POLLIN)
        except (OSError, ValueError):
            return True  # it was closed, and reading raises the error
        return bool(p.poll(None if timeout is None else timeout * 1000))

    def _read(self) -> None:
        """Read one reply and pass it on. Any error ends the session."""
        try:
            self._in.next()
            self._dispatch()
        except BaseException as e:
            self.fail(e)
            if not isinstance(e, (OSError, EOFError, _frames.MalformedFrame, ValueError)):
                raise

    def _dispatch(self) -> None:
        r = self._in
        c = self._calls.pop(r.request, None)
        if c is None or not r.has(_frames.REPLY) or r.has(_frames.MORE):
            raise _frames.MalformedFrame(f"a reply to request {r.request}, which is not in flight")
        reply: Message | None = None
        error: Exception | None = None
        try:
            reply, error = decode(r, c.type, c.reply_type)
            data = r.data() if r.data_length else None
        except BaseException as e:
            self._finish(c, error=Broken(e, sent=True))
            raise
        self._finish(c, reply, data, error)

    def _finish(
        self,
        c: Call[Any],
        reply: Message | None = None,
        data: bytearray | None = None,
        error: Exception | None = None,
    ) -> None:
        with self._lock:
            if c.done:
                return
            self._calls.pop(c.id, None)
            c.reply, c.data, c.error = reply, data, error
            c.done = True
            late = c.late
            self._lock.notify_all()
        if c.counted:
            self._slots.release()
        if late is not None:
            late(c)

    def fail(self, why: BaseException | str) -> None:
        """End the session. Every call in flight fails, and so does every later one."""
        with self._lock:
            self.broken = self.broken or why
            calls = list(self._calls.values())
            self._calls.clear()
        with contextlib.suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)  # wakes up the reader
        for c in calls:
            self._finish(c, error=Broken(why, sent=True))
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Close the connection of a session that broke, when no thread uses its descriptor."""
        if self.broken is None:
            return
        with self._lock:
            if not self._reading and self._writing.acquire(blocking=False):
                try:
                    self._conn.close()
                finally:
                    self._writing.release()

    def close_handle(self, handle: int) -> None:
        """Close a handle without waiting for the answer."""
        self.give_up(_wire.TYPE_CLOSE, _wire.Close(handle=handle))

    def follow(self, typ: int, m: Message, reply: type[M], data: Any = None) -> Iterator[tuple[M, bytes]]:
        """Send a request on a session without other users, and yield its replies and their data."""
        try:
            check_version(self.welcome.version, self.welcome.server, typ, m)
            request = next(self._ids)
            self._write(_frames.encode(typ, request, m, 0 if data is None else len(data)), data)
            more = True
            while more:
                with _scope.waiting(lambda: self.fail("the caller has left")):
                    self._readable(None)
                    self._in.next()
                got, error = decode(self._in, typ, reply)
                if error is not None:
                    raise error
                came = bytes(self._in.data()) if self._in.data_length else b""
                more = self._in.has(_frames.MORE)
                yield cast(M, got), came
        except Error:
            raise
        except (OSError, EOFError, ValueError, _frames.MalformedFrame) as e:
            _scope.check()
            raise Broken(e, sent=True) from e
        finally:
            self.fail("it was closed")


def decode(r: _frames.Reader, typ: int, reply: type[M]) -> tuple[M | None, Error | None]:
    """Decode the message of the frame that came last: a reply, or the error that it stands for."""
    try:
        if r.has(_frames.ERROR):
            m = _wire.Error.FromString(r.message)
            return None, from_wire(m, may_be_done(typ, m.outcome, m.kind))
        return reply.FromString(r.message), None
    except DecodeError as e:
        return None, InternalError("request", "", f"the daemon's reply cannot be read: {e}")
