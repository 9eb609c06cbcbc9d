"""PyTorch's distributed checkpoints on bb://, by real ranks with gloo, against a real daemon."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, FsspecReader, FsspecWriter
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor

import forebay
import forebay.torch as ft
from forebay import checkpoint
from tests.daemon import Daemon, cluster
from tests.memory import flip_in_file, flip_in_memory
from tests_torch.ranks import PATIENCE, assert_is, full, loads, run, running, state


@pytest.fixture
def run_dir(daemon: Daemon, buffer: forebay.Buffer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FOREBAY_SOCKET", daemon.socket)
    return f"bb://{buffer.name}/run"


def storage(kind: str, path: str) -> tuple[Any, Any]:
    """Return the writer and the reader of a kind."""
    if kind == "fsspec":
        return FsspecWriter(path), FsspecReader(path)
    return ft.ForebayWriter(path), ft.ForebayReader(path)


# Saving and loading.


def save_and_load(rank: int, kind: str, path: str) -> None:
    writer, reader = storage(kind, path)
    dcp.save(state(1), storage_writer=writer)
    got = state(2)
    dcp.load(got, storage_reader=reader)
    assert_is(got, 1)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["fsspec", "forebay"])
def test_save_and_load(buffer: forebay.Buffer, run_dir: str, ranks: int, kind: str) -> None:
    run(ranks, save_and_load, kind, f"{run_dir}/step-1")
    if kind == "forebay":
        index = checkpoint.read_index(buffer, "run/step-1")
        # Whole tensors are written by one of the ranks, and their bytes are what the part holds.
        assert [p.name for p in index.parts] == sorted(["metadata", *(f"part-{r}" for r in range(ranks))])
        parts = b"".join(buffer.read_bytes(f"run/step-1/part-{r}") for r in range(ranks))
        assert full(1, "whole").numpy().tobytes() in parts


def save_for_others(rank: int, kind: str, path: str) -> None:
    dcp.save(state(3), storage_writer=storage(kind, path)[0])


def load_of_others(rank: int, kind: str, path: str, dim: int) -> None:
    got = state(4, dim)
    dcp.load(got, storage_reader=storage(kind, path)[1])
    assert_is(got, 3, dim)


@pytest.mark.parametrize(("before", "after"), [(8, 2), (2, 3)])
@pytest.mark.parametrize("kind", ["fsspec", "forebay"])
def test_resharded(run_dir: str, kind: str, before: int, after: int) -> None:
    run(before, save_for_others, kind, f"{run_dir}/step-3")
    for dim in (0, 1):
        run(after, load_of_others, kind, f"{run_dir}/step-3", dim)


def test_one_process(buffer: forebay.Buffer, run_dir: str) -> None:
    """Without a process group, and with the place in the address alone."""
    plain = {"a": torch.arange(10), "n": 3}
    with pytest.warns(UserWarning, match="single process"):
        saved = ft.save(plain, f"{run_dir}/step-7")
    assert saved.path == "run/step-7"
    assert ft.latest(run_dir) == f"{run_dir}/step-7"
    got = {"a": torch.zeros(10, dtype=torch.int64), "n": 0}
    with pytest.warns(UserWarning, match="single process"):
        restored = ft.restore(got, run_dir)
    assert restored is not None
    assert restored.step == 7
    assert torch.equal(got["a"], plain["a"])
    assert got["n"] == 3
    with pytest.raises(forebay.Invalid, match="bb://BUFFER/DIRECTORY"):
        ft.ForebayWriter("/tmp/x")
    assert not ft.ForebayReader.validate_checkpoint_id("file:///x")


# Asynchronous saves.


def change(s: dict[str, Any]) -> None:
    for t in s["model"].values():
        (t.to_local() if isinstance(t, DTensor) else t).zero_()


def by_thread(rank: int, run_dir: str) -> None:
    for step in (1, 2, 3):
        s = state(step)
        saving = ft.async_save(s, f"{run_dir}/step-{step}")
        change(s)
        assert saving.resident.result(PATIENCE) == f"{run_dir}/step-{step}"
        if rank == 0:
            assert saving.durable.result(PATIENCE).done
    for step in (1, 2, 3):
        got = state(4)
        ft.load(got, f"{run_dir}/step-{step}")
        assert_is(got, step)


def test_by_thread(buffer: forebay.Buffer, run_dir: str, store: Path) -> None:
    run(2, by_thread, run_dir)
    assert ft.latest(run_dir, state="durable") == f"{run_dir}/step-3"
    assert [f.step for f in ft.keep(run_dir, last=1)] == [2, 1]
    buffer.drain()
    assert os.listdir(store / "run") == ["step-3"]


def by_torch(rank: int, run_dir: str, kind: str, how: AsyncCheckpointerType) -> None:
    """By torch's own functions, with its own stager."""
    for step in (1, 2):
        s = state(step)
        writer, _ = storage(kind, f"{run_dir}/step-{step}")
        done = dcp.async_save(s, storage_writer=writer, async_checkpointer_type=how)
        change(s)
        done.result(PATIENCE)
    for step in (1, 2):
        got = state(4)
        dcp.load(got, storage_reader=storage(kind, f"{run_dir}/step-{step}")[1])
        assert_is(got, step)
    if how is AsyncCheckpointerType.PROCESS:
        from torch.distributed.checkpoint import _async_process_executor as executor

        executor._CHECKPOINT_PROCESS = None  # ends the process


