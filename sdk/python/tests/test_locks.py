"""The memory of leases is locked in the region's file until its writer has left it."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import forebay
from tests.daemon import Daemon


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[Daemon]:
    """A daemon in whose memory the other tests of this process hold nothing."""
    d = Daemon()
    yield d
    d.remove()


def locked(daemon: Daemon) -> bool:
    """Report whether any process has a lock in the daemon's memory."""
    for path in daemon.memory.rglob("*"):
        if path.is_file():
            with path.open("r+b") as f:
                asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                if struct.unpack("hhqqi0q", fcntl.fcntl(f, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK:
                    return True
    return False


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def occupied(client: forebay.Client) -> int:
    return int(client.status()["memory"].get("occupied", 0))


def test_locks(daemon: Daemon, buffer: forebay.Buffer) -> None:
    eventually(lambda: not locked(daemon))
    with buffer.open("f", "wb") as f:
        f.write(bytes(3_000_000))
        assert locked(daemon)
    eventually(lambda: not locked(daemon))  # the rest of the lease is kept for a moment


def test_lock_outlives_the_daemon(daemon: Daemon, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(1).bytes(9_000_000)
    f = buffer.open("f", "wb")
    f.write(data)
    daemon.kill()
    assert locked(daemon)
    daemon.start()
    with forebay.connect(daemon.socket) as c:
        eventually(lambda: occupied(c) > 0)
        f.close()
        eventually(lambda: occupied(c) == 0)
    assert buffer.read_bytes("f") == data
    eventually(lambda: not locked(daemon))


def test_child_holds_no_lock(daemon: Daemon, buffer: forebay.Buffer) -> None:
    eventually(lambda: not locked(daemon))
    with forebay.connect(daemon.socket) as c:
        f = c.buffer(buffer.name).open("f", "wb")
        f.write(bytes(3_000_000))
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(w)
                f.abort()
                os.write(1, b"")
                os.read(r, 1)  # until the parent is done
            finally:
                os._exit(0)
        try:
            assert locked(daemon)
            f.flush()
            assert locked(daemon)
            f.close()
            c.close()
            eventually(lambda: not locked(daemon))
        finally:
            os.close(w)
            os.close(r)
            os.waitpid(pid, 0)
