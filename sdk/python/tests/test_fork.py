"""Children have sessions of their own, and leave the parent's alone."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable

import numpy as np
import pytest

import forebay
from tests.daemon import Daemon


def in_child(work: Callable[[], None]) -> None:
    """Run work in a forked child. An exception fails the test."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            os.write(w, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        text = f.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text


def test_child_has_a_session_of_its_own(client: forebay.Client, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(1).bytes(3_000_000)
    buffer.write_bytes("f", data)
    with buffer.open("f") as f:
        mapping = f.map(0, 1000)
        session = client.session()

        def work() -> None:
            assert f.pread(1000, 2_000_000) == data[2_000_000:2_001_000]
            assert client.session() is not session
            buffer.write_bytes("childs", data)
            assert buffer.read_bytes("childs") == data
            f.close()

        in_child(work)
        assert client.session() is session
        assert f.read() == data
        assert b"".join(mapping.views) == data[:1000]
    assert buffer.read_bytes("childs") == data


def test_parent_alone_writes_what_it_opened(buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(2).bytes(3_000_000)
    f = buffer.open("f", "wb")
    f.write(data[:2_000_000])

    def work() -> None:
        with pytest.raises(ValueError, match="forked"):
            f.write(b"not the child's")
        with pytest.raises(ValueError, match="forked"):
            f.flush()
        f.close()
        # The lease that the parent fills is not the child's to fill.
        for i in range(20):
            buffer.write_bytes(f"c{i}", bytes(200_000))

    in_child(work)
    f.write(data[2_000_000:])
    f.close()
    assert buffer.read_bytes("f") == data


def test_fork_while_threads_work(buffer: forebay.Buffer) -> None:
    """Locks that other threads held are the child's no more."""
    stop = threading.Event()
    data = bytes(300_000)

    def work() -> None:
        name = threading.current_thread().name
        while not stop.is_set():
            buffer.write_bytes(name, data)
            buffer.read_bytes(name)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for i in range(10):
            in_child(lambda i=i: check(buffer, f"child{i}", data))  # type: ignore[misc]
    finally:
        stop.set()
        for t in threads:
            t.join()
    check(buffer, "parents", data)


def check(buffer: forebay.Buffer, path: str, data: bytes) -> None:
    buffer.write_bytes(path, data)
    assert buffer.read_bytes(path) == data


def _spawned(address: str, name: str, path: str) -> bytes:
    with forebay.connect(address) as c:
        c.buffer(name).write_bytes(path, path.encode())
        return c.buffer(name).read_bytes(path)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools(daemon: Daemon, buffer: forebay.Buffer, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        args = [(daemon.socket, buffer.name, f"p{i}") for i in range(6)]
        assert pool.starmap(_spawned, args) == [f"p{i}".encode() for i in range(6)]
        pool.close()
        pool.join()
    assert [e.name for e in buffer.listdir()] == [f"p{i}" for i in range(6)]
