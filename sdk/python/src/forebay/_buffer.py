"""One buffer: its files and directories."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from . import _wire
from ._errors import Error, Exists, Invalid, IsDirectory, NotDirectory, NotFound, PermissionDenied
from ._file import File
from ._token import Token
from ._txn import Txn
from ._types import _SYMLINK, Entry, Progress, TxnInfo
from ._writer import OpenFlags, Writer

if TYPE_CHECKING:
    from ._client import Client

# The first two are those of os, which not all systems have.
_XATTR_CREATE, _XATTR_REPLACE, _XATTR_REMOVE = 1, 2, 3

M = TypeVar("M", bound=Message)


def clean(path: str) -> str:
    """Return a path without leading, trailing and doubled slashes: "" is the root."""
    if path.startswith("bb://"):
        raise Invalid(
            "path", path, "this is an address, not a path in a buffer", "write what follows bb://BUFFER/"
        )
    return "/".join(p for p in path.split("/") if p not in ("", "."))


class Buffer:
    """Addresses one buffer, which need not exist. Paths are relative to its root.

    A leading slash in a path is ignored, and ".." is refused. It may be used concurrently and needs no
    closing.

    Attributes:
        client: the client that it was got from.
        name: the buffer's.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<forebay.Buffer bb://{self.name}>"

    def address(self, path: str = "") -> str:
        """Return the bb:// address of a path."""
        return f"bb://{self.name}/{clean(path)}"

    def _ask(self, op: str, path: str, typ: int, m: Message, reply: type[M]) -> M:
        try:
            return self.client.ask(typ, m, reply)
        except Error as e:
            raise e._about(op, self.address(path)) from e

    def open(self, path: str, mode: str = "rb", *, permissions: int = 0o644) -> File:
        """Open a file: "rb" to read its content of this moment, "wb" to replace it, "xb" to make it.

        Args:
            path: in the buffer.
            mode: rb, wb, xb (Exists if it is there; its name is taken at once), ab, or r+b to write
                in place, beside other writers.
            permissions: mode bits of a new file.
        """
        p = clean(path)
        if not p and "r" not in mode:
            raise IsDirectory("open", self.address(), "the root is a directory")
        return File(self.client, self.name, p, mode, permissions)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file."""
        with self.open(path) as f:
            return f.readall()

    def write_bytes(self, path: str, data: Any) -> int:
        """Make a file, or replace it, in one commit. Return how many bytes it has."""
        with self.open(path, "wb") as f:
            return f.write(data)

    def stat(self, path: str) -> Entry:
        """Describe a file or directory."""
        p = clean(path)
        m = _wire.PathRequest(buffer=self.name, path=p)
        return Entry.of(p, self._ask("stat", p, _wire.TYPE_STAT, m, _wire.Entry))

    def exists(self, path: str) -> bool:
        """Report whether there is a file or directory of a path."""
        try:
            self.stat(path)
        except (NotFound, NotDirectory):
            return False
        return True

    def scan(self, path: str = "", *, after: str = "") -> Iterator[Entry]:
        """Yield the entries of a directory by name, those greater than after, page by page."""
        p = clean(path)
        more = True
        while more:
            m = _wire.ListRequest(buffer=self.name, path=p, after=after)
            page = self._ask("list", p, _wire.TYPE_LIST, m, _wire.ListReply)
            for e in page.entries:
                yield Entry.of(f"{p}/{e.name}" if p else e.name, e)
                after = e.name
            more = page.more

    def listdir(self, path: str = "") -> list[Entry]:
        """Return the entries of a directory by name."""
        return [*self.scan(path)]

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Make a directory, whose parent is there. Exists if there is one."""
        self._mkdir(path, mode, parents=False)

    def makedirs(self, path: str, mode: int = 0o755, *, exist_ok: bool = True) -> None:
        """Make a directory and those above it, as far as they are missing."""
        if not exist_ok and self.exists(path):
            raise Exists("mkdir", self.address(path))
        self._mkdir(path, mode, parents=True)

    def _mkdir(self, path: str, mode: int, parents: bool) -> None:
        m = _wire.Mkdir(buffer=self.name, path=clean(path), mode=mode, parents=parents)
        self._ask("mkdir", path, _wire.TYPE_MKDIR, m, _wire.Entry)

    def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link, as os.symlink does. Exists if the name is taken.

        No method follows it. Programs on a mount do.

        Args:
            target: where it leads, which need not be there: at most 4095 bytes.
            path: of the link.
        """
        m = _wire.Mknod(
            buffer=self.name, path=clean(path), type=_SYMLINK, target=os.fsencode(target), mode=0o777
        )
        self._ask("symlink", path, _wire.TYPE_MKNOD, m, _wire.Entry)

    def readlink(self, path: str) -> str:
        """Return where a symbolic link leads. Invalid if it is none."""
        e = self.stat(path)
        if not e.is_symlink:
            raise Invalid("readlink", self.address(path), "it is no symbolic link")
        return e.target

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Rename a file or directory of any size in one step.

        Without replace it fails with Exists if the name is taken.
        """
        m = _wire.Rename(
            buffer=self.name, to=clean(target), no_replace=not replace, **{"from": clean(source)}
        )
        self._ask("rename", source, _wire.TYPE_RENAME, m, _wire.Empty)

    def exchange(self, first: str, second: str) -> None:
        """Swap the names of two files or directories of any size in one step.

        Invalid if one lies below the other, and Busy if one is replaced at the same time.
        """
        ids = []
        for path in (first, second):
            m = _wire.PathRequest(buffer=self.name, path=clean(path))
            e = self._ask("stat", path, _wire.TYPE_STAT, m, _wire.Entry)
            ids.append(e.dir or e.file)
        names = _wire.ExchangeNames(
            buffer=self.name, to=clean(second), from_id=ids[0], to_id=ids[1], **{"from": clean(first)}
        )
        self._ask("exchange", first, _wire.TYPE_EXCHANGE, names, _wire.Empty)

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        m = _wire.Remove(buffer=self.name, path=clean(path))
        self._ask("remove", path, _wire.TYPE_REMOVE, m, _wire.Empty)

    def rmtree(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it."""
        m = _wire.Remove(buffer=self.name, path=clean(path), recursive=True)
        self._ask("remove", path, _wire.TYPE_REMOVE, m, _wire.Empty)

    def set_attributes(
        self,
        path: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime_ns: int | None = None,
    ) -> Entry:
        """Change the given attributes of a file or directory."""
        p = clean(path)
        m = _wire.SetAttr(buffer=self.name, path=p, mode=mode, uid=uid, gid=gid, mtime_ns=mtime_ns)
        return Entry.of(p, self._ask("setattr", p, _wire.TYPE_SETATTR, m, _wire.Entry))

    def setxattr(self, path: str, attribute: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute of a file or directory, as os.setxattr does.

        It belongs to the file, so renames and new content keep it. It comes to the store with the next flush
        of the file's content.

        Args:
            path: of the file or directory, which the user may write.
            attribute: a name that begins with "user.": at most 255 bytes.
            value: any bytes. All attributes of a file take at most 8 KiB.
            flags: os.XATTR_CREATE, Exists if there is one; os.XATTR_REPLACE, NotFound if there is none.

        Raises:
            Unsupported: the name begins with something else.
            NoSpace: the attributes would be too large.
        """
        if flags not in (0, _XATTR_CREATE, _XATTR_REPLACE):
            raise Invalid("setxattr", self.address(path), f"flags {flags} are not known")
        self._set_xattr("setxattr", path, attribute, value, flags)

    def removexattr(self, path: str, attribute: str) -> None:
        """Remove an extended attribute. NotFound if there is none of that name."""
        self._set_xattr("removexattr", path, attribute, b"", _XATTR_REMOVE)

    def _set_xattr(self, op: str, path: str, attribute: str, value: bytes, how: int) -> None:
        m = _wire.SetXattr(
            buffer=self.name,
            path=clean(path),
            name=os.fsencode(attribute),
            value=bytes(memoryview(value)),
            op=how,
        )
        self._ask(op, path, _wire.TYPE_SET_XATTR, m, _wire.Empty)

    def getxattr(self, path: str, attribute: str) -> bytes:
        """Return the value of an extended attribute. NotFound if there is none of that name."""
        m = self._xattrs("getxattr", path)
        if m.unreadable:
            raise PermissionDenied("getxattr", self.address(path), "the user may not read it")
        for x in m.xattrs:
            if x.name == os.fsencode(attribute):
                return x.value
        raise NotFound("getxattr", self.address(path), f"it has no attribute {attribute}")

    def listxattr(self, path: str) -> list[str]:
        """Return the names of the extended attributes of a file or directory, in their order."""
        return [os.fsdecode(x.name) for x in self._xattrs("listxattr", path).xattrs]

    def _xattrs(self, op: str, path: str) -> _wire.Xattrs:
        m = _wire.PathRequest(buffer=self.name, path=clean(path))
        return self._ask(op, path, _wire.TYPE_XATTRS, m, _wire.Xattrs)

    def lost(self) -> list[Entry]:
        """Return the files whose bytes are lost."""
        m = _wire.BufferName(name=self.name)
        got: list[Entry] = []
        for reply, _ in self.client.stream(_wire.TYPE_LOST, m, _wire.Entries):
            got += [Entry.of(e.path, e) for e in reply.entries]
        return got

    def recover(self, path: str) -> None:
        """End the writing of a file by others. Its content is their commits.

        Their later operations fail, also those of writers that cannot be reached.
        """
        p = clean(path)
        try:
            w = Writer(self.client, self.name, p, OpenFlags(fence=True))
            try:
                # A commit of nothing begins a generation of another number, which the writers of
                # the one before cannot go on with.
                w.sync()
                w.close()
            finally:
                w.abort()
        except Error as e:
            raise e._about("recover", self.address(p)) from e

    def begin(self, destination: str, *, key: str = "", lease: float = 0) -> Txn:
        """Begin a transaction, or return the one of the same key, in any state.

        Unsupported if a daemon of the cluster is too old. Exists if the key is of another destination.

        Args:
            destination: the directory that the output goes to: made, with those above it, if it is
                not there. It cannot be the root.
            key: at most 1 KiB: the same key of the same user is the same transaction. "": a new one.
            lease: how long the transaction lives without being renewed, in seconds; 0: ten minutes.
        """
        # With a key of its own, a request that is sent again does not begin a second one.
        m = _wire.TxnBegin(
            buffer=self.name,
            destination=clean(destination),
            key=key or str(uuid.uuid4()),
            lease_ns=int(lease * 1e9),
        )
        got = self._ask("begin transaction", destination, _wire.TYPE_TXN_BEGIN, m, _wire.Txn)
        return self.txn(got.id)

    def txn(self, txn: str) -> Txn:
        """Return the transaction of an id, which another process may have begun. It does no I/O."""
        return Txn(self.client, self.name, txn)

    def txns(self) -> list[TxnInfo]:
        """Return the user's transactions, the newest first, and for the system all."""
        m = _wire.BufferName(name=self.name)
        got = self._ask("transactions", "", _wire.TYPE_TXN_LIST, m, _wire.Txns)
        return [TxnInfo.of(t) for t in got.txns]

    def token(self, lifetime: float) -> Token:
        """Make a token of the buffer, as its owner or the system, at a daemon that has the cluster key.

        Args:
            lifetime: seconds, at most 30 days.
        """
        m = _wire.TokenRequest(buffer=self.name, lifetime_ns=int(lifetime * 1e9))
        return Token._of(self._ask("token", "", _wire.TYPE_TOKEN, m, _wire.Token).token)

    def drain(
        self,
        path: str = "",
        *,
        timeout: float = 0,
        progress: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Flush the dirty bytes of a file, or below a directory, and wait until they are on the store.

        It fails unless all was saved, with Busy if names are held back by a keep pattern, or files are open
        for writing.

        Args:
            path: "" is the whole buffer.
            timeout: seconds; 0: without limit.
            progress: called now and then, on this thread.
        """
        return self._drain(path, timeout, progress, overwrite=False)

    def overwrite(
        self,
        path: str = "",
        *,
        timeout: float = 0,
        progress: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Drain a path, and also replace files of the store there that the buffer did not write.

        Those are the ones that ``conflicts`` of a drain's report names. It concerns the contents that are
        dirty now. Later ones are compared again. Only the buffer's owner may do it.

        Args:
            path: a file, or all below a directory; "" is the whole buffer.
            timeout: seconds; 0: without limit.
            progress: called now and then, on this thread.
        """
        return self._drain(path, timeout, progress, overwrite=True)

    def _drain(
        self, path: str, timeout: float, progress: Callable[[Progress], None] | None, *, overwrite: bool
    ) -> Progress:
        p = clean(path)
        m = _wire.Drain(
            buffer=self.name,
            timeout_ns=int(timeout * 1e9),
            key=str(uuid.uuid4()),
            below=p,
            overwrite=overwrite,
        )
        return self.client._work("drain", self.address(p), _wire.TYPE_DRAIN, m, progress)

    def stage_in(
        self, path: str, url: str, *, progress: Callable[[Progress], None] | None = None
    ) -> Progress:
        """Copy a file or tree from a URL of a store (file:///… or s3://…) to a path."""
        return self._stage("stage-in", _wire.TYPE_STAGE_IN, path, url, progress)

    def stage_out(
        self, path: str, url: str, *, progress: Callable[[Progress], None] | None = None
    ) -> Progress:
        """Copy a file or a tree to a URL of a store."""
        return self._stage("stage-out", _wire.TYPE_STAGE_OUT, path, url, progress)

    def _stage(
        self,
        op: str,
        typ: int,
        path: str,
        url: str,
        progress: Callable[[Progress], None] | None,
    ) -> Progress:
        m = _wire.Stage(buffer=self.name, path=clean(path), url=url, key=str(uuid.uuid4()))
        return self.client._work(op, self.address(path), typ, m, progress)
