"""fsspec's own tests of file systems, and their gaps."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import numpy as np
import pytest

import forebay
from forebay.fsspec import ForebayFileSystem
from tests.daemon import Daemon


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, daemon: Daemon, buffer: forebay.Buffer) -> Any:
        return fsspec.filesystem("bb", address=daemon.socket)

    @pytest.fixture
    def fs_path(self, buffer: forebay.Buffer) -> str:
        return buffer.name

    @pytest.fixture
    def fs_sanitize_path(self) -> Any:
        return lambda path: path


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


def test_suite_is_complete() -> None:
    """The suite has no other tests for file systems than those that are run here."""
    ours = {base for c in (TestCopy, TestGet, TestPut, TestOpen, TestPipe) for base in c.__bases__}
    theirs = {
        c for name, c in vars(abstract).items() if name.startswith("Abstract") and name.endswith("Tests")
    }
    assert theirs == ours - {Fixtures}


@pytest.fixture
def fs(daemon: Daemon) -> Iterator[ForebayFileSystem]:
    fs: ForebayFileSystem = fsspec.filesystem("bb", address=daemon.socket)
    yield fs
    fs.client.close()


def test_entry_point(fs: ForebayFileSystem) -> None:
    assert fsspec.get_filesystem_class("bb") is ForebayFileSystem
    assert isinstance(fs, ForebayFileSystem)


def test_mistyped_options(fs: ForebayFileSystem) -> None:
    for wrong, right in (("adress", "address"), ("tokenfile", "token_file"), ("automkdir", "auto_mkdir")):
        with pytest.raises(forebay.Invalid, match=f"no option {wrong} .write {right}"):
            fsspec.filesystem("bb", **{wrong: "x"})
    fsspec.filesystem("bb", skip_instance_cache=True, use_listings_cache=False, of_another_layer=1)


def test_flush_commits(fs: ForebayFileSystem, buffer: forebay.Buffer) -> None:
    path = f"bb://{buffer.name}/d/f"
    with fs.open(path, "wb") as f:
        f.write(b"one")
        assert not buffer.exists("d/f")
        f.flush()
        assert fs.cat_file(path) == b"one"
        f.write(b" two")
        with pytest.raises(OSError, match="descriptor"):
            f.fileno()
    assert fs.cat_file(path) == b"one two"
    with fs.open(path, "at") as f:
        f.write(" drei: ß\n")
    with fs.open(path, "r", encoding="utf-8") as f:
        assert f.read() == "one two drei: ß\n"


def test_links(fs: ForebayFileSystem, buffer: forebay.Buffer) -> None:
    buffer.symlink("f", "l")
    buffer.write_bytes("f", b"f")
    info = fs.info(f"{buffer.name}/l")
    assert (info["type"], info["islink"], info["destination"]) == ("link", True, "f")
    assert fs.info(f"{buffer.name}/f")["type"] == "file"
    assert not fs.isfile(f"{buffer.name}/l")
    assert not fs.isdir(f"{buffer.name}/l")
    fs.rm(f"{buffer.name}/l")
    assert fs.ls(buffer.name, detail=False) == [f"{buffer.name}/f"]


def test_ranges(fs: ForebayFileSystem, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(1).bytes(3_000_000)
    path = f"{buffer.name}/f"
    fs.pipe_file(path, data)
    assert fs.cat_file(path, 1_000_000, -1) == data[1_000_000:-1]
    assert fs.cat_file(path, -10) == data[-10:]
    got = fs.cat_ranges([path, path, f"{buffer.name}/none"], [0, 2_999_990, 0], [10, 9_999_999, 1])
    assert got[:2] == [data[:10], data[-10:]]
    assert isinstance(got[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{buffer.name}/none"], 0, 1, on_error="raise")
    with fs.open(path) as f:
        assert f.map(5, 10).view == data[5:15]
        f.seek(2_000_000)
        again = pickle.loads(pickle.dumps(f))
        assert again.read(10) == f.read(10) == data[2_000_000:2_000_010]
        again.close()


def test_exclusive(fs: ForebayFileSystem, buffer: forebay.Buffer) -> None:
    path = f"{buffer.name}/f"
    with fs.open(path, "xb") as f:
        assert fs.exists(path)  # the name is taken at once
        f.write(b"x")
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with pytest.raises(FileExistsError):
        fs.pipe_file(path, b"y", mode="create")
    assert fs.cat_file(path) == b"x"


def test_move(fs: ForebayFileSystem, client: forebay.Client, buffer: forebay.Buffer) -> None:
    b = buffer.name
    for i in range(3):
        fs.pipe_file(f"{b}/tree/d{i}/f", bytes([i]))
    file = buffer.stat("tree/d1/f").file
    fs.mv(f"bb://{b}/tree", f"bb://{b}/new/place")
    assert buffer.stat("new/place/d1/f").file == file  # it was renamed, not copied
    assert not fs.exists(f"{b}/tree")
    fs.pipe_file(f"{b}/g", b"old")
    fs.mv(f"{b}/new/place/d2/f", f"{b}/g")
    assert fs.cat_file(f"{b}/g") == b"\2"
    fs.mv(f"{b}/g", f"{b}/new")
    assert fs.cat_file(f"{b}/new/g") == b"\2"
    client.create_buffer("other")
    fs.mv(f"{b}/new/g", "other/h")
    assert fs.cat_file("other/h") == b"\2"
    assert not fs.exists(f"{b}/new/g")
    assert "other" in fs.ls("", detail=False)
    client.destroy_buffer("other", discard=True)


def test_exception_and_transaction(fs: ForebayFileSystem, buffer: forebay.Buffer) -> None:
    path = f"{buffer.name}/f"
    with pytest.raises(KeyError), fs.open(path, "wb") as f:  # noqa: PT012
        f.write(b"half")
        raise KeyError
    assert not fs.exists(path)
    with fs.transaction:
        for name in "ab":
            with fs.open(f"{buffer.name}/{name}", "wb") as f:
                f.write(name.encode())
        assert not fs.exists(f"{buffer.name}/a")
    assert fs.cat_file(f"{buffer.name}/b") == b"b"
    with pytest.raises(KeyError), fs.transaction:  # noqa: PT012
        with fs.open(path, "wb") as f:
            f.write(b"half")
        raise KeyError
    assert not fs.exists(path)


def _use(fs: ForebayFileSystem, path: str) -> bytes:
    fs.pipe_file(path, path.encode())
    data: bytes = fs.cat_file(path)
    fs.client.close()
    return data


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(fs: ForebayFileSystem, buffer: forebay.Buffer, method: str) -> None:
    assert pickle.loads(pickle.dumps(fs)) is fs
    with multiprocessing.get_context(method).Pool(2) as pool:
        paths = [f"{buffer.name}/p{i}" for i in range(4)]
        assert pool.starmap(_use, [(fs, p) for p in paths]) == [p.encode() for p in paths]
        pool.close()
        pool.join()
    assert fs.ls(buffer.name, detail=False) == paths


def test_paths(fs: ForebayFileSystem, buffer: forebay.Buffer, tmp_path: Path) -> None:
    b = buffer.name
    fs.pipe({f"{b}/x/{i}.txt": b"x" * i for i in range(12)})
    assert fs.glob(f"bb://{b}/x/1*.txt") == [f"{b}/x/1.txt", f"{b}/x/10.txt", f"{b}/x/11.txt"]
    assert fs.du(f"{b}/x") == sum(range(12))
    assert fs.find(b) == sorted(f"{b}/x/{i}.txt" for i in range(12))
    assert fs.unstrip_protocol(f"{b}/x") == f"bb://{b}/x"
    fs.get(f"{b}/x", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/11.txt").read_bytes() == b"x" * 11
    before = fs.ukey(f"{b}/x/1.txt")
    fs.pipe_file(f"{b}/x/1.txt", b"y")
    assert fs.ukey(f"{b}/x/1.txt") != before
    assert fs.modified(f"{b}/x/1.txt").timestamp() > 0
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{b}/x/1.txt")
    fs.rm(f"{b}/x", recursive=True)
    assert not fs.exists(f"{b}/x")
    with pytest.raises(FileNotFoundError):
        fs.makedirs("nobodys/d")
    with pytest.raises(FileNotFoundError):
        fs.open("nobodys/d/f", "wb")
