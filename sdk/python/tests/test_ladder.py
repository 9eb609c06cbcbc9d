"""The second copies of a real cluster: a bit flips in each node's memory, and a node is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import forebay
from forebay import checkpoint
from forebay.checkpoint import Ladder
from tests.daemon import Daemon, cluster
from tests.memory import flip_in_memory
from tests.test_checkpoint import Arrays, arrays, read, same


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Daemon]]:
    with cluster("near", "far") as daemons:
        yield daemons


@pytest.fixture
def both(nodes: list[Daemon]) -> Iterator[list[forebay.Buffer]]:
    """One buffer, whose bytes two nodes hold, through each node's daemon."""
    with forebay.connect(nodes[0].socket) as near, forebay.connect(nodes[1].socket) as far:
        near.create_buffer("twice", replicas=2)
        yield [near.buffer("twice"), far.buffer("twice")]
        near.destroy_buffer("twice", discard=True)


def test_nodes(nodes: list[Daemon], both: list[forebay.Buffer]) -> None:
    """Each daemon names both, with the addresses that the daemons have."""
    found = [{n.name: n for n in b.client.nodes()} for b in both]
    for own, by_name in zip(("near", "far"), found, strict=True):
        assert list(by_name) == ["far", "near"]
        assert by_name[own].state == "ready"
        assert by_name[own].memory >= by_name[own].memory_free > 0
        assert not any(n.refused for n in by_name.values())
    assert [n.address for n in found[0].values()] == [n.address for n in found[1].values()]
    assert len({n.address for n in found[0].values() if n.address.startswith("tcp://")}) == 2


def damage(daemon: Daemon, of: Arrays) -> None:
    flip_in_memory(daemon, of["weights"].tobytes()[100_000:100_050])


def test_flipped_in_each_memory(nodes: list[Daemon], both: list[forebay.Buffer]) -> None:
    """Down the ladder, one rung after the other, to the checkpoint before."""
    near, far = both
    for step in (1, 2):
        checkpoint.save(near, f"run/step-{step}", arrays(step))
    part = near.stat("run/step-2/part-0")
    assert part.holders == ("near", "far")
    ladder = Ladder(near, second=[far])

    got, record = checkpoint.restore(ladder, "run", read)
    assert same(got, arrays(2))
    assert not record.failures

    damage(nodes[0], arrays(2))
    got, record = checkpoint.restore(ladder, "run", read)
    assert same(got, arrays(2))
    assert record.checkpoint == "run/step-2"
    assert [(a.part, a.rung) for a in record.failures] == [("part-0", "own memory")]
    assert "checksum" in record.failures[0].error
    assert record.attempts[-1].rung == "second copy"

    damage(nodes[1], arrays(2))
    got, record = checkpoint.restore(ladder, "run", read)
    assert same(got, arrays(1))
    assert record.checkpoint == "run/step-1"
    assert [(a.part, a.rung) for a in record.failures] == [
        ("part-0", "own memory"),
        ("part-0", "second copy"),
        ("part-0", "store"),
        ("", ""),
    ]
