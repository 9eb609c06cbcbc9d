"""Measures how long an asynchronous save of PyTorch blocks a training loop, beside its bounds.

    checkpoint.py [--mib N] [--repeat N] [--seconds N] [--dir FOLDER]

One process saves a state of tensors of 16 MiB, in each way in turn, some times; no round begins after the
seconds. Standard error shows each save as it ends. Each line has the best of
them: how long the call blocked, also in copies, when the checkpoint was there, and how many times the
state's size the process had more in memory meanwhile at most, with the buffer's memory that it fills. The
first line is the limit: one copy of the state into memory that is touched already. A state takes about nine
times its size in memory: its own, two copies, a checkpoint on a tmpfs, and at most five in the daemon, where
a tensor has a piece of its own that may be twice as large. It needs a daemon's binary (make build) and torch.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lines import daemon, folder_of, load, note, rounds
from torch.distributed import checkpoint as dcp

import forebay
import forebay.torch as ft

TENSOR = 16 << 20  # bytes

State = dict[str, Any]


def peak() -> int:
    """Return the process's largest memory since reset_peak, in bytes, with its mappings."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) << 10


def reset_peak() -> None:
    """Reset peak to the process's present memory."""
    Path("/proc/self/clear_refs").write_text("5")


@dataclass
class Line:
    """Saves of one kind.

    Attributes:
        name: the printed name.
        save: begins the save of a number, and returns a function that waits for it.
        blocked: how long the calls blocked, in seconds.
        busy: how long this thread was on a processor meanwhile, which a load of others disturbs less.
        whole: how long it took until the checkpoints were there.
        most: bytes that the process had more in memory meanwhile.
    """

    name: str
    save: Callable[[int], Callable[[], object]]
    blocked: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    most: int = 0

    def once(self, i: int) -> None:
        """Save once."""
        gc.collect()
        reset_peak()
        before = peak()
        start, busy = time.perf_counter(), time.thread_time()
        wait = self.save(i)
        self.busy.append(time.thread_time() - busy)
        self.blocked.append(time.perf_counter() - start)
        wait()
        self.whole.append(time.perf_counter() - start)
        self.most = max(self.most, peak() - before)


def file_save(folder: Path, state: State, sync: bool) -> Callable[[int], Callable[[], object]]:
    """Return a function that saves a state into a folder as torch does by itself."""

    def save(i: int) -> Callable[[], object]:
        writer = dcp.FileSystemWriter(folder / f"step-{i}", sync_files=sync)
        return dcp.async_save(state, storage_writer=writer, no_dist=True).result  # type: ignore[no-any-return]

    return save


def measure(n: int, repeat: int, seconds: float, folder: str) -> None:
    """Print all lines."""
    state: State = {f"t{i}": torch.rand(TENSOR // 4) for i in range(n // TENSOR)}
    n = TENSOR * len(state)
    copies = {k: torch.ones_like(t) for k, t in state.items()}

    def copy(_: int) -> Callable[[], object]:
        for k, t in state.items():
            copies[k].copy_(t)
        return lambda: None

    run = "bb://bench/run"
    with forebay.connect() as c:
        c.create_buffer("bench", no_wait=True)  # too little memory is an error, not a wait for ever

    def ours(i: int) -> Callable[[], object]:
        if i:
            ft.keep(run, last=1, state="resident")
        return ft.async_save(state, f"{run}/step-{i}").resident.result

    with folder_of("/dev/shm") as shm, folder_of(folder) as disk:
        lines = [
            Line("one copy", copy),
            Line("bb://: forebay.torch.async_save", ours),
            Line("tmpfs: torch's async_save", file_save(shm, state, False)),
            Line("file://, fsync: torch's async_save", file_save(disk, state, True)),
        ]
        for i in rounds(repeat, seconds):
            for old in (shm, disk):
                shutil.rmtree(old / f"step-{i - 1}", ignore_errors=True)
            for line in lines:
                line.once(i)
                blocked, whole = line.blocked[-1], line.whole[-1]
                note(f"round {i + 1}: {line.name}: {blocked:.3f} s blocked, {whole:.3f} s whole")
    limit, limit_busy = min(lines[0].blocked), min(lines[0].busy)
    print(f"{n >> 20} MiB, the best of {len(lines[0].blocked)} rounds; {load()}")
    for line in lines:
        blocked, whole = min(line.blocked), min(line.whole)
        print(
            f"{line.name:<36} {1000 * blocked:9.1f} ms blocked, {blocked / limit:6.2f} copies, "
            f"busy {min(line.busy) / limit_busy:6.2f} copies; whole after "
            f"{1000 * whole:9.1f} ms; peak {line.most / n:5.2f} states"
        )


def main() -> None:
    """Start a daemon, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder on a disk")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # torch warns of a process without a group, and of overwriting
    with daemon(5 * args.mib + 512) as address:
        os.environ["FOREBAY_SOCKET"] = address
        measure(args.mib << 20, args.repeat, args.seconds, args.dir)


if __name__ == "__main__":
    main()
