"""Measures how long an asynchronous save of PyTorch blocks a training loop, beside its bounds.

    checkpoint.py [--mib N] [--repeat N] [--seconds N] [--mount MODE] [--dir FOLDER]

One process saves a state of tensors of 16 MiB, in each way in turn, some times. No round begins after the
seconds. The limit is one copy of the state into memory that is touched already. It is measured right before
each save, since a machine's speed changes from second to second. Each line has the medians: how long the call
blocked, in copies (by the clock, and by the time that the calling thread was on a processor), when the
checkpoint was there, and how many times the state's size the process had more in memory meanwhile at most,
with the buffer's memory that it fills. The first round is left out if there are others: it touches memory for
the first time in every line. Standard error shows each save as it ends. A state takes about nine times its
size in memory: its own, two copies, a checkpoint on a tmpfs, and at most five in the daemon, where a tensor
has a piece of its own that may be twice as large. It needs a daemon's binary (make build) and torch.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lines import daemon, folder_of, load, note, rounds, shares
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
    """Saves of one kind, each round's times in seconds.

    Attributes:
        name: the printed name.
        save: begins the save of a number, and returns a function that waits for it.
        copies: of the copy right before the save.
        blocked: how long the calls blocked.
        copies_busy: of the copy, on a processor.
        busy: how long this thread was on a processor in the call.
        whole: how long it took until the checkpoints were there.
        most: bytes that the process had more in memory meanwhile.
    """

    name: str
    save: Callable[[int], Callable[[], object]]
    copies: list[float] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    copies_busy: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    most: int = 0

    def once(self, i: int, copy: Callable[[], None]) -> None:
        """Copy, then save, once."""
        gc.collect()
        start, busy = time.perf_counter(), time.thread_time()
        copy()
        self.copies_busy.append(time.thread_time() - busy)
        self.copies.append(time.perf_counter() - start)
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

    def copy() -> None:
        for k, t in state.items():
            copies[k].copy_(t)

    run = "bb://bench/run"
    with forebay.connect() as c:
        c.create_buffer("bench", no_wait=True)  # too little memory is an error, not a wait for ever

    def ours(i: int) -> Callable[[], object]:
        if i:
            ft.keep(run, last=1, state="resident")
        return ft.async_save(state, f"{run}/step-{i}").resident.result

    with folder_of("/dev/shm") as shm, folder_of(folder) as disk:
        lines = [
            Line("bb://: forebay.torch.async_save", ours),
            Line("tmpfs: torch's async_save", file_save(shm, state, False)),
            Line("file://, fsync: torch's async_save", file_save(disk, state, True)),
        ]
        for i in rounds(repeat, seconds):
            for old in (shm, disk):
                shutil.rmtree(old / f"step-{i - 1}", ignore_errors=True)
            for line in lines:
                line.once(i, copy)
                note(
                    f"round {i + 1}: {line.name}: {line.blocked[-1]:.3f} s blocked, "
                    f"{line.whole[-1]:.3f} s whole, one copy {line.copies[-1]:.3f} s"
                )
    skip = min(1, i)
    copied = statistics.median(t for line in lines for t in line.copies[skip:])
    print(f"{n >> 20} MiB, {i + 1 - skip} rounds: medians (least to most); {load()}")
    print(f"{'one copy':<36} {1000 * copied:9.1f} ms")
    for line in lines:
        blocked, whole = line.blocked[skip:], line.whole[skip:]
        print(
            f"{line.name:<36} {1000 * statistics.median(blocked):9.1f} ms blocked, "
            f"{shares(blocked, line.copies[skip:])} copies, "
            f"busy {shares(line.busy[skip:], line.copies_busy[skip:])}; whole after "
            f"{1000 * statistics.median(whole):9.1f} ms; peak {line.most / n:5.2f} states"
        )


def main() -> None:
    """Start a daemon, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--mount", default="auto", help="memory.mount of the daemon: auto, or off")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder on a disk")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # torch warns of a process without a group, and of overwriting
    with daemon(5 * args.mib + 512, args.mount) as address:
        os.environ["FOREBAY_SOCKET"] = address
        measure(args.mib << 20, args.repeat, args.seconds, args.dir)


if __name__ == "__main__":
    main()
