"""Transactions, by which the output of many tasks becomes part of one directory in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from . import _wire
from ._errors import Error
from ._types import TxnInfo

if TYPE_CHECKING:
    from ._client import Client

M = TypeVar("M", bound=Message)


class Txn:
    """Readers get all of a transaction's output or nothing.

    Any process may hold one for the same transaction (``Buffer.txn``). It may be used concurrently
    and needs no closing. Every operation may be repeated.

    Attributes:
        id: the transaction's id in its buffer.
    """

    def __init__(self, client: Client, buffer: str, txn: str) -> None:
        self._client = client
        self._buffer = buffer
        self.id = txn

    def path(self, task: str, attempt: str) -> str:
        """Return the directory, as a path in the buffer, that an attempt of a task writes below.

        It has to be made. Both names are any text without a slash.
        """
        return f".txn/{self.id}/attempt/{task}/{attempt}"

    @property
    def output(self) -> str:
        """The directory, as a path in the buffer, of the output adopted so far: only for reading.

        It is there until the transaction is committed or aborted.
        """
        return f".txn/{self.id}/output"

    def _ask(self, op: str, about: str, typ: int, m: Message, reply: type[M]) -> M:
        try:
            return self._client.ask(typ, m, reply)
        except Error as e:
            raise e._about(op, f"bb://{self._buffer}: transaction {self.id}{about}") from e

    def _info(self, op: str, typ: int) -> TxnInfo:
        m = _wire.TxnName(buffer=self._buffer, id=self.id)
        return TxnInfo.of(self._ask(op, "", typ, m, _wire.Txn))

    def info(self) -> TxnInfo:
        """Return the present state of the transaction. NotFound: a day has passed since it was over."""
        return self._info("transaction", _wire.TYPE_TXN_GET)

    def adopt(self, task: str, attempt: str) -> str:
        """Make the closed files of an attempt the output of its task. Return the winner.

        The first attempt wins. Files of slower ones are removed. Cancelled if the transaction was aborted.
        Busy if it is being committed, or was, without this task.
        """
        m = _wire.TxnAdopt(buffer=self._buffer, id=self.id, task=task, attempt=attempt)
        return self._ask("adopt", f", task {task}", _wire.TYPE_TXN_ADOPT, m, _wire.TxnAdopted).winner

    def commit(self, replace: Sequence[str] = (), *, wait: bool = False) -> TxnInfo:
        """Make all adopted output part of the destination in one step, regardless of earlier calls.

        Cancelled if the transaction was aborted. NotFound if the destination was removed.

        Args:
            replace: directories, relative to the destination ("." for itself), whose content goes
                in the same step. Those of the first call count.
            wait: whether to return only when all files have their final names.
        """
        m = _wire.TxnCommit(buffer=self._buffer, id=self.id, replace=replace, wait=wait)
        return TxnInfo.of(self._ask("commit transaction", "", _wire.TYPE_TXN_COMMIT, m, _wire.Txn))

    def abort(self) -> TxnInfo:
        """Remove all that was written under the transaction. Busy if it is committed."""
        return self._info("abort transaction", _wire.TYPE_TXN_ABORT)

    def renew(self) -> TxnInfo:
        """Keep the transaction for another lease. Cancelled if it was aborted."""
        return self._info("renew transaction", _wire.TYPE_TXN_RENEW)
