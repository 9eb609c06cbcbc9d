"""Leases: none is larger than its pieces need, and none is left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import forebay
from forebay._staging import Staging
from tests.daemon import Daemon
from tests.test_fork import in_child

MIB = 1 << 20

#: The sizes of pieces, of which none fills a lease of 32 MiB with others of its kind.
PIECES = pytest.mark.parametrize(
    "sizes",
    [[16 * MIB] * 12, [5 * MIB] * 24, [11 * MIB] * 12, [31 * MIB] * 6, [11 * MIB, 31 * MIB, 5 * MIB] * 4],
    ids=["16", "5", "11", "31", "mixed"],
)


@pytest.fixture(scope="module")
def large_daemon() -> Iterator[Daemon]:
    """It grants leases of 32 MiB."""
    d = Daemon(memory="1GiB", disk="0")
    try:
        yield d
    finally:
        d.remove()


@pytest.fixture
def large(large_daemon: Daemon) -> Iterator[forebay.Buffer]:
    """A buffer of the test's own, since one that was written before has segments that are not full."""
    with forebay.connect(large_daemon.socket) as c:
        c.create_buffer("large")
        yield c.buffer("large")
        c.destroy_buffer("large", discard=True)


def leased(client: forebay.Client) -> int:
    """Return how many bytes of its memory the daemon has leased."""
    return int(client.status()["memory"]["leased"])


def wait_leased(buffer: forebay.Buffer, n: int) -> None:
    while leased(buffer.client) != n:
        buffer.exists("run")  # sends requests that finalizers have left


def wait_more(buffer: forebay.Buffer, n: int) -> None:
    while leased(buffer.client) <= n:
        pass


@PIECES
def test_staged_wastes_little(large: forebay.Buffer, sizes: list[int]) -> None:
    """Pieces lie in leases that are made for a whole number of them."""
    with Staging(large.client, large.name, sizes) as staging:
        pieces = [staging.take(n) for n in sizes]
        assert all(p is not None for p in pieces)
        assert leased(large.client) < 1.07 * sum(sizes)
        assert staging._asked is None  # nothing else comes
    del pieces, staging
    wait_leased(large, 0)


@PIECES
def test_reserved_wastes_little(large: forebay.Buffer, sizes: list[int]) -> None:
    with large.open("f", "wb") as f:
        for i, n in enumerate(sizes):
            assert len(f._reserve(n, sizes[i + 1 :])) == n
        assert leased(large.client) < 1.07 * sum(sizes)
        f.abort()
    with large.open("f", "wb") as f:  # without sizes: more of the same
        for _ in range(10):
            f.reserve(sizes[0])
        used = leased(large.client)
        assert used < 1.07 * 10 * sizes[0] + 32 * MIB
        f.abort()
    wait_leased(large, 0)


def test_staged_ahead(large: forebay.Buffer) -> None:
    """The next lease is requested while a piece is filled, and goes back if it is not used."""
    staging = Staging(large.client, large.name, [31 * MIB, 20 * MIB, 20 * MIB])
    first = staging.take(31 * MIB)
    assert staging._asked is not None
    assert first is not None
    wait_more(large, first.lease.length)
    second = staging.take(20 * MIB)
    assert second is not None
    assert staging._asked is not None
    wait_more(large, first.lease.length + second.lease.length)
    staging.close()
    wait_leased(large, first.lease.length + second.lease.length)
    first[:], second[:] = 1, 2
    assert staging.take(7) is not None  # it may be used again
    del first, second, staging
    wait_leased(large, 0)
    staging = Staging(large.client, large.name, [31 * MIB, 31 * MIB])
    first = staging.take(31 * MIB)
    assert staging.take(1000) is not None  # of another size than announced
    staging.close()
    del first, staging
    wait_leased(large, 0)


def test_staged_ahead_of_a_kill() -> None:
    """A request for the next lease that the daemon's death or a fork made void is sent again."""
    d = Daemon(memory="1GiB", disk="0")
    try:
        with forebay.connect(d.socket) as c:
            c.create_buffer("b")
            staging = Staging(c, "b", [31 * MIB] * 4)
            assert staging.take(31 * MIB) is not None
            assert staging._asked is not None
            d.kill()
            d.start()
            pieces = [staging.take(31 * MIB)]
            assert staging._asked is not None

            def in_a_session_of_its_own() -> None:
                piece = staging.take(31 * MIB)
                assert piece is not None
                piece[:] = 1

            in_child(in_a_session_of_its_own)
            pieces += [staging.take(31 * MIB) for _ in range(2)]
            assert all(p is not None and p.lease.may_be_filled() for p in pieces)
            assert len({p.ctypes.data for p in pieces if p is not None}) == 3
            staging.close()
            staging, pieces = Staging(c, "b"), []
            wait_leased(c.buffer("b"), 0)
    finally:
        d.remove()


def test_write_ahead_goes_back(large: forebay.Buffer) -> None:
    """A write that ends for want of room leaves no lease that it requested."""
    large.client.create_buffer("small", no_wait=True)
    small = large.client.buffer("small")
    data = np.ones(1100 * MIB, dtype=np.uint8)
    with small.open("f", "wb") as f:
        with pytest.raises(forebay.NoSpace):
            f.write(data)
        f.abort()
    wait_leased(small, 0)
    large.client.destroy_buffer("small", discard=True)
    with large.open("f", "wb") as f:
        f.write(data[: 100 * MIB])
        assert leased(large.client) < 130 * MIB
    assert large.stat("f").size == 100 * MIB
    large.remove("f")
