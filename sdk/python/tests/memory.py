"""Damage: bits that turn over where a daemon or a store keeps bytes."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from tests.daemon import Daemon


def flip_in_memory(daemon: Daemon, content: bytes) -> None:
    """Turn a bit over in every place of the daemon's memory that holds some bytes."""
    places = 0
    for path in daemon.memory.rglob("region-*"):
        with path.open("r+b") as f:
            size = os.fstat(f.fileno()).st_size
            if size == 0:
                continue
            with mmap.mmap(f.fileno(), size) as m:
                at = m.find(content)
                while at >= 0:
                    m[at] ^= 1
                    places += 1
                    at = m.find(content, at + 1)
    assert places, "the bytes are in no region"


def flip_in_file(path: Path, offset: int) -> None:
    """Turn a bit of a file over."""
    with path.open("r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))