@pytest.mark.parametrize("how", list(AsyncCheckpointerType))
@pytest.mark.parametrize("kind", ["fsspec", "forebay"])
def test_by_torch(run_dir: str, kind: str, how: AsyncCheckpointerType) -> None:
    run(2, by_torch, run_dir, kind, how)


def stage(rank: int, path: str) -> None:
    """Staged tensors lie in the buffer's memory, and are written without a copy."""
    stager = ft.ForebayStager(path)
    s = stager.stage(state(5))
    change_of = state(5)
    staged = s["model"]["sharded"].to_local()
    assert staged.data_ptr() in ft._pieces
    assert s["model"]["tied"].data_ptr() == s["model"]["tied too"].data_ptr()
    assert_is(s, 5)
    dcp.save(s, storage_writer=ft.ForebayWriter(path))
    buffer, folder = ft._at(path, {})
    with checkpoint.Opened(checkpoint.Ladder(buffer), folder) as opened:
        assert opened.index.parts
    staged[0, 0] = 77.0  # the file's own memory
    got = change_of
    if rank == 0:
        with buffer.open(f"{folder}/part-0") as f, f.map() as m:
            mine = torch.tensor([77.0]).numpy().tobytes()
            assert any(bytes(v).find(mine) >= 0 for v in m.views)
    dist.barrier()
    staged[0, 0] = full(5, "sharded")[rank * 32, 0]
    dist.barrier()
    ft.load(got, path)
    assert_is(got, 5)
    del s, staged


def test_staged(run_dir: str) -> None:
    run(2, stage, f"{run_dir}/step-5")


def stage_large(rank: int, path: str) -> None:
    """A tensor that no segment has room for is staged in several, and takes no other memory."""
    large = {"large": torch.rand(6_000_000, dtype=torch.float64), "n": 1}
    want = large["large"].clone()
    s = ft.ForebayStager(path, pieces=True).stage(large)
    assert s["large"].untyped_storage().nbytes() == 8
    plain = ft.ForebayStager(path).stage(large)
    assert torch.equal(plain["large"], want)
    saving = ft.async_save(large, path)
    large["large"].zero_()
    saving.resident.result(PATIENCE)
    ft.load(large, path)
    assert torch.equal(large["large"], want)


def test_staged_large(run_dir: str) -> None:
    run(1, stage_large, f"{run_dir}/step-5")


# Saves that fail.


def fails_on_one_rank(rank: int, run_dir: str) -> None:
    ft.save(state(1), f"{run_dir}/step-1")
    bad = state(2)
    if rank == 1:
        bad["of rank 1"] = torch.eye(3).to_sparse()
    saving = ft.async_save(bad, f"{run_dir}/step-2")
    assert isinstance(saving.resident.exception(PATIENCE), CheckpointException)
    assert isinstance(saving.durable.exception(PATIENCE), CheckpointException)
    with pytest.raises(CheckpointException):
        ft.save(bad, f"{run_dir}/step-3")
    got = state(4)
    restored = ft.restore(got, run_dir)
    assert restored is not None
    assert restored.step == 1
    assert_is(got, 1)
    ft.save(state(2), f"{run_dir}/step-2")  # the training goes on


def test_fails_on_one_rank(buffer: forebay.Buffer, run_dir: str) -> None:
    run(2, fails_on_one_rank, run_dir)
    assert ft.latest(run_dir) == f"{run_dir}/step-2"
    assert {t.state.value for t in buffer.txns()} <= {"folded", "committed", "aborted"}


# The ladder.


def restores(rank: int, run_dir: str, step: int, rungs: str) -> None:
    got = state(9)
    restored = ft.restore(got, run_dir)
    assert restored is not None
    assert restored.step == step
    assert_is(got, step)
    mine = {a.rung for a in restored.record.failures if a.part == "part-1"}
    assert mine == set(rungs.split(",") if rungs else ()), str(restored.record)


def saves(rank: int, run_dir: str, steps: int) -> None:
    for step in range(1, steps + 1):
        saved = ft.save(state(step), f"{run_dir}/step-{step}")
        if rank == 0:
            saved.durable.result(PATIENCE)


