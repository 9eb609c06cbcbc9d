"""A client of a daemon."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from . import _fork, _scope, _wire
from ._buffer import Buffer
from ._dial import Dialer, Succession, TLSFiles, addresses
from ._errors import (
    Broken,
    Busy,
    Cancelled,
    Error,
    Invalid,
    Kind,
    Unavailable,
    of_kind,
    saying_outcome,
    unknown,
)
from ._leases import Leases
from ._regions import RegionMap
from ._repeat import may_repeat
from ._session import Session
from ._token import Secrets, Token
from ._types import BufferInfo, Failure, Node, Progress, buffer_message

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class _Open(Protocol):
    def abort(self) -> None: ...


@dataclass(frozen=True)
class Server:
    """Which daemon a client talks to, and how.

    Attributes:
        address: of the socket.
        node: the daemon's name.
        version: its release: "bbd 1.2".
        protocol: version of the control protocol.
        uid: the user that the daemon takes the client for.
        gid: the user's group.
        mapped: whether its memory is mapped; bytes travel in messages otherwise.
    """

    address: str
    node: str
    version: str
    protocol: int
    uid: int
    gid: int
    mapped: bool


class Client:
    """A connection to a daemon. When it breaks, operations connect again and continue where they were.

    It may be used concurrently. After a fork the child has a session of its own, which begins with its first
    operation. Files that the parent has open for writing stay the parent's.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: Token | str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        tls: TLSFiles | None = None,
        name: str = "python",
        retry_for: float = 30.0,
        verify: bool = False,
    ) -> None:
        """Connect to a daemon. Without one it fails at once, naming the sockets that it tried.

        Args:
            address: unix:///path or tcp://host:port, several separated by commas, tried in order;
                None: FOREBAY_SOCKET, else the sockets where a daemon of this machine usually is.
            token: a token, for TCP, before all files.
            token_file: file of a token, for TCP; None: FOREBAY_TOKEN_FILE.
            key_file: file of the cluster's keys, for TCP; None: FOREBAY_KEY_FILE.
            tls: files for TLS over TCP; None: FOREBAY_TLS_CA, FOREBAY_TLS_CERT, FOREBAY_TLS_KEY.
            name: the program's name, for the daemon's status and logs.
            retry_for: how long an operation tries to reach a daemon that does not answer, in seconds.
            verify: whether reads of parts of an extent, in mapped memory and out of sequence, are checked
                too. The whole extent is read for each then, once.
        """
        found = addresses(address)
        # Files that the environment names may be a daemon's, which another user need not read.
        far = any(a.startswith("tcp://") for a in found)
        self._dialer = Dialer(
            found,
            name,
            Secrets.read(token, token_file, key_file) if far else Secrets(),
            (tls or TLSFiles()).or_environment() if far else TLSFiles(),
        )
        self._retry_for = retry_for
        self.verify = verify
        self.region_map = RegionMap()
        self._leases: dict[str, Leases] = {}
        self._files: weakref.WeakSet[_Open] = weakref.WeakSet()
        self._closed = False
        self._new_locks()
        self._sessions = Succession()
        self._current = self._dialer.dial(self._sessions)
        _fork.register(self)

    def _new_locks(self) -> None:
        self._dialing = threading.Lock()  # held while current may be replaced
        self._lock = threading.Lock()  # guards leases, files and closed

    def _after_fork(self) -> None:
        self._new_locks()
        self._sessions = Succession()  # the child's sessions end none of the parent's
        self._files = weakref.WeakSet()
        self.region_map.after_fork()
        for leases in self._leases.values():
            leases.after_fork()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server(self) -> Server:
        """Which daemon the client talks to, or last did."""
        s = self._current
        w = s.welcome
        return Server(s.address, w.node, w.server, w.version, w.uid, w.gid, w.map_regions)

    @property
    def token(self) -> Token | None:
        """The token with which the client proves itself over TCP, or None without one."""
        return self._dialer.secrets.token

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._closed

    def buffer(self, name: str) -> Buffer:
        """Return a handle of a buffer, which need not exist. It does no I/O."""
        return Buffer(self, name)

    def create_buffer(
        self,
        name: str,
        backing: str = "",
        *,
        capacity: int = 0,
        durability: str = "",
        codec: str = "",
        keep: Sequence[str] | None = None,
        mode: int = 0,
        replicas: int = 0,
        no_wait: bool = False,
        existing: str = "keep",
        shared: bool = False,
        flush: Sequence[str] = (),
        flush_limit: int = 0,
        dirty_age: float = 0,
        receipt: bool = False,
        tiers: Mapping[str, str] | None = None,
    ) -> BufferInfo:
        """Make a buffer and return it as the daemon completed it.

        Args:
            name: the buffer's.
            backing: URL of the store behind it (file:///… or s3://…); "": none.
            capacity: bytes; 0: as many as there are.
            durability: when a close returns: "resident" or "flushed"; "": the daemon's choice.
            codec: how files are compressed on the store; "": not.
            keep: patterns of names that are not flushed; None: the usual ones.
            mode: permission bits; 0: the daemon's choice.
            replicas: nodes that hold each committed byte: 1, or 2.
            no_wait: whether a write fails with NoSpace, instead of waiting for room.
            existing: treatment of files of the store that the buffer did not write: "keep" (the
                buffer's file of the same name stays dirty, in conflict), "overwrite" or "refuse" (no
                buffer is made on a store that holds something).
            shared: whether the store may be that of another buffer, or lie below or above it, which
                is refused (Exists) without.
            flush: flush rules, as "step-*/=every 5": of the directories that fit and end with a number,
                those with a multiple are flushed, and the newest by a drain. The others stay in
                memory until they are superseded.
            flush_limit: the most bytes a second to the store; 0: no limit.
            dirty_age: seconds after which a dirty byte is flushed, even if there are reasons to wait; 0:
                the daemon's choice.
            receipt: whether a drain puts its receipt beside the files on the store.
            tiers: "memory" or "disk" by pattern of names, for files that belong elsewhere than in memory;
                the first pattern that fits counts.
        """
        m = buffer_message(
            name,
            backing,
            capacity=capacity,
            durability=durability,
            codec=codec,
            keep=keep,
            mode=mode,
            replicas=replicas,
            no_wait=no_wait,
            existing=existing,
            shared=shared,
            flush=flush,
            flush_limit=flush_limit,
            dirty_age=dirty_age,
            receipt=receipt,
            tiers=tiers or {},
        )
        return BufferInfo.of(self._about("create buffer", name, _wire.TYPE_BUFFER_CREATE, m, _wire.Buffer))

    def buffer_info(self, name: str) -> BufferInfo:
        """Describe a buffer."""
        m = _wire.BufferName(name=name)
        return BufferInfo.of(self._about("buffer", name, _wire.TYPE_BUFFER_GET, m, _wire.Buffer))

    def buffers(self) -> list[BufferInfo]:
        """Return the buffers that this user may see, by name."""
        got = self.ask(_wire.TYPE_BUFFER_LIST, _wire.Empty(), _wire.Buffers)
        return [BufferInfo.of(b) for b in got.buffers]

    def destroy_buffer(self, name: str, *, discard: bool = False) -> None:
        """Remove a buffer and all it holds. Without discard it fails while anything in it is dirty."""
        m = _wire.BufferDestroy(name=name, discard=discard)
        self._about("destroy buffer", name, _wire.TYPE_BUFFER_DESTROY, m, _wire.Empty)

    def nodes(self) -> list[Node]:
        """Return the nodes of the cluster, by name. Unsupported if the daemon stands alone."""
        got = self.ask(_wire.TYPE_NODES, _wire.Empty(), _wire.Nodes)
        return sorted((Node.of(n) for n in got.nodes), key=lambda n: n.name)

    def status(self, buffer: str = "") -> Any:
        """Return the daemon's status, as GET /status does, of one buffer, or of all."""
        m = _wire.StatusRequest(buffer=buffer)
        return json.loads(self.ask(_wire.TYPE_STATUS, m, _wire.StatusReply).json)

    def events(self, buffer: str = "") -> Iterator[dict[str, Any]]:
        """Yield the events of a buffer ("": of all), from soon after the first step of the iteration.

        When the connection breaks it ends with Unavailable. A consumer that is too slow misses events.
        """
        for m, _ in self.stream(_wire.TYPE_SUBSCRIBE, _wire.Subscribe(buffer=buffer), _wire.Event):
            if m.json:
                yield json.loads(m.json)

    def jobs(self) -> list[dict[str, Any]]:
        """Return the stage-ins, stage-outs and drains of the buffers that this user may enter.

        Those that run, and those that ended in the last day, the newest first. Unsupported if the
        daemon is alone.
        """
        got: list[dict[str, Any]] | None = json.loads(
            self.ask(_wire.TYPE_JOBS, _wire.Empty(), _wire.JobReply).json
        )
        return got or []

    def job(self, job: str) -> dict[str, Any]:
        """Describe one job, by its id.

        Of a drain, superseded names steps that it leaves out, since newer ones are complete, and
        superseded_total counts them.
        """
        return _job(self.ask(_wire.TYPE_JOB, _wire.JobRequest(id=job), _wire.JobReply))

    def watch_job(self, job: str) -> Iterator[dict[str, Any]]:
        """Yield how far a job is, now and whenever that changes, until it has ended."""
        m = _wire.JobRequest(id=job, watch=True)
        for reply, _ in self.stream(_wire.TYPE_JOB, m, _wire.JobReply):
            yield _job(reply)

    def cancel_job(self, job: str) -> None:
        """Cancel a job. Waiting tasks are not done, and finished work stays."""
        self.ask(_wire.TYPE_JOB_CANCEL, _wire.JobRequest(id=job), _wire.Empty)

    def _about(self, op: str, buffer: str, typ: int, m: Message, reply: type[M]) -> M:
        try:
            return self.ask(typ, m, reply)
        except Error as e:
            raise e._about(op, f"bb://{buffer}/") from e

    def leases(self, buffer: str) -> Leases:
        """Return where the files of a buffer get memory from."""
        with self._lock:
            self._check()
            return self._leases.setdefault(buffer, Leases(buffer, self.region_map))

    def opened(self, file: _Open) -> None:
        """Register a file that close aborts."""
        with self._lock:
            if not self._closed:
                self._files.add(file)
                return
        file.abort()
        raise self._closed_error()

    def forget(self, file: _Open) -> None:
        """Forget a file that is closed."""
        with self._lock:
            self._files.discard(file)

    def _closed_error(self) -> Invalid:
        return Invalid("client", "", "it is closed")

    def _check(self) -> None:
        if self._closed:
            raise self._closed_error()

    def session(self) -> Session:
        """Return a live session, connecting again if need be."""
        s = self._current
        if s.alive():
            return s
        while not self._dialing.acquire(timeout=0.2):
            _scope.check()
        try:
            self._check()
            s = self._current
            if s.alive():
                return s
            s.fail(s.broken or "the daemon closed it")
            s = self._dialer.redial(self._retry_for, self._sessions)
            with self._lock:
                if self._closed:
                    s.fail("the client is closed")
                    raise self._closed_error()
                self._current = s
            self.region_map.sweep()
            return s
        finally:
            self._dialing.release()

    def retry(self, step: Callable[[Session], T]) -> T:
        """Run a step on a live session, and again on a new one as long as sessions break under it.

        It ends after a bounded time. The step must be safe to repeat.
        """
        deadline = None
        while True:
            _scope.check()
            self._check()
            s = self.session()
            try:
                return step(s)
            except Broken as e:
                self._check()
                s.fail(e)
                now = time.monotonic()
                deadline = deadline or now + self._retry_for
                if now >= deadline:
                    raise Unavailable("request", s.address, str(e)) from e

    def ask(self, typ: int, m: Message, reply: type[M]) -> M:
        """Send a request and return the reply.

        If the connection breaks meanwhile, it sends the request again, unless that may have been
        sent before and must not be carried out twice. Then the error's outcome is unknown.
        """
        if may_repeat(typ, m):
            return self.retry(lambda s: s.ask(typ, m, reply))

        def once(s: Session) -> M:
            try:
                return s.ask(typ, m, reply)
            except Broken as e:
                if not e.sent:
                    raise
                why = f"it may have been carried out: {e} before the answer came"
                raise unknown("", "", why, "check whether it was done") from e
            except Error as e:
                raise saying_outcome(e) from e

        return self.retry(once)

    def stream(self, typ: int, m: Message, reply: type[M]) -> Iterator[tuple[M, bytes]]:
        """Carry out one request that has many replies, or takes long, on a connection of its own.

        A consumer that is slow, or leaves, does not delay others then.
        """
        self._check()
        s = self._dialer.redial(self._retry_for)
        try:
            yield from s.follow(typ, m, reply)
        except Broken as e:
            raise Unavailable("request", s.address, str(e)) from e

    def _work(
        self,
        op: str,
        address: str,
        typ: int,
        m: Message,
        progress: Callable[[Progress], None] | None,
    ) -> Progress:
        """Carry out long work that may safely be done again from the beginning."""
        deadline = None
        while True:
            self._check()
            last = Progress()
            s = self._dialer.redial(self._retry_for)
            try:
                for reply, _ in s.follow(typ, m, _wire.Progress):
                    last = Progress.of(reply, last)
                    if progress is not None:
                        progress(last)
                break
            except Broken as e:
                now = time.monotonic()
                deadline = deadline or now + self._retry_for
                if now >= deadline:
                    raise Unavailable(op, address, str(e)) from e
            except Error as e:
                raise e._about(op, address) from e
        _check_complete(op, address, last)
        return last

    def close(self) -> None:
        """End the session. Blocked operations fail.

        Files that were not closed lose their uncommitted bytes. Mappings stay readable. It may
        be called twice.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            files = list(self._files)
            leases = list(self._leases.values())
        self._current.fail("the client is closed")
        for f in files:
            f.abort()
        for some in leases:
            some.close()
        self.region_map.close()


def _job(m: _wire.JobReply) -> dict[str, Any]:
    """Return one job of a message: its record, with the fields beside it."""
    got: dict[str, Any] = json.loads(m.json)
    if m.superseded_total:
        got |= {"superseded": list(m.superseded), "superseded_total": m.superseded_total}
    return got


def _check_complete(op: str, address: str, p: Progress) -> None:
    """Raise an error, with the report, if work ended and something was not done."""
    e = _incomplete(op, address, p)
    if e is not None:
        e.report = p
        raise e


def _incomplete(op: str, address: str, p: Progress) -> Error | None:
    if p.failed_total:
        first = p.failed[0] if p.failed else Failure("", Kind.INTERNAL, "which is not known", 0)
        reason = f"{p.failed_total} files failed, the first is {first.path}: {first.reason}"
        return of_kind(first.kind)(op, address, reason)
    if p.held_total or p.open_total:
        reason = (
            f"all else is saved, but {p.held_total} names are held back by a keep pattern and "
            f"{p.open_total} files are open for writing"
        )
        return Busy(op, address, reason, "rename or remove the former, close the latter")
    return Cancelled(op, address, "the timeout passed") if p.timed_out else None


def connect(address: str | None = None, **options: Any) -> Client:
    """Connect to a daemon. The options are those of Client."""
    return Client(address, **options)
