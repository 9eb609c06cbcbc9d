"""A training loop that checkpoints every 10 steps and loses nothing when its parts are killed.

    training.py [--steps N] [--mib N] [--plot FILE.png]

Two ranks hold half of a model each. Every 10 steps they write it under one transaction, so that a
checkpoint is there whole or not at all. One rank is killed, and then the daemon. Both are started again. At
the end the model is compared, bit by bit, with that of an undisturbed run, and the plot shows how long each
checkpoint blocked each rank. Needs numpy, and matplotlib for the plot.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import forebay

RANKS = 2
EVERY = 10
BUFFER = "training"
BIN = Path(os.environ.get("FOREBAY_BIN", Path(__file__).parents[3] / "bin"))

Model = npt.NDArray[np.float64]


def initial(rank: int, values: int) -> Model:
    """Return a rank's part of the model before the first step."""
    return np.random.default_rng(rank).random(values)


def train(model: Model, step: int) -> None:
    """Do one step, in place. It depends on all that came before."""
    gradient = np.random.default_rng(step).random(1024)
    model *= 0.999
    model.reshape(-1, 1024)[:] += gradient
    np.sin(model, out=model)


def latest(buffer: forebay.Buffer) -> int:
    """Return the step of the newest checkpoint, or 0 if there is none."""
    steps = [int(e.name.removeprefix("step-")) for e in buffer.listdir() if e.name.startswith("step-")]
    whole = [s for s in steps if len(buffer.listdir(f"step-{s}")) == RANKS]
    return max(whole, default=0)


def checkpoint(buffer: forebay.Buffer, step: int, rank: int, model: Model) -> forebay.Txn:
    """Write a rank's part of a checkpoint. It is there when the parts of all ranks are."""
    txn = buffer.begin(f"step-{step}", key=f"step {step}")
    if txn.info().state.is_decided:  # by an earlier life of this rank
        return txn
    attempt = txn.path(f"rank{rank}", str(os.getpid()))
    buffer.makedirs(attempt)
    buffer.write_bytes(f"{attempt}/rank{rank}", model)
    txn.adopt(f"rank{rank}", str(os.getpid()))
    if txn.info().tasks == RANKS:
        txn.commit()
    return txn


def wait_for_all(txn: forebay.Txn) -> None:
    """Wait until the other ranks have written their parts, too."""
    while not txn.info().state.is_decided:
        time.sleep(0.01)


def run_rank(rank: int, steps: int, values: int, log: Path) -> None:
    """Train from the newest checkpoint on."""
    with forebay.connect() as client, log.open("a", buffering=1) as out:
        buffer = client.buffer(BUFFER)
        begin = latest(buffer)
        model = initial(rank, values)
        if begin:
            with buffer.open(f"step-{begin}/rank{rank}") as f:
                f.readinto(model)
        out.write(json.dumps({"resumed": begin}) + "\n")
        for step in range(begin + 1, steps + 1):
            train(model, step)
            blocked = 0.0
            if step % EVERY == 0:
                start = time.perf_counter()
                txn = checkpoint(buffer, step, rank, model)
                blocked = time.perf_counter() - start
                wait_for_all(txn)
            out.write(json.dumps({"step": step, "blocked": blocked}) + "\n")


class Run:
    """The daemon and the ranks, in a folder of their own."""

    def __init__(self, steps: int, values: int) -> None:
        self.steps, self.values = steps, values
        self.dir = Path(tempfile.mkdtemp(prefix="forebay-demo"))
        self.memory = Path(tempfile.mkdtemp(prefix="forebay-demo", dir="/dev/shm"))
        os.environ["FOREBAY_SOCKET"] = f"unix://{self.dir}/bbd/bbd.sock"
        (self.dir / "store").mkdir()
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.start_daemon()
        with forebay.connect() as client:
            client.create_buffer(BUFFER, f"file://{self.dir}/store")

    def start_daemon(self) -> None:
        """Start the daemon and wait until it serves."""
        memory = max(256 << 20, 12 * RANKS * self.values * 8)
        line = [str(BIN / "bbd"), "--dev", "--dir", str(self.dir / "bbd"), "--memory", str(memory)]
        line += ["--memory-mount", "off", "--memory-dir", str(self.memory)]
        with (self.dir / "bbd.log").open("ab") as log:
            self.daemon = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                forebay.connect().close()
                return
            except forebay.Unavailable:
                if self.daemon.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def start_rank(self, rank: int) -> None:
        """Start a rank, which resumes by itself."""
        line = [sys.executable, __file__, "--rank", str(rank), "--steps", str(self.steps)]
        line += ["--values", str(self.values), "--log", str(self.log(rank))]
        self.ranks[rank] = subprocess.Popen(line)

    def log(self, rank: int) -> Path:
        """Return the file in which a rank notes its steps."""
        return self.dir / f"rank{rank}.log"

    def notes(self, rank: int) -> list[dict[str, Any]]:
        """Return a rank's notes, of all its runs."""
        if not self.log(rank).exists():
            return []
        lines = self.log(rank).read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def wait_for_step(self, rank: int, step: int) -> None:
        """Wait until a rank has done a step."""
        while not any(n.get("step", 0) >= step for n in self.notes(rank)):
            if self.ranks[rank].poll() not in (None, 0):
                raise RuntimeError(f"rank {rank} ended with {self.ranks[rank].returncode}")
            time.sleep(0.005)

    def end(self) -> None:
        """End all processes, and remove the folders."""
        for p in [*self.ranks.values(), self.daemon]:
            p.kill()
            p.wait()
        shutil.rmtree(self.dir)
        shutil.rmtree(self.memory)


