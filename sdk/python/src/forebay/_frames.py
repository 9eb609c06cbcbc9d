"""The frames of the control protocol, which internal/wire/forebay.proto draws."""

from __future__ import annotations

import struct
from typing import Protocol

from google.protobuf.message import Message

from ._crc import crc32c

MAX_MESSAGE = 1 << 20
MAX_DATA = 4 << 20

REPLY = 1
ERROR = 2
MORE = 4

_HEAD = struct.Struct("<IIQHH")
_SUM = struct.Struct("<I")
HEADER = _HEAD.size + _SUM.size

_READ_AHEAD = 64 << 10


class MalformedFrame(Exception):
    """The received bytes are not a frame. Nothing after them on the connection is valid."""


class Readable(Protocol):
    """A connection to read from."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read some bytes into a buffer and return their number, 0 at the end."""


def encode(typ: int, request: int, m: Message | None, data: int = 0) -> bytes:
    """Return the header and the message of a frame whose data, of so many bytes, follows them."""
    message = b"" if m is None else m.SerializeToString()
    if len(message) > MAX_MESSAGE or data > MAX_DATA:
        raise MalformedFrame(f"a message of {len(message)} bytes and data of {data} are too large to send")
    head = _HEAD.pack(len(message), data, request, typ, 0)
    return head + _SUM.pack(crc32c(head + message, 0)) + message


class Reader:
    """Reads frames. It is for one thread at a time."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._buffer = bytearray(_READ_AHEAD)
        self._start = 0
        self._end = 0
        self.request = 0
        self.flags = 0
        self.message = b""
        self.data_length = 0

    def has(self, flag: int) -> bool:
        """Report whether the frame that came last has a flag."""
        return self.flags & flag != 0

    def buffered(self) -> bool:
        """Report whether a part of the next frame has been read already."""
        return self._end > self._start

    def next(self) -> None:
        """Read the next frame's header and message. Its data follows with data()."""
        self._fill(HEADER)
        at = self._start
        message, data, request, _, flags = _HEAD.unpack_from(self._buffer, at)
        if message > MAX_MESSAGE or data > MAX_DATA:
            raise MalformedFrame(f"{message} bytes of message and {data} of data")
        self._fill(HEADER + message)
        at = self._start
        body = bytes(memoryview(self._buffer)[at + HEADER : at + HEADER + message])
        head = bytes(memoryview(self._buffer)[at : at + _HEAD.size])
        (want,) = _SUM.unpack_from(self._buffer, at + _HEAD.size)
        if crc32c(head + body, 0) != want:
            raise MalformedFrame("its checksum does not fit")
        self._start = at + HEADER + message
        self.request, self.flags, self.message, self.data_length = request, flags, body, data

    def data(self) -> bytearray:
        """Read the data of the frame that came last."""
        data = bytearray(self.data_length)
        n = min(self._end - self._start, len(data))
        data[:n] = memoryview(self._buffer)[self._start : self._start + n]
        self._start += n
        view = memoryview(data)
        while n < len(data):
            got = self._source.recv_into(view[n:])
            if got == 0:
                raise EOFError("the connection ended in the middle of a frame")
            n += got
        return data

    def _fill(self, n: int) -> None:
        """Make sure that n bytes lie at the start."""
        if self._end - self._start >= n:
            return
        if self._start + n > len(self._buffer):
            rest = self._buffer[self._start : self._end]
            self._buffer = bytearray(max(n, _READ_AHEAD))
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        view = memoryview(self._buffer)
        while self._end - self._start < n:
            got = self._source.recv_into(view[self._end :])
            if got == 0:
                raise EOFError("the connection ended")
            self._end += got
