"""The client for asyncio::

    from forebay import aio

    async with aio.connect() as client:
        buffer = client.buffer("scratch")
        async with buffer.open("step-10/weights", "wb") as f:
            await f.write(array)
        data = await buffer.read_bytes("step-10/weights")

Each operation runs on a thread of the client. Copies and checksums release the interpreter's lock, and many
requests share one connection, but a program that has ten thousand operations under way has as many threads
waiting in turn as the client was made with.

A task that is cancelled makes the daemon end the request that it waits for, and ends when the thread has
released its resources. Leases are given back, pins given up, a file that was being written is aborted. Bytes
that are not committed by then are not committed later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from . import _buffer, _client, _file
from ._reader import Mapping
from ._scope import Scope, shielded
from ._types import Entry, Progress

__all__ = ["Buffer", "Client", "File", "connect"]

P = ParamSpec("P")
T = TypeVar("T")
_END = object()


class _Closing(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=_Closing)


class _Opening(Generic[C]):
    """An awaitable of an object. As a context manager it closes the object at the end of the block."""

    def __init__(self, make: Callable[[], Awaitable[C]]) -> None:
        self._make = make
        self._made: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._make().__await__()

    async def __aenter__(self) -> C:
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.__aexit__(kind, error, trace)


async def _settled(f: asyncio.Future[Any]) -> None:
    """Wait until a future is done, however often the task is cancelled meanwhile. Then cancel the task."""
    cancelled: asyncio.CancelledError | None = None
    while not f.done():
        try:
            await asyncio.wait([f])
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        raise cancelled


class _Threads:
    """The threads of a client."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="forebay aio")

    async def run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Run work on a thread. If the task is cancelled, end it there. Its result is undone."""
        scope = Scope()

        def step() -> T:
            with scope:
                return work()

        begun = self._pool.submit(step)
        done = asyncio.wrap_future(begun)
        try:
            await asyncio.wait([done])
            return done.result()
        except asyncio.CancelledError:
            if not begun.cancel():  # it has begun
                scope.cancel()
                try:
                    await _settled(done)
                finally:
                    if done.exception() is None and undo is not None:
                        await self.finish(lambda: undo(done.result()))
            raise

    async def finish(self, work: Callable[[], object]) -> None:
        """Run a cleanup to its end, also when the task is cancelled."""

        def step() -> None:
            with shielded():
                work()

        done = asyncio.wrap_future(self._pool.submit(step))
        await _settled(done)
        done.result()

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class File:
    """A file of a buffer. Operations are carried out in turn. For two reads at once, open it twice.

    A write, flush or close that is cancelled aborts the file, since a part of it may have been done, and the
    rest of the program must not commit it.
    """

    def __init__(self, threads: _Threads, file: _file.File) -> None:
        self._threads = threads
        self._file = file
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        """The file's bb:// address."""
        return self._file.name

    @property
    def size(self) -> int:
        """Bytes, uncommitted ones included."""
        return self._file.size

    @property
    def closed(self) -> bool:
        """Whether the file was closed or aborted."""
        return self._file.closed

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, relative to the beginning, the position or the end. Return it."""
        return self._file.seek(offset, whence)

    async def _read(self, work: Callable[[], T]) -> T:
        async with self._turn:
            return await self._threads.run(work)

    async def _write(self, work: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await self._threads.run(work)
            except asyncio.CancelledError:
                await self._threads.finish(self._file.abort)
                raise

    async def read(self, size: int | None = -1, /) -> bytes:
        """Return up to size bytes from the position on. Negative or None: all."""
        return await self._read(lambda: self._file.read(size))

    async def readinto(self, buffer: Any, /) -> int:
        """Read up to len(buffer) bytes into a buffer. Return how many."""
        return await self._read(lambda: self._file.readinto(buffer))

    async def pread(self, n: int, offset: int) -> bytes:
        """Return up to n bytes from an offset on. The position stays."""
        return await self._read(lambda: self._file.pread(n, offset))

    async def pread_into(self, offset: int, buffer: Any, *, verify: bool = False) -> int:
        """Read into a buffer from an offset. The position stays. Return how many bytes."""
        return await self._read(lambda: self._file.pread_into(offset, buffer, verify=verify))

    async def map(self, offset: int = 0, length: int | None = None) -> Mapping:
        """Return a part of the file where it lies in memory, without a copy (forebay.Mapping)."""
        return await self._read(lambda: self._file.map(offset, length))

    async def write(self, data: Any, /) -> int:
        """Write bytes, of any buffer, at the position. Return how many: all of them."""
        return await self._write(lambda: self._file.write(data))

    async def pwrite(self, data: Any, offset: int) -> int:
        """Write bytes at an offset. The position stays. Return how many: all of them."""
        return await self._write(lambda: self._file.pwrite(data, offset))

    async def reserve(self, n: int) -> memoryview:
        """Return n bytes of memory that become the file's (forebay.File.reserve)."""
        return await self._write(lambda: self._file.reserve(n))

    async def flush(self) -> None:
        """Commit the written bytes. If it is cancelled, all of them are committed, or none."""
        await self._write(self._file.flush)

    async def close(self) -> None:
        """Commit the written bytes and close the file. Cancelled: see flush."""
        await self._write(self._file.close)

    async def abort(self) -> None:
        """Close the file and discard uncommitted bytes. It runs to its end."""
        async with self._turn:
            await self._threads.finish(self._file.abort)

    async def __aenter__(self) -> File:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.abort()
        else:
            await self.close()


