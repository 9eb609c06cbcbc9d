"""Descriptions of buffers, entries and long work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any

from . import _wire
from ._errors import Invalid, Kind

_DIRECTORY = 2
_SYMLINK = 3


class State(IntEnum):
    """The state of a file towards its backing store.

    SUPERSEDED: a flush rule of the buffer does not flush it any more, since a newer step is complete.
    """

    UNKNOWN = 0
    OPEN = 1
    DIRTY = 2
    CLEAN = 3
    EVICTED = 4
    LOST = 5
    SUPERSEDED = 6


def _enum(cls: type[IntEnum], n: int) -> Any:
    return cls(n) if n in cls._value2member_map_ else cls(0)


@dataclass(frozen=True)
class Entry:
    """One file, directory or symbolic link of a buffer, as it was when it was requested.

    Attributes:
        path: in the buffer, without slashes at its ends: "" is the root.
        is_directory: whether it is a directory.
        size: bytes.
        mtime_ns: when it was changed last, in nanoseconds since the Unix epoch.
        mode: permission bits.
        uid: of the owner.
        gid: of the owner's group.
        file: the file's number, which stays when it is renamed.
        generation: the newest committed content of the file.
        checksum: CRC-64/NVME of the whole content, unless the state is open.
        state: towards the backing store.
        reason: why it is lost, or why its last flush failed.
        holders: nodes that hold its bytes, the owner first.
        target: where a symbolic link leads, as os.readlink returns it; "": it is none.
    """

    path: str
    is_directory: bool
    size: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int
    file: int
    generation: int
    checksum: int
    state: State
    reason: str
    holders: tuple[str, ...]
    target: str = ""

    @property
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return bool(self.target)

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rpartition("/")[2]

    @classmethod
    def of(cls, path: str, m: _wire.Entry) -> Entry:
        """Return the entry that a message stands for."""
        return cls(
            path=path,
            is_directory=m.type == _DIRECTORY,
            size=m.size,
            mtime_ns=m.mtime_ns,
            mode=m.mode,
            uid=m.uid,
            gid=m.gid,
            file=m.file,
            generation=m.generation,
            checksum=m.checksum,
            state=_enum(State, m.state),
            reason=m.reason,
            holders=tuple(m.holders),
            target=os.fsdecode(m.target) if m.type == _SYMLINK else "",
        )


#: The tiers of the daemon's memory, by their numbers: see bb.Tier in internal/bb.
_TIERS = ("memory", "disk")


@dataclass(frozen=True)
class BufferInfo:
    """A buffer as the daemon describes it.

    Attributes:
        name: the buffer's.
        uid: of the owner.
        gid: of the owner's group.
        mode: permission bits.
        capacity: bytes; 0: as many as there are.
        backing: URL of the store behind it; "": none.
        durability: when a close returns: "resident" or "flushed".
        codec: how files are compressed on the store; "": not.
        keep: patterns of names that are not flushed.
        replicas: nodes that hold each committed byte.
        job: of a batch system, for which the buffer lives.
        existing: treatment of files of the store that the buffer did not write: "keep",
            "overwrite" or "refuse".
        found: in the answer to a create, a file that the store held already; "": none.
        found_total: in the answer to a create, the number of such files, counted to 1,001.
        flush: flush rules: which steps of a series go to the store.
        flush_limit: the most bytes a second to the store; 0: no limit.
        dirty_age: seconds after which a dirty byte is flushed, even if there are reasons to wait; 0: as the
            daemon is configured.
        receipt: whether a drain puts its receipt beside the files on the store.
        tiers: "memory" or "disk" by pattern of names, of which the first that fits counts.
    """

    name: str
    uid: int
    gid: int
    mode: int
    capacity: int
    backing: str
    durability: str
    codec: str
    keep: tuple[str, ...]
    replicas: int
    job: str
    existing: str
    found: str
    found_total: int
    flush: tuple[str, ...] = ()
    flush_limit: int = 0
    dirty_age: float = 0
    receipt: bool = False
    tiers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, m: _wire.Buffer) -> BufferInfo:
        """Return the buffer that a message stands for."""
        return cls(
            name=m.name,
            uid=m.uid,
            gid=m.gid,
            mode=m.mode,
            capacity=m.capacity,
            backing=m.backing,
            durability=m.durability,
            codec=m.codec,
            keep=tuple(m.keep),
            replicas=m.replicas,
            job=m.job,
            existing=m.existing,
            found=m.found,
            found_total=m.found_total,
            flush=tuple(m.flush),
            flush_limit=m.flush_limit,
            dirty_age=m.dirty_age_ns / 1e9,
            receipt=m.receipt,
            tiers={r.pattern: _TIERS[r.tier] for r in m.tiers if r.tier < len(_TIERS)},
        )


def buffer_message(
    name: str,
    backing: str,
    *,
    capacity: int,
    durability: str,
    codec: str,
    keep: Sequence[str] | None,
    mode: int,
    replicas: int,
    no_wait: bool,
    existing: str,
    shared: bool,
    flush: Sequence[str] = (),
    flush_limit: int = 0,
    dirty_age: float = 0,
    receipt: bool = False,
    tiers: Mapping[str, str] | None = None,
) -> _wire.Buffer:
    """Return the message that makes a buffer."""
    for argument, value in (("keep", keep), ("flush", flush)):
        if isinstance(value, str):  # its letters would be patterns, "*" among them
            raise Invalid("create buffer", name, f"{argument} is a text", f"write {argument}=[{value!r}]")
    for pattern, tier in (tiers or {}).items():
        if tier not in _TIERS:
            remedy = f"write one of {', '.join(_TIERS)}"
            raise Invalid("create buffer", name, f"files {pattern!r} cannot be in tier {tier!r}", remedy)
    return _wire.Buffer(
        name=name,
        backing=backing,
        capacity=capacity,
        durability=durability,
        codec=codec,
        keep=keep,
        keep_default=keep is None,
        mode=mode,
        replicas=replicas,
        no_wait=no_wait,
        existing=existing,
        shared=shared,
        flush=flush,
        flush_limit=flush_limit,
        dirty_age_ns=round(dirty_age * 1e9),
        receipt=receipt,
        tiers=[_wire.TierRule(pattern=p, tier=_TIERS.index(t)) for p, t in (tiers or {}).items()],
    )


@dataclass(frozen=True)
class Node:
    """A node of the cluster, from the view of the daemon that answers.

    Attributes:
        name: the node's.
        state: "starting", "ready", "draining" or "leaving"; "suspect" or "dead" if it does not answer.
        address: where its daemon accepts sessions over TCP, as tcp://host:port; "": nowhere.
        server: the daemon's version.
        memory: bytes of its memory tier.
        memory_free: bytes of it that are free.
        memory_dirty: bytes of it that are not on the store yet.
        disk: bytes of its disk tier; 0: it has none.
        disk_free: bytes of it that are free.
        disk_dirty: bytes of it that are not on the store yet.
        refused: why the answering daemon cannot work with it; "": it can.
    """

    name: str
    state: str
    address: str
    server: str
    memory: int
    memory_free: int
    memory_dirty: int
    disk: int
    disk_free: int
    disk_dirty: int
    refused: str

    @classmethod
    def of(cls, m: _wire.Node) -> Node:
        """Return the node that a message stands for."""
        return cls(
            name=m.name,
            state=m.state,
            address=f"tcp://{m.session}" if m.session else "",
            server=m.server,
            memory=m.memory,
            memory_free=m.memory_free,
            memory_dirty=m.memory_dirty,
            disk=m.disk,
            disk_free=m.disk_free,
            disk_dirty=m.disk_dirty,
            refused=m.refused,
        )


@dataclass(frozen=True)
class Failure:
    """A part of long work that could not be done, and the reason."""

    path: str
    kind: Kind
    reason: str
    bytes: int


@dataclass(frozen=True)
class Progress:
    """The progress of long work: a drain, a stage-in or a stage-out.

    Attributes:
        files_skipped: there already, and equal.
        bytes_not_copied: of bytes_done, those of files that were skipped or have failed.
        job: the id of the job, which continues without a waiting caller; "": the work ends then.
        last_error: the newest passing failure of the store.
        names: of a dry run, the names that would be copied.
        failed: the parts that could not be done.
        held: names held back by a keep pattern, as many as the daemon names.
        open: names still open for writing, as many as the daemon names.
        superseded: of a drain, steps that it has not flushed, and none will, since a newer one of their flush
            rule is complete; as many as the daemon names. They are no failures.
        timed_out: of a drain, whether its time passed before all was saved.
        done: whether this is the end.
    """

    files_total: int = 0
    files_done: int = 0
    files_skipped: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    bytes_not_copied: int = 0
    job: str = ""
    last_error: str = ""
    names: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    failed_total: int = 0
    held: tuple[str, ...] = ()
    held_total: int = 0
    open: tuple[str, ...] = ()
    open_total: int = 0
    timed_out: bool = False
    done: bool = False
    superseded: tuple[str, ...] = ()
    superseded_total: int = 0

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The paths, of those that a drain could not save, under which the store has another file.

        The buffer did not write that file, and keeps it ("existing" of the buffer). Each is decided
        by itself: ``Buffer.overwrite`` replaces the store's file, ``Buffer.stage_in`` takes it,
        ``Buffer.rename`` leaves both.
        """
        return tuple(f.path for f in self.failed if f.kind is Kind.EXISTS)

    @classmethod
    def of(cls, m: _wire.Progress, before: Progress) -> Progress:
        """Return the content of a message, with the failures of earlier ones."""
        failed = tuple(Failure(f.path, _enum_kind(f.kind), f.reason, f.bytes) for f in m.failed)
        return cls(
            files_total=m.files_total,
            files_done=m.files_done,
            files_skipped=m.files_skipped,
            bytes_total=m.bytes_total,
            bytes_done=m.bytes_done,
            bytes_not_copied=m.bytes_not_copied,
            job=m.job,
            last_error=m.last_error,
            names=before.names + tuple(m.names),
            failed=before.failed + failed,
            failed_total=max(m.failed_total, len(before.failed) + len(failed)),
            held=tuple(m.held),
            held_total=m.held_total,
            open=tuple(m.open),
            open_total=m.open_total,
            timed_out=m.timed_out,
            done=m.done,
            superseded=tuple(m.superseded),
            superseded_total=m.superseded_total,
        )


