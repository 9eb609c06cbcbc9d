from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.daemon import ENGINE, Daemon

_names = itertools.count(1)


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[Daemon]:
    d = Daemon()
    yield d
    d.remove()


@pytest.fixture
def daemon(shared_daemon: Daemon) -> Daemon:
    """The daemon of all tests, which runs."""
    shared_daemon.start()
    return shared_daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[forebay.Client]:
    with forebay.connect(daemon.socket) as c:
        yield c


@pytest.fixture
def store(daemon: Daemon) -> Path:
    """The folder that is the store behind the buffer."""
    path = daemon.dir / f"store{next(_names)}"
    path.mkdir()
    return path


@pytest.fixture
def buffer(daemon: Daemon, client: forebay.Client, store: Path) -> Iterator[forebay.Buffer]:
    """A buffer of the test's own."""
    name = f"py{next(_names)}"
    client.create_buffer(name, f"file://{store}")
    assert daemon.has_log(name) == (ENGINE != "buckets")
    yield client.buffer(name)
    daemon.start()
    with forebay.connect(daemon.socket) as c:
        c.destroy_buffer(name, discard=True)
