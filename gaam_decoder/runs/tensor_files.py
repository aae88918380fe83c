"""Arrays <-> the bytes of a safetensors file, without a copy of all of them in memory.

Layout, as the library safetensors defines it: length of the header (8 bytes, little endian), the
header (JSON: dtype, shape and offsets of every tensor), the numbers, without a gap.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.store.files import Parts

Arrays = Mapping[str, NDArray[Any]]
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER_BYTES = 100 * 2**20
"""What the library allows."""
_JOINED_BYTES = 2**20
"""Smaller arrays are put together to parts of about this size."""


def tensor_parts(arrays: Arrays, metadata: Mapping[str, str]) -> Parts:
    """The content of a safetensors file; large parts are views of the arrays.

    Raises:
        KeyError: an array of a type that is not in ``DTYPES``.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    # the widest first: every array then begins where its type may begin
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts: list[bytes | memoryview] = []
    small = bytearray(len(text).to_bytes(8, "little") + text)
    for name in names:
        view = _bytes_of(np.ascontiguousarray(arrays[name]))
        if len(small) + len(view) > _JOINED_BYTES:
            parts.append(bytes(small))
            small.clear()
        if len(view) > _JOINED_BYTES:
            parts.append(view)
        else:
            small += view
    return [part for part in [*parts, bytes(small)] if part]


class TensorFile:
    """The tensors from where an open file stands to its end.

    No byte is allocated that the file does not have.

    Raises:
        ValueError: that is not what ``tensor_parts`` makes.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        try:
            self._entries, self.metadata, self._begin = _read_header(file)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no header of a safetensors file: {error!r}") from error

    def __iter__(self) -> Iterator[str]:
        """Names of the tensors."""
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that is there."""
        return self._entries[name][1]

    def read(self, name: str) -> NDArray[Any]:
        """One tensor.

        Raises:
            ValueError: there is none of that name, or the file has become shorter.
        """
        if name not in self._entries:
            raise ValueError(f"no tensor '{name}'")
        dtype, shape, offset = self._entries[name]
        array = np.empty(shape, dtype)
        self._file.seek(self._begin + offset)
        if array.nbytes and self._file.readinto(_bytes_of(array)) != array.nbytes:
            raise ValueError(f"the tensor '{name}' is cut off")
        return array


Entry = tuple[np.dtype[Any], tuple[int, ...], int]
"""Type, shape, offset behind the header."""


def _read_header(file: BufferedReader) -> tuple[dict[str, Entry], dict[str, str], int]:
    left = os.fstat(file.fileno()).st_size - file.tell() - 8
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(left, MAX_HEADER_BYTES):
        raise ValueError(f"a header of {length:,} bytes in a file of {left + 8:,}")
    header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    entries: dict[str, Entry] = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, stop = entry["data_offsets"]
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"'{name}' has the shape {shape}")
        if begin != end or stop - begin != dtype.itemsize * math.prod(shape):
            raise ValueError(f"'{name}' does not lie where it must")
        entries[name] = dtype, shape, begin
        end = stop
    if end != left - length:
        raise ValueError(f"tensors of {end:,} bytes in {left - length:,}")
    return entries, metadata, file.tell()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