def disturbed(run: Run) -> dict[str, int]:
    """Run all steps, and kill a rank in the middle, and later the daemon. Return after which steps."""
    killed = {}
    for rank in range(RANKS):
        run.start_rank(rank)
    third = run.steps // 3
    run.wait_for_step(1, third)
    run.ranks[1].send_signal(signal.SIGKILL)
    run.ranks[1].wait()
    killed["rank 1"] = max(n.get("step", 0) for n in run.notes(1))
    print(f"killed rank 1 after step {killed['rank 1']}")
    run.start_rank(1)
    run.wait_for_step(0, 2 * third)
    run.daemon.kill()
    run.daemon.wait()
    killed["the daemon"] = max(n.get("step", 0) for n in run.notes(0))
    print(f"killed the daemon after step {killed['the daemon']}")
    run.start_daemon()
    for rank, p in run.ranks.items():
        if p.wait() != 0:
            raise RuntimeError(f"rank {rank} ended with {p.returncode}")
    return killed


def verify(run: Run) -> None:
    """Compare the last checkpoint with an undisturbed run, bit by bit."""
    with forebay.connect() as client:
        buffer = client.buffer(BUFFER)
        assert latest(buffer) == run.steps
        for rank in range(RANKS):
            model = initial(rank, run.values)
            for step in range(1, run.steps + 1):
                train(model, step)
            with buffer.open(f"step-{run.steps}/rank{rank}") as f:
                if f.readall() != model.tobytes():
                    raise RuntimeError(f"rank {rank}: the model is not that of an undisturbed run")
        buffer.drain()
    print(f"after {run.steps} steps the model of {RANKS} ranks is, bit by bit, that of an undisturbed run")
    print("all checkpoints are on the store")


def figures(run: Run) -> dict[int, list[tuple[int, float]]]:
    """Return for each rank how long each checkpoint blocked it, in seconds, and print a summary."""
    got = {}
    for rank in range(RANKS):
        notes = run.notes(rank)
        got[rank] = [
            (n["step"], n["blocked"]) for n in notes if n.get("step", 0) % EVERY == 0 and "step" in n
        ]
        resumed = [n["resumed"] for n in notes if "resumed" in n]
        times = sorted(1000 * b for _, b in got[rank])
        print(
            f"rank {rank}: began at steps {resumed}; a checkpoint of {run.values * 8 / 1e6:.0f} MB blocked "
            f"{times[len(times) // 2]:.1f} ms (median), {times[-1]:.1f} ms at most"
        )
    return got


def plot(got: dict[int, list[tuple[int, float]]], killed: dict[str, int], file: str) -> None:
    """Draw how long each checkpoint blocked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for rank, points in got.items():
        axes.plot([s for s, _ in points], [1000 * b for _, b in points], "o-", label=f"rank {rank}")
    axes.set_xlabel("step")
    axes.set_ylabel("blocked by the checkpoint, ms")
    axes.set_ylim(bottom=0)
    for what, step in killed.items():
        axes.axvline(step, color="grey", linestyle=":")
        axes.annotate(f" {what} is killed", (step, 0), rotation=90, va="bottom", ha="right")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    print(f"wrote {file}")


def main() -> None:
    """Run one rank, or all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--mib", type=int, default=16, help="MiB of the model, for each rank")
    parser.add_argument("--plot", help="PNG file to write")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--values", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args.rank, args.steps, args.values, args.log)
        return
    run = Run(args.steps, args.mib << 17)
    try:
        killed = disturbed(run)
        verify(run)
        got = figures(run)
        if args.plot:
            plot(got, killed, args.plot)
    finally:
        run.end()


if __name__ == "__main__":
    main()