class Buffer:
    """Addresses one buffer, as forebay.Buffer does.

    Attributes:
        sync: the buffer for threads: calls without a method here run by ``client.run(buffer.sync.…)``.
    """

    def __init__(self, threads: _Threads, sync: _buffer.Buffer) -> None:
        self._threads = threads
        self.sync = sync

    def __repr__(self) -> str:
        return f"<forebay.aio.Buffer bb://{self.sync.name}>"

    def address(self, path: str = "") -> str:
        """Return the bb:// address of a path."""
        return self.sync.address(path)

    def open(self, path: str, mode: str = "rb", *, permissions: int = 0o644) -> _Opening[File]:
        """Open a file, with ``await`` or ``async with`` (forebay.Buffer.open)."""

        async def make() -> File:
            file = await self._threads.run(
                lambda: self.sync.open(path, mode, permissions=permissions), _file.File.abort
            )
            return File(self._threads, file)

        return _Opening(make)

    async def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file."""
        return await self._threads.run(lambda: self.sync.read_bytes(path))

    async def write_bytes(self, path: str, data: Any) -> int:
        """Make a file, or replace it, in one commit. Cancelled, it was done wholly or not at all."""
        return await self._threads.run(lambda: self.sync.write_bytes(path, data))

    async def stat(self, path: str) -> Entry:
        """Describe a file or directory."""
        return await self._threads.run(lambda: self.sync.stat(path))

    async def exists(self, path: str) -> bool:
        """Report whether there is a file or directory of a path."""
        return await self._threads.run(lambda: self.sync.exists(path))

    async def listdir(self, path: str = "") -> list[Entry]:
        """Return the entries of a directory by name."""
        return await self._threads.run(lambda: self.sync.listdir(path))

    async def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Make a directory, whose parent is there. Exists if there is one."""
        await self._threads.run(lambda: self.sync.mkdir(path, mode))

    async def makedirs(self, path: str, mode: int = 0o755, *, exist_ok: bool = True) -> None:
        """Make a directory and those above it, as far as they are missing."""
        await self._threads.run(lambda: self.sync.makedirs(path, mode, exist_ok=exist_ok))

    async def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link, which no method follows. Exists if the name is taken."""
        await self._threads.run(lambda: self.sync.symlink(target, path))

    async def setxattr(self, path: str, attribute: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute of a file or directory (forebay.Buffer.setxattr)."""
        await self._threads.run(lambda: self.sync.setxattr(path, attribute, value, flags))

    async def removexattr(self, path: str, attribute: str) -> None:
        """Remove an extended attribute. NotFound if there is none of that name."""
        await self._threads.run(lambda: self.sync.removexattr(path, attribute))

    async def getxattr(self, path: str, attribute: str) -> bytes:
        """Return the value of an extended attribute. NotFound if there is none of that name."""
        return await self._threads.run(lambda: self.sync.getxattr(path, attribute))

    async def listxattr(self, path: str) -> list[str]:
        """Return the names of the extended attributes of a file or directory."""
        return await self._threads.run(lambda: self.sync.listxattr(path))

    async def readlink(self, path: str) -> str:
        """Return where a symbolic link leads. Invalid if it is none."""
        return await self._threads.run(lambda: self.sync.readlink(path))

    async def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Rename a file or directory of any size in one step."""
        await self._threads.run(lambda: self.sync.rename(source, target, replace=replace))

    async def exchange(self, first: str, second: str) -> None:
        """Swap the names of two files or directories of any size in one step."""
        await self._threads.run(lambda: self.sync.exchange(first, second))

    async def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        await self._threads.run(lambda: self.sync.remove(path))

    async def rmtree(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it."""
        await self._threads.run(lambda: self.sync.rmtree(path))

    async def drain(self, path: str = "", *, timeout: float = 0) -> Progress:
        """Flush dirty bytes and wait until they are on the store (forebay.Buffer.drain).

        Cancelled, it ends the waiting. Begun work may continue.
        """
        return await self._threads.run(lambda: self.sync.drain(path, timeout=timeout))


class Client:
    """A connection to a daemon, for one event loop.

    Attributes:
        sync: the client for threads. Both may be used at the same time.
    """

    def __init__(self, sync: _client.Client, threads: _Threads) -> None:
        self.sync = sync
        self._threads = threads

    def buffer(self, name: str) -> Buffer:
        """Return a handle of a buffer, which need not exist. It does no I/O."""
        return Buffer(self._threads, self.sync.buffer(name))

    async def run(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a function of the package on a thread of the client: ``run(checkpoint.save, buffer.sync, …)``.

        If the task is cancelled, the function's wait raises Cancelled.
        """
        return await self._threads.run(lambda: work(*args, **options))

    async def events(self, buffer: str = "") -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a buffer ("": of all), as forebay.Client.events."""
        events: Iterator[dict[str, Any]] = self.sync.events(buffer)
        try:
            while True:
                event: Any = await self._threads.run(lambda: next(events, _END))
                if event is _END:
                    return
                yield event
        finally:
            close: Callable[[], None] = getattr(events, "close", lambda: None)
            await self._threads.finish(close)

    async def close(self) -> None:
        """End the session (forebay.Client.close). It runs to its end."""
        try:
            await self._threads.finish(self.sync.close)
        finally:
            self._threads.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def connect(address: str | None = None, *, threads: int = 32, **options: Any) -> _Opening[Client]:
    """Connect to a daemon, with ``await`` or ``async with``.

    Args:
        address: as for forebay.Client.
        threads: how many operations are under way at most; more wait for their turn.
        options: of forebay.Client.
    """

    async def make() -> Client:
        own = _Threads(threads)
        try:
            sync = await own.run(lambda: _client.Client(address, **options), _client.Client.close)
        except BaseException:
            own.close()
            raise
        return Client(sync, own)

    return _Opening(make)