def _enum_kind(n: int) -> Kind:
    return Kind(n) if n in Kind._value2member_map_ else Kind.INTERNAL


class TxnState(Enum):
    """A transaction's place in its lifetime."""

    UNKNOWN = ""  #: of a newer daemon
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"  #: readers see the output, and daemons are giving it its final names
    FOLDED = "folded"  #: all of it has its final name
    ABORTED = "aborted"

    @property
    def is_decided(self) -> bool:
        """Whether the output is part of the destination, for good."""
        return self in (TxnState.COMMITTED, TxnState.FOLDED)


@dataclass(frozen=True)
class TxnInfo:
    """The state of a transaction.

    Attributes:
        destination: the directory that the output goes to, as it was when the transaction began.
        key: "" if the client gave none.
        path: of its hidden directory.
        created: when it began.
        ended: when it was committed or aborted; None if it is neither.
        lease: how long it lives without being renewed, in seconds.
        reason: why it was aborted, or why folding does not get on.
        tasks: that were adopted; only of Txn.info and Buffer.txns.
    """

    id: str
    buffer: str
    destination: str
    key: str
    state: TxnState
    path: str
    created: datetime
    ended: datetime | None
    lease: float
    reason: str
    tasks: int

    @classmethod
    def of(cls, m: _wire.Txn) -> TxnInfo:
        """Return the content of a message."""
        known = m.state in TxnState._value2member_map_
        return cls(
            id=m.id,
            buffer=m.buffer,
            destination=m.destination,
            key=m.key,
            state=TxnState(m.state) if known else TxnState.UNKNOWN,
            path=m.path,
            created=_time(m.created_ns),
            ended=_time(m.ended_ns) if m.ended_ns else None,
            lease=m.lease_ns / 1e9,
            reason=m.reason,
            tasks=m.tasks,
        )


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
