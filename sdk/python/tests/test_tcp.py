"""Over TCP bytes travel in messages, and the client proves that it has a secret."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.daemon import Daemon


def test_key(daemon: Daemon, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(1).bytes(9_000_001)
    with forebay.connect(daemon.tcp, key_file=daemon.key_file) as c:
        assert not c.server.mapped
        far = c.buffer(buffer.name)
        far.write_bytes("f", data)
        assert far.read_bytes("f") == data
        with far.open("f") as f:
            assert f.pread(100, 5_000_000) == data[5_000_000:5_000_100]
            assert b"".join(f.map(10, 3_000_000).views) == data[10:3_000_010]
        with pytest.raises(forebay.Unsupported, match="write the bytes"), far.open("g", "wb") as f:
            f.reserve(10)
    assert buffer.read_bytes("f") == data


def test_killed(daemon: Daemon, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(2).bytes(6_000_001)
    with forebay.connect(daemon.tcp, key_file=daemon.key_file) as c:
        with c.buffer(buffer.name).open("f", "wb") as f:
            f.write(data[:5_000_000])
            daemon.kill()
            daemon.start()
            f.write(data[5_000_000:])
        with c.buffer(buffer.name).open("f") as f:
            assert f.read(10) == data[:10]
            daemon.kill()
            daemon.start()
            assert f.read() == data[10:]


def test_token(daemon: Daemon, client: forebay.Client, buffer: forebay.Buffer) -> None:
    token = buffer.token(3600)
    assert token.buffer == buffer.name
    assert forebay.Token.parse(f" {token.text}\n") == token
    assert token.text not in repr(token)
    assert 3000 < token.expires.timestamp() - time.time() < 3700
    with forebay.connect(daemon.tcp, token=token) as c:
        c.buffer(buffer.name).write_bytes("f", b"by token")
        assert c.token == token
        client.create_buffer("other")
        with pytest.raises(PermissionError):
            c.buffer("other").write_bytes("f", b"x")
        client.destroy_buffer("other")
    assert buffer.read_bytes("f") == b"by token"


def test_token_that_ran_out(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """It ends the session that began with it, and begins no other."""
    token = buffer.token(2)

    def use() -> None:
        with forebay.connect(daemon.tcp, token=token) as c:
            for _ in range(1_000_000):
                c.buffer(buffer.name).listdir()

    for _ in range(2):
        with pytest.raises(PermissionError, match="expired"):
            use()
    assert token.expires.timestamp() <= time.time()


def test_no_proof(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOREBAY_KEY_FILE", "FOREBAY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PermissionError, match="key file"):
        forebay.connect(daemon.tcp)
    wrong = tmp_path / "key"
    wrong.touch(0o600)
    wrong.write_text("x" * 64)
    with pytest.raises(PermissionError, match="did not prove the shared key"):
        forebay.connect(daemon.tcp, key_file=wrong)
    wrong.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        forebay.connect(daemon.tcp, key_file=wrong)
    with pytest.raises(FileNotFoundError):
        forebay.connect(daemon.tcp, token_file=tmp_path / "none")
    with pytest.raises(ValueError, match="bbctl token"):
        forebay.connect(daemon.tcp, token="forebay-token-1.AAAA")
    monkeypatch.setenv("FOREBAY_KEY_FILE", os.fspath(daemon.key_file))
    forebay.connect(daemon.tcp).close()
