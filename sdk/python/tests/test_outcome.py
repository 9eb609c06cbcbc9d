"""The daemon dies, and answers are lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import forebay
from forebay import _repeat, checkpoint
from forebay import _wire as w
from tests.daemon import Daemon
from tests.proxy import Proxy

_names = itertools.count(1)


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[Proxy]:
    p = Proxy(daemon.dir / f"proxy{next(_names)}.sock", daemon.socket_path)
    yield p
    p.lose(None)
    p.close()


@pytest.fixture
def far(proxy: Proxy, buffer: forebay.Buffer) -> Iterator[forebay.Buffer]:
    """The buffer through the proxy."""
    with forebay.connect(proxy.address) as c:
        yield c.buffer(buffer.name)


def restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


CHANGES: dict[str, tuple[int, Callable[[forebay.Buffer], object]]] = {
    "mkdir": (w.TYPE_MKDIR, lambda b: b.mkdir("d")),
    "makedirs": (w.TYPE_MKDIR, lambda b: b.makedirs("e/f")),
    "symlink": (w.TYPE_MKNOD, lambda b: b.symlink("f", "l")),
    "rename": (w.TYPE_RENAME, lambda b: b.rename("f", "g")),
    "exchange": (w.TYPE_EXCHANGE, lambda b: b.exchange("f", "h")),
    "remove": (w.TYPE_REMOVE, lambda b: b.remove("f")),
    "rmtree": (w.TYPE_REMOVE, lambda b: b.rmtree("f")),
    "set_attributes": (w.TYPE_SETATTR, lambda b: b.set_attributes("f", mode=0o600)),
    "setxattr": (w.TYPE_SET_XATTR, lambda b: b.setxattr("f", "user.a", b"1")),
    "removexattr": (w.TYPE_SET_XATTR, lambda b: b.removexattr("f", "user.a")),
    "create": (w.TYPE_OPEN, lambda b: b.open("x", "xb").abort()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_sent_once(name: str, proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer) -> None:
    typ, change = CHANGES[name]
    buffer.write_bytes("f", b"text")
    buffer.write_bytes("h", b"other")
    proxy.lose(typ)
    with pytest.raises(forebay.Unavailable, match="outcome unknown") as e:
        change(far)
    assert e.value.outcome_unknown
    assert proxy.requests == 1


@pytest.mark.parametrize("synced", [False, True])
def test_writers_end_of_which_the_daemon_has_not_heard(
    synced: bool, proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer
) -> None:
    """The client goes on in another session, which ends the one that the daemon has still."""
    with far.open("f", "wb") as f:
        if synced:
            f.write(b"first ")
            f.flush()
        f.write(b"second ")
        proxy.lose(w.TYPE_COMMIT, unnoticed=True)
        f.flush()
        f.write(b"third")
    assert buffer.read_bytes("f") == (b"first " if synced else b"") + b"second third"
    assert buffer.stat("f").state is not forebay.State.OPEN


def test_checkpoints_go_on(proxy: Proxy, far: forebay.Buffer) -> None:
    """Changes that a checkpoint alone makes are repeated, though their answers are lost."""
    for step in (1, 2):
        proxy.lose(w.TYPE_MKDIR)
        saved = checkpoint.save(far, f"run/step-{step}", {"a": np.arange(step)})
        assert proxy.requests >= 2
    proxy.lose(w.TYPE_REMOVE)
    assert [f.step for f in checkpoint.keep(far, "run", last=1, state="resident")] == [1]
    assert proxy.requests >= 2
    assert [e.name for e in far.listdir("run")] == ["step-2"]
    assert np.array_equal(checkpoint.load(far, saved.path)["a"], np.arange(2))


def test_reads_are_sent_again(proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer) -> None:
    buffer.write_bytes("f", b"text")
    proxy.lose(w.TYPE_STAT)
    assert far.stat("f").size == 4


def test_refusals_are_no_unknown_outcomes(far: forebay.Buffer) -> None:
    with pytest.raises(forebay.NotFound) as e:
        far.remove("missing")
    assert not e.value.outcome_unknown


def test_not_sent_is_sent_later(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """A change that a dead connection did not take is sent on a new one."""
    buffer.mkdir("d")
    restart(daemon)
    buffer.mkdir("e")
    assert [e.name for e in buffer.listdir()] == ["d", "e"]


def test_commit_is_not_repeated_on_what_others_made(
    proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer
) -> None:
    proxy.lose(w.TYPE_COMMIT, lambda: buffer.write_bytes("f", b"theirs"))
    f = far.open("f", "wb")
    f.write(b"ours")
    with pytest.raises(forebay.Unavailable, match="outcome unknown") as e:
        f.close()
    assert e.value.outcome_unknown
    assert buffer.read_bytes("f") == b"theirs"


def test_commit_that_landed_is_done(proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer) -> None:
    proxy.lose(w.TYPE_COMMIT)
    far.write_bytes("f", b"ours")
    assert buffer.read_bytes("f") == b"ours"


def test_writer_resumes(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """The daemon dies at each step of a write. The written bytes arrive, all of them."""
    data = np.random.default_rng(7).bytes(6_000_001)
    f = buffer.open("f", "wb")
    restart(daemon)
    f.write(data[:1000])
    restart(daemon)
    f.write(data[1000:3_000_000])
    restart(daemon)
    f.flush()
    restart(daemon)
    f.write(data[3_000_000:4_000_000])
    f.reserve(1_000_000)[:] = data[4_000_000:5_000_000]
    restart(daemon)
    f.write(data[5_000_000:])
    restart(daemon)
    f.close()
    assert buffer.read_bytes("f") == data


def test_writer_resumes_while_it_resumes(
    daemon: Daemon, proxy: Proxy, far: forebay.Buffer, buffer: forebay.Buffer
) -> None:
    """The daemon dies again at each step of going on, and nothing is missing."""
    data = np.random.default_rng(8).bytes(5_000_009)
    for at in itertools.count(1):
        assert at < 60, "the writer does not come to an end"
        f = far.open(f"f{at}", "wb")
        f.write(data[:200_000])
        f.flush()
        f.write(data[200_000:])
        proxy.break_twice(w.TYPE_COMMIT, at, lambda: restart(daemon))
        f.close()
        twice = proxy.has_broken_twice
        proxy.lose(None)
        assert buffer.read_bytes(f"f{at}") == data, f"broken again at request {at}"
        if not twice:
            assert at > 3, f"it broke only {at - 1} times twice"
            return


def test_reader_resumes(daemon: Daemon, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(9).bytes(40_000_000)
    buffer.write_bytes("f", data)
    with buffer.open("f") as f:
        assert f.read(1000) == data[:1000]
        mapping = f.map(0, 10_000)
        restart(daemon)
        assert f.read() == data[1000:]
        mapping.verify()
        assert b"".join(mapping.views) == data[:10_000]
        restart(daemon)
        buffer.write_bytes("f", b"other")
        with pytest.raises(forebay.Unavailable, match="other content"):
            f.pread(10, 39_000_000)


def test_daemon_that_stays_away(daemon: Daemon, buffer: forebay.Buffer) -> None:
    with forebay.connect(daemon.socket, retry_for=0.2) as c:
        daemon.kill()
        with pytest.raises(ConnectionError, match="no daemon answers"):
            c.buffer(buffer.name).stat("")


def test_every_request_has_a_repetition() -> None:
    every = {v for k, v in vars(w).items() if k.startswith("TYPE_") and v}
    sets = [_repeat.NOT_ASKED, _repeat.READING, _repeat.KEYED, _repeat.RESUMED, _repeat.ONCE]
    assert sorted(t for s in sets for t in s) == sorted(every)
    assert not _repeat.may_repeat(w.TYPE_TXN_BEGIN, w.TxnBegin())
    assert _repeat.may_repeat(w.TYPE_TXN_BEGIN, w.TxnBegin(key="k"))
