"""Files in the format of safetensors whose tensors are used where they lie in the buffer's memory.

::

    from forebay import safetensors

    safetensors.save_file({"weight": array}, buffer, "model.safetensors")
    tensors = safetensors.load_file(buffer, "model.safetensors")                     # numpy
    tensors = safetensors.load_file(buffer, "model.safetensors", framework="torch")

Loading moves no byte. An array or tensor is a view of memory that every process of the node shares, and that
keeps its content while a view is in use, though the file is replaced, removed, flushed or evicted, and though
the daemon dies. Writes to a tensor are the program's own, since the page is copied then. A tensor that lies
in several pieces of memory is copied, and checked: one that is larger than the daemon's largest piece (a
share of its memory, 64 MiB at most), or of a file that was not written by save_file.

Files are those of the safetensors package, which is not needed here. Each reads the other's files.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ._buffer import Buffer
from ._errors import Invalid, NoSpace, Unsupported
from ._file import File

__all__ = ["Safetensors", "load_file", "save_file"]

_ALIGN = 64
_AHEAD = 1000  # tensors whose sizes are announced to the one before them
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"

#: By the format's names: numpy's name, or None where it has none, and torch's.
_TYPES: dict[str, tuple[str | None, str]] = {
    "BOOL": ("?", "bool"),
    "U8": ("u1", "uint8"),
    "I8": ("i1", "int8"),
    "U16": ("<u2", "uint16"),
    "I16": ("<i2", "int16"),
    "F16": ("<f2", "float16"),
    "BF16": (None, "bfloat16"),
    "U32": ("<u4", "uint32"),
    "I32": ("<i4", "int32"),
    "F32": ("<f4", "float32"),
    "U64": ("<u8", "uint64"),
    "I64": ("<i8", "int64"),
    "F64": ("<f8", "float64"),
    "C64": ("<c8", "complex64"),
    "F8_E4M3": (None, "float8_e4m3fn"),
    "F8_E5M2": (None, "float8_e5m2"),
}
_SIZES = {"BOOL": 1, "C64": 8, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


def _size(dtype: str) -> int:
    return _SIZES.get(dtype) or int(dtype[1:]) // 8


@dataclass(frozen=True)
class _Item:
    """A tensor's type, shape and range [begin, end) behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _parse(header: bytes, size: int, address: str) -> tuple[dict[str, _Item], dict[str, str]]:
    """Return the tensors and the metadata of a header, of a file with so many bytes behind it."""
    try:
        m = json.loads(header)
        metadata = {str(k): str(v) for k, v in m.pop(_METADATA, {}).items()}
        items = {}
        for name, i in m.items():
            begin, end = (int(n) for n in i["data_offsets"])
            shape = tuple(int(n) for n in i["shape"])
            dtype = str(i["dtype"])
            if dtype not in _TYPES:
                raise ValueError(f"{name} has the type {dtype}, which is not known here")
            if min((*shape, begin), default=0) < 0 or end > size:
                raise ValueError(f"{name} is not within the file")
            if end - begin != math.prod(shape) * _size(dtype):
                raise ValueError(f"{name} has {end - begin} bytes, which its shape and its type do not need")
            items[str(name)] = _Item(dtype, shape, begin, end)
        return items, metadata
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise Invalid("load", address, f"it is no file of safetensors: {e}") from e


