"""The common part of the measurements: lines measured in turn, so that other load meets all alike."""

from __future__ import annotations

import os
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
def daemon(mib: int) -> Iterator[str]:
    """Run a daemon with so much memory, in pages of /dev/shm; yield its address."""
    with folder_of(tempfile.gettempdir()) as state, folder_of("/dev/shm") as memory:
        address = f"unix://{state}/bbd/bbd.sock"
        line = [str(BIN / "bbd"), "--dev", "--dir", str(state / "bbd"), "--memory", f"{mib}MiB"]
        line += ["--memory-mount", "off", "--memory-dir", str(memory)]
        with server(line, lambda: forebay.connect(address).close(), forebay.Unavailable):
            yield address
