"""Forebay's client: a burst buffer in the memory of the machines that compute.

::

    import forebay

    with forebay.connect() as client:
        buffer = client.buffer("scratch")
        with buffer.open("step-10/weights", "wb") as f:
            f.write(array)
        with buffer.open("step-10/weights") as f:
            view = f.map().view
"""

from ._buffer import Buffer
from ._client import Client, Server, connect
from ._dial import TLSFiles
from ._errors import (
    Busy,
    Cancelled,
    ChecksumMismatch,
    Error,
    Exists,
    InternalError,
    Invalid,
    IsDirectory,
    Kind,
    Lost,
    NoSpace,
    NotDirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    Unavailable,
    Unsupported,
)
from ._file import File
from ._reader import Mapping
from ._token import Token
from ._txn import Txn
from ._types import BufferInfo, Entry, Failure, Node, Progress, State, TxnInfo, TxnState

__all__ = [
    "Buffer",
    "BufferInfo",
    "Busy",
    "Cancelled",
    "ChecksumMismatch",
    "Client",
    "Entry",
    "Error",
    "Exists",
    "Failure",
    "File",
    "InternalError",
    "Invalid",
    "IsDirectory",
    "Kind",
    "Lost",
    "Mapping",
    "NoSpace",
    "Node",
    "NotDirectory",
    "NotEmpty",
    "NotFound",
    "PermissionDenied",
    "Progress",
    "Server",
    "State",
    "TLSFiles",
    "Token",
    "Txn",
    "TxnInfo",
    "TxnState",
    "Unavailable",
    "Unsupported",
    "connect",
]
