"""Files with Python's interface."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import Error, Invalid, Unsupported
from ._reader import Mapping, Reader
from ._staging import Piece
from ._types import Entry
from ._writer import OpenFlags, Writer

if TYPE_CHECKING:
    from ._client import Client


def flags(mode: str, permissions: int) -> tuple[OpenFlags | None, bool]:
    """Return how a mode like "wb" opens a file for writing, or None for reading, and whether it appends."""
    kind = mode.replace("b", "", 1)
    match kind:
        case "r":
            return None, False
        case "w":
            return OpenFlags(create=True, truncate=True, mode=permissions), False
        case "x":
            return OpenFlags(create=True, exclusive=True, mode=permissions), False
        case "a":
            return OpenFlags(create=True, mode=permissions), True
        case "r+":
            return OpenFlags(mode=permissions), False
    raise Invalid("open", "", f"the mode {mode!r} is none of rb, wb, xb, ab and r+b")


class File(io.RawIOBase):
    """A file of a buffer, open for reading or for writing.

    For reading (mode "rb") it holds the content committed when it was opened, until it is closed. For
    writing, ``flush`` and ``close`` commit. Nothing is visible to others before, and then all of it is. A
    ``with`` block that ends with an exception, and a file that is dropped without being closed, commit
    nothing more. In mode "r+b" the file is written in place, not read.

    Attributes:
        mode: as it was opened.
        name: the file's bb:// address.
    """

    def __init__(
        self, client: Client, buffer: str, path: str, mode: str = "rb", permissions: int = 0o644
    ) -> None:
        super().__init__()
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._position = 0
        self.mode = mode
        self.name = f"bb://{buffer}/{path}"
        try:
            how, append = flags(mode, permissions)
            if how is None:
                self._reader = Reader(client, buffer, path)
            else:
                self._writer = Writer(client, buffer, path, how)
                self._position = self._writer.size if append else 0
        except Error as e:
            super().close()  # nothing is open that a finalizer could close
            raise e._about("open", self.name) from e

    def __repr__(self) -> str:
        return f"<forebay.File name={self.name!r} mode={self.mode!r}>"

    def _check(self) -> None:
        if self.closed:
            raise Invalid("use", self.name, "the file is closed")

    def _reading(self, op: str) -> Reader:
        self._check()
        if self._reader is None:
            raise Unsupported(op, self.name, "the file is not open for reading")
        return self._reader

    def _writing(self, op: str) -> Writer:
        self._check()
        if self._writer is None:
            raise Unsupported(op, self.name, "the file is not open for writing")
        return self._writer

    @property
    def entry(self) -> Entry:
        """Of a file that is open for reading: its entry as it was then."""
        return self._reading("entry").entry

    @property
    def size(self) -> int:
        """Bytes, uncommitted ones included."""
        self._check()
        if self._reader is not None:
            return self._reader.entry.size
        return self._writing("size").size

    def readable(self) -> bool:
        """Report whether the file is open for reading."""
        self._check()
        return self._reader is not None

    def writable(self) -> bool:
        """Report whether the file is open for writing."""
        self._check()
        return self._writer is not None

    def seekable(self) -> bool:
        """Report that the position can be moved."""
        self._check()
        return True

    def fileno(self) -> int:
        """Raise Unsupported, since there is no descriptor of the operating system."""
        raise Unsupported("fileno", self.name, "a file of a buffer has no file descriptor")

    def tell(self) -> int:
        """Return the position in bytes."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, relative to the beginning, the position or the end. Return it."""
        self._check()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        if base is None:
            if whence != os.SEEK_END:
                raise Invalid("seek", self.name, f"whence is {whence}")
            base = self.size
        if base + offset < 0:
            raise Invalid("seek", self.name, "the position would be negative")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Read up to len(buffer) bytes into a buffer, fewer only at the end. Return how many."""
        n = self.pread_into(self._position, buffer)
        self._position += n
        return n

    def pread_into(self, offset: int, buffer: Any, *, verify: bool = False) -> int:
        """Read into a buffer from an offset. The position stays. Return how many bytes.

        With verify, the bytes are checked against the checksums that they were written with, also where they
        are read out of sequence. ChecksumMismatch if they differ.
        """
        reader = self._reading("read")
        view = memoryview(buffer)
        if view.nbytes == 0:
            return 0
        return reader.read_into(offset, np.frombuffer(view.cast("B"), dtype=np.uint8), verify=verify)

    def pread(self, n: int, offset: int) -> bytes:
        """Return up to n bytes from an offset on. The position stays."""
        n = max(0, min(n, self._reading("read").entry.size - offset))
        data = bytearray(n)
        got = self.pread_into(offset, data)
        return bytes(memoryview(data)[:got])

    def readall(self) -> bytes:
        """Return all bytes from the position to the end."""
        data = self.pread(self.size, self._position)
        self._position += len(data)
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to size bytes, fewer only at the end. Negative or None: all."""
        if size is None or size < 0:
            return self.readall()
        data = self.pread(size, self._position)
        self._position += len(data)
        return data

    def map(self, offset: int = 0, length: int | None = None, *, copy_on_write: bool = False) -> Mapping:
        """Return a part of the file where it lies in memory, without a copy (Mapping).

        Args:
            offset: of the first byte.
            length: bytes, clipped to the file's size; None: up to the end.
            copy_on_write: whether the views can be written to. Written bytes are this process's own, and the
                file stays unchanged. The memory is then locked, too, so that it stays unchanged even if the
                daemon dies.
        """
        reader = self._reading("map")
        n = reader.entry.size if length is None else length
        return reader.map(offset, n, copy_on_write=copy_on_write)

    def write(self, data: Any, /) -> int:
        """Write bytes, of any buffer, at the position. Return how many: all of them."""
        n = self._writing("write").write(data, self._position)
        self._position += n
        return n

    def pwrite(self, data: Any, offset: int) -> int:
        """Write bytes at an offset. The position stays. Return how many: all of them."""
        return self._writing("write").write(data, offset)

    def reserve(self, n: int) -> memoryview:
        """Return n bytes of memory that become the file's, from the position on, which moves behind them.

        They are filled in place, without another copy, and are part of the file with the next write,
        reserve, flush or close. The view must not be used after that. A file gets at most a share of the
        daemon's memory in one piece. NoSpace if n is more than that.
        """
        return self._reserve(n)

    def _reserve(self, n: int, then: Sequence[int] | None = None) -> memoryview:
        """Reserve n bytes, and announce the sizes of the reservations that follow."""
        writer = self._writing("reserve")
        if n < 0:
            raise Invalid("reserve", self.name, f"{n} bytes")
        view = writer.reserve(n, self._position, then) if n else memoryview(bytearray())
        if view is None:
            reason = "the daemon's memory cannot be mapped here: bytes travel in messages"
            raise Unsupported("reserve", self.name, reason, "write the bytes instead")
        self._position += n
        return view

    def _place(self, piece: Piece) -> int:
        """Make a piece of staged memory the bytes at the position. Return how many."""
        n = self._writing("write").place(piece, self._position)
        self._position += n
        return n

    def truncate(self, size: int | None = None, /) -> int:
        """Raise Unsupported, unless the size is the present one."""
        size = self._position if size is None else size
        if size != self._writing("truncate").size:
            raise Unsupported("truncate", self.name, "a file that is written cannot be cut")
        return size

    def flush(self) -> None:
        """Commit the written bytes, which are then visible, and survive this process and the daemon."""
        if not self.closed and self._writer is not None and not self._writer.closed:
            self._writer.sync()

    def close(self) -> None:
        """Close the file. The written bytes are committed, or discarded if that fails."""
        if self.closed:
            return
        try:
            if self._writer is not None:
                self._writer.close()
            if self._reader is not None:
                self._reader.close()
        finally:
            super().close()

    def abort(self) -> None:
        """Close the file and discard uncommitted bytes. After close it does nothing."""
        if self.closed:
            return
        try:
            if self._writer is not None:
                self._writer.abort()
            if self._reader is not None:
                self._reader.close()
        finally:
            super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_writer", None) is not None and not self.closed:
            warnings.warn(f"{self.name} was not closed, and is not committed", ResourceWarning, 2)
            try:
                self.abort()
            except Error:
                pass
