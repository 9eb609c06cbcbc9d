"""Work of one thread that another thread can end (forebay.aio).

A thread that works in a scope registers its wait. Cancelling the scope ends that wait with
Cancelled, and every later one, except those by which the work releases its resources, which are shielded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import Cancelled

_local = threading.local()


class Scope:
    """The work of one thread for a caller that may leave. Cancel may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End the waits of the thread, now and later. It never waits itself. It may be called twice."""
        with self._lock:
            self._cancelled.set()
            stop = self._stop
        if stop is not None:
            stop()

    def __enter__(self) -> Scope:
        _local.scope = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.scope = None


def _current() -> Scope | None:
    scope: Scope | None = getattr(_local, "scope", None)
    return scope


def check() -> None:
    """Raise Cancelled if this thread's scope is cancelled."""
    scope = _current()
    if scope is not None and scope._cancelled.is_set():
        raise Cancelled("wait", "", "the caller has left")


def sleep(seconds: float) -> None:
    """Sleep, but not longer than until this thread's scope is cancelled. Then raise Cancelled."""
    scope = _current()
    if scope is None:
        threading.Event().wait(seconds)
        return
    scope._cancelled.wait(seconds)
    check()


@contextmanager
def waiting(stop: Callable[[], None]) -> Iterator[None]:
    """Register how to end the wait of a block. Stop is called by another thread, once at most.

    It is called at once, by this thread, if the scope is cancelled already.
    """
    scope = _current()
    if scope is None:
        yield
        return
    with scope._lock:
        scope._stop = stop
        late = scope._cancelled.is_set()
    if late:
        stop()
    try:
        yield
    finally:
        with scope._lock:
            scope._stop = None


@contextmanager
def shielded() -> Iterator[None]:
    """Let a block wait although the scope is cancelled, since it releases the work's resources."""
    scope = _current()
    _local.scope = None
    try:
        yield
    finally:
        _local.scope = scope
