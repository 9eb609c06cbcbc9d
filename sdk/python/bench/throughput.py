"""Measures how fast a large array gets into a buffer and back, beside its bounds and other ways.

    throughput.py [--mib N] [--repeat N] [--seconds N] [--mount MODE] [--dir FOLDER] [--s3 PROGRAM]

The limit is one pass of checksum and copy into memory that is mapped, and touched, already. It is
measured right before each line, in each round, since a machine's speed changes from second to second. No
round begins after the seconds. Of each line it prints the median of its shares of that limit, by the clock,
and by the time that this process's threads were on a processor, which a load of others disturbs less, and
which leaves out the work of others for it. Standard error shows each line as it ends. With the program of an
S3 server (scripts/s3server-build.sh) and boto3 and s3fs it measures those, too. The server runs on this
machine, and keeps its objects in the folder on a disk, without fsync. It needs a daemon's binary (make
build).
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from lines import daemon, folder_of, load, note, rounds, server, shares

import forebay
from forebay import _crc

STEP = 1 << 20
KEY, SECRET = "forebay", "forebay-secret"

Work = tuple[str, Callable[[], object]]


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


@contextmanager
def s3_server(program: str, folder: Path) -> Iterator[str]:
    """Run an S3 server that keeps a bucket in a folder, and yield its URL."""
    (folder / "bucket").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    line = [program, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET]
    line += ["--region", "us-east-1", "--quiet", "posix", str(folder)]
    with server(line, lambda: socket.create_connection(("127.0.0.1", port)).close(), OSError):
        yield f"http://127.0.0.1:{port}"


def s3_works(url: str, data: npt.NDArray[np.uint8]) -> list[Work]:
    """Return functions that write an array to an S3 server, by boto3's transfer manager and by s3fs."""
    import boto3
    import s3fs

    client: Any = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    options = {"endpoint_url": url, "region_name": "us-east-1"}
    fs: Any = s3fs.S3FileSystem(key=KEY, secret=SECRET, client_kwargs=options)

    def by_s3fs() -> None:
        with fs.open("bucket/s3fs", "wb") as f:
            f.write(data.data)

    return [
        (
            "boto3: upload to an S3 server here",
            lambda: client.upload_fileobj(io.BytesIO(data.data), "bucket", "boto3"),
        ),
        ("s3fs: write to the same server", by_s3fs),
    ]


@dataclass
class Line:
    """A way to write or read an array, and each round's times in seconds.

    Attributes:
        name: the printed name.
        work: does it once.
        limits: of the one pass right before it, by the clock.
        times: of the work, by the clock.
        limits_busy: of the pass, on a processor.
        busy: of the work, of this process's threads on a processor.
    """

    name: str
    work: Callable[[], object]
    limits: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    limits_busy: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def once(self, limit: Callable[[], object]) -> None:
        """Carry out the pass, then the work."""
        for f, passed, busy in (
            (limit, self.limits, self.limits_busy),
            (self.work, self.times, self.busy),
        ):
            start, on = time.perf_counter(), time.process_time()
            f()
            busy.append(time.process_time() - on)
            passed.append(time.perf_counter() - start)


def print_map(buffer: forebay.Buffer, data: npt.NDArray[np.uint8]) -> None:
    """Print the cost of mapping a file, of which no page is touched."""
    with buffer.open("f") as f:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        mapping = f.map()
        took = time.perf_counter() - start
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        pages = len(data) // resource.getpagesize()
        print(
            f"bb://: map {len(data) >> 20} MiB: {1000 * took:.1f} ms, {len(mapping.views)} views, "
            f"{faults} page faults of {pages} pages"
        )
        assert b"".join(mapping.views) == data.tobytes()


def measure(client: forebay.Client, n: int, repeat: int, seconds: float, folder: str, s3: str) -> None:
    """Print all lines."""
    data = np.frombuffer(np.random.default_rng(1).bytes(n), dtype=np.uint8)
    target = np.ones(n, dtype=np.uint8)
    client.create_buffer("bench")
    buffer = client.buffer("bench")

    def write() -> None:
        with buffer.open("f", "wb") as f:
            f.write(data)

    def read() -> None:
        with buffer.open("f") as f:
            f.readinto(target)

    with ExitStack() as folders:
        shm, disk = folders.enter_context(folder_of("/dev/shm")), folders.enter_context(folder_of(folder))
        lines = [
            Line("bb://: write and close", write),
            Line("bb://: read into an array, checked", read),
            Line("tmpfs: write", lambda: write_file(shm / "f", data, False)),
            Line("file://: write and fsync", lambda: write_file(disk / "f", data, True)),
        ]
        if s3:
            objects = folders.enter_context(folder_of(folder))
            url = folders.enter_context(s3_server(s3, objects))
            lines += [Line(*w) for w in s3_works(url, data)]
        done = 0
        for i in rounds(repeat, seconds):
            done = i + 1
            for line in lines:
                line.once(lambda: one_pass(target, data))
                note(f"round {done}: {line.name}: {line.times[-1]:.3f} s, one pass {line.limits[-1]:.3f} s")
    print(f"{n >> 20} MiB, {done} rounds; shares of one pass: median (least to most); {load()}")
    limits = sorted(t for line in lines for t in line.limits)
    print(f"{'checksum and copy, one pass':<36} {n / statistics.median(limits) / 1e9:7.2f} GB/s")
    for line in lines:
        rate = n / statistics.median(line.times) / 1e9
        print(
            f"{line.name:<36} {rate:7.2f} GB/s, {shares(line.limits, line.times)} of one pass; "
            f"busy {shares(line.limits_busy, line.busy)}"
        )
    print_map(buffer, data)


def main() -> None:
    """Start a daemon, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--mount", default="auto", help="memory.mount of the daemon: auto, or off")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder on a disk")
    parser.add_argument("--s3", default="", help="program of an S3 server")
    args = parser.parse_args()
    with daemon(3 * args.mib + 512, args.mount) as address, forebay.connect(address) as client:
        measure(client, args.mib << 20, args.repeat, args.seconds, args.dir, args.s3)


if __name__ == "__main__":
    main()
