"""Over TCP with TLS: the client proves itself by a certificate, and the daemon by its own."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.daemon import BIN, Daemon


def certificates(folder: Path) -> Path:
    """Make an authority, and certificates of daemons and clients, as an administrator does."""
    subprocess.run([BIN / "bbctl", "cluster", "init", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "certs")


@pytest.fixture(scope="module")
def secure(certs: Path) -> Iterator[Daemon]:
    args = [f"--tls-{what}={certs / name}" for what, name in DAEMON.items()]
    d = Daemon(*args)
    with forebay.connect(d.socket) as c:
        c.create_buffer("tls")
    yield d
    d.remove()


DAEMON = {"ca": "ca.pem", "cert": "daemon.pem", "key": "daemon.key"}


def client_files(certs: Path) -> forebay.TLSFiles:
    return forebay.TLSFiles(str(certs / "ca.pem"), str(certs / "client.pem"), str(certs / "client.key"))


def test_certificate(secure: Daemon, certs: Path) -> None:
    data = np.random.default_rng(1).bytes(5_000_001)
    with forebay.connect(secure.tcp, tls=client_files(certs)) as c:
        assert not c.server.mapped
        buffer = c.buffer("tls")
        with buffer.open("f", "wb") as f:
            f.write(data[:2_000_000])
            secure.kill()
            secure.start()
            f.write(data[2_000_000:])
        assert buffer.read_bytes("f") == data
    with forebay.connect(secure.socket) as c:
        assert c.buffer("tls").read_bytes("f") == data


def test_environment(secure: Daemon, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, name in {"CA": "ca.pem", "CERT": "client.pem", "KEY": "client.key"}.items():
        monkeypatch.setenv(f"FOREBAY_TLS_{what}", str(certs / name))
    forebay.connect(secure.tcp).close()


def test_another_authority(secure: Daemon, certs: Path, tmp_path: Path) -> None:
    """Neither side accepts a certificate of another authority."""
    other = client_files(certificates(tmp_path / "other"))
    with pytest.raises(PermissionError, match="TLS"):
        forebay.connect(secure.tcp, tls=other)
    mixed = forebay.TLSFiles(str(certs / "ca.pem"), other.cert, other.key)
    with pytest.raises(PermissionError):
        forebay.connect(secure.tcp, tls=mixed)


def test_without_a_certificate(secure: Daemon, certs: Path) -> None:
    alone = forebay.TLSFiles(str(certs / "ca.pem"))
    with pytest.raises(PermissionError, match="proof of the shared key"):
        forebay.connect(secure.tcp, tls=alone)
    with pytest.raises(forebay.Unsupported, match="RFC 9266"):
        forebay.connect(secure.tcp, tls=alone, key_file=secure.key_file)
    with pytest.raises(forebay.Error):
        forebay.connect(secure.tcp, key_file=secure.key_file, retry_for=0)  # it accepts TLS alone
    no_authority = forebay.TLSFiles("", str(certs / "client.pem"), str(certs / "client.key"))
    with pytest.raises(ValueError, match="authority"):
        forebay.connect(secure.tcp, tls=no_authority)


def test_no_daemon(certs: Path) -> None:
    """A holder of a client's certificate does not pass for a daemon."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "client.pem", certs / "client.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            conn, _ = listener.accept()
            try:
                context.wrap_socket(conn, server_side=True).close()
            except OSError:
                conn.close()

        t = threading.Thread(target=serve)
        t.start()
        with pytest.raises(PermissionError, match="TLS: "):
            forebay.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}", tls=client_files(certs))
        t.join()
