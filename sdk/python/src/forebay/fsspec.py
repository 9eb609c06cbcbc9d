"""Buffers for fsspec, and for libraries that use it: bb://BUFFER/PATH.

The package's entry point registers it, so that pandas, pyarrow, Dask, Zarr and others open such
addresses without an import. Storage options are the arguments of forebay.Client, and auto_mkdir.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from types import TracebackType
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.utils import stringify_path

from . import _fork
from ._client import Client
from ._errors import Error, Exists, Invalid, IsDirectory, NotDirectory, NotFound
from ._file import File
from ._types import BufferInfo, Entry

_READ_BUFFER = 256 << 10
_WRITE_BUFFER = 256 << 10
_COPY = 4 << 20


class ReadFile(io.BufferedReader):
    """A file that is open for reading. Small reads are buffered, large ones go to the memory itself.

    Attributes:
        path: BUFFER/PATH.
        size: bytes.
    """

    raw: File

    def __init__(self, fs: ForebayFileSystem, path: str, raw: File, block_size: int | None) -> None:
        super().__init__(raw, block_size or _READ_BUFFER)
        self._fs = fs
        self.path = path
        self.size = raw.size

    def map(self, offset: int = 0, length: int | None = None) -> Any:
        """Return a part of the file where it lies in memory (forebay.File.map)."""
        return self.raw.map(offset, length)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._fs, self.path, self.tell())


def _reopen(fs: ForebayFileSystem, path: str, position: int) -> ReadFile:
    f: ReadFile = fs.open(path)
    f.seek(position)
    return f


class WriteFile(io.BufferedWriter):
    """A file that is open for writing. flush() commits, after which the written bytes are visible, and safe.

    A ``with`` block that ends with an exception, and a file that is dropped, commit nothing more.

    Attributes:
        path: BUFFER/PATH.
    """

    raw: File

    def __init__(self, path: str, raw: File, block_size: int | None, autocommit: bool) -> None:
        super().__init__(raw, block_size or _WRITE_BUFFER)
        self.path = path
        self._autocommit = autocommit
        self._ending = False

    def flush(self) -> None:
        """Commit the written bytes. In a transaction of fsspec, its end does that."""
        super().flush()
        if self._autocommit and not self._ending:
            self.raw.flush()

    def close(self) -> None:
        """Commit the written bytes and close the file. In a transaction its end does that."""
        if self.closed:
            return
        if self._autocommit or self._ending:
            self._ending = True
            super().close()
        else:
            self.flush()

    def commit(self) -> None:
        """Close the file of a transaction that succeeds."""
        self._ending = True
        self.close()

    def discard(self) -> None:
        """Close the file and discard uncommitted bytes."""
        self._ending = True
        self.raw.abort()
        try:
            super().close()
        except ValueError:
            pass  # its last bytes have nowhere to go

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
        else:
            self.close()

    def __del__(self) -> None:
        try:
            raw = self.raw
        except ValueError:
            return  # it was never opened
        if not raw.closed:
            warnings.warn(f"bb://{self.path} was not closed, and is not committed", ResourceWarning, 2)
            self.discard()


class ForebayFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The buffers of a daemon as one file system. Their names are the first part of each path.

    It pickles as its options, without a connection, and is safe after a fork.
    """

    protocol = "bb"
    root_marker = ""
    cachable = True

    def __init__(self, *args: Any, auto_mkdir: bool = True, **options: Any) -> None:
        """Do no I/O. The first operation connects.

        Args:
            args: for fsspec.
            auto_mkdir: whether a file that is opened for writing gets its missing directories.
            options: of forebay.Client (address, token_file, …), and fsspec's own.
        """
        own = {k: options.pop(k) for k in _OPTIONS if k in options}
        for name in options:  # fsspec takes any, so that a mistyped address would be another daemon's
            meant = get_close_matches(name, (*_OPTIONS, "auto_mkdir"), 1, 0.75)
            if meant and name not in _FSSPEC:
                raise Invalid("open", "bb://", f"there is no option {name}", f"write {meant[0]}")
        super().__init__(*args, **options)
        self._auto_mkdir = auto_mkdir
        self._options = own
        self._connected: Client | None = None
        self._connecting = threading.Lock()
        _fork.register(self)

    def _after_fork(self) -> None:
        self._connecting = threading.Lock()

    @property
    def client(self) -> Client:
        """The client, which is connected."""
        with self._connecting:
            if self._connected is None or self._connected.closed:
                self._connected = Client(**self._options)
            return self._connected

    @property
    def fsid(self) -> str:
        """The key that distinguishes file systems."""
        return "bb_" + self.client.server.address

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = stringify_path(path)
        for prefix in ("bb://", "bb::"):
            text = text.removeprefix(prefix)
        return text.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """Return the bb:// address of a path."""
        return f"bb://{self._strip_protocol(name)}"

    def _split(self, path: Any, op: str) -> tuple[str, str]:
        """Return a path's buffer and its path in the buffer."""
        buffer, _, rest = str(self._strip_protocol(path)).partition("/")
        if not buffer:
            raise IsDirectory(op, "bb://", "the path names no buffer", "write bb://BUFFER/PATH")
        return buffer, rest

    def info(self, path: Any, **_: Any) -> dict[str, Any]:
        """Describe a file or directory: name, size, type, mode, mtime, uid, gid and state.

        A symbolic link has the type "link", and its target as destination. It is not followed.
        """
        if not self._strip_protocol(path):
            return {"name": "", "size": 0, "type": "directory"}
        buffer, rest = self._split(path, "stat")
        return _info(buffer, self.client.buffer(buffer).stat(rest))

    def ls(self, path: Any, detail: bool = True, **_: Any) -> list[Any]:
        """List a directory, or the buffers, or describe a file."""
        if not self._strip_protocol(path):
            found = [_buffer_info(b) for b in self.client.buffers()]
        else:
            buffer, rest = self._split(path, "list")
            handle = self.client.buffer(buffer)
            try:
                found = [_info(buffer, e) for e in handle.scan(rest)]
            except NotDirectory:
                entry = handle.stat(rest)
                if entry.is_directory:
                    raise
                found = [_info(buffer, entry)]
        return found if detail else [e["name"] for e in found]

    def exists(self, path: Any, **_: Any) -> bool:
        """Report whether there is a file or directory. Errors of other kinds are raised."""
        try:
            self.info(path)
        except (NotFound, NotDirectory):
            return False
        return True

    def created(self, path: Any) -> datetime:
        """Return when a file was changed last, since no other time is kept."""
        return self.modified(path)

    def modified(self, path: Any) -> datetime:
        """Return when a file was changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def checksum(self, path: Any) -> int:
        """Return a number that changes with a file's content."""
        buffer, rest = self._split(path, "stat")
        e = self.client.buffer(buffer).stat(rest)
        return hash((e.file, e.generation, e.size))

    def ukey(self, path: Any) -> str:
        """Return a text that changes with a file's content."""
        return str(self.checksum(path))

    def mkdir(self, path: Any, create_parents: bool = True, **_: Any) -> None:
        """Make a directory. FileExistsError if there is one."""
        buffer, rest = self._split(path, "mkdir")
        handle = self.client.buffer(buffer)
        parent = rest.rpartition("/")[0]
        if create_parents and parent:
            handle.makedirs(parent)
        if rest:
            handle.mkdir(rest)
        else:
            self._need(buffer)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Make a directory and those above it, as far as they are missing. Buffers are not made."""
        buffer, rest = self._split(path, "mkdir")
        if rest:
            self.client.buffer(buffer).makedirs(rest, exist_ok=exist_ok)
        elif not exist_ok:
            self._need(buffer)

    def _need(self, buffer: str) -> None:
        """Raise Exists of a buffer that is there, and NotFound of one that is not."""
        self.client.buffer(buffer).stat("")
        raise Exists("mkdir", f"bb://{buffer}/")

    def rmdir(self, path: Any) -> None:
        """Remove an empty directory."""
        buffer, rest = self._split(path, "remove")
        handle = self.client.buffer(buffer)
        if not handle.stat(rest).is_directory:
            raise NotDirectory("remove", handle.address(rest))
        handle.remove(rest)

    def rm_file(self, path: Any) -> None:
        """Remove a file, or an empty directory."""
        buffer, rest = self._split(path, "remove")
        self.client.buffer(buffer).remove(rest)

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files. Recursive: directories with all that is in them, each in one request."""
        if not recursive or maxdepth is not None:
            for p in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
                self.rm_file(p)
            return
        for p in self.expand_path(path, recursive=False):
            buffer, rest = self._split(p, "remove")
            if not rest:
                raise Invalid("remove", f"bb://{buffer}/", "a buffer is not removed", "destroy it")
            self.client.buffer(buffer).rmtree(rest)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Move a file or a directory, of any size, in one step, within a buffer.

        An entry at the target is replaced. A file that is moved to a directory goes into it. Lists, patterns,
        and moves to another buffer copy and then remove.
        """
        plain = not isinstance(path1, list | tuple) and not isinstance(path2, list | tuple)
        if not plain or maxdepth is not None or any(c in str(path1) for c in "*?["):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._split(path1, "rename"), self._split(path2, "rename")
        if source == target:
            return
        if source[0] != target[0]:
            super().mv(path1, path2, recursive=recursive, **options)
            return
        handle = self.client.buffer(source[0])
        into = handle.exists(target[1]) and handle.stat(target[1]).is_directory
        if into and not handle.stat(source[1]).is_directory:
            target = (target[0], f"{target[1]}/{source[1].rpartition('/')[2]}".strip("/"))
        try:
            handle.rename(source[1], target[1])
        except NotFound:
            parent = target[1].rpartition("/")[0]
            if not self._auto_mkdir or not parent or not handle.exists(source[1]):
                raise
            handle.makedirs(parent)
            handle.rename(source[1], target[1])

    def cp_file(self, path1: Any, path2: Any, **_: Any) -> None:
        """Copy a file's bytes, from memory to memory. Of a directory it makes another."""
        buffer, rest = self._split(path1, "copy")
        handle = self.client.buffer(buffer)
        if not rest or handle.stat(rest).is_directory:
            self.makedirs(path2, exist_ok=True)
            return
        with handle.open(rest) as source, self._raw(path2, "wb") as target:
            at = 0
            while at < source.size:
                data = source.pread(_COPY, at)
                target.write(data)
                at += len(data)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the bytes of a file from start to end, which count from its end if they are negative."""
        with self._raw(path, "rb") as f:
            return _range(f, start, end)

    def cat_ranges(
        self,
        paths: list[Any],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return ranges of files. Each file is opened once. The range of a file that fails is its error."""
        if not isinstance(paths, list):
            raise TypeError("paths is not a list")
        starts = list(starts) if isinstance(starts, Sequence) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Sequence) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("paths, starts and ends differ in length")
        files: dict[str, File] = {}
        got: list[Any] = []
        try:
            for path, start, end in zip(paths, starts, ends, strict=True):
                try:
                    if path not in files:
                        files[path] = self._raw(path, "rb")
                    got.append(_range(files[path], start, end))
                except Error as e:
                    if on_error != "return":
                        raise
                    got.append(e)
        finally:
            for f in files.values():
                f.close()
        return got

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **_: Any) -> None:
        """Write a file in one commit. With mode "create" FileExistsError if it is there."""
        with self._raw(path, "xb" if mode == "create" else "wb") as f:
            f.write(value)

    def touch(self, path: Any, truncate: bool = True, **_: Any) -> None:
        """Make an empty file, or empty one. Without truncate a file's content stays."""
        with self._raw(path, "wb" if truncate else "ab"):
            pass

    def _raw(self, path: Any, mode: str) -> File:
        buffer, rest = self._split(path, "open")
        handle = self.client.buffer(buffer)
        try:
            return handle.open(rest, mode)
        except NotFound:
            parent = rest.rpartition("/")[0]
            if mode == "rb" or mode.startswith("r") or not self._auto_mkdir or not parent:
                raise
            handle.makedirs(parent)
            return handle.open(rest, mode)

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **_: Any,
    ) -> ReadFile | WriteFile:
        raw = self._raw(path, mode)
        name = self._strip_protocol(path)
        size = block_size if isinstance(block_size, int) else None
        if mode == "rb":
            return ReadFile(self, name, raw, size)
        return WriteFile(name, raw, size, autocommit)


_OPTIONS = ("address", "token", "token_file", "key_file", "tls", "name", "retry_for", "verify")

#: Options of fsspec itself.
_FSSPEC = (
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
    "asynchronous",
    "loop",
)


def _range(f: File, start: int | None, end: int | None) -> bytes:
    begin, stop, _ = slice(start, end).indices(f.size)
    return f.pread(stop - begin, begin)


def _info(buffer: str, e: Entry) -> dict[str, Any]:
    info: dict[str, Any] = {
        "name": f"{buffer}/{e.path}" if e.path else buffer,
        "size": 0 if e.is_directory else e.size,
        "type": "link" if e.is_symlink else "directory" if e.is_directory else "file",
        "mode": e.mode,
        "uid": e.uid,
        "gid": e.gid,
        "mtime": e.mtime_ns / 1e9,
        "state": e.state.name.lower(),
        "islink": e.is_symlink,
    }
    if e.is_symlink:
        info["destination"] = e.target
    return info


def _buffer_info(b: BufferInfo) -> dict[str, Any]:
    return {"name": b.name, "size": 0, "type": "directory", "mode": b.mode, "uid": b.uid, "gid": b.gid}
