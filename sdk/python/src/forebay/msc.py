"""Buffers as storage of NVIDIA's multi-storage-client (``pip install multi-storage-client``).

A profile of its configuration names a bundle of providers, since it takes no other storage from outside::

    profiles:
      ckpt:
        provider_bundle:
          type: forebay.msc.ForebayProviderBundle
          options: {base_path: ckpt/run1}       # BUFFER, or BUFFER/DIRECTORY

``msc.open("msc://ckpt/step-1/part-0", "wb")`` writes bb://ckpt/run1/step-1/part-0 then. An object is there
whole, in one commit, or not at all. Buffers have no attributes of objects and no signed URLs, and neither
makes nor follows symbolic links here. Requests for one of these fail.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

from multistorageclient import config, providers
from multistorageclient.providers.base import BaseStorageProvider
from multistorageclient.types import (
    CredentialsProvider,
    MetadataProvider,
    ObjectMetadata,
    PreconditionFailedError,
    ProviderBundle,
    Range,
    Replica,
    RetryableError,
    StorageProviderConfig,
    SymlinkHandling,
)

from . import _fork
from ._buffer import Buffer, clean
from ._client import Client
from ._errors import Exists, Invalid, IsDirectory, NotDirectory, NotFound, Unavailable
from ._file import File
from ._types import Entry

__all__ = ["ForebayProviderBundle", "ForebayStorageProvider"]

_NAME = "forebay"
_CHUNK = 8 << 20


class ForebayProviderBundle(ProviderBundle):  # type: ignore[misc]
    """The fields of a profile's configuration."""

    def __init__(self, base_path: str, **options: Any) -> None:
        """Do no I/O.

        Args:
            base_path: BUFFER, or BUFFER/DIRECTORY, in which the profile's objects lie.
            options: of forebay.Client.
        """
        self._config = StorageProviderConfig(_NAME, {"base_path": base_path, "client": options})

    @property
    def storage_provider_config(self) -> StorageProviderConfig:
        """The storage of buffers, and its options."""
        return self._config

    @property
    def credentials_provider(self) -> CredentialsProvider | None:
        """None, since forebay.Client's options have tokens and keys."""
        return None

    @property
    def metadata_provider(self) -> MetadataProvider | None:
        """None, since buffers describe their files."""
        return None

    @property
    def replicas(self) -> list[Replica]:
        """None, since a buffer has second copies itself."""
        return []


