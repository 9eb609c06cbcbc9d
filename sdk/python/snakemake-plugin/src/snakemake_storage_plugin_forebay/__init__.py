"""Keeps inputs and outputs of Snakemake in buffers: storage.forebay("bb://BUFFER/PATH").

The names StorageProvider, StorageProviderSettings and StorageObject are those that Snakemake requires.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_storage_plugins.common import Operation
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime, get_constant_prefix
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import (
    StorageObjectGlob,
    StorageObjectRead,
    StorageObjectTouch,
    StorageObjectWrite,
)
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

import forebay

_CHUNK = 8 << 20


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):  # type: ignore[misc]
    """The settings for reaching the daemon.

    Attributes:
        address: of the daemon; None: FOREBAY_SOCKET, else this node's.
        token_file: file of a token, for TCP; None: FOREBAY_TOKEN_FILE.
    """

    address: str | None = field(
        default=None,
        metadata={"help": "Address of the daemon: unix:///path or tcp://host:port.", "env_var": False},
    )
    token_file: str | None = field(
        default=None, metadata={"help": "File of a token, for tcp://.", "env_var": False}
    )


class StorageProvider(StorageProviderBase):  # type: ignore[misc]
    """Has one connection for all objects of a process."""

    def __post_init__(self) -> None:
        self._connecting = threading.Lock()
        self._client: forebay.Client | None = None

    @property
    def client(self) -> forebay.Client:
        """The client, which is connected."""
        with self._connecting:
            if self._client is None:
                s = self.settings or StorageProviderSettings()
                self._client = forebay.Client(s.address, token_file=s.token_file, name="snakemake")
            return self._client

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        """Return an example."""
        return [ExampleQuery("bb://scratch/sample1/reads.bam", "A file of a buffer", QueryType.ANY)]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        """Return the key of a common limit, of which there is none."""
        return None

    def default_max_requests_per_second(self) -> float:
        """Return a number that is not used."""
        return 1000.0

    def use_rate_limiter(self) -> bool:
        """Report that a daemon needs no limit."""
        return False

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        """Report whether a query is the address of something in a buffer. It may have wildcards."""
        buffer, _, path = query.removeprefix("bb://").partition("/")
        if query.startswith("bb://") and buffer and path.strip("/"):
            return StorageQueryValidationResult(query, True)
        return StorageQueryValidationResult(query, False, "the address of a file is bb://BUFFER/PATH")


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob, StorageObjectTouch):  # type: ignore[misc]
    """A file or a directory of a buffer. Either is stored whole or not at all."""

    def __post_init__(self) -> None:
        self._name, _, path = self.query.removeprefix("bb://").partition("/")
        self._path = path.strip("/")

    @property
    def _buffer(self) -> forebay.Buffer:
        provider: StorageProvider = self.provider
        return provider.client.buffer(self._name)

    def _entry(self) -> forebay.Entry | None:
        try:
            return self._buffer.stat(self._path)
        except (forebay.NotFound, forebay.NotDirectory):
            return None

    def local_suffix(self) -> str:
        """Return where it lies below the local prefix."""
        return f"{self._name}/{self._path}"

    def get_inventory_parent(self) -> str | None:
        """Return the directory that an inventory lists."""
        return f"bb://{self._name}/{self._path.rpartition('/')[0]}"

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Note the state of all entries in the object's directory, by one listing."""
        parent = self.get_inventory_parent()
        if self.cache_key() in cache.exists_in_storage:
            return
        try:
            entries = self._buffer.listdir(self._path.rpartition("/")[0])
        except (forebay.NotFound, forebay.NotDirectory):
            entries = []
        for e in entries:
            if e.is_directory:
                continue  # its time is that of its files
            key = self.cache_key(f"{self._name}/{e.path}")
            cache.exists_in_storage[key] = True
            cache.mtime[key] = Mtime(storage=e.mtime_ns / 1e9)
            cache.size[key] = e.size
        cache.exists_in_storage.setdefault(self.cache_key(), self._entry() is not None)
        cache.exists_in_storage.has_inventory.add(parent)

    def cleanup(self) -> None:
        """Do nothing, since nothing is left over."""

    def exists(self) -> bool:
        """Report whether there is such a file or directory."""
        return self._entry() is not None

    def mtime(self) -> float:
        """Return when it was changed last, in seconds since 1970: of a directory, its newest file."""
        entry = self._buffer.stat(self._path)
        files = [entry, *self._files(self._path)] if entry.is_directory else [entry]
        return max(e.mtime_ns for e in files) / 1e9

    def size(self) -> int:
        """Return the number of a file's bytes, or 0 for a directory."""
        entry = self._buffer.stat(self._path)
        return 0 if entry.is_directory else entry.size

    def local_footprint(self) -> int:
        """Return how many bytes it takes when it is retrieved."""
        entry = self._buffer.stat(self._path)
        return sum(e.size for e in self._files(self._path)) if entry.is_directory else entry.size

    def _files(self, path: str) -> Iterator[forebay.Entry]:
        """Yield the files below a directory."""
        for e in self._buffer.scan(path):
            if e.is_directory:
                yield from self._files(e.path)
            else:
                yield e

    def retrieve_object(self) -> None:
        """Copy it to its local path."""
        target = self.local_path()
        if not self._buffer.stat(self._path).is_directory:
            self._retrieve(self._path, target)
            return
        target.mkdir(parents=True, exist_ok=True)
        for e in self._files(self._path):
            self._retrieve(e.path, target / e.path.removeprefix(f"{self._path}/"))

    def _retrieve(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._buffer.open(path) as source, target.open("wb", buffering=0) as out:
            shutil.copyfileobj(source, out, _CHUNK)

    def store_object(self) -> None:
        """Copy the files at its local path into the buffer, in place of the buffer's."""
        source = self.local_path()
        if source.is_dir():
            self._store_directory(source)
            return
        parent = self._path.rpartition("/")[0]
        if parent:
            self._buffer.makedirs(parent)
        self._store(source, self._path)

    def _store(self, source: Path, path: str) -> None:
        with source.open("rb", buffering=0) as f, self._buffer.open(path, "wb") as target:
            shutil.copyfileobj(f, target, _CHUNK)

    def _store_directory(self, source: Path) -> None:
        """Store a directory in one step, so that half of it is never visible."""
        txn = self._buffer.begin(self._path)
        try:
            attempt = uuid.uuid4().hex
            root = txn.path("store", attempt)
            self._buffer.makedirs(root)
            for folder, _, names in os.walk(source):
                below = Path(folder).relative_to(source).as_posix()
                if below != ".":
                    self._buffer.makedirs(f"{root}/{below}")
                for name in names:
                    self._store(Path(folder) / name, f"{root}/{below}/{name}")
                    txn.renew()
            txn.adopt("store", attempt)
            txn.commit(["."], wait=True)
        except BaseException:
            if not txn.info().state.is_decided:
                txn.abort()
            raise

    def remove(self) -> None:
        """Remove it from the buffer, and from the store behind that."""
        self._buffer.rmtree(self._path)

    def touch(self) -> None:
        """Make it as new as if it was changed now."""
        self._buffer.set_attributes(self._path, mtime_ns=time.time_ns())

    def list_candidate_matches(self) -> Iterable[str]:
        """Yield the addresses of files below the part of the query that has no wildcards."""
        folder = get_constant_prefix(self._path, strip_incomplete_parts=True).strip("/")
        try:
            for e in self._files(folder):
                yield self._buffer.address(e.path)
        except (forebay.NotFound, forebay.NotDirectory):
            return
