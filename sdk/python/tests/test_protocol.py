"""The parts that have to agree with the daemon's code: checksums, frames and versions."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay import _crc, _frames, _repeat
from forebay import _wire as w
from tests.daemon import Daemon

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("n", [0, 1, 7, 1000, 65535, 65536, 65537, 100_000, 1_000_003])
def test_tables_agree_with_instructions(n: int) -> None:
    assert _crc.ACCELERATED
    data = np.random.default_rng(n).bytes(n)
    for table, fast in ((_crc.table_crc64, _crc.crc64), (_crc.table_crc32c, _crc.crc32c)):
        assert table(data) == fast(data, 0)
        assert table(data, 12345) == fast(data, 12345)


def test_known_checksums() -> None:
    assert _crc.table_crc64(b"123456789") == 0xAE8B14860A799888
    assert _crc.table_crc32c(b"123456789") == 0xE3069283


def test_tables_warn() -> None:
    """A program without awscrt gets one warning, when it moves much."""
    program = (
        "import sys, warnings; sys.modules['awscrt'] = None\n"
        "from forebay import _crc\n"
        "small = _crc.crc64(b'123456789', 0)\n"
        "with warnings.catch_warnings(record=True) as got:\n"
        "    for _ in range(3): _crc.crc64(bytes(1 << 20), 0)\n"
        "print(hex(small), _crc.ACCELERATED, [str(w.message) for w in got])"
    )
    p = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=True
    )
    number, accelerated, rest = p.stdout.split(" ", 2)
    assert (number, accelerated) == ("0xae8b14860a799888", "False")
    assert rest.count("pip install 'forebay[crt]'") == 1
    assert not p.stderr


class Source:
    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = data, step

    def recv_into(self, buffer: memoryview, /) -> int:
        n = min(len(buffer), self._step, len(self._data))
        buffer[:n], self._data = self._data[:n], self._data[n:]
        return n


@pytest.mark.parametrize("step", [501, 4096, 1 << 20])
def test_frames(step: int) -> None:
    sizes = [(0, 0), (10, 0), (70_000, 3), (0, 70_000), (900_000, 0), (5, 5)]
    stream = b""
    for i, (message, data) in enumerate(sizes):
        stream += _frames.encode(1, i, w.StatusRequest(buffer="x" * message), data) + bytes([i]) * data
    r = _frames.Reader(Source(stream, step))
    for i, (message, data) in enumerate(sizes):
        r.next()
        assert (r.request, w.StatusRequest.FromString(r.message).buffer) == (i, "x" * message)
        assert r.data() == bytes([i]) * data
    with pytest.raises(EOFError):
        r.next()


def test_malformed_frames() -> None:
    good = _frames.encode(1, 1, w.StatusRequest(buffer="text"))
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises((_frames.MalformedFrame, EOFError)):
            _frames.Reader(Source(bytes(bad), 1 << 20)).next()
    with pytest.raises(_frames.MalformedFrame):
        _frames.encode(1, 1, None, _frames.MAX_DATA + 1)


def test_versions_are_the_daemons() -> None:
    text = (ROOT / "internal/wire/version.go").read_text()
    for name, ours in (("MinVersion", _repeat.MIN_VERSION), ("MaxVersion", _repeat.MAX_VERSION)):
        found = re.search(rf"\b{name} += (\d+)", text)
        assert found is not None
        assert int(found[1]) == ours


def test_requests_came_when_the_daemon_says() -> None:
    """The package refuses the requests of newer versions that Go's clients refuse, by the same names."""
    text = (ROOT / "internal/wire/version.go").read_text()
    switch = text[text.index("func Since(") :]
    versions = {name: int(n) for name, n in re.findall(r"\b(Version\w+) += (\d+)", text)}
    whole = re.findall(r"\tcase ([^:]*):\n\t\treturn (Version\w+), \"(.*)\"", switch)
    want = {
        vars(w)[name]: (versions[version], what)
        for names, version, what in whole
        for name in re.findall(r"Type_(TYPE_\w+)", names)
    }
    assert len(want) > 10
    asked = _repeat.READING | _repeat.KEYED | _repeat.RESUMED | _repeat.ONCE
    for typ in asked - ADMINISTRATION:
        assert _repeat.since(typ, None) == want.get(typ, (1, "")), typ
    given = re.findall(r"\bok && (?:len\()?\w+\.(\w+)\)?.* \{\n\t\t\treturn (Version\w+), \"(.*)\"", switch)
    messages = {
        "Below": (w.TYPE_DRAIN, w.Drain(below="d")),
        "Replicas": (w.TYPE_BUFFER_CREATE, w.Buffer(replicas=2)),
        "Fence": (w.TYPE_OPEN, w.Open(fence=True)),
    }
    assert {name for name, _, _ in given} == messages.keys() | {"To", "Replica"}  # those are not sent
    for name, version, what in given:
        if name in messages:
            assert _repeat.since(*messages[name]) == (versions[version], what)