class ForebayStorageProvider(BaseStorageProvider):  # type: ignore[misc]
    """The objects of a buffer. It may be used concurrently, and after a fork."""

    def __init__(
        self,
        base_path: str,
        client: dict[str, Any] | None = None,
        config_dict: dict[str, Any] | None = None,
        telemetry_provider: Callable[[], Any] | None = None,
    ) -> None:
        """Do no I/O. The connection begins with the first operation.

        Args:
            base_path: BUFFER, or BUFFER/DIRECTORY.
            client: options of forebay.Client.
            config_dict: of multi-storage-client.
            telemetry_provider: of multi-storage-client.
        """
        base = clean(base_path.removeprefix("bb://"))
        if not base:
            raise Invalid("connect", base_path, "the base path names no buffer", "write BUFFER/DIRECTORY")
        super().__init__(base, _NAME, config_dict, telemetry_provider)
        self._options = client or {}
        self._client: Client | None = None
        self._after_fork()
        _fork.register(self)

    def _after_fork(self) -> None:
        self._connecting = threading.Lock()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None:
            client.close()
        super().__del__()

    def _at(self, path: str) -> tuple[Buffer, str]:
        name, _, rest = clean(path).partition("/")
        with self._connecting:
            if self._client is None or self._client.closed:
                self._client = Client(**{"name": "multi-storage-client", **self._options})
            return self._client.buffer(name), rest

    def _emit_metrics(self, operation: Any, f: Callable[[], Any]) -> Any:
        """Carry out an operation. A daemon that does not answer is a reason to try again."""

        def translated() -> Any:
            try:
                return f()
            except Unavailable as e:
                raise RetryableError(str(e)) from e

        return super()._emit_metrics(operation, translated)

    # Writing.

    def _create(self, path: str, mode: str, attributes: dict[str, str] | None) -> File:
        """Open a file for writing, and make the directories above it."""
        if attributes:
            raise ValueError("files of buffers have no attributes")
        buffer, rest = self._at(path)
        try:
            return buffer.open(rest, mode)
        except NotFound:
            buffer.makedirs(rest.rpartition("/")[0])
            return buffer.open(rest, mode)

    def _put_object(
        self,
        path: str,
        body: bytes,
        if_match: str | None = None,
        if_none_match: str | None = None,
        attributes: dict[str, str] | None = None,
    ) -> int:
        if if_match is not None or if_none_match not in (None, "*"):
            raise ValueError("a buffer does not compare etags: if_none_match='*' alone can be asked for")
        try:
            with self._create(path, "wb" if if_none_match is None else "xb", attributes) as f:
                f.write(body)
        except Exists as e:
            raise PreconditionFailedError(str(e)) from e
        return len(body)

    def _upload_file(
        self, remote_path: str, f: str | IO[Any], attributes: dict[str, str] | None = None
    ) -> int:
        if isinstance(f, str):
            with open(f, "rb") as source:
                return self._upload_file(remote_path, source, attributes)
        if isinstance(f, io.TextIOBase):
            return self._put_object(remote_path, f.read().encode(), attributes=attributes)
        with self._create(remote_path, "wb", attributes) as to:
            shutil.copyfileobj(f, to, _CHUNK)
            return to.tell()

    def _copy_object(self, src_path: str, dest_path: str) -> int:
        buffer, rest = self._at(src_path)
        with buffer.open(rest) as source, self._create(dest_path, "wb", None) as to:
            shutil.copyfileobj(source, to, _CHUNK)
            return to.tell()

    def _delete_object(self, path: str, if_match: str | None = None) -> None:
        if if_match is not None:
            raise ValueError("a buffer does not compare etags")
        buffer, rest = self._at(path)
        if buffer.stat(rest).is_directory:
            raise IsDirectory("remove", buffer.address(rest))
        buffer.remove(rest)

    def _make_symlink(self, path: str, target: str) -> None:
        raise NotImplementedError("symbolic links are not made in buffers through multi-storage-client")

    # Reading.

    def _get_object(self, path: str, byte_range: Range | None = None) -> bytes:
        buffer, rest = self._at(path)
        with buffer.open(rest) as f:
            return f.readall() if byte_range is None else f.pread(byte_range.size, byte_range.offset)

    def _download_file(
        self, remote_path: str, f: str | IO[Any], metadata: ObjectMetadata | None = None
    ) -> int:
        buffer, rest = self._at(remote_path)
        with buffer.open(rest) as source:
            if isinstance(f, io.TextIOBase):
                f.write(source.readall().decode())
            elif not isinstance(f, str):
                shutil.copyfileobj(source, f, _CHUNK)
            else:
                _save(source, f)
            return source.size

    def _get_object_metadata(self, path: str, strict: bool = True) -> ObjectMetadata:
        buffer, rest = self._at(path)
        found = _metadata(buffer, buffer.stat(rest))
        if found.type == "directory":
            found.key += "/"
        return found

    @property
    def supports_parallel_listing(self) -> bool:
        """Directories are listed on their own."""
        return True

    def _list_objects(
        self,
        path: str,
        start_after: str | None = None,
        end_at: str | None = None,
        include_directories: bool = False,
        symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
    ) -> Iterator[ObjectMetadata]:
        buffer, rest = self._at(path)
        try:
            top = buffer.stat(rest)
        except (NotFound, NotDirectory):
            return
        found = _walk(buffer, rest, include_directories) if top.is_directory else iter([top])
        for e in found:
            m = _metadata(buffer, e)
            if (start_after is None or m.key > start_after) and (end_at is None or m.key <= end_at):
                yield m


def _walk(buffer: Buffer, path: str, shallow: bool) -> Iterator[Entry]:
    """Yield the entries of a directory in the order of keys. Shallow: without those of its directories."""
    try:
        entries = buffer.listdir(path)
    except NotFound:
        return  # it went meanwhile
    for e in sorted(entries, key=lambda e: e.name + "/" * e.is_directory):
        if e.is_directory and not shallow:
            yield from _walk(buffer, e.path, shallow)
        else:
            yield e


def _metadata(buffer: Buffer, e: Entry) -> ObjectMetadata:
    return ObjectMetadata(
        key=f"{buffer.name}/{e.path}",
        type="directory" if e.is_directory else "file",
        content_length=0 if e.is_directory else e.size,
        last_modified=datetime.fromtimestamp(e.mtime_ns / 1e9, tz=UTC),
        etag=None if e.is_directory else f"{e.file:x}-{e.generation:x}",
    )


def _save(source: File, path: str) -> None:
    """Make a file on this machine of another, whole or not at all."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder or None, prefix=".", delete=False) as to:
        try:
            shutil.copyfileobj(source, to, _CHUNK)
            to.close()
            os.replace(to.name, path)
        except BaseException:
            os.unlink(to.name)
            raise


# multi-storage-client makes storage by a name in its own table, of a class in its own module.
config.STORAGE_PROVIDER_MAPPING[_NAME] = ForebayStorageProvider.__name__
providers.ForebayStorageProvider = ForebayStorageProvider
