"""The handling of objects that fork copied into a child process.

The connection, the leases and the pins are the parent's. A child drops them without a message to the daemon,
with locks of its own, and begins a session of its own when it needs one.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object with state to drop after a fork."""

    def _after_fork(self) -> None:
        """Drop the parent's state. It is called in the child, by its only thread."""


# By numbers, since an object may not be hashable yet.
_objects: weakref.WeakValueDictionary[int, Forked] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def register(o: Forked) -> None:
    """Call o._after_fork in every child that is forked while o is in use."""
    _objects[next(_numbers)] = o


def _in_child() -> None:
    for o in list(_objects.values()):
        o._after_fork()


os.register_at_fork(after_in_child=_in_child)