def test_ladder(daemon: Daemon, buffer: forebay.Buffer, run_dir: str, store: Path) -> None:
    """A bit flips in memory, then on the store too. Every rank gets the same checkpoint, bit by bit."""
    run(2, saves, run_dir, 2)
    run(2, restores, run_dir, 2, "")
    part = buffer.read_bytes("run/step-2/part-1")
    at = len(part) // 2
    flip_in_memory(daemon, part[at : at + 64])
    run(2, restores, run_dir, 2, "own memory")
    flip_in_file(store / "run/step-2/part-1", at)
    run(2, restores, run_dir, 1, "own memory,store")


def restores_with(rank: int, run_dir: str, other: str, rungs: str) -> None:
    """Restore with the help of another node's daemon."""
    with forebay.connect(other) as client:
        got = state(9)
        restored = ft.restore(got, run_dir, second=[client.buffer("twice")])
        assert restored is not None
        assert restored.step == 1
        assert_is(got, 1)
        mine = [a.rung for a in restored.record.attempts if a.part == "part-1"]
        assert mine == rungs.split(","), str(restored.record)


def save_once(rank: int, path: str) -> None:
    ft.save(state(1), path)


def test_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit flips in this node's memory. The bytes of that part come from another node's."""
    with cluster("near", "far") as (near, far), forebay.connect(near.socket) as client:
        monkeypatch.setenv("FOREBAY_SOCKET", near.socket)
        client.create_buffer("twice", replicas=2)
        run(2, save_once, "bb://twice/run/step-1")
        run(2, restores_with, "bb://twice/run", far.socket, "own memory")
        part = client.buffer("twice").read_bytes("run/step-1/part-1")
        flip_in_memory(near, part[len(part) // 2 :][:64])
        run(2, restores_with, "bb://twice/run", far.socket, "own memory,second copy")


# Kills.


def trains(rank: int, run_dir: str, log: str, steps: int, pause: float) -> None:
    """Resume, and save every step. Rank 0 notes each that is acknowledged."""
    got = state(0)
    restored = ft.restore(got, run_dir)
    begin = restored.step if restored else 0
    if restored:
        assert_is(got, begin)
        with open(log) as f:
            acknowledged = [int(line) for line in f]
        assert begin >= max(acknowledged, default=0)
    for step in range(begin + 1, steps + 1):
        saving = ft.async_save(state(step), f"{run_dir}/step-{step}")
        saving.resident.result(PATIENCE)
        if rank == 0:
            with open(log, "a") as f:
                f.write(f"{step}\n")
            ft.keep(run_dir, last=2, state="resident")
        time.sleep(pause)


@pytest.mark.kills
@pytest.mark.parametrize("victim", ["rank", "coordinator", "daemon"])
def test_killed(daemon: Daemon, buffer: forebay.Buffer, run_dir: str, tmp_path: Path, victim: str) -> None:
    kills = int(os.environ.get("FOREBAY_KILLS", "4"))
    rng = random.Random(victim)
    log, end = tmp_path / "log", tmp_path / "end"
    log.touch()
    steps = 3 * kills

    def acknowledged() -> int:
        return max([int(line) for line in log.read_text().split()], default=0)

    def wait_for(step: int, ranks: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while acknowledged() < step:
            assert time.monotonic() < deadline, f"step {step} does not come"
            assert ranks is None or all(p.exitcode in (None, 0) for p in ranks.processes)
            time.sleep(0.002)

    with running(1, loads, run_dir, str(log), str(end)) as loader:
        for kill in range(kills):
            with running(2, trains, run_dir, str(log), steps, 0.0) as ranks:
                wait_for(3 * kill + 1, ranks)
                time.sleep(rng.random() * 0.2)  # anywhere in a save
                if victim == "daemon":
                    daemon.kill()
                    daemon.start()
                    wait_for(min(acknowledged() + 1, steps), ranks)
                else:
                    ranks.processes[0 if victim == "coordinator" else 1].kill()
            assert loader.processes[0].exitcode is None, "the loader has failed"
        run(2, trains, run_dir, str(log), steps, 0.0)
        end.touch()
        loader.wait()
    assert ft.latest(run_dir) == f"{run_dir}/step-{steps}"


# docs/python.md.


def test_page(daemon: Daemon, run_dir: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "python.md"
    (example,) = re.findall(r"^```python torch\n(.*?)^```", page.read_text(), re.M | re.S)
    with forebay.connect(daemon.socket) as c:
        c.create_buffer("ckpt")
        run(2, follows_page, example)
        assert ft.latest("bb://ckpt/run3") == "bb://ckpt/run3/step-30"
        c.destroy_buffer("ckpt", discard=True)


def test_loader_of_page(daemon: Daemon, run_dir: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "python.md"
    (example,) = re.findall(r"^```python torch-loader\n(.*?)^```", page.read_text(), re.M | re.S)
    with forebay.connect(daemon.socket) as c:
        c.create_buffer("ckpt")
        run(1, follows_page, example)
        assert len(c.buffer("ckpt").listdir("rows")) == 8
        c.destroy_buffer("ckpt", discard=True)


def follows_page(rank: int, example: str) -> None:
    exec(compile(example, "python.md", "exec"), {"torch": torch})
