"""CRC-64/NVME, the checksum of every extent, and CRC-32C, that of every frame.

CRC-64/NVME is defined in the NVM Express NVM Command Set Specification (64b CRC), CRC-32C in
RFC 3720. Where awscrt is installed the processor's instructions compute them. Otherwise tables do, with a
warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Buffer = Any  # an object with the buffer protocol

_LANES = 1024  # how many parts of a buffer the table's code works on at the same time
_MIN_LANE = 64  # bytes
_LARGE = 1 << 20


class TableCRC:
    """A reflected CRC by a table of 256 values, whose initial value and final exclusive-or are all ones."""

    def __init__(self, polynomial: int, bits: int) -> None:
        """polynomial is reflected: the coefficient of x^0 is in the highest bit."""
        self._ones = (1 << bits) - 1
        self._polynomial = polynomial
        self._high = 1 << (bits - 1)
        table = []
        for n in range(256):
            for _ in range(8):
                n = (n >> 1) ^ (polynomial if n & 1 else 0)
            table.append(n)
        self._table = table
        self._array = np.array(table, dtype=np.uint64)
        self._powers = [self._high >> 8]  # x^(8·2^i) modulo the polynomial

    def __call__(self, data: Buffer, crc: int = 0) -> int:
        """Return the checksum of the bytes that crc covers followed by data."""
        p = memoryview(data).cast("B") if len(data) else memoryview(b"")
        lane = len(p) // _LANES
        if lane < _MIN_LANE:
            return self._bytes(p, crc)
        cut = lane * _LANES
        lanes = self._lanes(np.frombuffer(p[:cut], dtype=np.uint8).reshape(_LANES, lane))
        shift = self._power(lane)
        for one in lanes:
            crc = self._multiply(crc, shift) ^ int(one)
        return self._bytes(p[cut:], crc)

    def _bytes(self, p: memoryview, crc: int) -> int:
        table = self._table
        crc ^= self._ones
        for b in p:
            crc = table[(crc ^ b) & 255] ^ (crc >> 8)
        return crc ^ self._ones

    def _lanes(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
        """Return the checksum of each row."""
        columns = np.ascontiguousarray(rows.T).astype(np.uint64)
        crc = np.full(rows.shape[0], self._ones, dtype=np.uint64)
        low, eight = np.uint64(255), np.uint64(8)
        for column in columns:
            crc = self._array[(crc ^ column) & low] ^ (crc >> eight)
        return crc ^ np.uint64(self._ones)

    def _multiply(self, a: int, b: int) -> int:
        """Multiply two polynomials modulo this CRC's."""
        product, bit = 0, self._high
        while True:
            if a & bit:
                product ^= b
                if not a & (bit - 1):
                    return product
            bit >>= 1
            if not bit:
                return product
            b = (b >> 1) ^ (self._polynomial if b & 1 else 0)

    def _power(self, n: int) -> int:
        """Return x^(8·n) modulo the polynomial."""
        result, i = self._high, 0
        while n:
            if i == len(self._powers):
                self._powers.append(self._multiply(self._powers[-1], self._powers[-1]))
            if n & 1:
                result = self._multiply(result, self._powers[i])
            n >>= 1
            i += 1
        return result


table_crc64 = TableCRC(0x9A6C9329AC4BC9B5, 64)
table_crc32c = TableCRC(0x82F63B78, 32)


def slow_crc64(data: Buffer, crc: int = 0) -> int:
    """Return table_crc64 of a buffer. If that is large, warn of the time that it takes."""
    if len(data) >= _LARGE:
        text = "checksums are computed by tables, some hundred times slower than by awscrt"
        warnings.warn(f"{text}: pip install 'forebay[crt]'", RuntimeWarning, stacklevel=1)
    return table_crc64(data, crc)


crc64: Callable[[Buffer, int], int]
crc32c: Callable[[Buffer, int], int]

try:
    from awscrt import checksums as _crt

    crc64, crc32c = _crt.crc64nvme, _crt.crc32c
    ACCELERATED = True
except (ImportError, AttributeError):
    crc64, crc32c = slow_crc64, table_crc32c
    ACCELERATED = False
