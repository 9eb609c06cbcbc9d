"""The common part of the measurements: lines measured in turn, so that other load meets all alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import forebay

ROOT = Path(__file__).parents[3]
BIN = Path(os.environ.get("FOREBAY_BIN", ROOT / "bin"))


def load() -> str:
    """Return the machine's load of the last minute."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def rounds(most: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of rounds: one at least, and no more after so many seconds."""
    end = time.monotonic() + seconds
    for i in range(most):
        if i and time.monotonic() > end:
            return
        yield i


def shares(tops: list[float], bottoms: list[float]) -> str:
    """Return the median of the rounds' quotients, and the range. A pair is measured one after the other."""
    each = [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def note(text: str) -> None:
    """Show on standard error how far a measurement is."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def folder_of(parent: str) -> Iterator[Path]:
    """Make a folder, and remove it."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench", dir=parent) as folder:
        yield Path(folder)


@contextmanager
def server(line: list[str], serves: Callable[[], object], *errors: type[Exception]) -> Iterator[None]:
    """Run a process while a block does, from when serves raises no more errors."""
    process = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                serves()
                break
            except errors:
                if process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def daemon(mib: int, mount: str) -> Iterator[str]:
    """Run a daemon with so much memory, and yield its address.

    Args:
        mib: the size of its memory.
        mount: memory.mount of its configuration: auto, where root has huge pages, or off.
    """
    with folder_of(tempfile.gettempdir()) as state, folder_of("/dev/shm") as memory:
        address = f"unix://{state}/bbd/bbd.sock"
        line = [str(BIN / "bbd"), "--dev", "--dir", str(state / "bbd"), "--memory", f"{mib}MiB"]
        line += ["--memory-mount", mount, "--memory-dir", str(memory)]
        try:
            with server(line, lambda: forebay.connect(address).close(), forebay.Unavailable):
                print("memory in huge pages" if mounted(state) else "memory in pages of 4 KiB")
                yield address
        finally:
            for mount_point in mounted(state):
                # This process has regions mapped still. The memory goes with it.
                subprocess.run(["umount", "--lazy", mount_point], check=True)


def mounted(below: Path) -> list[str]:
    """Return the mount points below a folder."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [p for p in points if Path(p).is_relative_to(below)]
