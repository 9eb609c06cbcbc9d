"""A daemon that is older than the package: today's source, as a release of version 1 of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

import forebay
from forebay import _repeat, checkpoint
from tests.daemon import BIN, Daemon, older_daemon


@pytest.fixture(scope="module")
def older_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return older_daemon(tmp_path_factory.mktemp("older"))


@pytest.fixture
def older(older_program: Path) -> Iterator[Daemon]:
    d = Daemon(program=older_program, env={"FOREBAY_NAMESPACE_ENGINE": "buckets"})  # it has no logs
    yield d
    d.remove()


REFUSED: dict[str, Callable[[forebay.Buffer], object]] = {
    "transactions": lambda b: b.begin("out"),
    "checkpoints": lambda b: checkpoint.save(b, "run/step-1", {"a": np.arange(3)}),
    "symbolic links": lambda b: b.symlink("f", "l"),
    "extended attributes": lambda b: b.setxattr("f", "user.a", b"1"),
    "reading them": lambda b: b.getxattr("f", "user.a"),
    "tokens": lambda b: b.token(60),
    "draining a part": lambda b: b.drain("d"),
    "ending others": lambda b: b.recover("f"),
    "second copies": lambda b: b.client.create_buffer("other", replicas=2),
    "jobs": lambda b: b.client.jobs(),
}


def test_older_daemon(older: Daemon, tmp_path: Path) -> None:
    """Files are as ever. Newer requests are refused, with the remedy, until the daemon is upgraded."""
    data = np.random.default_rng(1).bytes(3_000_000)
    with forebay.connect(older.socket) as client:
        assert client.server.protocol == 1
        client.create_buffer("b", f"file://{tmp_path}")
        buffer = client.buffer("b")
        buffer.makedirs("d")
        buffer.write_bytes("f", data)
        with buffer.open("f") as f, f.map(5, 10) as m:
            assert b"".join(m.views) == data[5:15]
            assert f.readall() == data
        buffer.rename("f", "d/f")
        assert [e.name for e in buffer.listdir("d")] == ["f"]
        assert buffer.drain().done
        assert (tmp_path / "d/f").read_bytes() == data
        buffer.rename("d/f", "f")
        fs = fsspec.filesystem("bb", address=older.socket)
        fs.pipe_file("bb://b/by/fsspec", b"text")
        assert fs.cat_file("b/by/fsspec") == b"text"
        fs.client.close()

        for what, request in REFUSED.items():
            with pytest.raises(forebay.Unsupported) as e:
                request(buffer)
            text = str(e.value)
            assert "protocol version 2" in text, what
            assert "version 1 here" in text, what
            assert "upgrade the daemon to a release that supports version 2" in text, what
            assert client.server.protocol == 1
        assert buffer.read_bytes("f") == data

        older.kill()
        older.program = BIN / "bbd"
        older.start()
        assert buffer.read_bytes("f") == data
        assert client.server.protocol == _repeat.MAX_VERSION
        checkpoint.save(buffer, "run/step-1", {"a": np.arange(3)})
        assert np.array_equal(checkpoint.load(buffer, "run/step-1")["a"], np.arange(3))
        client.destroy_buffer("b", discard=True)


def test_no_version_in_common(older_program: Path, older: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that has left version 1 behind: the daemon's own refusal names both, and the remedy."""
    monkeypatch.setattr("forebay._dial.MIN_VERSION", 2)
    with pytest.raises(forebay.Unsupported, match=r"upgrade bbd .* to a release that supports version 2"):
        forebay.connect(older.socket)
