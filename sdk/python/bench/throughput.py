"""Measures how fast a large array gets into a buffer and back, beside what bounds it.

    throughput.py [--mib N] [--repeat N] [--dir FOLDER]

Each line is the best of some runs. The first is the limit: one pass of checksum and copy into
memory that is mapped, and touched, already. It needs a daemon's binary (make build).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import forebay
from forebay import _crc

BIN = Path(os.environ.get("FOREBAY_BIN", Path(__file__).parents[3] / "bin"))
STEP = 1 << 20


def one_pass(target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8]) -> None:
    """Copy and sum, in pieces that stay in the cache."""
    for at in range(0, len(source), STEP):
        piece = source[at : at + STEP]
        np.copyto(target[at : at + STEP], piece)
        _crc.crc64(piece.data, 0)


def write_file(path: Path, source: npt.NDArray[np.uint8], sync: bool) -> None:
    """Write a file the ordinary way."""
    with path.open("wb", buffering=0) as f:
        view = source.data
        while view:
            view = view[f.write(view) :]
        if sync:
            os.fsync(f.fileno())


def line(name: str, n: int, repeat: int, work: Callable[[], object]) -> float:
    """Print and return the best rate of some runs, in GB/s."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    rate = n / best / 1e9
    print(f"{name:<44} {rate:8.2f} GB/s {1000 * best:10.1f} ms")
    return rate


def measure(client: forebay.Client, n: int, repeat: int, folder: str) -> None:
    """Print all lines."""
    data = np.frombuffer(np.random.default_rng(1).bytes(n), dtype=np.uint8)
    target = np.ones(n, dtype=np.uint8)
    client.create_buffer("bench")
    buffer = client.buffer("bench")
    limit = line("checksum and copy, one pass", n, repeat, lambda: one_pass(target, data))

    def write() -> None:
        with buffer.open("f", "wb") as f:
            f.write(data)

    ours = line("bb://: write and close", n, repeat, write)
    line("bb://: read into an array, checked", n, repeat, lambda: buffer.open("f").readinto(target))
    f = buffer.open("f")
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start = time.perf_counter()
    mapping = f.map()
    took = time.perf_counter() - start
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    print(
        f"{'bb://: map':<44} {'':8}      {1000 * took:10.1f} ms, {len(mapping.views)} views, {faults} faults"
    )
    assert b"".join(mapping.views) == data.tobytes()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        line("tmpfs: write", n, repeat, lambda: write_file(Path(shm) / "f", data, False))
    with tempfile.TemporaryDirectory(dir=folder) as disk:
        line("file://: write and fsync", n, repeat, lambda: write_file(Path(disk) / "f", data, True))
    print(f"write to bb:// is {ours / limit:.2f} of one pass")


def main() -> None:
    """Start a daemon, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder on a disk")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench") as folder,
        tempfile.TemporaryDirectory(prefix="forebay-bench", dir="/dev/shm") as memory,
    ):
        state = Path(folder) / "bbd"
        command = [str(BIN / "bbd"), "--dev", "--dir", str(state), "--memory", f"{2 * args.mib + 512}MiB"]
        command += ["--memory-mount", "off", "--memory-dir", memory]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            while True:
                try:
                    client = forebay.connect(f"unix://{state}/bbd.sock")
                    break
                except forebay.Unavailable:
                    if daemon.poll() is not None:
                        raise
                    time.sleep(0.05)
            with client:
                measure(client, args.mib << 20, args.repeat, args.dir)
        finally:
            daemon.kill()
            daemon.wait()


if __name__ == "__main__":
    main()
