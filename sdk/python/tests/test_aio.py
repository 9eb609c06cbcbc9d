"""The client for asyncio, whose cancelled calls leave nothing."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import _wire as w
from forebay import aio, checkpoint
from tests.daemon import Daemon
from tests.proxy import Proxy


def leased(client: forebay.Client) -> int:
    """Return how many segments writers hold."""
    return sum(int(s["leases"]) for s in client.status()["sessions"])


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def eventually_in_thread(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


def test_files(daemon: Daemon, buffer: forebay.Buffer) -> None:
    data = np.random.default_rng(1).bytes(3_000_000)

    async def main() -> None:
        async with aio.connect(daemon.socket) as client:
            b = client.buffer(buffer.name)
            async with b.open("f", "wb") as f:
                assert await f.write(data[:1_000_000]) == 1_000_000
                await f.flush()
                assert await b.read_bytes("f") == data[:1_000_000]
                (await f.reserve(1_000_000))[:] = data[1_000_000:2_000_000]
                await f.write(data[2_000_000:])
            f = await b.open("f")
            assert await f.read(10) == data[:10]
            f.seek(-5, 2)
            assert await f.read() == data[-5:]
            got = bytearray(100)
            assert await f.pread_into(500_000, got, verify=True) == 100
            assert bytes(got) == data[500_000:500_100]
            assert (await f.map(7, 9)).view == data[7:16]
            await f.close()
            await b.makedirs("x/y")
            await b.exchange("f", "x")
            await b.exchange("f", "x")
            await b.rename("f", "x/y/f")
            assert [e.name for e in await b.listdir("x/y")] == ["f"]
            assert (await b.stat("x/y/f")).size == 3_000_000
            await b.rmtree("x")
            assert not await b.exists("x")
            with pytest.raises(FileNotFoundError):
                async with b.open("missing"):
                    pass
            with pytest.raises(KeyError):  # noqa: PT012
                async with b.open("half", "wb") as f:
                    await f.write(b"half")
                    raise KeyError
            assert not await b.exists("half")
            await client.run(checkpoint.save, b.sync, "run/step-1", {"a": np.arange(3)})
            found = await client.run(checkpoint.latest, b.sync, "run")
            assert found is not None
            assert found.step == 1

    asyncio.run(main())


def test_many_at_once(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """More tasks than threads."""

    async def main() -> None:
        async with aio.connect(daemon.socket, threads=4) as client:
            b = client.buffer(buffer.name)

            async def one(i: int) -> None:
                await b.write_bytes(f"f{i}", bytes([i]) * (1000 * i))
                assert await b.read_bytes(f"f{i}") == bytes([i]) * (1000 * i)

            await asyncio.gather(*(one(i) for i in range(40)))
            assert len(await b.listdir()) == 40

    asyncio.run(main())


@pytest.fixture
def small() -> Iterator[Daemon]:
    """A daemon with little memory and nothing to make room with."""
    d = Daemon(memory="64MiB", disk="0")
    yield d
    d.remove()


def test_cancelled_while_it_waits_for_room(small: Daemon) -> None:
    """A write that waits for memory ends, its leases go back, and nothing of it is visible."""
    with forebay.connect(small.socket) as client:
        client.create_buffer("full")
        buffer = client.buffer("full")

        async def main() -> None:
            async with aio.connect(small.socket) as a:
                b = a.buffer("full")
                held = await b.open("held", "wb")
                while not held.closed:  # until there is no room, for which the write then waits for ever
                    try:
                        async with asyncio.timeout(0.5):
                            await held.write(bytes(1 << 20))
                    except TimeoutError:
                        pass
                assert not await b.exists("held")
                await eventually_in_thread(lambda: leased(client) == 0)
                await b.write_bytes("small", b"there is room again")

                # Left in the middle, by a task that goes on. The rest of the block commits nothing.
                with pytest.raises(ValueError, match="closed"):  # noqa: PT012
                    async with b.open("half", "wb") as f:
                        try:
                            async with asyncio.timeout(0.5):
                                await f.write(bytes(100 << 20))
                        except TimeoutError:
                            pass
                        await f.write(b"the rest")
                assert not await b.exists("half")
                await eventually_in_thread(lambda: leased(client) == 0)

        asyncio.run(main())
        assert [e.name for e in buffer.listdir()] == ["small"]
        client.destroy_buffer("full", discard=True)


@pytest.fixture
def proxy(daemon: Daemon, tmp_path: Path) -> Proxy:
    return Proxy(tmp_path / "p", daemon.socket_path)


Work = Callable[[aio.Buffer], Coroutine[Any, Any, object]]


@pytest.mark.parametrize("typ", [w.TYPE_OPEN, w.TYPE_LEASE, w.TYPE_COMMIT])
def test_cancelled_at_each_request(
    daemon: Daemon, proxy: Proxy, buffer: forebay.Buffer, client: forebay.Client, typ: int
) -> None:
    """Cancelled while a request of each type is with the daemon. All of the file is there, or nothing."""
    data = np.random.default_rng(1).bytes(2_000_000)
    eventually(lambda: leased(client) == 0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with aio.connect(proxy.address) as a:
            b = a.buffer(buffer.name)
            for i in itertools.count():
                task = loop.create_task(b.write_bytes(f"f{i}", data))
                proxy.when(typ, lambda t=task: loop.call_soon_threadsafe(t.cancel))  # type: ignore[misc]
                await asyncio.wait([task])
                proxy.when(None)
                if buffer.exists(f"f{i}"):
                    assert buffer.read_bytes(f"f{i}") == data
                if task.cancelled() and i >= 3:
                    return
                assert i < 50, "no task was cancelled"

    asyncio.run(main())
    gc.collect()
    eventually(lambda: leased(client) == 0)
    assert not [s for s in client.status()["sessions"] if s["handles"] and s["client"] == "aio"]


def test_cancelled_anywhere(daemon: Daemon, buffer: forebay.Buffer, client: forebay.Client) -> None:
    """Tasks that are cancelled after any number of steps leave whole files or none, and no lease."""
    data = np.random.default_rng(2).bytes(1_500_000)

    async def work(b: aio.Buffer, i: int) -> None:
        async with b.open(f"f{i}", "wb") as f:
            for at in range(0, len(data), 100_000):
                await f.write(data[at : at + 100_000])
        async with b.open(f"f{i}") as f:
            assert await f.read() == data

    async def main() -> None:
        async with aio.connect(daemon.socket, threads=4) as a:
            b = a.buffer(buffer.name)
            for round in range(30):
                tasks = [asyncio.create_task(work(b, 10 * round + i)) for i in range(4)]
                for _ in range(3 * round):
                    await asyncio.sleep(0)
                await asyncio.to_thread(lambda: None)
                for t in tasks:
                    t.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(d is None or isinstance(d, asyncio.CancelledError) for d in done), done

    asyncio.run(main())
    for e in buffer.listdir():
        assert buffer.read_bytes(e.name) == data
    gc.collect()
    eventually(lambda: leased(client) == 0)


def test_drain_and_events_end(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """Calls that wait on a connection of their own end, too."""

    async def main() -> None:
        async with aio.connect(daemon.socket) as a:
            b = a.buffer(buffer.name)
            seen: asyncio.Queue[str] = asyncio.Queue()

            async def follow() -> None:
                async for e in a.events(buffer.name):
                    await seen.put(str(e))

            task = asyncio.create_task(follow())
            for i in itertools.count():
                await b.write_bytes(f"f{i}", b"x")
                try:
                    async with asyncio.timeout(0.2):
                        await seen.get()
                    break
                except TimeoutError:
                    assert i < 100
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=60)
            assert done
            assert task.cancelled()
            assert (await b.drain()).done

    asyncio.run(main())


def test_daemon_that_stays_away(daemon: Daemon, buffer: forebay.Buffer) -> None:
    """A task that looks for a daemon is cancelled without waiting for one."""

    async def main() -> None:
        async with aio.connect(daemon.socket, retry_for=600) as a:
            b = a.buffer(buffer.name)
            await b.exists("f")
            daemon.kill()
            waits: list[Awaitable[object]] = [b.exists("f"), b.write_bytes("f", b"x"), b.drain()]
            tasks = [asyncio.ensure_future(x) for x in waits]
            await asyncio.wait(tasks, timeout=0.2)
            for t in tasks:
                t.cancel()
            done, _ = await asyncio.wait(tasks, timeout=60)
            assert len(done) == 3
            assert all(t.cancelled() for t in tasks)
            daemon.start()
            assert not await b.exists("f")

    asyncio.run(main())
