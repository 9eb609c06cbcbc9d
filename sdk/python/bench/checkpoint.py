"""Measures how long an asynchronous save of PyTorch blocks a training loop, beside what bounds it.

    checkpoint.py [--mib N] [--repeat N] [--dir FOLDER]

One process saves a state of tensors of 16 MiB. Each line is the best of some saves: how long the call
blocked, when the checkpoint was there, and how many times the state's size the process had more in
memory meanwhile, with the buffer's memory that it fills. The first line is the limit: one copy of the
state into memory that is touched already. It needs a daemon's binary (make build) and torch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp

import forebay
import forebay.torch as ft

BIN = Path(os.environ.get("FOREBAY_BIN", Path(__file__).parents[3] / "bin"))
TENSOR = 16 << 20  # bytes

State = dict[str, Any]


def peak() -> int:
    """Return what the process had in memory at most since reset_peak, in bytes, with what it has mapped."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) << 10


def reset_peak() -> None:
    """Let peak begin with what the process has now."""
    Path("/proc/self/clear_refs").write_text("5")


def line(name: str, n: int, repeat: int, save: Callable[[int], Callable[[], object]]) -> float:
    """Print the best of some saves; return how long it blocked, in seconds.

    Args:
        name: of the line.
        n: bytes of the state.
        repeat: how many saves.
        save: begins the save of a number, and returns what waits for it.
    """
    blocked, whole, most = [], [], 0
    for i in range(repeat):
        reset_peak()
        before = peak()
        start = time.perf_counter()
        wait = save(i)
        blocked.append(time.perf_counter() - start)
        wait()
        whole.append(time.perf_counter() - start)
        most = max(most, peak() - before)
    print(
        f"{name:<40} {1000 * min(blocked):9.1f} ms blocked {1000 * min(whole):9.1f} ms {most / n:6.2f} states"
    )
    return min(blocked)


def file_save(folder: Path, state: State, sync: bool) -> Callable[[int], Callable[[], object]]:
    """Return what saves a state into a folder the way that torch does by itself."""

    def save(i: int) -> Callable[[], object]:
        writer = dcp.FileSystemWriter(folder / f"step-{i}", sync_files=sync)
        return dcp.async_save(state, storage_writer=writer, no_dist=True).result  # type: ignore[no-any-return]

    return save


def measure(n: int, repeat: int, folder: Path) -> None:
    """Print all lines."""
    state: State = {f"t{i}": torch.rand(TENSOR // 4) for i in range(n // TENSOR)}
    n = TENSOR * len(state)
    copies = {k: torch.ones_like(t) for k, t in state.items()}

    def copy(_: int) -> Callable[[], object]:
        for k, t in state.items():
            copies[k].copy_(t)
        return lambda: None

    limit = line("one copy", n, repeat, copy)
    copies.clear()
    with forebay.connect() as c:
        c.create_buffer("bench")
    run = "bb://bench/run"

    def ours(i: int) -> Callable[[], object]:
        if i:
            ft.keep(run, last=1, state="resident")
        return ft.async_save(state, f"{run}/step-{i}").resident.result

    blocked = line("bb://: forebay.torch.async_save", n, repeat, ours)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        line("tmpfs: torch's async_save", n, repeat, file_save(Path(shm), state, False))
    line("file://, fsync: torch's async_save", n, repeat, file_save(folder / "files", state, True))
    print(f"bb:// blocks {blocked / limit:.2f} of the time of one copy")


def main() -> None:
    """Start a daemon, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder on a disk")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # torch warns of a process without a group, and of overwriting
    folder = Path(tempfile.mkdtemp(prefix="forebay-bench", dir=args.dir))
    memory = Path(tempfile.mkdtemp(prefix="forebay-bench", dir="/dev/shm"))
    line = [str(BIN / "bbd"), "--dev", "--dir", str(folder / "bbd"), "--memory", f"{3 * args.mib + 512}MiB"]
    line += ["--memory-mount", "off", "--memory-dir", str(memory)]
    daemon = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    os.environ["FOREBAY_SOCKET"] = f"unix://{folder}/bbd/bbd.sock"
    try:
        while True:
            try:
                forebay.connect().close()
                break
            except forebay.Unavailable:
                if daemon.poll() is not None:
                    raise
                time.sleep(0.05)
        measure(args.mib << 20, args.repeat, folder)
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)
        shutil.rmtree(memory)


if __name__ == "__main__":
    main()
