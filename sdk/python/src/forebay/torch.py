"""PyTorch's distributed checkpoints in buffers: whole or not at all, after any death.

Needs torch (``pip install forebay[torch]``)::

    import forebay.torch as ft

    saved = ft.save(state, "bb://ckpt/run1/step-10")        # every rank calls it
    saving = ft.async_save(state, "bb://ckpt/run1/step-20") # blocks for one copy
    saving.resident.result()                                # survives processes and daemons
    saving.durable.result()                                 # on the buffer's store
    restored = ft.restore(state, "bb://ckpt/run1")          # the newest that can be read
    ft.keep("bb://ckpt/run1", last=3, every=1000)           # one rank calls it

ForebayWriter, ForebayReader and ForebayStager are arguments of torch.distributed.checkpoint's own
functions. A checkpoint's directory is laid out as forebay.checkpoint describes. Each rank has one part, in
which tensors are their bytes, and a part "metadata" has torch's own record, pickled as torch does. Read
checkpoints only from buffers whose writers you trust.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future as TorchFuture

from . import checkpoint as _checkpoint
from ._buffer import Buffer, clean
from ._client import Client
from ._dial import addresses
from ._errors import Error, Invalid, NoSpace, NotFound, Unsupported
from ._ladder import Attempt, Ladder, Record
from ._staging import Piece, Staging
from ._types import Progress
from .checkpoint import Found, Opened, Part, PartInfo, Place, Saved, Saving

__all__ = [
    "Attempt",
    "ForebayReader",
    "ForebayStager",
    "ForebayWriter",
    "Found",
    "Record",
    "Restored",
    "Saved",
    "SavingFutures",
    "async_save",
    "keep",
    "latest",
    "load",
    "restore",
    "save",
]

_METADATA = "metadata"
_WORTH_STAGING = 64 << 10  # smaller tensors are copied once more, since a piece of memory costs more


# Addresses.

_clients: dict[str, Client] = {}
_connecting = threading.Lock()


def _client(options: Mapping[str, Any]) -> Client:
    """Return the process's client of some options, which all checkpoints share."""
    name = repr((addresses(options.get("address")), sorted(options.items())))
    with _connecting:
        c = _clients.get(name)
        if c is None or c.closed:
            c = _clients[name] = Client(**{"name": "torch", **options})
        return c


