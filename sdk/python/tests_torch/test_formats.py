"""safetensors as tensors where they lie, and Meta's torch_checkpointing on bb://."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch_checkpointing import CheckpointManager
from torch_checkpointing.storage.base_storage import ReadArgs, Storage
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

import forebay
from forebay import safetensors as st
from forebay.torch_checkpointing import ForebayStorageConfig
from tests.daemon import Daemon
from tests.test_safetensors import in_memory


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {
        "weight": torch.rand(500, 1000),
        "half": torch.rand(33).to(torch.bfloat16),
        "eight": torch.rand(7).to(torch.float8_e4m3fn),
        "strided": torch.rand(8, 6).t(),
        "flags": torch.rand(5) > 0.5,
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 3),
    }


def bits(t: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes, since some types cannot be compared."""
    return t.contiguous().reshape(-1).view(torch.uint8)


def assert_same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for name, t in want.items():
        assert got[name].dtype == t.dtype
        assert got[name].shape == t.shape
        assert torch.equal(bits(got[name]), bits(t)), name


def test_safetensors(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """Tensors are views of the buffer's memory, which can be trained on. The file stays as it is."""
    want = tensors()
    st.save_file(want, buffer, "m", {"by": "test"})
    assert_same(safetensors.torch.load(buffer.read_bytes("m")), want)
    got = st.load_file(buffer, "m", framework="torch")
    assert_same(got, want)
    assert in_memory(daemon, got["weight"].numpy())
    got["weight"].add_(1)
    assert torch.equal(got["weight"], want["weight"] + 1)
    buffer.remove("m")
    assert torch.equal(got["half"], want["half"])
    contiguous = {name: t.contiguous() for name, t in want.items()}
    buffer.write_bytes("n", safetensors.torch.save(contiguous))
    assert_same(st.load_file(buffer, "n", framework="torch", verify=True), want)
    model = torch.nn.Linear(10, 5)
    st.save_file(model.state_dict(), buffer, "linear")
    other = torch.nn.Linear(10, 5)
    other.load_state_dict(st.load_file(buffer, "linear", framework="torch"), assign=True)
    assert torch.equal(other.weight, model.weight)


@pytest.fixture(params=["local", "forebay"])
def place(request: pytest.FixtureRequest, daemon: Daemon, buffer: forebay.Buffer, tmp_path: Path) -> Any:
    """A storage and a folder in it: torch_checkpointing's own, whose behaviour is the standard, and ours."""
    if request.param == "local":
        yield LocalFileSystemStorageConfig(use_direct_io=False).create_storage(), tmp_path
        return
    storage = ForebayStorageConfig({"address": daemon.socket}).create_storage()
    yield storage, Path(f"bb://{buffer.name}/at")
    storage.close()


Place = tuple[Storage, Path]


def test_storage(place: Place) -> None:
    storage, at = place
    storage.mkdir(at / "a" / "b")
    storage.mkdir(at / "a" / "b")
    with pytest.raises(FileExistsError):
        storage.mkdir(at / "a", recursive=False)
    storage.write(at / "a" / "f", b"0123456789")
    assert storage.read(at / "a" / "f") == b"0123456789"
    for full in (True, False):
        with storage.stream_read(at / "a" / "f", ReadArgs(pre_read_full_file=full)) as f:
            f.seek(4)
            target = bytearray(3)
            assert f.readinto(target) == 3
            assert target == b"456"
    with storage.stream_write(at / "a" / "g") as g:
        g.write(memoryview(b"by a stream"))
        g.write(b"!")
    assert storage.read(at / "a" / "g") == b"by a stream!"
    assert sorted(storage.ls(at / "a")) == ["b", "f", "g"]
    assert storage.getsize(at / "a" / "f") == 10
    assert storage.isdir(at / "a")
    assert not storage.isdir(at / "a" / "f")
    assert not storage.isdir(at / "none")
    assert storage.exists(at / "a" / "f")
    assert not storage.exists(at / "none")
    assert [Path(p).name for p in storage.glob(str(at / "a" / "[fg]"))] in (["f", "g"], ["g", "f"])
    storage.delete(at / "a" / "f")
    with pytest.raises(FileNotFoundError):
        storage.read(at / "a" / "f")
    with pytest.raises(FileNotFoundError):
        storage.getsize(at / "a" / "f")
    storage.rmdir(at / "a")
    assert not storage.exists(at / "a")


def folder(storage: Storage, path: Path, *files: str) -> None:
    storage.mkdir(path)
    for name in files:
        storage.write(path / name, name.encode())


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("directory", "absent", True),
        ("directory", "empty", True),
        ("directory", "populated", False),
        ("directory", "file", False),
        ("file", "absent", True),
        ("file", "file", True),
        ("file", "empty", False),
        ("file", "populated", False),
    ],
)
def test_rename(place: Place, source: str, target: str, allowed: bool) -> None:
    """The table that torch_checkpointing's commit rests on."""
    storage, at = place
    storage.mkdir(at)
    make: dict[str, Callable[[Path], None]] = {
        "absent": lambda p: None,
        "empty": lambda p: folder(storage, p),
        "populated": lambda p: folder(storage, p, "old"),
        "directory": lambda p: folder(storage, p, "new"),
        "file": lambda p: storage.write(p, str(p.name).encode()),
    }
    make[source](at / "s")
    make[target](at / "t")
    if not allowed:
        with pytest.raises(OSError) as e:  # noqa: PT011
            storage.rename(at / "s", at / "t", is_directory=source == "directory")
        assert e.value.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)
        assert storage.exists(at / "s")
        if target == "populated":
            assert storage.ls(at / "t") == ["old"]
        return
    storage.rename(at / "s", at / "t", is_directory=source == "directory")
    assert not storage.exists(at / "s")
    if source == "directory":
        assert storage.ls(at / "t") == ["new"]
    else:
        assert storage.read(at / "t") == b"s"


def test_stream_that_fails(daemon: Daemon, buffer: forebay.Buffer) -> None:
    storage = ForebayStorageConfig({"address": daemon.socket}).create_storage()
    with pytest.raises(KeyError), storage.stream_write(Path(f"bb://{buffer.name}/f")) as f:  # noqa: PT012
        f.write(b"half")
        raise KeyError
    assert not buffer.exists("f")
    again = pickle.loads(pickle.dumps(storage))
    again.write(Path(f"/{buffer.name}/g"), b"whole")
    assert storage.remap_path(Path(f"bb://{buffer.name}/g")) == f"bb://{buffer.name}/g"
    assert buffer.read_bytes("g") == b"whole"
    with pytest.raises(ValueError, match="other"):
        storage.rename(Path(f"bb://{buffer.name}/g"), Path("bb://other/g"))
    again.close()
    storage.close()


def test_manager(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """Its own manager saves, and loads bit by bit."""
    config = CheckpointManager.Config.with_sync_save()
    config.storage_config = ForebayStorageConfig({"address": daemon.socket})
    manager = CheckpointManager(config)
    model = torch.nn.Linear(300, 200)
    manager.save(f"bb://{buffer.name}/step_1", {"model": model.state_dict(), "step": 1})
    assert buffer.exists("step_1")
    got = torch.nn.Linear(300, 200)
    into = {"model": got.state_dict(), "step": 0}
    loaded = manager.load(f"bb://{buffer.name}/step_1", into=into)
    got.load_state_dict(loaded["model"])
    assert torch.equal(got.weight, model.weight)
    assert loaded["step"] == 1
    manager.close()
