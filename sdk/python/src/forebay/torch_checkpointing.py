"""Buffers as the storage of Meta's torch_checkpointing (``pip install torch_checkpointing``)::

    from forebay.torch_checkpointing import ForebayStorageConfig

    storage = ForebayStorageConfig().create_storage()      # paths are bb://BUFFER/PATH, or /BUFFER/PATH

Its commit, the renaming of a directory onto a name that is not taken, is one step at any size.
A stream that is closed is committed. One that ends with an exception is not.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_checkpointing.storage.base_storage import ReadArgs, Storage, StorageConfig

from . import _fork
from ._buffer import Buffer
from ._client import Client
from ._errors import Invalid, IsDirectory, NotDirectory, NotEmpty, NotFound

__all__ = ["ForebayStorage", "ForebayStorageConfig"]

_BUFFER = 1 << 20


@dataclass
class ForebayStorageConfig(StorageConfig):  # type: ignore[misc]
    """Makes storages. It pickles, without a connection, so a process of its own may write checkpoints.

    Attributes:
        options: of forebay.Client.
    """

    options: dict[str, Any] = field(default_factory=dict)

    def create_storage(self) -> ForebayStorage:
        """Return a storage, which connects with its first operation."""
        return ForebayStorage(self.options)


def _split(path: Path | str) -> tuple[str, str]:
    """Return the buffer and the path in it, since pathlib has made bb:/ of bb://."""
    text = str(path)
    for prefix in ("bb://", "bb:/"):
        text = text.removeprefix(prefix)
    buffer, _, rest = text.strip("/").partition("/")
    if not buffer or buffer == ".":
        raise Invalid("checkpoint", str(path), "the path names no buffer", "write bb://BUFFER/PATH")
    return buffer, rest


class _Stream(io.BufferedWriter):
    """A file that is committed when it is closed, unless by an exception."""

    raw: Any

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
            return
        self.raw.abort()
        try:
            self.close()
        except ValueError:
            pass  # its content has no destination


class ForebayStorage(Storage):  # type: ignore[misc]
    """The buffers of a daemon. It may be used concurrently, and is safe after a fork."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        """Do no I/O."""
        self._options = options or {}
        self._client: Client | None = None
        self._after_fork()
        _fork.register(self)

    def _after_fork(self) -> None:
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ForebayStorage, (self._options,)

    def _at(self, path: Path | str) -> tuple[Buffer, str]:
        name, rest = _split(path)
        with self._connecting:
            if self._client is None or self._client.closed:
                self._client = Client(**{"name": "torch_checkpointing", **self._options})
            return self._client.buffer(name), rest

    def close(self) -> None:
        """End the connection. The next operation begins another one."""
        with self._connecting:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None:
            client.close()

    def stream_read(self, path: Path, read_args: ReadArgs | None = None) -> io.RawIOBase:
        """Open a file for reading. Readinto copies from the buffer's memory itself."""
        buffer, rest = self._at(path)
        f = buffer.open(rest)
        known = read_args.known_size_bytes if read_args is not None else None
        if known is not None and known != f.size:
            f.close()
            raise Invalid("read", buffer.address(rest), f"it has {f.size} bytes, not {known}")
        return f

    def read(self, path: Path, read_args: ReadArgs | None = None) -> bytes:
        """Return all bytes of a file."""
        with self.stream_read(path, read_args) as f:
            return f.readall()

    def stream_write(self, path: Path) -> io.IOBase:
        """Open a file for writing, whose directory is there. It is visible when it is closed."""
        buffer, rest = self._at(path)
        return _Stream(buffer.open(rest, "wb"), _BUFFER)

    def write(self, path: Path, data: Any) -> None:
        """Make a file, or replace it, in one commit."""
        buffer, rest = self._at(path)
        buffer.write_bytes(rest, data)

    def delete(self, path: Path) -> None:
        """Remove a file."""
        buffer, rest = self._at(path)
        if buffer.stat(rest).is_directory:
            raise IsDirectory("remove", buffer.address(rest))
        buffer.remove(rest)

    def mkdir(self, path: Path, recursive: bool = True) -> None:
        """Make a directory. Recursive: with those above it, and though it is there."""
        buffer, rest = self._at(path)
        if not rest:
            buffer.stat("")  # it is there, or there is no such buffer
        elif recursive:
            buffer.makedirs(rest)
        else:
            buffer.mkdir(rest)

    def rmdir(self, path: Path) -> None:
        """Remove a directory with all that is in it."""
        buffer, rest = self._at(path)
        if not buffer.stat(rest).is_directory:
            raise NotDirectory("remove", buffer.address(rest))
        buffer.rmtree(rest)

    def rename(
        self,
        src_path: Path,
        dst_path: Path,
        is_directory: bool = False,
        background_cleanup: bool = False,
    ) -> None:
        """Rename a file, which may replace another, or a directory, onto a free name, in one step."""
        buffer, source = self._at(src_path)
        name, target = _split(dst_path)
        if name != buffer.name:
            reason = f"it cannot be renamed to another buffer, {name}"
            raise Invalid("rename", buffer.address(source), reason)
        directory = buffer.stat(source).is_directory
        try:
            there = buffer.stat(target)
        except NotFound:
            there = None
        if there is not None and directory and not there.is_directory:
            raise NotDirectory("rename", buffer.address(target), "a file has this name")
        if there is not None and not directory and there.is_directory:
            raise IsDirectory("rename", buffer.address(target))
        if there is not None and directory:
            if buffer.listdir(target):
                raise NotEmpty("rename", buffer.address(target), "the directory holds something")
            buffer.remove(target)
        # Another directory that took the name meanwhile keeps it.
        buffer.rename(source, target, replace=not directory)

    def ls(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        buffer, rest = self._at(path)
        return [e.name for e in buffer.listdir(rest)]

    def exists(self, path: Path) -> bool:
        """Report whether there is a file or directory."""
        buffer, rest = self._at(path)
        return buffer.exists(rest)

    def getsize(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        buffer, rest = self._at(path)
        e = buffer.stat(rest)
        if e.is_directory:
            raise IsDirectory("stat", buffer.address(rest))
        return e.size

    def isdir(self, path: Path) -> bool:
        """Report whether there is a directory."""
        buffer, rest = self._at(path)
        try:
            return buffer.stat(rest).is_directory
        except (NotFound, NotDirectory):
            return False

    def remap_path(self, path: Path) -> str:
        """Return the bb:// address of a path."""
        buffer, rest = _split(path)
        return f"bb://{buffer}/{rest}"
