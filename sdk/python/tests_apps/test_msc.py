"""NVIDIA's multi-storage-client on buffers: its own client, against a real daemon."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import multistorageclient as msc
import pytest
from multistorageclient.types import PreconditionFailedError, Range

import forebay
from tests.daemon import ROOT, Daemon


@pytest.fixture
def configuration(daemon: Daemon, buffer: forebay.Buffer, tmp_path: Path) -> dict[str, Any]:
    """A profile of a buffer, and one of a folder: the package's own, whose behaviour is the standard."""
    bundle = {
        "type": "forebay.msc.ForebayProviderBundle",
        "options": {"base_path": f"{buffer.name}/at", "address": daemon.socket, "retry_for": 5},
    }
    local = {"type": "file", "options": {"base_path": str(tmp_path)}}
    return {"profiles": {"forebay": {"provider_bundle": bundle}, "local": {"storage_provider": local}}}


@pytest.fixture(params=["local", "forebay"])
def either(request: pytest.FixtureRequest, configuration: dict[str, Any]) -> msc.StorageClient:
    return client_of(configuration, request.param)


def client_of(configuration: dict[str, Any], profile: str) -> msc.StorageClient:
    return msc.StorageClient(msc.StorageClientConfig.from_dict(configuration, profile))


@pytest.fixture
def ours(configuration: dict[str, Any]) -> msc.StorageClient:
    return client_of(configuration, "forebay")


def keys(client: msc.StorageClient, path: str = "", **options: Any) -> list[str]:
    return [o.key for o in client.list(path=path, **options)]


def test_objects(either: msc.StorageClient, tmp_path: Path) -> None:
    either.write("a/b/f", b"0123456789")
    assert either.read("a/b/f") == b"0123456789"
    assert either.read("a/b/f", byte_range=Range(offset=3, size=4)) == b"3456"
    assert either.read("a/b/f", byte_range=Range(offset=8, size=40)) == b"89"
    either.write("a/b/f", b"again")
    info = either.info("a/b/f")
    assert (info.key, info.type, info.content_length) == ("a/b/f", "file", 5)
    assert either.is_file("a/b/f")
    assert not either.is_file("a/b")
    assert either.info("a/b").type == "directory"
    either.copy("a/b/f", "c/g")
    assert either.read("c/g") == b"again"
    either.write("empty", b"")
    assert either.read("empty") == b""
    either.delete("a/b/f")
    assert not either.is_file("a/b/f")
    for missing in (either.read, either.info):
        with pytest.raises(FileNotFoundError):
            missing("a/b/f")


def test_lists(either: msc.StorageClient) -> None:
    """In the order of keys, where a file "d.x" comes before what lies in a directory "d"."""
    for key in ("d/2", "d/1", "d.x", "d0", "z/y/x", "a"):
        either.write(key, key.encode())
    assert keys(either) == ["a", "d.x", "d/1", "d/2", "d0", "z/y/x"]
    assert keys(either, "d") == ["d/1", "d/2"]
    assert keys(either, "a") == ["a"]
    assert keys(either, "none") == []
    assert [o.key for o in either.list_recursive()] == keys(either)
    found = {o.key: o.type for o in either.list(include_directories=True)}
    assert found == {"a": "file", "d": "directory", "d.x": "file", "d0": "file", "z": "directory"}
    assert sorted(either.glob("d/*")) == ["d/1", "d/2"]
    either.delete("d", recursive=True)
    assert keys(either) == ["a", "d.x", "d0", "z/y/x"]


