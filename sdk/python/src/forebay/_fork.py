"""What a child process does with the objects that fork copied into it.

The connection, the leases and the pins are the parent's. A child forgets them without a word to
the daemon, with locks of its own, and begins a session of its own when it needs one.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that has something to forget after a fork."""

    def _after_fork(self) -> None:
        """Forget what is the parent's. It is called in the child, whose only thread calls it."""


_objects: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(o: Forked) -> None:
    """Call o._after_fork in every child that is forked while o is in use."""
    _objects.add(o)


def _in_child() -> None:
    for o in list(_objects):
        o._after_fork()


os.register_at_fork(after_in_child=_in_child)
