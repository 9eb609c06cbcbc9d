"""Checkpoints: whole or not at all, found, thinned out, and restored down the ladder."""

from __future__ import annotations

import gc
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import forebay
from forebay import checkpoint
from forebay.checkpoint import Found, Index, Item, Ladder, Opened, PartInfo, Place, Saving
from tests.daemon import Daemon
from tests.memory import flip_in_file, flip_in_memory

Arrays = dict[str, npt.NDArray[np.float64]]


def arrays(step: int) -> Arrays:
    rng = np.random.default_rng(step)
    return {"weights": rng.random((300, 1000)), "bias": rng.random(7), "step": np.array(float(step))}


def same(got: dict[str, npt.NDArray[np.float64]], want: Arrays) -> bool:
    return got.keys() == want.keys() and all(np.array_equal(got[k], want[k]) for k in want)


def read(opened: Opened) -> Arrays:
    return {name: opened.array(name) for name in opened.index.items}


def test_save_and_load(buffer: forebay.Buffer) -> None:
    many: dict[str, npt.NDArray[Any]] = {
        **arrays(1),
        "empty": np.zeros((0, 3)),
        "strided": np.arange(24).reshape(4, 6)[:, ::2],
        "half": np.arange(5, dtype=np.float16),
        "flags": np.array([True, False]),
    }
    saved = checkpoint.save(buffer, "run/step-1", many, note={"epoch": 3})
    assert saved.resident.result(0) == "run/step-1"
    got = checkpoint.load(buffer, "run/step-1")
    assert got.keys() == many.keys()
    for name, a in many.items():
        np.testing.assert_array_equal(got[name], a)
        assert got[name].dtype == np.asarray(a).dtype
    with Opened(Ladder(buffer), "run/step-1") as opened:
        assert opened.index.note == {"epoch": 3}
        assert {a.rung for a in opened.record.attempts} == {"own memory"}
        place = opened.index.items["weights"].place
        assert place.offset % 64 == 0
        part = bytearray(80)
        opened.read_into(place, part, 16_000)
        assert bytes(part) == many["weights"].tobytes()[16_000:16_080]
        with pytest.raises(ValueError, match="not within"):
            opened.read_into(place, part, place.length - 79)
        with pytest.raises(FileNotFoundError):
            opened.array("missing")
    with pytest.raises(ValueError, match=r"part-0: model: .*object.*arrays by name"):
        checkpoint.save(buffer, "run/step-2", {"model": {"weights": np.zeros(3)}})
    assert [e.name for e in buffer.listdir("run")] == ["step-1", "step-2"]
    assert buffer.listdir("run/step-2") == []  # the destination of the aborted one
    assert checkpoint.candidates(buffer, "run") == ["run/step-1"]


def test_saved_again(buffer: forebay.Buffer) -> None:
    """A second checkpoint of the same name replaces the first one, parts and all."""
    saving = Saving.begin(buffer, "run/step-1")
    with saving.part("part-7") as part:
        part.add(b"old")
        info = part.close()
    saving.commit([info])
    checkpoint.save(buffer, "run/step-1", arrays(1))
    assert [e.name for e in buffer.listdir("run/step-1")] == [checkpoint.INDEX, "part-0"]
    assert same(checkpoint.load(buffer, "run/step-1"), arrays(1))


def test_durable(buffer: forebay.Buffer, store: Path) -> None:
    saved = checkpoint.save(buffer, "run/step-5", arrays(5))
    assert saved.durable.result(60).done
    assert saved.durable is saved.durable
    f = checkpoint.latest(buffer, "run", state="durable")
    assert f == Found("run/step-5", 5, True, True)
    assert (store / "run/step-5/part-0").stat().st_size == buffer.stat("run/step-5/part-0").size


def test_durable_without_a_store(client: forebay.Client) -> None:
    client.create_buffer("storeless")
    buffer = client.buffer("storeless")
    for step in (1, 2):
        checkpoint.save(buffer, f"run/step-{step}", arrays(step))
    assert checkpoint.latest(buffer, "run", state="durable") is None
    f = checkpoint.latest(buffer, "run")
    assert f is not None
    assert f.step == 2
    assert checkpoint.keep(buffer, "run", last=1) == []
    assert [f.step for f in checkpoint.keep(buffer, "run", last=1, state="resident")] == [1]
    client.destroy_buffer("storeless", discard=True)


