from __future__ import annotations

import dataclasses
import errno
import io
import os
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.daemon import Daemon


def random_bytes(n: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).bytes(n)


@pytest.mark.parametrize("n", [0, 1, 1000, 65536, 65537, (1 << 20) - 1, 1 << 20, 5_000_009, 40_000_000])
def test_write_and_read(buffer: forebay.Buffer, n: int) -> None:
    data = random_bytes(n)
    assert buffer.write_bytes("file", data) == n
    assert buffer.stat("file").size == n
    assert buffer.read_bytes("file") == data
    with buffer.open("file") as f:
        assert f.pread(10, n // 2) == data[n // 2 : n // 2 + 10]
        assert f.pread(10, n) == b""
        with f.map() as m:
            assert len(m) == n
            assert b"".join(m.views) == data
            m.verify()
        assert b"".join(f.map(3, 5).views) == data[3:8]


def test_pieces(buffer: forebay.Buffer) -> None:
    """Pieces of odd sizes, at the position and elsewhere, become one file."""
    want = bytearray(random_bytes(3_000_000))
    with buffer.open("f", "wb") as f:
        at, n = 0, 1
        while at < len(want):
            assert f.write(want[at : at + n]) == len(want[at : at + n])
            at, n = at + n, n * 3
        f.pwrite(b"other", 1_048_574)
        f.pwrite(b"ends", len(want))
        assert f.tell() == len(want)
        assert f.size == len(want) + 4
    want[1_048_574:1_048_579] = b"other"
    assert buffer.read_bytes("f") == bytes(want) + b"ends"


def test_hole(buffer: forebay.Buffer) -> None:
    with buffer.open("f", "wb") as f:
        f.pwrite(b"x", 3_000_000)
    assert buffer.read_bytes("f") == bytes(3_000_000) + b"x"
    with buffer.open("f") as f:
        assert b"".join(f.map().views) == bytes(3_000_000) + b"x"


def test_arrays(buffer: forebay.Buffer) -> None:
    a = np.arange(600_000, dtype=np.float64).reshape(600, 1000)
    with buffer.open("a", "wb") as f:
        f.write(a)
        f.write(a.T)  # not contiguous: in the order of its elements
    with buffer.open("a") as f:
        got = np.empty((2, 600, 1000))
        f.readinto(got)
        np.testing.assert_array_equal(got[0], a)
        np.testing.assert_array_equal(got[1].reshape(1000, 600), a.T)


def test_nothing_is_visible_before_flush(buffer: forebay.Buffer) -> None:
    with buffer.open("f", "wb") as f:
        f.write(b"one")
        f.flush()
        f.write(b" two")
        assert buffer.read_bytes("f") == b"one"
    assert buffer.read_bytes("f") == b"one two"


def test_exception_commits_nothing(buffer: forebay.Buffer) -> None:
    buffer.write_bytes("f", b"old")
    with pytest.raises(KeyError), buffer.open("f", "wb") as f:  # noqa: PT012
        f.write(b"half of the new")
        raise KeyError
    assert buffer.read_bytes("f") == b"old"


def test_forgotten_file_commits_nothing(buffer: forebay.Buffer) -> None:
    f = buffer.open("f", "wb")
    f.write(b"bytes")
    with pytest.warns(ResourceWarning, match="was not closed"):
        del f
    assert not buffer.exists("f")


def test_modes(buffer: forebay.Buffer) -> None:
    with buffer.open("f", "xb") as f:
        f.write(b"12345")
    with pytest.raises(FileExistsError) as e:
        buffer.open("f", "xb")
    assert e.value.errno == errno.EEXIST
    assert e.value.filename == f"bb://{buffer.name}/f"
    with buffer.open("f", "ab") as f:
        assert f.tell() == 5
        f.write(b"678")
    with buffer.open("f", "r+b") as f:
        f.write(b"A")
    assert buffer.read_bytes("f") == b"A2345678"
    with pytest.raises(ValueError, match="mode"):
        buffer.open("f", "rw")
    with buffer.open("f") as f, pytest.raises(io.UnsupportedOperation):
        f.write(b"x")
    with pytest.raises(io.UnsupportedOperation), buffer.open("f", "r+b") as f:
        f.read()
    with pytest.raises(ValueError, match="closed"):
        f.tell()


def test_python_files(buffer: forebay.Buffer) -> None:
    """The io module's wrappers work on a file."""
    with buffer.open("t", "wb") as raw, io.TextIOWrapper(io.BufferedWriter(raw), "utf-8") as t:
        t.write("first\nsecond: ä\n")
    with buffer.open("t") as raw, io.TextIOWrapper(io.BufferedReader(raw), "utf-8") as t:
        assert list(t) == ["first\n", "second: ä\n"]
    with buffer.open("t") as f:
        assert f.readline() == b"first\n"
        assert f.seek(-2, io.SEEK_END) == len("first\nsecond: ä\n".encode()) - 2
        with pytest.raises(OSError, match="descriptor"):
            f.fileno()
    np.save(io.BytesIO(), np.arange(3))
    with buffer.open("n.npy", "wb") as f:
        np.save(f, np.arange(1000))
    with buffer.open("n.npy") as f:
        np.testing.assert_array_equal(np.load(f), np.arange(1000))
    with buffer.open("p", "wb") as f:
        pickle.dump({"a": 1}, f)
    with buffer.open("p") as f:
        assert pickle.load(f) == {"a": 1}


def test_reserve(buffer: forebay.Buffer) -> None:
    a, b, c = random_bytes(100, 2), random_bytes(3_000_001, 3), random_bytes(77, 4)
    with buffer.open("f", "wb") as f:
        f.write(a)
        f.reserve(len(b))[:] = b
        f.write(c)
        f.reserve(4)[:] = b"last"
    assert buffer.read_bytes("f") == a + b + c + b"last"
    with buffer.open("f") as f:
        assert f.map(100, len(b)).view == b
    with pytest.raises(forebay.NoSpace), buffer.open("g", "wb") as f:
        f.reserve(200 << 20)


def test_map_is_in_place(buffer: forebay.Buffer) -> None:
    """A view is read-only, lies in the daemon's memory, and stays unchanged."""
    data = random_bytes(300_000)
    buffer.write_bytes("f", data)
    with buffer.open("f") as f:
        view = f.map().view
    assert view.readonly
    address = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
    with Path("/proc/self/maps").open() as maps:
        ranges = [(line.split()[0].split("-"), line) for line in maps]
    [line] = [text for (a, b), text in ranges if int(a, 16) <= address < int(b, 16)]
    assert "/dev/shm/bbdpy" in line
    for i in range(50):
        buffer.write_bytes("f", random_bytes(300_000, i))
    buffer.remove("f")
    assert view == data


def test_evicted_view_stays(buffer: forebay.Buffer) -> None:
    data = random_bytes(2_000_000)
    buffer.write_bytes("f", data)
    with buffer.open("f") as f:
        mapping = f.map()
    buffer.drain()
    for i in range(10):  # more than the daemon's memory holds
        buffer.write_bytes(f"more{i}", random_bytes(32_000_000, i))
    mapping.verify()
    assert b"".join(mapping.views) == data


def test_errors(client: forebay.Client, buffer: forebay.Buffer) -> None:
    with pytest.raises(FileNotFoundError) as e:
        buffer.open("missing")
    assert isinstance(e.value, forebay.NotFound)
    assert e.value.kind is forebay.Kind.NOT_FOUND
    assert e.value.errno == errno.ENOENT
    assert f"bb://{buffer.name}/missing" in str(e.value)
    again = pickle.loads(pickle.dumps(e.value))
    assert (type(again), str(again), again.path) == (forebay.NotFound, str(e.value), e.value.path)
    buffer.mkdir("d")
    with pytest.raises(FileExistsError):
        buffer.mkdir("d")
    buffer.write_bytes("d/f", b"x")
    with pytest.raises(forebay.NotEmpty) as not_empty:
        buffer.remove("d")
    assert not_empty.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        buffer.open("d", "wb")
    with pytest.raises(NotADirectoryError):
        buffer.open("d/f/g", "wb")
    with pytest.raises(ValueError, match="invalid"):
        buffer.stat("../other")
    for use in (buffer.open, buffer.makedirs, buffer.stat, buffer.rmtree, buffer.drain):
        with pytest.raises(forebay.Invalid, match="write what follows bb://BUFFER/"):
            use(f"bb://{buffer.name}/d")
    with pytest.raises(FileNotFoundError):
        client.buffer("nobodys").stat("f")


def test_directories(buffer: forebay.Buffer) -> None:
    buffer.makedirs("a/b/c")
    buffer.makedirs("a/b/c")
    with pytest.raises(FileExistsError):
        buffer.makedirs("a/b/c", exist_ok=False)
    for i in range(5):
        buffer.write_bytes(f"a/f{i}", b"x" * i)
    assert [(e.name, e.size, e.is_directory) for e in buffer.listdir("a")][:3] == [
        ("b", 0, True),
        ("f0", 0, False),
        ("f1", 1, False),
    ]
    assert [e.path for e in buffer.scan("/a/", after="f2")] == ["a/f3", "a/f4"]
    buffer.rename("a", "z")
    assert not buffer.exists("a")
    with pytest.raises(FileExistsError):
        buffer.rename("z/f1", "z/f2", replace=False)
    buffer.rename("z/f1", "z/f2")
    assert buffer.stat("z/f2").size == 1
    e = buffer.set_attributes("z/f2", mode=0o600, mtime_ns=1_500_000_000)
    assert (e.mode, e.mtime_ns) == (0o600, 1_500_000_000)
    buffer.rmtree("z")
    assert buffer.listdir() == []


def test_exchange(buffer: forebay.Buffer) -> None:
    buffer.makedirs("d")
    buffer.write_bytes("d/f", b"in d")
    buffer.write_bytes("g", b"g")
    buffer.exchange("d/f", "g")
    assert (buffer.read_bytes("d/f"), buffer.read_bytes("g")) == (b"g", b"in d")
    buffer.exchange("d", "g")
    assert (buffer.read_bytes("g/f"), buffer.read_bytes("d")) == (b"g", b"in d")
    with pytest.raises(forebay.NotFound):
        buffer.exchange("d", "none")
    with pytest.raises(forebay.Invalid):
        buffer.exchange("g", "g/f")


def test_xattrs(buffer: forebay.Buffer) -> None:
    buffer.write_bytes("f", b"f")
    odd = os.fsdecode(b"user.\xff")
    buffer.setxattr("f", odd, b"\x00\xff")
    buffer.setxattr("f", "user.a", b"1", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        buffer.setxattr("f", "user.a", b"2", os.XATTR_CREATE)
    with pytest.raises(forebay.NotFound):
        buffer.setxattr("f", "user.b", b"2", os.XATTR_REPLACE)
    with pytest.raises(forebay.Unsupported):
        buffer.setxattr("f", "trusted.a", b"2")
    with pytest.raises(forebay.NoSpace):
        buffer.setxattr("f", "user.b", bytes(10_000))
    for value in ("text", 5):
        with pytest.raises(TypeError, match="bytes-like"):
            buffer.setxattr("f", "user.b", value)  # type: ignore[arg-type]
    buffer.write_bytes("f", b"other")
    buffer.rename("f", "g")
    assert buffer.listxattr("g") == ["user.a", odd]
    assert (buffer.getxattr("g", "user.a"), buffer.getxattr("g", odd)) == (b"1", b"\x00\xff")
    buffer.removexattr("g", "user.a")
    for missing in (lambda: buffer.getxattr("g", "user.a"), lambda: buffer.removexattr("g", "user.a")):
        with pytest.raises(forebay.NotFound):
            missing()


def test_symlinks(buffer: forebay.Buffer, store: Path) -> None:
    for name, target in {"l": "nowhere", "odd": os.fsdecode(b"\xff"), "out": "/etc/passwd"}.items():
        buffer.symlink(target, name)
        assert buffer.readlink(name) == target
        e = buffer.stat(name)
        assert (e.is_symlink, e.is_directory, e.size) == (True, False, len(os.fsencode(target)))
        with pytest.raises(forebay.Unsupported):
            buffer.read_bytes(name)
    with pytest.raises(FileExistsError):
        buffer.symlink("x", "l")
    with pytest.raises(forebay.Invalid):
        buffer.symlink("", "empty")
    buffer.write_bytes("f", b"f")
    with pytest.raises(forebay.Invalid):
        buffer.readlink("f")
    assert [e.target for e in buffer.listdir()] == ["", "nowhere", os.fsdecode(b"\xff"), "/etc/passwd"]
    buffer.drain()
    assert os.readlink(store / "l") == "nowhere"
    assert buffer.stat("l").state == forebay.State.CLEAN


def test_drain_and_stage(buffer: forebay.Buffer, store: Path) -> None:
    buffer.mkdir("d")
    buffer.write_bytes("d/f", b"bytes")
    buffer.write_bytes("g", b"more")
    seen: list[forebay.Progress] = []
    report = buffer.drain("d", progress=seen.append)
    assert (report.done, report.files_done) == (True, 1)
    assert seen[-1] == report
    assert (store / "d/f").read_bytes() == b"bytes"
    assert buffer.stat("d/f").state is forebay.State.CLEAN
    other = store.with_name(store.name + "-other")
    buffer.stage_out("", f"file://{other}")
    assert (other / "g").read_bytes() == b"more"
    buffer.stage_in("in", f"file://{other}")
    assert buffer.read_bytes("in/d/f") == b"bytes"
    with buffer.open("open", "wb") as f:
        f.write(b"x")
        f.flush()
        with pytest.raises(forebay.Busy, match="open for writing"):
            buffer.drain(timeout=60)


def test_conflicts(client: forebay.Client, buffer: forebay.Buffer, store: Path) -> None:
    assert client.buffer_info(buffer.name).existing == "keep"
    for name in ("mine", "theirs", "both"):
        (store / name).write_bytes(b"theirs")
        buffer.write_bytes(name, b"ours")
    buffer.write_bytes("other", b"ours")
    with pytest.raises(forebay.Exists, match=r"3 files failed.*conflict") as raised:
        buffer.drain()
    for e in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert e.report is not None
        assert sorted(e.report.conflicts) == ["both", "mine", "theirs"]
    assert (store / "mine").read_bytes() == b"theirs"
    assert (store / "other").read_bytes() == b"ours"
    assert buffer.read_bytes("mine") == b"ours"

    report = buffer.overwrite("mine")
    assert (report.done, report.conflicts) == (True, ())
    assert (store / "mine").read_bytes() == b"ours"
    assert (store / "theirs").read_bytes() == b"theirs"
    buffer.stage_in("theirs", f"file://{store}/theirs")
    assert buffer.read_bytes("theirs") == b"theirs"
    buffer.rename("both", "both-ours")
    assert buffer.drain().conflicts == ()
    assert (store / "both").read_bytes() == b"theirs"
    assert (store / "both-ours").read_bytes() == b"ours"


def test_shared_store(client: forebay.Client, buffer: forebay.Buffer, store: Path) -> None:
    name = buffer.name + "-shares"
    with pytest.raises(
        forebay.Exists, match=f"overlaps that of buffer {buffer.name}, .*shared in the clients"
    ):
        client.create_buffer(name, f"file://{store}")
    client.create_buffer(name, f"file://{store}", shared=True)
    client.destroy_buffer(name)


def test_existing(client: forebay.Client, buffer: forebay.Buffer, store: Path) -> None:
    folder = store.with_name(store.name + "-existing")
    folder.mkdir()
    (folder / "f").write_bytes(b"theirs")
    with pytest.raises(forebay.Exists, match="1 file, f"):
        client.create_buffer(buffer.name + "-refuses", f"file://{folder}", existing="refuse")
    name = buffer.name + "-replaces"
    made = client.create_buffer(name, f"file://{folder}", existing="overwrite")
    assert (made.existing, made.found, made.found_total) == ("overwrite", "f", 1)
    client.buffer(name).write_bytes("f", b"ours")
    client.buffer(name).drain()
    assert (folder / "f").read_bytes() == b"ours"
    client.destroy_buffer(name)


def test_buffer_options(client: forebay.Client, buffer: forebay.Buffer, store: Path) -> None:
    name = buffer.name + "-options"
    folder = store.with_name(store.name + "-options")
    folder.mkdir()
    tiers = {"*.log": "disk", "*.ckpt": "memory"}
    made = client.create_buffer(
        name, f"file://{folder}", flush_limit=5_000_000, dirty_age=2.5, receipt=True, tiers=tiers
    )
    assert (made.flush_limit, made.dirty_age, made.receipt, made.tiers) == (5_000_000, 2.5, True, tiers)
    assert client.buffer_info(name) == dataclasses.replace(made, found="", found_total=0)
    client.buffer(name).write_bytes("f", b"x")
    client.buffer(name).drain()
    assert [p.name for p in folder.iterdir() if "receipt" in p.name]
    with pytest.raises(forebay.Invalid, match=r"'\*' cannot be in tier 'tape'.*memory, disk"):
        client.create_buffer(name + "-not", tiers={"*": "tape"})
    client.destroy_buffer(name)


def test_events(client: forebay.Client, buffer: forebay.Buffer) -> None:
    seen = threading.Event()

    def write() -> None:  # until the subscription holds
        while not seen.wait(0.01):
            buffer.write_bytes("f", b"x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        events = client.events(buffer.name)
        event = next(e for e in events if e["kind"] == "committed")
    finally:
        seen.set()
        writer.join()
    assert (event["buffer"], event["path"]) == (buffer.name, "f")


def test_buffers(client: forebay.Client, buffer: forebay.Buffer) -> None:
    assert buffer.name in [b.name for b in client.buffers()]
    info = client.buffer_info(buffer.name)
    assert info.durability == "resident"
    assert client.status()["node"]
    with pytest.raises(forebay.Unsupported):
        client.nodes()
    assert client.server.mapped
    with pytest.raises(FileExistsError):
        client.create_buffer(buffer.name, keep=["x"])
    assert buffer.lost() == []


def test_transaction(buffer: forebay.Buffer) -> None:
    txn = buffer.begin("out", key="mine")
    assert buffer.begin("out", key="mine").id == txn.id
    for attempt in ("0", "1"):
        buffer.makedirs(txn.path("t1", attempt))
        buffer.write_bytes(f"{txn.path('t1', attempt)}/part", attempt.encode())
    assert txn.adopt("t1", "1") == "1"
    assert txn.adopt("t1", "0") == "1"
    assert buffer.listdir("out") == []
    assert buffer.read_bytes(f"{txn.output}/part") == b"1"
    assert txn.info().state is forebay.TxnState.OPEN
    assert txn.commit(wait=True).state.is_decided
    assert txn.commit().state.is_decided
    assert buffer.read_bytes("out/part") == b"1"
    other = buffer.begin("out")
    other.renew()
    assert other.abort().state is forebay.TxnState.ABORTED
    with pytest.raises(forebay.Cancelled):
        other.renew()
    assert {t.id for t in buffer.txns()} == {txn.id, other.id}


def test_recover(buffer: forebay.Buffer) -> None:
    f = buffer.open("f", "wb")
    f.write(b"committed")
    f.flush()
    f.write(b" and not")
    buffer.recover("f")
    with pytest.raises(forebay.Error):
        f.close()
    assert buffer.read_bytes("f") == b"committed"


def test_full_buffer() -> None:
    """Of a daemon without a disk to spill to, and a buffer without a store to flush to."""
    daemon = Daemon(memory="64MiB", disk="0")
    try:
        with forebay.connect(daemon.socket) as client:
            client.create_buffer("full", no_wait=True)
            buffer = client.buffer("full")
            with pytest.raises(OSError, match="no space") as e, buffer.open("f", "wb") as f:  # noqa: PT012
                for _ in range(5):
                    f.write(bytes(16 << 20))
            assert e.value.errno == errno.ENOSPC
            assert isinstance(e.value, forebay.NoSpace)
            assert not buffer.exists("f")
            # Uncommitted memory is given back, which a writer that does not wait may come too early for.
            deadline = time.monotonic() + 60
            while not buffer.exists("small"):
                try:
                    buffer.write_bytes("small", b"there is room again")
                except forebay.NoSpace:
                    assert time.monotonic() < deadline
    finally:
        daemon.remove()


def test_threads(buffer: forebay.Buffer) -> None:
    """Many threads share a client, and its connection."""
    data = [random_bytes(200_000 + i, i) for i in range(8)]
    failed: list[BaseException] = []

    def work(i: int) -> None:
        try:
            buffer.mkdir(f"t{i}")
            for k in range(20):
                path = f"t{i}/f{k}"
                buffer.write_bytes(path, data[i])
                assert buffer.read_bytes(path) == data[i]
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(data))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []


def test_n_to_one(buffer: forebay.Buffer) -> None:
    """Several writers fill disjoint ranges of one file."""
    n = 700_001
    parts = [random_bytes(n, i) for i in range(4)]
    files = [buffer.open("f", "wb")] + [buffer.open("f", "r+b") for _ in range(3)]
    for i, f in enumerate(files):
        f.pwrite(parts[i], i * n)
    for f in files:
        f.close()
    assert buffer.read_bytes("f") == b"".join(parts)


def test_flipped_bit(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """A bit that flips in memory is an error, never data."""
    data = random_bytes(1_500_000, seed=387)  # of no other test, since their bytes may still be in memory
    buffer.write_bytes("f", data)
    flip(daemon, data[70_000:70_064])
    with buffer.open("f") as f:
        with pytest.raises(forebay.ChecksumMismatch) as e:
            f.readall()
        assert f"bb://{buffer.name}/f" in str(e.value)
        with pytest.raises(forebay.ChecksumMismatch):
            f.map().verify()
    with forebay.connect(daemon.socket, verify=True) as c, pytest.raises(forebay.ChecksumMismatch):
        c.buffer(buffer.name).open("f").map(70_000, 10)


def flip(daemon: Daemon, what: bytes) -> None:
    """Flip a bit of the only place in the daemon's memory that holds some bytes."""
    for path in daemon.memory.rglob("*"):
        if path.is_file():
            with path.open("r+b") as f:
                at = f.read().find(what)
                if at >= 0:
                    f.seek(at)
                    f.write(bytes([what[0] ^ 4]))
                    return
    raise AssertionError("the bytes are not in the daemon's memory")


def test_closed_client(daemon: Daemon) -> None:
    c = forebay.connect(daemon.socket)
    c.create_buffer("closing")
    f = c.buffer("closing").open("f", "wb")
    f.write(b"x")
    c.close()
    c.close()
    with pytest.raises(ValueError, match="closed"):
        c.buffers()
    with pytest.raises(ValueError, match="closed"):
        f.write(b"y")
    f.abort()
    with forebay.connect(daemon.socket) as again:
        assert again.buffer("closing").listdir() == []
        again.destroy_buffer("closing")


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="start one: bbd --dev"):
        forebay.connect(f"unix://{tmp_path}/none.sock")
    with pytest.raises(ValueError, match="no address"):
        forebay.connect("http://localhost")