def test_files(either: msc.StorageClient, tmp_path: Path) -> None:
    """Files of this machine go up and come down, also as streams."""
    data = bytes(range(256)) * 100_000
    (tmp_path / "source").write_bytes(data)
    either.upload_file("up/one", str(tmp_path / "source"))
    either.upload_file("up/two", io.BytesIO(data[:1000]))
    either.upload_file("up/three", io.StringIO("grün"))
    assert either.read("up/one") == data
    assert either.read("up/three") == "grün".encode()
    either.download_file("up/one", str(tmp_path / "new" / "target"))
    assert (tmp_path / "new" / "target").read_bytes() == data
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["target"]
    stream, text = io.BytesIO(), io.StringIO()
    either.download_file("up/two", stream)
    either.download_file("up/three", text)
    assert stream.getvalue() == data[:1000]
    assert text.getvalue() == "grün"
    with either.open("up/four", "w") as f:
        f.write("a,b\n1,2\n")
    with either.open("up/four", "rb") as f:
        f.seek(4)
        assert f.read() == b"1,2\n"
    with pytest.raises(FileNotFoundError):
        either.download_file("none", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_what_a_buffer_adds(ours: msc.StorageClient, buffer: forebay.Buffer) -> None:
    """A name that is taken stays, a stream that fails leaves nothing, and a missing object is refused."""
    ours.write("f", b"one")
    assert buffer.read_bytes("at/f") == b"one"
    storage: Any = ours._delegate._storage_provider
    with pytest.raises(PreconditionFailedError):
        storage.put_object("f", b"two", if_none_match="*")
    storage.put_object("g", b"two", if_none_match="*")
    assert ours.read("f") == b"one"
    before = ours.info("f").etag
    ours.write("f", b"three")
    assert ours.info("f").etag != before
    refusals: list[Callable[[], object]] = [
        lambda: storage.put_object("f", b"", if_match=before),
        lambda: storage.put_object("f", b"", if_none_match=before),
        lambda: storage.delete_object("f", if_match=before),
        lambda: storage.put_object("f", b"", attributes={"a": "b"}),
    ]
    for refused in refusals:
        with pytest.raises(ValueError, match=r"etag|attributes"):
            refused()
    assert ours.read("f") == b"three"
    with pytest.raises(IsADirectoryError):
        storage.delete_object("")

    class Breaks(io.BytesIO):
        def read(self, n: int | None = -1, /) -> bytes:
            raise KeyError

    with pytest.raises(KeyError):
        ours.upload_file("h", Breaks(b"half"))
    assert not buffer.exists("at/h")
    for key in ("d/2", "d/1", "d.x", "d0"):
        ours.write(key, b"")
    assert keys(ours, start_after="d.x", end_at="d0") == ["d/1", "d/2", "d0"]
    assert [o.key for o in ours.list_recursive(start_after="d/1", end_at="d/2")] == ["d/2"]
    with pytest.raises(NotImplementedError):
        storage.make_symlink("l", "f")


def read_in_child(client: msc.StorageClient, key: str, into: Any) -> None:
    into.put(client.read(key))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(ours: msc.StorageClient, method: str) -> None:
    """Children use the parent's client, after a fork, or as it is pickled."""
    ours.write("f", b"one")
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=read_in_child, args=(ours, "f", results))
    child.start()
    assert results.get(timeout=120) == b"one"
    child.join()
    assert ours.read("f") == b"one"
    assert pickle.loads(pickle.dumps(ours)).read("f") == b"one"


def test_sync(configuration: dict[str, Any], tmp_path: Path, buffer: forebay.Buffer) -> None:
    """Its own synchronization, from a folder into a buffer and back."""
    ours, local = client_of(configuration, "forebay"), client_of(configuration, "local")
    for i in range(30):
        local.write(f"tree/{i % 3}/{i}", str(i).encode() * 1000)
    ours.sync_from(local, "tree", "copy")
    assert len(keys(ours, "copy")) == 30
    assert buffer.read_bytes("at/copy/2/29") == b"29" * 1000
    local.sync_from(ours, "copy", "back")
    assert (tmp_path / "back/1/13").read_bytes() == b"13" * 1000
    local.delete("tree/1/13")
    ours.sync_from(local, "tree", "copy", delete_unmatched_files=True)
    assert not buffer.exists("at/copy/1/13")
    assert len(keys(ours, "copy")) == 29


def test_daemon_restarts(ours: msc.StorageClient, daemon: Daemon) -> None:
    ours.write("f", b"one")
    daemon.kill()
    daemon.start()
    assert ours.read("f") == b"one"


def test_configuration() -> None:
    from forebay.msc import ForebayStorageProvider

    with pytest.raises(ValueError, match="names no buffer"):
        ForebayStorageProvider("/")


def test_page(
    daemon: Daemon, client: forebay.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile of docs/python.md works with the package's own functions."""
    (profile,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
    (tmp_path / "msc.yaml").write_text(profile)
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.yaml"))
    monkeypatch.setenv("FOREBAY_SOCKET", daemon.socket)
    client.create_buffer("ckpt")
    with msc.open("msc://ckpt/step-1/part-0", "wb") as f:
        f.write(b"part")
    assert client.buffer("ckpt").read_bytes("run1/step-1/part-0") == b"part"
    client.destroy_buffer("ckpt", discard=True)
