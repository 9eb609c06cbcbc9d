"""Ranks that die at every step of a save, buffers that are full, workers of a DataLoader."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from torch.distributed.checkpoint import CheckpointException
from torch.utils.data import DataLoader, Dataset

import forebay
import forebay.torch as ft
from forebay import checkpoint
from tests.daemon import Daemon
from tests_torch.ranks import PATIENCE, assert_is, loads, run, running, state


@pytest.fixture
def run_dir(daemon: Daemon, buffer: forebay.Buffer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FOREBAY_SOCKET", daemon.socket)
    return f"bb://{buffer.name}/run"


# Kills.


def saves(rank: int, run_dir: str, step: int) -> None:
    ft.save(state(step), f"{run_dir}/step-{step}")


def saves_on_a_thread(rank: int, run_dir: str, step: int) -> None:
    ft.async_save(state(step), f"{run_dir}/step-{step}").resident.result(PATIENCE)


def saves_and_keeps(rank: int, run_dir: str, step: int) -> None:
    saves(rank, run_dir, step)
    if rank == 0:
        ft.keep(run_dir, last=1, state="resident")


#: The operation, and the step of it that something dies before or after.
STEPS: list[tuple[Callable[[int, str, int], None], Any, str]] = [
    (saves, ft.ForebayWriter, "prepare_global_plan"),
    (saves, ft.ForebayWriter, "write_data"),
    (saves, checkpoint.Part, "close"),
    (saves, ft.ForebayWriter, "finish"),
    (saves, checkpoint.Saving, "commit"),
    (saves_on_a_thread, ft.ForebayStager, "stage"),
    (saves_on_a_thread, ft.ForebayWriter, "write_data"),
    (saves_on_a_thread, checkpoint.Saving, "commit"),
    (saves_and_keeps, forebay.Buffer, "rmtree"),
]
OF_ALL_RANKS = [n for n, (_, _, name) in enumerate(STEPS) if name in ("write_data", "close", "stage")]


def at_step(step: int, when: str, action: Callable[[], object]) -> None:
    """Have this process carry something out before or after a step of its saves."""
    _, of, name = STEPS[step]
    was = getattr(of, name)

    def instead(*args: Any, **options: Any) -> Any:
        if when == "before":
            action()
        got = was(*args, **options)
        if when == "after":
            action()
        return got

    setattr(of, name, instead)


def dies(rank: int, run_dir: str, victim: int, step: int, when: str) -> None:
    """Save, in which one rank kills itself before or after a step."""
    if rank == victim:
        at_step(step, when, lambda: os.kill(os.getpid(), signal.SIGKILL))
    STEPS[step][0](rank, run_dir, 2)


def restores(run_dir: str, step: int) -> None:
    got = state(9)
    restored = ft.restore(got, run_dir)
    assert restored is not None
    assert restored.step == step
    assert_is(got, step)


def next_job(rank: int, run_dir: str, step: int) -> None:
    """Restore what there is, save, and restore that."""
    restores(run_dir, step)
    ft.save(state(3), f"{run_dir}/step-3")
    restores(run_dir, 3)


@contextmanager
def loader(run_dir: str, folder: Path) -> Iterator[Path]:
    """Load over and over meanwhile, and yield the file with the acknowledged steps."""
    log, end = folder / "log", folder / "end"
    log.touch()
    with running(1, loads, run_dir, str(log), str(end)) as loading:
        yield log
        end.touch()
        loading.wait()


def acknowledge(log: Path, step: int) -> None:
    with log.open("a") as f:
        f.write(f"{step}\n")


def wait_until(there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@pytest.mark.kills
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("victim", "step"), [*((0, n) for n in range(len(STEPS))), *((1, n) for n in OF_ALL_RANKS)]
)
def test_rank_dies_at_a_step(
    buffer: forebay.Buffer, run_dir: str, tmp_path: Path, victim: int, step: int, when: str
) -> None:
    """The checkpoint is there whole once it is committed, and before that the one before is."""
    does, _, name = STEPS[step]
    committed = does is saves_and_keeps or (when == "after" and name in ("finish", "commit"))
    with loader(run_dir, tmp_path) as log:
        run(2, saves, run_dir, 1)
        acknowledge(log, 1)
        with running(2, dies, run_dir, victim, step, when) as ranks:
            ranks.processes[victim].join(PATIENCE)
            assert ranks.processes[victim].exitcode == -signal.SIGKILL
        newest = 2 if committed else 1
        assert ft.latest(run_dir) == f"{run_dir}/step-{newest}"
        run(2, next_job, run_dir, newest)
        acknowledge(log, 3)


def outlives(rank: int, run_dir: str, step: int, when: str, reached: Path, restarted: Path) -> None:
    """Save, in which the daemon dies before or after a step of the coordinator."""

    def wait() -> None:
        if not reached.exists():
            reached.touch()
            wait_until(restarted.exists, "the daemon does not come")

    if rank == 0:
        at_step(step, when, wait)
    STEPS[step][0](rank, run_dir, 2)
    restores(run_dir, 2)


@pytest.mark.kills
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_daemon_dies_at_a_step(daemon: Daemon, run_dir: str, tmp_path: Path, step: int, when: str) -> None:
    """The save goes on with the next daemon."""
    reached, restarted = tmp_path / "reached", tmp_path / "restarted"
    with loader(run_dir, tmp_path) as log:
        run(2, saves, run_dir, 1)
        acknowledge(log, 1)
        with running(2, outlives, run_dir, step, when, reached, restarted) as ranks:
            wait_until(
                lambda: reached.exists() or any(p.exitcode for p in ranks.processes), "the step does not come"
            )
            assert reached.exists()
            daemon.kill()
            daemon.start()
            restarted.touch()
            ranks.wait()
        acknowledge(log, 2)
        assert ft.latest(run_dir) == f"{run_dir}/step-2"
        run(2, next_job, run_dir, 2)
        acknowledge(log, 3)


# Full buffers.


@pytest.fixture
def small() -> Iterator[Daemon]:
    """A daemon with little memory and nothing to make room with."""
    d = Daemon(memory="64MiB", disk="0")
    yield d
    d.remove()


def save_too_much(rank: int, run_dir: str) -> None:
    """A save that finds no room fails on every rank. The training goes on, and the one before is there."""
    ft.save(state(1), f"{run_dir}/step-1")
    large = state(2)
    large["large"] = torch.rand(24_000_000)
    with pytest.raises(CheckpointException) as e:
        ft.save(large, f"{run_dir}/step-2")
    assert any(isinstance(failed, forebay.NoSpace) for failed, _ in e.value.failures.values())
    saving = ft.async_save(large, f"{run_dir}/step-3")
    assert isinstance(saving.resident.exception(PATIENCE), CheckpointException)
    del large, saving
    got = state(4)
    restored = ft.restore(got, run_dir)
    assert restored is not None
    assert restored.step == 1
    assert_is(got, 1)
    for again in range(600):  # a failed save's memory comes back, perhaps after one that does not wait
        try:
            ft.save(state(4), f"{run_dir}/step-4")
            return
        except CheckpointException:
            assert again < 599
            time.sleep(0.1)


def test_full_buffer(small: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_SOCKET", small.socket)
    with forebay.connect(small.socket) as client:
        client.create_buffer("full", no_wait=True)
        run(2, save_too_much, "bb://full/run")
        assert ft.latest("bb://full/run") == "bb://full/run/step-4"
        assert checkpoint.candidates(client.buffer("full"), "run") == ["run/step-4", "run/step-1"]


def test_other_address(
    daemon: Daemon, buffer: forebay.Buffer, run_dir: str, small: Daemon, monkeypatch: Any
) -> None:
    """The environment's daemon is that of each call, not that of the first one."""
    checkpoint.save(buffer, "run/step-3", {})
    assert ft.latest(run_dir) == f"{run_dir}/step-3"
    monkeypatch.setenv("FOREBAY_SOCKET", small.socket)
    with forebay.connect(small.socket) as client:
        client.create_buffer(buffer.name)
        assert ft.latest(run_dir) is None


# DataLoaders.


class Rows(Dataset[torch.Tensor]):  # type: ignore[misc]
    """Tensors in files of a buffer, opened by whatever process needs them."""

    def __init__(self, address: str, buffer: str, n: int) -> None:
        self._fs = fsspec.filesystem("bb", address=address)
        self._buffer, self._n = buffer, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> torch.Tensor:
        data = bytearray(self._fs.cat_file(f"{self._buffer}/rows/{i}"))
        return torch.frombuffer(data, dtype=torch.float32)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader(daemon: Daemon, buffer: forebay.Buffer, method: str) -> None:
    want = torch.rand(40, 1000)
    buffer.makedirs("rows")
    for i in range(40):
        buffer.write_bytes(f"rows/{i}", want[i].numpy())
    rows = Rows(daemon.socket, buffer.name, 40)
    assert torch.equal(rows[7], want[7])  # the parent has a session, too
    loader = DataLoader(rows, batch_size=8, num_workers=2, multiprocessing_context=method)
    for _ in range(2):
        assert torch.equal(torch.cat(list(loader)), want)
    assert torch.equal(rows[8], want[8])
