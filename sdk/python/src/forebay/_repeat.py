"""Whether a request may be sent again when the connection broke before its answer came.

The request may have been carried out then, and others may have changed its subject since.
"""

from __future__ import annotations

from google.protobuf.message import Message

from . import _wire as w
from ._errors import Kind, Unsupported

#: Requests about their session, and those between daemons, which no client sends.
NOT_ASKED = frozenset({
    w.TYPE_HELLO, w.TYPE_PROVE, w.TYPE_PULSE, w.TYPE_CANCEL, w.TYPE_UNPIN, w.TYPE_CLOSE,
    w.TYPE_LEASE, w.TYPE_RETURN, w.TYPE_HOLD, w.TYPE_TAKE, w.TYPE_DISCARD, w.TYPE_REPLICATE,
    w.TYPE_RECHECK, w.TYPE_PLACE_RENAME, w.TYPE_PLACE_REMOVE, w.TYPE_NAMES,
    w.TYPE_FOLLOW,
})  # fmt: skip

#: Requests that change nothing.
READING = frozenset({
    w.TYPE_STATUS, w.TYPE_SUBSCRIBE, w.TYPE_BUFFER_GET, w.TYPE_BUFFER_LIST, w.TYPE_STAT,
    w.TYPE_XATTRS, w.TYPE_LIST, w.TYPE_LOST, w.TYPE_EXTENTS, w.TYPE_VERIFY, w.TYPE_RECEIPT, w.TYPE_NODES,
    w.TYPE_NODE_LOSS, w.TYPE_JOBS, w.TYPE_JOB, w.TYPE_LIFETIMES, w.TYPE_TXN_GET, w.TYPE_TXN_LIST,
})  # fmt: skip

#: Requests that name their subject by an id or a key, so that a repetition has the same result.
KEYED = frozenset({
    w.TYPE_DRAIN, w.TYPE_STAGE_IN, w.TYPE_STAGE_OUT, w.TYPE_NODE_DRAIN, w.TYPE_TOKEN,
    w.TYPE_BUFFER_REBUILD, w.TYPE_JOB_CANCEL,
    w.TYPE_LIFETIME_OPEN, w.TYPE_LIFETIME_LEAVE, w.TYPE_LIFETIME_END,
    w.TYPE_TXN_BEGIN, w.TYPE_TXN_ADOPT, w.TYPE_TXN_COMMIT, w.TYPE_TXN_ABORT, w.TYPE_TXN_RENEW,
})  # fmt: skip

#: Requests whose sender has rules of its own for going on in a new session.
RESUMED = frozenset({w.TYPE_OPEN, w.TYPE_COMMIT})

#: Requests whose second execution may undo changes by others after the first.
ONCE = frozenset({
    w.TYPE_BUFFER_CREATE, w.TYPE_BUFFER_DESTROY, w.TYPE_MKDIR, w.TYPE_MKNOD, w.TYPE_RENAME,
    w.TYPE_EXCHANGE, w.TYPE_REMOVE, w.TYPE_SETATTR, w.TYPE_SET_XATTR, w.TYPE_NODE_UNDRAIN, w.TYPE_NODE_FORGET,
    w.TYPE_LIFETIME_DUE,
})  # fmt: skip

_NOT_DONE = 1
_UNKNOWN = 2


def may_repeat(typ: int, m: Message) -> bool:
    """Report whether a request that was sent, and whose answer is lost, may be sent again as it is."""
    if isinstance(m, w.TxnBegin) and not m.key:
        return False
    return typ in READING or typ in KEYED


def may_be_done(typ: int, outcome: int, kind: int) -> bool:
    """Report whether a request may have been carried out whose answer is an error.

    Where the answer has no such mark, as those of older daemons, the kind decides. Most kinds are refusals.
    """
    if outcome == _NOT_DONE:
        return False
    if outcome == _UNKNOWN:
        return True
    doubtful = kind in (Kind.UNAVAILABLE, Kind.CANCELLED, Kind.INTERNAL)
    return doubtful and (typ in ONCE or typ in RESUMED)


#: The versions of the control protocol that this package supports (internal/wire/version.go).
MIN_VERSION = 1
MAX_VERSION = 2

_SINCE: dict[int, tuple[int, str]] = {
    w.TYPE_JOBS: (2, "jobs"),
    w.TYPE_JOB: (2, "jobs"),
    w.TYPE_JOB_CANCEL: (2, "jobs"),
    w.TYPE_TXN_BEGIN: (2, "transactions"),
    w.TYPE_TXN_ADOPT: (2, "transactions"),
    w.TYPE_TXN_COMMIT: (2, "transactions"),
    w.TYPE_TXN_ABORT: (2, "transactions"),
    w.TYPE_TXN_RENEW: (2, "transactions"),
    w.TYPE_TXN_GET: (2, "transactions"),
    w.TYPE_TXN_LIST: (2, "transactions"),
    w.TYPE_MKNOD: (2, "symbolic links, FIFOs and sockets"),
    w.TYPE_TOKEN: (2, "tokens"),
    w.TYPE_SET_XATTR: (2, "extended attributes"),
    w.TYPE_XATTRS: (2, "extended attributes"),
    w.TYPE_EXCHANGE: (2, "exchanging names"),
}


def since(typ: int, m: Message | None) -> tuple[int, str]:
    """Return the version of the protocol that a request came with, and its name."""
    if isinstance(m, w.Drain) and m.below:
        return 2, "draining part of a buffer"
    if isinstance(m, w.Buffer) and typ == w.TYPE_BUFFER_CREATE and m.replicas > 1:
        return 2, "second copies"
    if isinstance(m, w.Open) and m.fence:
        return 2, "ending other writers"
    return _SINCE.get(typ, (1, ""))


def check_version(version: int, server: str, typ: int, m: Message | None) -> None:
    """Raise Unsupported if a session of a version does not have a request."""
    needed, what = since(typ, m)
    if needed > version:
        raise Unsupported(
            "request",
            what,
            f"{what} came with protocol version {needed}, and {server} uses version {version} here",
            f"upgrade the daemon to a release that supports version {needed}: see bbctl nodes",
        )
