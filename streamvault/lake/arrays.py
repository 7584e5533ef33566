"""Arrow arrays from buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas, where it is installed, to see whether their argument is of pandas.
It takes up to a second of each process, and a table has no other use for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as an array, which shares their memory."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def integers(value: int, count: int) -> pa.Array:
    """Return an array of ``count`` times the same 32-bit integer."""
    return numbers(np.full(count, value, np.int32))


def none_of(count: int) -> pa.Array:
    """Return an array of ``count`` times false."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes((count + 7) // 8))])


def texts(value: str, count: int) -> pa.Array:
    """Return an array of ``count`` times the same text."""
    data = value.encode()
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(data)))
    return pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(data * count)])


def text(value: str) -> pa.Scalar:
    """Return one text."""
    return texts(value, 1)[0]