def _split(address: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the buffer and the path of a bb:// address."""
    text = os.fspath(address)
    buffer, _, path = text.removeprefix("bb://").partition("/")
    if not text.startswith("bb://") or not buffer or not clean(path):
        raise Invalid("checkpoint", text, "the address of a checkpoint is bb://BUFFER/DIRECTORY")
    return buffer, clean(path)


def _at(address: str | os.PathLike[str], options: Mapping[str, Any]) -> tuple[Buffer, str]:
    buffer, path = _split(address)
    return _client(options).buffer(buffer), path


# Writing.


@dataclass(frozen=True)
class _Joined:
    """The message to each rank about the checkpoint that the coordinator has begun."""

    txn: str
    part: str


@dataclass(frozen=True)
class _Written:
    """The message to the coordinator about an item that a rank has written."""

    place: Place
    info: PartInfo


class ForebayWriter(StorageWriter):  # type: ignore[misc]
    """Writes checkpoints into a buffer, each in one transaction. It pickles without its connection.

    Every rank writes its tensors' bytes into memory of the buffer, once. Tensors that ForebayStager has put
    there are not copied again. ``finish`` makes the checkpoint visible. A save that fails leaves nothing.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Do no I/O.

        Args:
            path: bb://BUFFER/DIRECTORY, the directory of one checkpoint. With torch's checkpoint_id
                each save can have another one.
            options: of forebay.Client.
        """
        super().__init__()
        _split(path)
        self.path = os.fspath(path)
        self._options = options
        self._saving: Saving | None = None  # of the coordinator, until it is committed

    def __reduce__(self) -> tuple[Any, ...]:
        return _writer, (self.path, self._options)

    @property
    def checkpoint_id(self) -> str:
        """The address of the checkpoint."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin another checkpoint. Remains of a failed save are removed."""
        self.abort()
        if checkpoint_id:
            _split(checkpoint_id)
            self.path = os.fspath(checkpoint_id)

    def abort(self) -> None:
        """Remove the remains of a failed save. Only the coordinator's call does it."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.abort()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Refuse saves without collectives, where no rank could detect that all ranks have written."""
        if not kwargs.get("use_collectives", True):
            reason = "without collectives no rank can determine when a checkpoint is whole"
            raise Unsupported("save", self.path, reason, "save with use_collectives=True")
        self.abort()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Begin the transaction, and name every rank its part of it."""
        buffer, path = _at(self.path, self._options)
        self._saving = Saving.begin(buffer, path)
        txn = self._saving.txn.id
        return [replace(p, storage_data=_Joined(txn, f"part-{i}")) for i, p in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """Write all items of a plan. The future is done."""
        joined: _Joined = plan.storage_data
        buffer, path = _at(self.path, self._options)
        done: TorchFuture[list[WriteResult]] = TorchFuture()
        if not plan.items:  # a part without items would be none
            done.set_result([])
            return done
        places: list[tuple[MetadataIndex, Place]] = []
        with Saving.join(buffer, path, joined.txn).part(joined.part) as part:
            for item in plan.items:
                data = planner.resolve_data(item)
                if item.type is WriteItemType.BYTE_IO:
                    place = part.add(data.getbuffer())
                else:
                    place = _add_tensor(part, data)
                places.append((item.index, place))
            info = part.close()
        done.set_result(
            [
                WriteResult(index=index, size_in_bytes=place.length, storage_data=_Written(place, info))
                for index, place in places
            ]
        )
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the checkpoint. It is there whole from now on."""
        saving = self._saving
        if saving is None:
            raise Invalid("save", self.path, "finish is called without a plan")
        infos: dict[str, PartInfo] = {}
        places: dict[MetadataIndex, Place] = {}
        for result in (r for rank in results for r in rank):
            written: _Written = result.storage_data
            places[result.index] = written.place
            infos[written.info.name] = written.info
        for stored in metadata.state_dict_metadata.values():
            strides = getattr(getattr(stored, "properties", None), "strides", None)
            if strides is not None and 0 in strides:
                stored.properties.strides = None  # of the element that stands for a tensor
        metadata.storage_data = places
        metadata.storage_meta = self.storage_meta()
        with saving.part(_METADATA) as part:
            part.add(pickle.dumps(metadata))
            infos[_METADATA] = part.close()
        note = {"torch": torch.__version__.partition("+")[0]}
        saving.commit([infos[name] for name in sorted(infos)], note=note)
        self._saving = None

    def storage_meta(self) -> StorageMeta | None:
        """Return the name of the checkpoint."""
        return StorageMeta(checkpoint_id=self.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Report whether it is the address of a directory of a buffer."""
        try:
            _split(checkpoint_id)
        except Invalid:
            return False
        return True


def _writer(path: str, options: dict[str, Any]) -> ForebayWriter:
    return ForebayWriter(path, **options)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor on the CPU, in C order, as a tensor of one dimension."""
    t = tensor.detach()
    if t.layout is not torch.strided or t.is_quantized:
        raise Invalid("save", "", f"a tensor of layout {t.layout} cannot be written as its bytes")
    t = t.cpu().resolve_conj().resolve_neg().contiguous()
    return t.reshape(-1).view(torch.uint8)


def _add_tensor(part: Part, tensor: torch.Tensor) -> Place:
    held = _held.get(tensor.data_ptr()) if tensor.numel() else None
    if held is not None and tensor.numel() * tensor.element_size() == held.length:
        return part.add_staged(held.pieces)
    flat = _bytes_of(tensor)
    piece = _pieces.get(flat.data_ptr()) if flat.numel() else None
    if piece is not None and len(piece) == flat.numel():
        return part.add_staged([piece])
    return part.add(flat.numpy())


# Staging.

#: The staged memory that is in use, by its address.
_pieces: weakref.WeakValueDictionary[int, Piece] = weakref.WeakValueDictionary()


class _Held(np.ndarray[Any, np.dtype[np.uint8]]):
    """One element, in whose stead a tensor is written whose bytes lie in several pieces."""

    pieces: list[Piece]
    length: int


#: Those in use, by their address.
_held: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()


class ForebayStager(AsyncStager):  # type: ignore[misc]
    """Stages tensors into memory of the buffer, so that staging and writing are the same copy.

    It is for async_save in a thread. A process has no part in the memory of another one, so there torch
    copies the staged bytes once more. Where bytes travel in messages it stages into the process's own memory.
    The memory stays leased until the result of ``stage`` is not in use any more.
    """

    _synchronize_after_execute = False

    def __init__(self, path: str | os.PathLike[str], *, pieces: bool = False, **options: Any) -> None:
        """Do no I/O.

        Args:
            path: an address in the buffer that checkpoints go to.
            pieces: whether a tensor that is larger than the daemon grants in one piece is staged in
                several. ForebayWriter alone can write staged tensors then, in the same process. For anything
                else such a tensor has other values. Without it, such a tensor is staged in the process's own
                memory.
            options: of forebay.Client: those of the writer.
        """
        self._buffer = _split(path)[0]
        self._split_large = pieces
        self._options = options

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Report that there is nothing to wait for."""
        return False

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a state, which later changes of its tensors do not reach."""
        sizes = _sizes(state_dict)
        with Staging(_client(self._options), self._buffer, sizes) as staging:
            return cast(dict[str, Any], _Stage(staging, self._split_large).copy(state_dict))

    def synchronize_staging(self) -> None:
        """Do nothing, since stage has copied everything when it returns."""

    def close(self) -> None:
        """Do nothing, since memory goes back with the staged tensors."""


def _is_plain(t: torch.Tensor) -> bool:
    """Report whether a tensor has bytes that can be staged."""
    return t.layout is torch.strided and not t.is_quantized and t.numel() > 0


def _name(t: torch.Tensor) -> tuple[Any, ...]:
    """Return the key that tensors share of which one copy is enough."""
    return t.data_ptr(), t.dtype, t.shape, t.stride(), t.device


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in the order in which _Stage copies them."""
    if isinstance(value, DTensor):
        yield cast(Any, value).to_local()
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif type(value) in (list, tuple):
        for v in value:
            yield from _tensors(v)


def _sizes(value: Any) -> Iterator[int]:
    """Yield the bytes of each piece of memory that _Stage takes for a value, in the order of its copies."""
    seen = set()
    for tensor in _tensors(value):
        t = tensor.detach()
        n = t.numel() * t.element_size()
        if _is_plain(t) and n >= _WORTH_STAGING and _name(t) not in seen:
            seen.add(_name(t))
            yield n


class _Stage:
    """One copy of a state, whose tensors lie in memory of a staging."""

    def __init__(self, staging: Staging, pieces: bool) -> None:
        self._staging = staging
        self._split_large = pieces
        self._copies: dict[Any, torch.Tensor] = {}  # by the base that a tensor is a view of

    def copy(self, value: Any) -> Any:
        """Return a copy of a value and of all in it."""
        if isinstance(value, DTensor):
            # Not from_local, which moves the copy back to the mesh's device.
            t = cast(Any, value)
            return DTensor(self._tensor(t.to_local()), t._spec, requires_grad=False)
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value)
        if isinstance(value, dict):
            return {k: self.copy(v) for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)([self.copy(v) for v in value])
        return copy.deepcopy(value)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        t = tensor.detach()
        if not _is_plain(t):
            return t.to("cpu", copy=True)
        name = _name(t)
        if name not in self._copies:  # weights that are tied are staged once
            n = t.numel() * t.element_size()
            staged = self._staged(t, n) if n >= _WORTH_STAGING else None
            self._copies[name] = t.to("cpu", copy=True) if staged is None else staged
        return self._copies[name]

    def _staged(self, t: torch.Tensor, n: int) -> torch.Tensor | None:
        """Return a copy of n bytes in memory of the buffer, or None if it has none to spare."""
        try:
            piece = self._staging.take(n)
        except NoSpace:
            return self._in_pieces(t, n) if self._split_large else None
        if piece is None:
            return None
        got = torch.from_numpy(piece).view(t.dtype).view(t.shape)
        got.copy_(t)
        _pieces[got.data_ptr()] = piece
        return got

    def _in_pieces(self, t: torch.Tensor, n: int) -> torch.Tensor | None:
        try:
            pieces = self._staging.take_all(n)
        except NoSpace:
            return None  # it is full, and the write waits for room
        if not pieces:
            return None
        source, at = t.reshape(-1), 0
        for piece in pieces:
            target = torch.from_numpy(piece).view(t.dtype)
            target.copy_(source[at : at + target.numel()])
            at += target.numel()
        held = np.zeros(t.element_size(), dtype=np.uint8).view(_Held)
        held.pieces, held.length = pieces, n
        got = torch.from_numpy(held).view(t.dtype).reshape(()).expand(t.shape)
        _held[got.data_ptr()] = held
        return got


# Reading.


class ForebayReader(StorageReader):  # type: ignore[misc]
    """Reads a checkpoint from a buffer, every byte checked, down the rungs of a Ladder.

    Attributes:
        record: from which rungs this process has read, and why not from others.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        second: Sequence[Buffer] = (),
        store: bool = True,
        record: Record | None = None,
        **options: Any,
    ) -> None:
        """Do no I/O.

        Args:
            path: bb://BUFFER/DIRECTORY of a checkpoint.
            second: the buffer through daemons of other nodes, which hold second copies.
            store: whether to read the store's own files where memory does not have the bytes.
            record: where attempts are noted; None: in a new one.
            options: of forebay.Client.
        """
        super().__init__()
        _split(path)
        self.path = os.fspath(path)
        self.record = record if record is not None else Record()
        self._second, self._store, self._options = tuple(second), store, options
        self._opened: Opened | None = None
        self._metadata: Metadata | None = None

    @property
    def checkpoint_id(self) -> str:
        """The address of the checkpoint."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin to read another checkpoint."""
        self.close()
        if checkpoint_id:
            _split(checkpoint_id)
            self.path = os.fspath(checkpoint_id)

    def close(self) -> None:
        """Let go of the checkpoint. It may be called twice."""
        opened, self._opened = self._opened, None
        self._metadata = None
        if opened is not None:
            opened.close()

    def _open(self) -> Opened:
        if self._opened is None:
            buffer, path = _at(self.path, self._options)
            self._opened = Opened(Ladder(buffer, second=self._second, store=self._store), path, self.record)
        return self._opened

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the checkpoint's metadata."""
        opened = self._open()
        info = opened.index.part(_METADATA)
        data = opened.read(Place(info.name, 0, info.size))
        metadata = pickle.loads(data)
        if not isinstance(metadata, Metadata):
            raise Invalid("load", self.path, "its metadata is not torch's")
        self._metadata = metadata
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Remember the metadata."""
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> TorchFuture[None]:
        """Read all items of a plan. The future is done."""
        opened, metadata = self._open(), self._metadata
        if metadata is None:
            raise Invalid("load", self.path, "data is read before the metadata")
        places: dict[MetadataIndex, Place] = metadata.storage_data
        for item in sorted(plan.items, key=lambda i: _order(places[i.storage_index])):
            place = places[item.storage_index]
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(opened.read(place)))
                continue
            target = planner.resolve_tensor(item).detach()
            _read_tensor(opened, place, _chunk(metadata, item), item, target)
            planner.commit_tensor(item, target)
        done: TorchFuture[None] = TorchFuture()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Report whether it is the address of a directory of a buffer."""
        return ForebayWriter.validate_checkpoint_id(checkpoint_id)


def _order(place: Place) -> tuple[str, int]:
    return place.part, place.offset


def _chunk(metadata: Metadata, item: ReadItem) -> tuple[torch.dtype, tuple[int, ...]]:
    """Return the type and the shape of the tensor stored under an item's index."""
    index = item.storage_index
    stored = metadata.state_dict_metadata[index.fqn]
    if not isinstance(stored, TensorStorageMetadata):
        raise Invalid("load", index.fqn, "it was not saved as a tensor")
    chunks: list[ChunkStorageMetadata] = stored.chunks
    if index.offset is None:
        return stored.properties.dtype, tuple(stored.size)
    for c in chunks:
        if tuple(c.offsets) == tuple(index.offset):
            return stored.properties.dtype, tuple(c.sizes)
    raise NotFound("load", index.fqn, f"no chunk begins at {tuple(index.offset)}")


def _read_tensor(
    opened: Opened,
    place: Place,
    chunk: tuple[torch.dtype, tuple[int, ...]],
    item: ReadItem,
    target: torch.Tensor,
) -> None:
    """Fill a tensor with the part of a stored chunk of an item.

    Only the rows that hold it are read, and straight into the tensor where its memory is like the file's.
    """
    dtype, shape = chunk
    offsets, lengths = tuple(item.storage_offsets), tuple(item.lengths)
    if tuple(target.shape) != lengths:
        raise Invalid("load", item.dest_index.fqn, f"{lengths} do not fit a tensor of {tuple(target.shape)}")
    if target.numel() == 0:
        return
    row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    begin, rows = (offsets[0], lengths[0]) if shape else (0, 1)
    wanted = (rows, *shape[1:]) if shape else ()
    straight = (
        target.device.type == "cpu"
        and target.dtype == dtype
        and target.is_contiguous()
        and not target.is_quantized
        and not (target.is_conj() or target.is_neg())
        and wanted == lengths
    )
    got = target if straight else torch.empty(wanted, dtype=dtype)
    flat = got.reshape(-1).view(torch.uint8).numpy()
    opened.read_into(place, flat.data, begin * row)
    if straight:
        return
    for d in range(1, len(shape)):
        got = got.narrow(d, offsets[d], lengths[d])
    target.copy_(got)


# Functions for training loops.


@dataclass
class SavingFutures:
    """A checkpoint that is being saved.

    Attributes:
        path: its address.
        resident: done when all of it is visible, and survives processes and daemons.
        staged: done when the state may be changed again.
    """

    path: str
    resident: Future[str]
    staged: Future[None]
    _options: Mapping[str, Any] = field(default_factory=dict)
    _durable: Future[Progress] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def durable(self) -> Future[Progress]:
        """Done when all of it is on the buffer's store, or with the error that prevents it."""
        with self._lock:
            if self._durable is None:
                self._durable = Future()
                self._durable.set_running_or_notify_cancel()
                self.resident.add_done_callback(self._drain)
            return self._durable

    def _drain(self, resident: Future[str]) -> None:
        durable = self._durable
        assert durable is not None
        error = resident.exception()
        if error is not None:
            durable.set_exception(error)
            return

        def done(f: Future[Progress]) -> None:
            failed = f.exception()
            if failed is not None:
                durable.set_exception(failed)
            else:
                durable.set_result(f.result())

        try:
            Saved(*_at(self.path, self._options)).durable.add_done_callback(done)
        except Error as e:
            durable.set_exception(e)


def save(
    state: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    process_group: Any = None,
    planner: Any = None,
    **options: Any,
) -> Saved:
    """Save a state as a checkpoint. Every rank of the group calls it.

    When it returns the checkpoint is resident: all of it is visible, and survives processes and
    daemons. If it fails, on every rank, with torch's CheckpointException, there is no checkpoint.

    Args:
        state: as torch.distributed.checkpoint.save takes it.
        path: bb://BUFFER/DIRECTORY, whose name ends with its number.
        process_group: of the ranks; None: all.
        planner: of torch; None: the default.
        options: of forebay.Client.
    """
    writer = ForebayWriter(path, **options)
    try:
        dcp.save(state, storage_writer=writer, process_group=process_group, planner=planner)
    except BaseException:
        writer.abort()
        raise
    return Saved(*_at(path, options))


def async_save(
    state: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    process_group: Any = None,
    planner: Any = None,
    **options: Any,
) -> SavingFutures:
    """Copy a state into memory of the buffer, and save it on a thread. Every rank of the group calls it.

    It returns after the copy. A save that fails shows in the futures alone, and leaves no checkpoint.
    Only one save at a time is allowed. Wait for ``resident`` before the next one.

    Args:
        state: as torch.distributed.checkpoint.async_save takes it.
        path: bb://BUFFER/DIRECTORY, whose name ends with its number.
        process_group: of the ranks, with a backend for the CPU; None: all.
        planner: of torch; None: the default.
        options: of forebay.Client.
    """
    writer = ForebayWriter(path, **options)
    stager = ForebayStager(path, pieces=True, **options)
    upload = dcp.async_save(
        state, storage_writer=writer, async_stager=stager, process_group=process_group, planner=planner
    )
    resident: Future[str] = Future()
    resident.set_running_or_notify_cancel()
    staged: Future[None] = Future()
    staged.set_result(None)

    def done(f: Future[Any]) -> None:
        error = f.exception()
        if error is None:
            resident.set_result(writer.path)
            return
        writer.abort()
        resident.set_exception(error)

    cast("Future[Any]", upload).add_done_callback(done)
    return SavingFutures(os.fspath(path), resident, staged, options)


def load(
    state: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    process_group: Any = None,
    planner: Any = None,
    second: Sequence[Buffer] = (),
    store: bool = True,
    record: Record | None = None,
    **options: Any,
) -> Record:
    """Load one checkpoint into the tensors of a state. Every rank of the group calls it.

    Return from which rungs this rank has read (forebay.checkpoint.Ladder). If it fails, on every rank, with
    torch's CheckpointException, tensors may hold anything.

    Args:
        state: as torch.distributed.checkpoint.load takes it.
        path: bb://BUFFER/DIRECTORY of the checkpoint.
        process_group: of the ranks; None: all.
        planner: of torch; None: the default.
        second: the buffer through daemons of other nodes, which hold second copies.
        store: whether to read the store's own files where memory does not have the bytes.
        record: where attempts are noted; None: in a new one.
        options: of forebay.Client.
    """
    reader = ForebayReader(path, second=second, store=store, record=record, **options)
    try:
        dcp.load(state, storage_reader=reader, process_group=process_group, planner=planner)
    finally:
        reader.close()
    reader.record.checkpoint = _split(path)[1]
    return reader.record


@dataclass(frozen=True)
class Restored:
    """A state that was restored.

    Attributes:
        path: the address of the checkpoint that it was read from.
        step: its number.
        record: from which rungs this rank has read, and why not from others.
    """

    path: str
    step: int
    record: Record


def restore(
    state: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    process_group: Any = None,
    planner: Any = None,
    second: Sequence[Buffer] = (),
    store: bool = True,
    **options: Any,
) -> Restored | None:
    """Load the newest checkpoint of a directory that every rank can read. Every rank of the group calls it.

    Return None if there is no checkpoint at all. forebay.Lost, whose text is the record, if none can be read.
    The state's tensors may then hold anything.

    Args:
        state: as torch.distributed.checkpoint.load takes it.
        path: bb://BUFFER/DIRECTORY in which checkpoints lie.
        process_group: of the ranks; None: all.
        planner: of torch; None: the default.
        second: the buffer through daemons of other nodes, which hold second copies.
        store: whether to read the store's own files where memory does not have the bytes.
        options: of forebay.Client.
    """
    buffer, folder = _at(path, options)
    record = Record()
    for address in _agreed(buffer, folder, process_group):
        try:
            load(
                state,
                address,
                process_group=process_group,
                planner=planner,
                second=second,
                store=store,
                record=record,
                **options,
            )
        except CheckpointException as e:
            # It is the same on every rank, so all go on with the one before.
            record.failed(_split(address)[1], _first(e))
            continue
        step = _checkpoint.step_of(address.rpartition("/")[2])
        return Restored(address, step or 0, record)
    if record.attempts:
        raise record.error(buffer.address(folder))
    return None


def _first(e: CheckpointException) -> BaseException:
    """Return the error of the first rank that failed."""
    return cast(BaseException, min(e.failures.items())[1][0]) if e.failures else e


def _agreed(buffer: Buffer, folder: str, group: Any) -> list[str]:
    """Return the addresses of checkpoints, the newest first, the same on every rank."""
    ranks = dist.is_available() and dist.is_initialized()
    first = not ranks or dist.get_rank(group) == 0
    got: list[Any] = [None]
    if first:
        try:
            got = [[buffer.address(p) for p in _checkpoint.candidates(buffer, folder)]]
        except Error as e:
            got = [e]
    if ranks:
        source = dist.get_global_rank(group, 0) if group is not None else 0
        dist.broadcast_object_list(got, src=source, group=group)
    if isinstance(got[0], Error):
        raise got[0]
    return cast(list[str], got[0])


def latest(path: str | os.PathLike[str], *, state: str = "resident", **options: Any) -> str | None:
    """Return the address of the newest whole checkpoint of a directory, or None if there is none.

    Args:
        path: bb://BUFFER/DIRECTORY in which checkpoints lie.
        state: "resident", or "durable": all of it is on the store.
        options: of forebay.Client.
    """
    buffer, folder = _at(path, options)
    found = _checkpoint.latest(buffer, folder, state=state)
    return None if found is None else buffer.address(found.path)


def keep(
    path: str | os.PathLike[str],
    *,
    last: int = 3,
    every: int = 0,
    state: str = "durable",
    **options: Any,
) -> list[Found]:
    """Remove the checkpoints of a directory that are not needed any more (forebay.checkpoint.keep).

    Args:
        path: bb://BUFFER/DIRECTORY in which checkpoints lie.
        last: how many of the newest that are whole stay.
        every: those whose number is a multiple of it stay, too; 0: no others.
        state: of the newer one without which none is removed: "durable", or "resident" for a buffer
            without a store.
        options: of forebay.Client.
    """
    buffer, folder = _at(path, options)
    return _checkpoint.keep(buffer, folder, last=last, every=every, state=state)