#: Requests of bbctl and of batch systems, which this package does not send.
ADMINISTRATION = frozenset({
    w.TYPE_BUFFER_REBUILD, w.TYPE_LIFETIME_OPEN, w.TYPE_LIFETIME_LEAVE, w.TYPE_LIFETIME_END,
    w.TYPE_LIFETIME_DUE, w.TYPE_LIFETIMES,
})  # fmt: skip


def serve(path: Path, answer: Callable[[_frames.Reader, socket.socket], None]) -> str:
    """Answer one connection's Hello."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def run() -> None:
        conn, _ = listener.accept()
        with listener, conn:
            r = _frames.Reader(conn)
            r.next()
            answer(r, conn)
            conn.recv(1)

    threading.Thread(target=run, daemon=True).start()
    return f"unix://{path}"


def reply(request: int, flags: int, m: w.Welcome | w.Error) -> bytes:
    frame = bytearray(_frames.encode(w.TYPE_HELLO, request, m))
    frame[18] = flags
    frame[20:24] = _crc.crc32c(bytes(frame[:20]) + bytes(frame[24:]), 0).to_bytes(4, "little")
    return bytes(frame)


def test_daemon_without_a_common_version(tmp_path: Path) -> None:
    """A daemon that is older than the package reports the remedy, and so does the package."""

    def refuse(r: _frames.Reader, conn: socket.socket) -> None:
        e = w.Error(
            kind=forebay.Kind.UNSUPPORTED,
            reason="bbd 0.1 supports protocol version 1, and python supports protocol version 3",
            remedy="upgrade bbd 0.1 to a release that supports version 3",
        )
        conn.sendall(reply(r.request, _frames.REPLY | _frames.ERROR, e))

    with pytest.raises(forebay.Unsupported, match=r"upgrade bbd 0\.1"):
        forebay.connect(serve(tmp_path / "a", refuse))

    def strange(r: _frames.Reader, conn: socket.socket) -> None:
        conn.sendall(reply(r.request, _frames.REPLY, w.Welcome(version=9, server="bbd 9")))

    with pytest.raises(forebay.Unsupported, match="a version in common"):
        forebay.connect(serve(tmp_path / "b", strange))


def test_older_daemon(tmp_path: Path) -> None:
    """A request of a newer version is not sent to a daemon of an older one."""

    def old(r: _frames.Reader, conn: socket.socket) -> None:
        welcome = w.Welcome(version=1, server="bbd 0.1", max_in_flight=128)
        conn.sendall(reply(r.request, _frames.REPLY, welcome))

    with forebay.connect(serve(tmp_path / "s", old)) as c:
        with pytest.raises(forebay.Unsupported, match="upgrade the daemon") as e:
            c.buffer("b").begin("out")
        assert "transactions came with protocol version 2" in str(e.value)


def test_what_is_no_daemon(tmp_path: Path) -> None:
    def speak(r: _frames.Reader, conn: socket.socket) -> None:
        conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(ValueError, match="not a daemon"):
        forebay.connect(serve(tmp_path / "s", speak))


def test_client_without_instructions(
    daemon: Daemon, buffer: forebay.Buffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables replace awscrt for a client."""
    for module in ("forebay._writer", "forebay._window"):
        monkeypatch.setattr(f"{module}.crc64", _crc.table_crc64)
    monkeypatch.setattr("forebay._frames.crc32c", _crc.table_crc32c)
    data = np.random.default_rng(1).bytes(3_000_000)
    with forebay.connect(daemon.socket) as c:
        c.buffer(buffer.name).write_bytes("f", data)
    monkeypatch.undo()
    assert buffer.read_bytes("f") == data
