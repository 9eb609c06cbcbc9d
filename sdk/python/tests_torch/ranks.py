"""Ranks that are processes, forked from one that has torch loaded, and the states that they save."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which DTensors import, nearly all of the time of a rank that does it by itself
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import forebay.torch as ft

PATIENCE = 1800.0  # of a machine that has much else to do; all that ends does so far earlier
_context = multiprocessing.get_context("fork")


def _run(rank: int, ranks: int, meet: Path, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("default")  # torch warns of what it does itself
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1")
    try:
        dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=ranks)
        work(rank, *args)
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # without what the parent would do at its end


class Ranks:
    """Processes that run work(rank, *args) each, in a group of their own."""

    def __init__(self, ranks: int, work: Callable[..., None], *args: Any) -> None:
        self._dir = tempfile.TemporaryDirectory()
        meet = Path(self._dir.name) / "meet"
        self.processes: list[BaseProcess] = [
            _context.Process(target=_run, args=(r, ranks, meet, work, args)) for r in range(ranks)
        ]
        for p in self.processes:
            p.start()

    def wait(self) -> None:
        """Wait until all have ended, well."""
        deadline = time.monotonic() + PATIENCE
        for p in self.processes:
            p.join(max(0, deadline - time.monotonic()))
        codes = [p.exitcode for p in self.processes]
        self.kill()
        assert codes == [0] * len(codes), f"exit codes of the ranks: {codes}"

    def kill(self) -> None:
        """End all of them, and remove what they met in."""
        for p in self.processes:
            p.kill()
            p.join()
        self._dir.cleanup()


@contextmanager
def running(ranks: int, work: Callable[..., None], *args: Any) -> Iterator[Ranks]:
    """Run ranks, and kill those that are left at the end."""
    r = Ranks(ranks, work, *args)
    try:
        yield r
    finally:
        r.kill()


def run(ranks: int, work: Callable[..., None], *args: Any) -> None:
    """Run ranks until they end."""
    Ranks(ranks, work, *args).wait()


# States.

SHAPE = (64, 3000)


def full(step: int, name: str) -> torch.Tensor:
    """Return a whole tensor of a step."""
    g = torch.Generator().manual_seed(step * 1000 + sum(name.encode()))
    shape = {"sharded": SHAPE, "wide": (16, 40, 50)}.get(name, (257, 300))
    return torch.rand(shape, generator=g)


def state(step: int, dim: int = 0) -> dict[str, Any]:
    """Return the state of a step: sharded and whole tensors of some types, and values that are no tensors.

    Args:
        step: the number that all of it depends on.
        dim: the dimension that tensors are sharded along.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tied = full(step, "tied")
    return {
        "model": {
            "sharded": distribute_tensor(full(step, "sharded"), mesh, [Shard(dim)]),
            "wide": distribute_tensor(full(step, "wide"), mesh, [Shard(dim)]),
            "whole": full(step, "whole"),
            "half": full(step, "half").to(torch.bfloat16),
            "strided": full(step, "strided").t(),
            "tied": tied,
            "tied too": tied,
            "flags": full(step, "flags") > 0.5,
            "scalar": torch.tensor(float(step)),
            "empty": torch.zeros(0, 3),
        },
        "step": step,
        "betas": [0.9, float(step)],
        "name": f"step {step}",
    }


def assert_is(got: dict[str, Any], step: int, dim: int = 0) -> None:
    """Fail unless a state is that of a step, bit by bit."""
    want = state(step, dim)
    for name, t in want["model"].items():
        g = got["model"][name]
        if isinstance(t, DTensor):
            g, t = g.to_local(), t.to_local()
        assert torch.equal(g, t), f"step {step}: {name}"
    for name in ("step", "betas", "name"):
        assert got[name] == want[name], f"step {step}: {name}: {got[name]}"


def loads(rank: int, run_dir: str, log: str, end: str) -> None:
    """Load the newest, over and over, until there is a file. It is never older than acknowledged ones.

    Args:
        rank: its own.
        run_dir: where checkpoints lie.
        log: a file with the number of each that was acknowledged, a line each.
        end: the path of that file.
    """
    loads = 0
    while not os.path.exists(end) or loads == 0:
        with open(log) as f:
            acknowledged = max([int(line) for line in f.read().split()], default=0)
        got = state(0)
        restored = ft.restore(got, run_dir)
        if restored is None:
            assert acknowledged == 0, f"nothing to load, and {acknowledged} was acknowledged"
            continue
        assert restored.step >= acknowledged
        assert_is(got, restored.step)
        loads += 1
    print(f"loaded {loads} times")
