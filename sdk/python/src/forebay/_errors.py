"""Errors in Python's form. Each kind is a subclass of the builtin of the same meaning."""

from __future__ import annotations

import errno
import io
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from . import _wire

if TYPE_CHECKING:
    from ._types import Progress


class Kind(IntEnum):
    """A closed set of kinds of errors, the same in every language. The numbers are part of the protocol."""

    INTERNAL = 1
    NOT_FOUND = 2
    EXISTS = 3
    NOT_DIRECTORY = 4
    IS_DIRECTORY = 5
    NOT_EMPTY = 6
    PERMISSION = 7
    NO_SPACE = 8
    UNAVAILABLE = 9
    LOST = 10
    CHECKSUM = 11
    BUSY = 12
    INVALID = 13
    UNSUPPORTED = 14
    CANCELLED = 15

    @property
    def text(self) -> str:
        """The kind's stable name, for example "not found"."""
        return _TEXTS.get(self, self.name.lower().replace("_", " "))


_TEXTS = {Kind.NOT_DIRECTORY: "not a directory", Kind.IS_DIRECTORY: "is a directory"}


class Error(OSError):
    """An operation failed. The subclass is the kind of failure.

    Attributes:
        kind: the kind of the error.
        op: the user's name of the operation: "open", "sync", …
        path: the bb:// address, file or value that the operation was about.
        node: the node where it failed; "" if that is unknown.
        reason: why.
        remedy: the step that mends it; "" if there is none.
        outcome_unknown: of a change that failed, whether it may have been carried out, or may be
            yet. A change that failed with another ``Error`` was not carried out, and never will be.
        report: of long work that has left something undone, the finished and unfinished parts; else None.
    """

    kind = Kind.INTERNAL
    _errno = errno.EIO

    def __init__(
        self,
        op: str = "",
        path: str = "",
        reason: str = "",
        remedy: str = "",
        *,
        node: str = "",
        outcome_unknown: bool = False,
    ) -> None:
        self.op = op
        self.path = path
        self.node = node
        self.reason = reason
        self.remedy = remedy
        self.outcome_unknown = outcome_unknown
        self.report: Progress | None = None
        super().__init__(self._errno, self._text(), path or None)

    def _text(self) -> str:
        parts = [self.op, self.path, f"node {self.node}" if self.node else ""]
        if self.kind.text not in self.reason:
            parts.append(self.kind.text)
        parts.append(self.reason)
        text = ": ".join(p for p in parts if p)
        return f"{text} ({self.remedy})" if self.remedy else text

    def __str__(self) -> str:
        return self._text()

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"node": self.node, "outcome_unknown": self.outcome_unknown, "report": self.report}
        return type(self), (self.op, self.path, self.reason, self.remedy), state

    def _about(self, op: str, path: str) -> Error:
        """Return the error with an operation and an address, unless it has them. Its kind stays."""
        if self.path.startswith("bb://"):
            return self
        e = type(self)(
            op, path, self.reason, self.remedy, node=self.node, outcome_unknown=self.outcome_unknown
        )
        return e.with_traceback(self.__traceback__)


class InternalError(Error):
    """A fault of the daemon or of the client."""


class NotFound(Error, FileNotFoundError):
    """There is no such buffer, file or directory."""

    kind = Kind.NOT_FOUND
    _errno = errno.ENOENT


class Exists(Error, FileExistsError):
    """The name is taken."""

    kind = Kind.EXISTS
    _errno = errno.EEXIST


class NotDirectory(Error, NotADirectoryError):
    """A part of the path is a file."""

    kind = Kind.NOT_DIRECTORY
    _errno = errno.ENOTDIR


class IsDirectory(Error, IsADirectoryError):
    """The path is a directory's."""

    kind = Kind.IS_DIRECTORY
    _errno = errno.EISDIR


class NotEmpty(Error):
    """The directory is not empty."""

    kind = Kind.NOT_EMPTY
    _errno = errno.ENOTEMPTY


class PermissionDenied(Error, PermissionError):
    """The user may not do that, or could not prove its rights."""

    kind = Kind.PERMISSION
    _errno = errno.EACCES


class NoSpace(Error):
    """The buffer, or the memory of the daemon, is full."""

    kind = Kind.NO_SPACE
    _errno = errno.ENOSPC


class Unavailable(Error, ConnectionError):
    """A daemon or a store does not answer, or the connection broke."""

    kind = Kind.UNAVAILABLE
    _errno = errno.ENOTCONN


class Lost(Error):
    """Bytes went with a node's memory."""

    kind = Kind.LOST
    _errno = errno.EIO


class ChecksumMismatch(Error):
    """Bytes do not have the checksum that they were written with."""

    kind = Kind.CHECKSUM
    _errno = errno.EIO


class Busy(Error):
    """Something else uses it."""

    kind = Kind.BUSY
    _errno = errno.EBUSY


class Invalid(Error, ValueError):
    """An argument is out of bounds, or the object is closed."""

    kind = Kind.INVALID
    _errno = errno.EINVAL


class Unsupported(Error, io.UnsupportedOperation):
    """The daemon, or this package, cannot do that."""

    kind = Kind.UNSUPPORTED
    _errno = errno.EOPNOTSUPP


class Cancelled(Error):
    """The operation was cancelled, or the transaction was aborted."""

    kind = Kind.CANCELLED
    _errno = errno.ECANCELED


_CLASSES: dict[int, type[Error]] = {
    c.kind: c
    for c in (
        InternalError,
        NotFound,
        Exists,
        NotDirectory,
        IsDirectory,
        NotEmpty,
        PermissionDenied,
        NoSpace,
        Unavailable,
        Lost,
        ChecksumMismatch,
        Busy,
        Invalid,
        Unsupported,
        Cancelled,
    )
}


def of_kind(kind: int) -> type[Error]:
    """Return the class of a kind's number. A newer daemon's kind is an internal error."""
    return _CLASSES.get(kind, InternalError)


def from_wire(m: _wire.Error, may_be_done: bool) -> Error:
    """Return the error that a failed reply stands for."""
    return of_kind(m.kind)(m.op, m.path, m.reason, m.remedy, node=m.node, outcome_unknown=may_be_done)


class Broken(Exception):
    """The session broke under a request.

    Attributes:
        sent: whether the request, or a part of it, may have left.
    """

    def __init__(self, reason: BaseException | str, sent: bool) -> None:
        super().__init__(f"the connection to the daemon broke: {reason}")
        self.sent = sent


def unknown(op: str, path: str, why: str, remedy: str) -> Unavailable:
    """Return the error of a change that may have been carried out."""
    return Unavailable(op, path, f"outcome unknown: {why}", remedy, outcome_unknown=True)


def saying_outcome(e: Error) -> Error:
    """Return e, with a text of unknown outcome if the failed change may have been carried out."""
    if not e.outcome_unknown or e.reason.startswith("outcome unknown"):
        return e
    why = f"outcome unknown: it may have been carried out: {e.reason}"
    return type(e)(e.op, e.path, why, "check whether it was done", node=e.node, outcome_unknown=True)