def test_many_writers(buffer: forebay.Buffer) -> None:
    """Each process that joins writes a part. Nothing is visible before the commit. A part has one writer."""
    saving = Saving.begin(buffer, "run/step-3")
    infos = []
    for rank in range(4):
        one = Saving.join(buffer, "run/step-3", saving.txn.id)
        with one.part(f"part-{rank}") as part:
            place = part.add(f"rank {rank}".encode())
            infos.append(part.close())
        assert place == Place(f"part-{rank}", 0, 6)
        assert checkpoint.candidates(buffer, "run") == []
    with pytest.raises(forebay.Cancelled, match="has won"):
        Saving.join(buffer, "run/step-3", saving.txn.id).part("part-0")
    one = Saving.join(buffer, "run/step-3", saving.txn.id)
    with one.part("part-4") as part, one.part("part-4") as late:
        infos.append(part.close())
        with pytest.raises((forebay.Busy, forebay.NotFound)):  # its directory is gone
            late.close()
    saving.commit(infos)
    saving.commit(infos)  # may be repeated
    with Opened(Ladder(buffer), "run/step-3") as opened:
        assert [p.name for p in opened.index.parts] == [f"part-{r}" for r in range(5)]
        assert bytes(opened.read(Place("part-2", 0, 6))) == b"rank 2"
    for name in ("", "a/b", checkpoint.INDEX):
        with pytest.raises(ValueError, match="name"):
            saving.part(name)


def test_nobody_commits(buffer: forebay.Buffer) -> None:
    """A rank's part for a coordinator that died is gone with the lease, and was never visible."""
    checkpoint.save(buffer, "run/step-1", arrays(1))
    saving = Saving.begin(buffer, "run/step-2", lease=0.2)
    with saving.part("part-0") as part:
        part.add(b"x" * 100_000)
        part.close()
    while saving.txn.info().state is not forebay.TxnState.ABORTED:
        f = checkpoint.latest(buffer, "run")
        assert f is not None
        assert f.step == 1
    with pytest.raises(forebay.Cancelled):
        saving.commit([PartInfo("part-0", 100_000, 0)])
    assert checkpoint.candidates(buffer, "run") == ["run/step-1"]


def test_kept_alive(buffer: forebay.Buffer) -> None:
    """A saving that takes longer than its lease goes on as long as it writes."""
    saving = Saving.begin(buffer, "run/step-1", lease=1)
    begun = saving.txn.info().created
    with saving.part("part-0") as part:
        while True:
            part.add(b"x" * 1000)
            info = saving.txn.info()
            assert info.state is forebay.TxnState.OPEN
            buffer.write_bytes("now", b"")
            if buffer.stat("now").mtime_ns / 1e9 - begun.timestamp() > 2:
                break
        written = part.close()
    saving.commit([written])
    assert [f.step for f in checkpoint.find(buffer, "run")] == [1]