class Safetensors(Mapping[str, Any]):
    """The tensors of a file, by name. They stay valid when it is closed.

    Writes to a tensor are visible in those alone that were got from the same object.

    Attributes:
        metadata: the texts that the file has besides tensors.
        copied: the names of tensors that lie in several pieces of memory, or none that can be mapped,
            and were copied therefore.
    """

    def __init__(self, buffer: Buffer, path: str, *, framework: str = "numpy", verify: bool = False) -> None:
        """Open the file as it is now, and read its header.

        Args:
            buffer: where it lies.
            path: in the buffer.
            framework: "numpy" or "torch".
            verify: whether the file is checked against the checksums that it was written with, which
                reads all of its bytes: ChecksumMismatch. Copied bytes are checked in any case.
        """
        if framework not in ("numpy", "torch"):
            raise Invalid("load", path, f"the framework is {framework!r}", 'ask for "numpy" or "torch"')
        self._torch = framework == "torch"
        self.copied: set[str] = set()
        self._file: File = buffer.open(path)
        try:
            size = self._file.size
            head = bytearray(8)
            n = -1
            if self._file.pread_into(0, head, verify=True) == 8:
                (n,) = struct.unpack("<Q", head)
            if not 0 <= n <= min(_MAX_HEADER, size - 8):
                raise Invalid("load", self._file.name, "it is no file of safetensors: it has no header")
            header = bytearray(n)
            self._file.pread_into(8, header, verify=True)
            self._data = 8 + n
            self._items, self.metadata = _parse(bytes(header), size - self._data, self._file.name)
            m = self._file.map(self._data, copy_on_write=True)
            if verify:
                m.verify()
            #: The pieces of memory that the tensors lie in, and where each begins behind the header.
            self._pieces = [np.frombuffer(v, dtype=np.uint8) for v in m.views]
            self._begins = [0, *itertools.accumulate(len(p) for p in self._pieces)]
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, name: str) -> Any:
        if name not in self._items:
            raise KeyError(name)
        item = self._items[name]
        n = item.end - item.begin
        if self._file.closed:
            raise Invalid("load", self._file.name, "the file is closed")
        data = self._bytes(name, item) if n else np.zeros(0, dtype=np.uint8)
        if self._torch:
            return _tensor(data, item)
        dtype = _TYPES[item.dtype][0]
        if dtype is None:
            reason = f"numpy has no type for {item.dtype}, that of {name}"
            raise Unsupported("load", self._file.name, reason, 'load it with framework="torch"')
        return data.view(dtype).reshape(item.shape)

    def _bytes(self, name: str, item: _Item) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes: where they lie, if that is one piece, at an address for its type."""
        at = bisect.bisect_right(self._begins, item.begin) - 1
        if at < len(self._pieces) and item.end <= self._begins[at + 1]:
            begin = self._begins[at]
            data = self._pieces[at][item.begin - begin : item.end - begin]
            if int(data.ctypes.data) % _size(item.dtype) == 0:
                return data
        own = np.empty(item.end - item.begin, dtype=np.uint8)
        self._file.pread_into(self._data + item.begin, own.data, verify=True)
        self.copied.add(name)
        return own

    def close(self) -> None:
        """Release the file. Tensors stay. It may be called twice."""
        self._file.close()
        self._pieces = []

    def __enter__(self) -> Safetensors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tensor(data: npt.NDArray[np.uint8], item: _Item) -> Any:
    import torch

    dtype = getattr(torch, _TYPES[item.dtype][1])
    if not len(data):  # it cannot be looked at as another type
        return torch.empty(item.shape, dtype=dtype)
    return torch.from_numpy(data).view(dtype).reshape(item.shape)


def load_file(buffer: Buffer, path: str, *, framework: str = "numpy", verify: bool = False) -> dict[str, Any]:
    """Return all tensors of a file (Safetensors)."""
    with Safetensors(buffer, path, framework=framework, verify=verify) as s:
        return dict(s)


def save_file(
    tensors: Mapping[str, Any], buffer: Buffer, path: str, metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays of numpy or tensors of torch, each into one piece of memory. All is visible, or nothing.

    Args:
        tensors: by name. They are written as their bytes in C order.
        buffer: where the file goes.
        path: in the buffer.
        metadata: texts that the file has besides.
    """
    flat: list[tuple[str, str, tuple[int, ...], npt.NDArray[np.uint8]]] = []
    for name, t in tensors.items():
        if name == _METADATA:
            raise Invalid("save", path, f"no tensor can have the name {name}")
        flat.append((name, *_flatten(name, t)))
    flat.sort(key=lambda f: (-_size(f[1]), f[0]))
    header: dict[str, Any] = {} if metadata is None else {_METADATA: dict(metadata)}
    at = 0
    for name, dtype, shape, data in flat:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGN)
    with buffer.open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        sizes = [len(data) for _, _, _, data in flat]
        for i, (_, _, _, data) in enumerate(flat):
            _write(f, data, sizes[i + 1 : i + 1 + _AHEAD])


def _write(f: File, data: npt.NDArray[np.uint8], then: list[int]) -> None:
    """Write bytes into one piece of memory, where the daemon grants one that is large enough."""
    if len(data):
        try:
            target = f._reserve(len(data), then)
        except (NoSpace, Unsupported):
            f.write(data)
            return
        np.copyto(np.frombuffer(target, dtype=np.uint8), data)


def _flatten(name: str, t: Any) -> tuple[str, tuple[int, ...], npt.NDArray[np.uint8]]:
    """Return a tensor's type, its shape and its bytes in C order."""
    if not isinstance(t, np.ndarray) and hasattr(t, "data_ptr"):  # a tensor, so torch is loaded already
        import torch

        dtype = next((k for k, v in _TYPES.items() if getattr(torch, v[1], None) is t.dtype), None)
        if dtype is not None and t.layout is torch.strided:
            c = t.detach().cpu().resolve_conj().resolve_neg().contiguous()
            return dtype, tuple(t.shape), c.reshape(-1).view(torch.uint8).numpy()
        raise Invalid("save", name, f"a tensor of {t.dtype} and {t.layout} cannot be written")
    a = np.asarray(t)
    little = a.astype(a.dtype.newbyteorder("<"), copy=False)
    dtype = next((k for k, v in _TYPES.items() if v[0] is not None and np.dtype(v[0]) == little.dtype), None)
    if dtype is None:
        raise Invalid("save", name, f"an array of {a.dtype} cannot be written")
    return dtype, a.shape, np.ascontiguousarray(little).reshape(-1).view(np.uint8)
