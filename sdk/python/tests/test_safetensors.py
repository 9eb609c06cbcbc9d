"""Files of safetensors, whose arrays are views of the buffer's memory."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

import forebay
from forebay import safetensors as st
from tests.daemon import Daemon
from tests.memory import flip_in_memory

Arrays = dict[str, npt.NDArray[Any]]


def arrays(seed: int, n: int = 1000) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.random((n, 1000)).astype(np.float32),
        "bias": rng.random(7),
        "strided": rng.random((8, 6))[:, ::2],
        "half": rng.random(33).astype(np.float16),
        "flags": rng.random(5) > 0.5,
        "ids": np.arange(9, dtype=np.int64).reshape(3, 3),
        "odd": np.arange(3, dtype=np.uint8),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3)),
        "big end": np.arange(4, dtype=">i4"),
    }


def assert_same(got: Arrays, want: Arrays) -> None:
    assert got.keys() == want.keys()
    for name, a in want.items():
        np.testing.assert_array_equal(got[name], a, err_msg=name)
        assert got[name].shape == a.shape
        assert got[name].dtype == a.dtype.newbyteorder("<")


def in_memory(daemon: Daemon, a: npt.NDArray[Any]) -> bool:
    """Report whether an array lies in a file of the daemon's memory."""
    at = int(a.ctypes.data)
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, _, _, _, *path = line.split(None, 5)
        begin, end = (int(x, 16) for x in where.split("-"))
        if begin <= at and at + a.nbytes <= end:
            return bool(path) and path[0].startswith(str(daemon.memory))
    return False


def test_both_ways(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """The package reads files written here, and its files are read here."""
    want = arrays(1)
    st.save_file(want, buffer, "m.safetensors", {"epoch": "3"})
    assert_same(safetensors.numpy.load(buffer.read_bytes("m.safetensors")), want)
    with st.Safetensors(buffer, "m.safetensors") as s:
        assert s.metadata == {"epoch": "3"}
        got = {name: s[name] for name in s}
        assert s.copied == set()
        assert_same(got, want)
        assert all(in_memory(daemon, a) for a in got.values() if a.size)
        with pytest.raises(KeyError):
            s["missing"]
        assert len(s) == len(want)
    assert_same(got, want)
    del want["strided"], want["big end"]
    buffer.write_bytes("theirs.safetensors", safetensors.numpy.save(want, {"a": "b"}))
    assert_same(st.load_file(buffer, "theirs.safetensors", verify=True), want)


def test_in_several_pieces(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """A tensor that is larger than the daemon's largest piece is copied, and checked."""
    want = {"large": np.random.default_rng(1).random(3_000_000), "other": np.arange(10.0)}
    st.save_file(want, buffer, "f")
    with st.Safetensors(buffer, "f") as s:
        assert_same(dict(s), want)
        assert s.copied == {"large"}
        assert not in_memory(daemon, s["large"])
        assert in_memory(daemon, s["other"])
    flip_in_memory(daemon, want["large"].tobytes()[10_000_000:10_000_050])
    with pytest.raises(forebay.ChecksumMismatch):
        st.load_file(buffer, "f")


def test_views_stay(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """Views stay unchanged when the file is replaced, evicted and removed. Writes change no file."""
    want = arrays(2)
    st.save_file(want, buffer, "f")
    got = st.load_file(buffer, "f")
    buffer.drain()
    st.save_file(arrays(3), buffer, "f")
    assert_same(got, want)
    again = st.load_file(buffer, "f")
    buffer.remove("f")
    for i in range(40):  # twice the daemon's memory
        buffer.write_bytes(f"g{i}", bytes([i]) * (12 << 20))
    assert_same(got, want)
    assert_same(again, arrays(3))

    st.save_file(want, buffer, "h")
    mine, others = st.load_file(buffer, "h"), st.load_file(buffer, "h")
    mine["weights"][3, 4] = 77
    assert mine["weights"][3, 4] == 77
    assert_same(others, want)
    del mine, others
    gc.collect()
    assert_same(st.load_file(buffer, "h", verify=True), want)


@pytest.fixture
def small() -> Iterator[Daemon]:
    """A daemon whose memory is soon used again."""
    d = Daemon(memory="64MiB", disk="0")
    yield d
    d.remove()


def test_views_outlive_the_daemon(small: Daemon) -> None:
    """The daemon dies, and with it the pins. Its successor gives the memory to no other writer."""
    with forebay.connect(small.socket) as client:
        client.create_buffer("b", no_wait=True)
        buffer = client.buffer("b")
        want = arrays(4)
        st.save_file(want, buffer, "f")
        got = st.load_file(buffer, "f")
        small.kill()
        small.start()
        buffer.remove("f")
        written = 0
        with pytest.raises(forebay.NoSpace):  # noqa: PT012
            while True:
                buffer.write_bytes(f"g{written}", b"\xff" * (2 << 20))
                written += 1
        assert written > 10
        assert_same(got, want)
        del got
        gc.collect()


def test_flipped_bit(daemon: Daemon, buffer: forebay.Buffer) -> None:
    want = arrays(5)
    st.save_file(want, buffer, "f")
    flip_in_memory(daemon, want["weights"].tobytes()[1_000_000:1_000_050])
    st.load_file(buffer, "f")
    with pytest.raises(forebay.ChecksumMismatch):
        st.load_file(buffer, "f", verify=True)


def test_over_messages(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """Where memory cannot be mapped, tensors are copies, which are checked."""
    want = arrays(6, 2000)
    st.save_file(want, buffer, "f")
    token = daemon.bbctl("token", buffer.name).strip()
    with forebay.connect(daemon.tcp, token=token) as far:
        assert not far.server.mapped
        assert_same(st.load_file(far.buffer(buffer.name), "f"), want)
        st.save_file(want, far.buffer(buffer.name), "g")
    assert_same(st.load_file(buffer, "g"), want)


def test_refusals(buffer: forebay.Buffer) -> None:
    with pytest.raises(ValueError, match="object"):
        st.save_file({"a": np.array([object()])}, buffer, "f")
    with pytest.raises(ValueError, match="__metadata__"):
        st.save_file({"__metadata__": np.arange(3)}, buffer, "f")
    assert not buffer.exists("f")
    with pytest.raises(ValueError, match="framework"):
        st.load_file(buffer, "f", framework="jax")
    header = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    buffer.write_bytes("bf16", struct.pack("<Q", len(header)) + header + b"xy")
    with pytest.raises(forebay.Unsupported, match="BF16"):
        st.load_file(buffer, "bf16")


def test_what_is_no_file_of_safetensors(buffer: forebay.Buffer) -> None:
    """Whatever a file holds, its arrays are within it, or it is refused."""
    rng = random.Random(1)
    st.save_file({"a": np.arange(10.0), "b": np.arange(5, dtype=np.int32)}, buffer, "f")
    whole = buffer.read_bytes("f")
    samples = [b"", b"x", bytes(8), b"\xff" * 20, whole[:100], struct.pack("<Q", 2) + b"[]"]
    samples.append(struct.pack("<Q", 100_000) + b"[" * 100_000)
    for _ in range(200):
        p = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            p[rng.randrange(len(p) - 100)] = rng.randrange(256)
        samples.append(bytes(p))
    refused = 0
    for sample in samples:
        buffer.write_bytes("f", sample)
        try:
            got = st.load_file(buffer, "f")
        except (forebay.Invalid, forebay.Unsupported):
            refused += 1
            continue
        assert all(a.nbytes <= len(sample) for a in got.values())
    assert refused > 100