def test_daemon_killed(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """At every step of a save the daemon dies. It goes on, and the checkpoint before is there meanwhile."""
    checkpoint.save(buffer, "run/step-1", arrays(1))
    want = arrays(2)

    def killed() -> None:
        daemon.kill()
        daemon.start()
        with forebay.connect(daemon.socket) as c:
            got = checkpoint.load(c.buffer(buffer.name), "run/step-1")
        assert same(got, arrays(1))

    for when in range(5):
        step = itertools.count()

        def at(moments: Iterator[int] = step, when: int = when) -> None:
            if next(moments) == when:
                killed()

        at()
        saving = Saving.begin(buffer, "run/step-2")
        at()
        with saving.part("part-0") as part:
            items = {name: checkpoint.add_array(part, a) for name, a in want.items()}
            at()
            info = part.close()
        at()
        saving.commit([info], items=items)
        at()
        assert same(checkpoint.load(buffer, "run/step-2"), want)
        f = checkpoint.latest(buffer, "run")
        assert f is not None
        assert f.step == 2
        buffer.rmtree("run/step-2")


# Which are there, and which go.


def found(text: str) -> list[Found]:
    """Return checkpoints, the newest first: "30 20d 10x": resident, durable, not whole."""
    return [
        Found(f"step-{w.rstrip('dx')}", int(w.rstrip("dx")), not w.endswith("x"), w.endswith("d"))
        for w in text.split()
    ]


@pytest.mark.parametrize(
    ("there", "last", "every", "state", "gone"),
    [
        ("", 3, 0, "durable", []),
        ("30d", 1, 0, "durable", []),
        ("30 20 10", 1, 0, "durable", []),  # none is on the store, so all stay
        ("30 20d 10", 1, 0, "durable", [10]),
        ("30 20 10", 1, 0, "resident", [20, 10]),
        ("40d 30d 20d 10d", 3, 0, "durable", [10]),
        ("40d 30d 20d 10d", 1, 20, "durable", [30, 10]),
        ("40 30x 20x 10d", 1, 0, "durable", []),
        ("40d 30x 20x 10d", 2, 0, "durable", [30, 20]),
        ("40x 30d 20x 10", 1, 0, "durable", [20, 10]),
        ("20d 10x 0d", 1, 10, "durable", [10]),  # a landmark that is not whole is none
    ],
)
def test_expendable(there: str, last: int, every: int, state: str, gone: list[int]) -> None:
    got = checkpoint.expendable(found(there), last=last, every=every, state=state)
    assert [f.step for f in got] == gone


def test_expendable_never_takes_the_last() -> None:
    """In any state, something durable stays if there was something, and the newest whole one does."""
    rng = random.Random(1)
    for _ in range(2000):
        steps = sorted(rng.sample(range(100), rng.randrange(8)), reverse=True)
        there = [Found("", s, k < 3, k == 2) for s in steps for k in [rng.randrange(4)]]
        gone = checkpoint.expendable(there, last=rng.randrange(1, 4), every=rng.choice([0, 0, 10]))
        left = [f for f in there if f not in gone]
        assert [f for f in there if f.durable][:1] == [f for f in left if f.durable][:1]
        assert [f for f in there if f.whole][:1] == [f for f in left if f.whole][:1]


def test_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="last is 0"):
        checkpoint.expendable([], last=0)
    with pytest.raises(ValueError, match="resident"):
        checkpoint.expendable([], last=1, state="flushed")


@pytest.mark.parametrize(
    ("name", "step"),
    [("step-10", 10), ("10", 10), ("step0010", 10), ("a1b2", 2), ("step", None), ("", None), ("1-", None)],
)
def test_step_of(name: str, step: int | None) -> None:
    assert checkpoint.step_of(name) == step


def test_keep(buffer: forebay.Buffer, store: Path) -> None:
    for step in (10, 20, 30, 40):
        checkpoint.save(buffer, f"run/step-{step}", arrays(step)).durable.result(60)
    checkpoint.save(buffer, "run/step-50", arrays(50))
    buffer.makedirs("run/logs-5")
    buffer.write_bytes("run/logs-5/text", b"no checkpoint")
    gone = checkpoint.keep(buffer, "run", last=2, every=20)
    assert [f.step for f in gone] == [30, 10]
    assert [e.name for e in buffer.listdir("run")] == ["logs-5", "step-20", "step-40", "step-50"]
    buffer.drain()
    assert sorted(os.listdir(store / "run")) == ["logs-5", "step-20", "step-40", "step-50"]


def test_latest_is_whole(buffer: forebay.Buffer) -> None:
    assert checkpoint.latest(buffer, "run") is None
    for step in (1, 2, 3, 4, 10):
        checkpoint.save(buffer, f"run/step-{step}", arrays(step))
    buffer.remove("run/step-10/part-0")
    buffer.write_bytes("run/step-4/part-0", b"other")
    buffer.write_bytes(f"run/step-3/{checkpoint.INDEX}", b'{"index":')
    there = [*checkpoint.find(buffer, "run")]
    assert [(f.step, f.whole) for f in there] == [(10, False), (4, False), (3, False), (2, True), (1, True)]
    assert "missing" in there[0].why
    assert "as it was written" in there[1].why
    assert "cannot be read" in there[2].why
    f = checkpoint.latest(buffer, "run")
    assert f is not None
    assert f.step == 2


# The index.


def an_index() -> Index:
    item = Item(Place("part-0", 64, 24), "<f8", (3,))
    return Index((PartInfo("part-0", 88, 2**64 - 1), PartInfo("part-1", 0, 0)), {"ü": item}, {"a": [1, None]})


def test_index() -> None:
    assert Index.decode(an_index().encode()) == an_index()


def test_damaged_index() -> None:
    """An index's file of any content is the written one or is refused."""
    rng = random.Random(2)
    whole = an_index().encode()
    samples = [b"", b"{}", b"[]", b"null", b"\xff", b'{"checksum":"0","index":{}}', b"[" * 100_000]
    for _ in range(3000):
        p = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(p))
            p[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        samples.append(bytes(p))
    for sample in samples:
        try:
            assert Index.decode(sample) == an_index()
        except forebay.Invalid:
            pass


# The ladder.


def test_flipped_in_memory(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """A part that is damaged in memory is read from the store, the others are not."""
    saving = Saving.begin(buffer, "run/step-1")
    data = [np.random.default_rng(rank).bytes(3_000_000) for rank in range(2)]
    infos = []
    for rank in range(2):
        with saving.part(f"part-{rank}") as part:
            place = part.add(data[rank])
            infos.append(part.close())
    saving.commit(infos).durable.result(60)
    flip_in_memory(daemon, data[1][2_000_000:2_000_050])
    with Opened(Ladder(buffer), "run/step-1") as opened:
        for rank in range(2):
            assert bytes(opened.read(Place(f"part-{rank}", 0, place.length))) == data[rank]
        some = bytearray(10)
        opened.read_into(Place("part-1", 0, place.length), some, 1_999_999)
        assert bytes(some) == data[1][1_999_999:2_000_009]
        got = [(a.part, a.rung, bool(a.error)) for a in opened.record.attempts]
    assert got == [
        (checkpoint.INDEX, "own memory", False),
        ("part-0", "own memory", False),
        ("part-1", "own memory", True),
        ("part-1", "store", False),
    ]
    assert "checksum" in opened.record.failures[0].error
    assert [t.state for t in buffer.txns()][:1] == [forebay.TxnState.ABORTED]  # the copy is gone


def test_flipped_everywhere(daemon: Daemon, buffer: forebay.Buffer, store: Path) -> None:
    """Memory and store are damaged. The checkpoint before is read, and the record has the reason."""
    for step in (1, 2):
        checkpoint.save(buffer, f"run/step-{step}", arrays(step)).durable.result(60)
    flip_in_memory(daemon, arrays(2)["weights"].tobytes()[100_000:100_050])
    flip_in_file(store / "run/step-2/part-0", 100_000)
    got, record = checkpoint.restore(Ladder(buffer), "run", read)
    assert same(got, arrays(1))
    assert record.checkpoint == "run/step-1"
    failed = [(a.checkpoint, a.part, a.rung) for a in record.failures]
    assert failed == [
        ("run/step-2", "part-0", "own memory"),
        ("run/step-2", "part-0", "store"),
        ("run/step-2", "", ""),
    ]
    text = str(record)
    assert "run/step-2/part-0: store: " in text
    assert text.endswith("run/step-1/part-0: own memory: read")


def test_no_checkpoint(client: forebay.Client, buffer: forebay.Buffer) -> None:
    """A path that is mistyped is not found, and not made. A part that is gone is lost, with the reasons."""
    client.create_buffer("storeless")
    for b in (buffer, client.buffer("storeless")):
        checkpoint.save(b, "run/step-1", arrays(1))
        for path in ("run/step-2", "run", "runs/step-1", "run/step-1/part-0"):
            with pytest.raises(forebay.NotFound, match=r"checkpoint\.json: not found"):
                checkpoint.load(b, path)
        assert [e.name for e in b.listdir()] == ["run"]
        assert [e.name for e in b.listdir("run")] == ["step-1"]
        b.remove("run/step-1/part-0")
        with pytest.raises(forebay.Lost, match=r"own memory: .*not found.*; store: "):
            checkpoint.load(b, "run/step-1")
    client.destroy_buffer("storeless", discard=True)


def test_nothing_is_left(daemon: Daemon, buffer: forebay.Buffer, store: Path) -> None:
    with pytest.raises(forebay.NotFound, match="no checkpoint"):
        checkpoint.restore(Ladder(buffer), "run", read)
    checkpoint.save(buffer, "run/step-1", arrays(1))
    flip_in_memory(daemon, arrays(1)["weights"].tobytes()[100_000:100_050])
    with pytest.raises(forebay.Lost, match="part-0: own memory"):
        checkpoint.restore(Ladder(buffer, store=False), "run", read)


def test_damaged_index_in_memory(daemon: Daemon, buffer: forebay.Buffer) -> None:
    checkpoint.save(buffer, "run/step-1", arrays(1), note="a note that is only here").durable.result(60)
    flip_in_memory(daemon, b"a note that is only here")
    got, record = checkpoint.restore(buffer, "run", read)
    assert same(got, arrays(1))
    assert [(a.part, a.rung) for a in record.failures] == [(checkpoint.INDEX, "own memory")]


def test_second_rung(daemon: Daemon, client: forebay.Client, buffer: forebay.Buffer) -> None:
    """Another daemon's copy is tried before the store. Here that one has another buffer's files."""
    client.create_buffer("second")
    second = client.buffer("second")
    for b in (buffer, second):
        checkpoint.save(b, "run/step-1", arrays(1))
    buffer.remove("run/step-1/part-0")
    _, record = checkpoint.restore(Ladder(buffer, second=[second]), "run", read)
    assert [(a.part, a.rung, bool(a.error)) for a in record.attempts[1:]] == [
        ("part-0", "own memory", True),
        ("part-0", "second copy", False),
    ]
    checkpoint.save(second, "run/step-1", arrays(2))  # not the files written here
    with pytest.raises(forebay.Lost, match=r"second copy: .*not the file"):
        checkpoint.restore(Ladder(buffer, second=[second], store=False), "run", read)
    client.destroy_buffer("second", discard=True)


# Memory that is filled before it is part of a file.


def test_staged(daemon: Daemon, client: forebay.Client, buffer: forebay.Buffer) -> None:
    from forebay._staging import Staging

    rng = np.random.default_rng(3)
    staging = Staging(client, buffer.name)
    pieces = []
    with pytest.raises(forebay.NoSpace):
        staging.take(1 << 30)
    for n in (1, 100_000, 3_000_001, 5_000_000, 70_000):
        piece = staging.take(n)
        assert piece is not None
        assert piece.ctypes.data % 64 == 0
        piece[:] = np.frombuffer(rng.bytes(n), dtype=np.uint8)
        pieces.append(piece)
    want = [p.tobytes() for p in pieces]
    saving = Saving.begin(buffer, "run/step-1")
    with saving.part("part-0") as part:
        places = [part.add(b"in front")]
        places += [part.add_staged([p]) for p in pieces[:3]]
        places.append(part.add(b"between"))
        places.append(part.add_staged([pieces[3]]))
        daemon.kill()
        daemon.start()
        places.append(part.add_staged([pieces[4]]))
        info = part.close()
    saving.commit([info])
    want = [b"in front", *want[:3], b"between", *want[3:]]
    with Opened(Ladder(buffer), "run/step-1") as opened:
        for place, data in zip(places, want, strict=True):
            assert bytes(opened.read(place)) == data
    for p, data in zip(pieces, [w for w in want if w not in (b"in front", b"between")], strict=True):
        assert p.tobytes() == data  # it is the client's still
    del pieces, piece, p, part, staging
    gc.collect()
    while leased(client):
        buffer.exists("run")  # sends requests that finalizers have left


def leased(client: forebay.Client) -> int:
    """Return how many segments writers hold."""
    return sum(int(s["leases"]) for s in client.status()["sessions"])


def test_staged_is_not_copied(client: forebay.Client, buffer: forebay.Buffer) -> None:
    """The file's memory is the memory that was staged."""
    from forebay._staging import Staging

    piece = Staging(client, buffer.name).take(1_000_000)
    assert piece is not None
    piece[:] = 7
    saving = Saving.begin(buffer, "run/step-1")
    with saving.part("part-0") as part:
        part.add_staged([piece])
        info = part.close()
    saving.commit([info])
    with buffer.open("run/step-1/part-0") as f, f.map() as m:
        assert bytes(m.view[:10]) == b"\7" * 10
        piece[3] = 8
        assert bytes(m.view[:10]) == b"\7\7\7\x08\7\7\7\7\7\7"
        piece[3] = 7


def test_staged_in_pieces(client: forebay.Client, buffer: forebay.Buffer) -> None:
    """An array larger than one segment lies in several, and is one item."""
    from forebay._staging import Staging

    staging = Staging(client, buffer.name)
    first = staging.take(100_000)
    pieces = staging.take_all(40_000_001)
    assert first is not None
    assert len(pieces) > 1
    assert sum(len(p) for p in pieces) == 40_000_001
    assert all(len(p) % 64 == 0 for p in pieces[:-1])
    data = np.random.default_rng(4).bytes(40_000_001)
    at = 0
    for p in pieces:
        p[:] = np.frombuffer(data[at : at + len(p)], dtype=np.uint8)
        at += len(p)
    saving = Saving.begin(buffer, "run/step-1")
    with saving.part("part-0") as part:
        place = part.add_staged(pieces)
        again = part.add_staged(pieces[-1:])  # is part of the file already, so it is copied
        info = part.close()
    saving.commit([info])
    with Opened(Ladder(buffer), "run/step-1") as opened:
        assert bytes(opened.read(place)) == data
        assert bytes(opened.read(again)) == data[-again.length :]


def test_staged_over_tcp(daemon: Daemon, buffer: forebay.Buffer) -> None:
    from forebay._staging import Staging

    with forebay.connect(daemon.tcp, key_file=daemon.key_file) as c:
        assert Staging(c, buffer.name).take(1_000_000) is None
        assert Staging(c, buffer.name).take_all(1_000_000) == []
        checkpoint.save(c.buffer(buffer.name), "run/step-1", arrays(1))
        assert same(checkpoint.load(c.buffer(buffer.name), "run/step-1"), arrays(1))


def test_flush_rule(client: forebay.Client, store: Path) -> None:
    """Of many checkpoints the store gets the multiples and the newest. The others are superseded."""
    rules = ["step-*/=every 5", "*/=last at end of job"]
    info = client.create_buffer("ruled", f"file://{store}", flush=rules)
    try:
        assert info.flush == tuple(rules)
        assert client.buffer_info("ruled").flush == tuple(rules)
        buffer = client.buffer("ruled")
        saved = [checkpoint.save(buffer, f"run/step-{n}", arrays(n)) for n in range(3, 8)]
        with pytest.raises(forebay.Cancelled, match="a newer checkpoint is complete"):
            saved[1].durable.result(60)
        states = {n: buffer.stat(f"run/step-{n}/checkpoint.json").state for n in (3, 4, 6, 7)}
        superseded = forebay.State.SUPERSEDED
        assert states == {3: superseded, 4: superseded, 6: superseded, 7: forebay.State.DIRTY}
        newest = checkpoint.latest(buffer, "run")
        assert newest is not None
        assert newest.step == 7
        assert same(checkpoint.load(buffer, "run/step-4"), arrays(4))  # its bytes are in memory
        progress = buffer.drain()
        assert progress.superseded == ("run/step-3", "run/step-4", "run/step-6")
        assert progress.superseded_total == 3
        assert sorted(p.name for p in (store / "run").iterdir()) == ["step-5", "step-7"]
        assert [f.step for f in checkpoint.find(buffer, "run") if f.durable] == [7, 5]
    finally:
        client.destroy_buffer("ruled", discard=True)


def test_flush_rule_is_refused(client: forebay.Client, store: Path) -> None:
    for rule in ("step-*=every 5", "step-*/=often", "step-*/=every 0"):
        with pytest.raises(forebay.Invalid, match="flush rule"):
            client.create_buffer("refused", f"file://{store}", flush=[rule])
    with pytest.raises(forebay.Invalid, match="needs a backing store"):
        client.create_buffer("refused", flush=["step-*/=every 5"])
    # A text is a sequence, too, of letters.
    with pytest.raises(forebay.Invalid, match=r"write flush=\['step-\*/=every 5'\]"):
        client.create_buffer("refused", f"file://{store}", flush="step-*/=every 5")
    with pytest.raises(forebay.Invalid, match=r"write keep=\['\*\.tmp'\]"):
        client.create_buffer("refused", f"file://{store}", keep="*.tmp")
