"""Arrays in a file of safetensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.format.strict_json import MAX_BYTES, parse_object
from gaam_cache.importing.containers._base import BITS, Container, FlatArray, refusing

_LENGTH_BYTES = 8
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
}


class Safetensors(Container):
    """A header in JSON and bytes behind it; read by ``pread``, never mapped."""

    suffixes = (".safetensors",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with refusing(str(path)):
            self.arrays = self._read_header()

    def _read_header(self) -> list[_Tensor]:
        size = self.identity.bytes
        length = int.from_bytes(os.pread(self.file.fileno(), _LENGTH_BYTES, 0), "little")
        start = _LENGTH_BYTES + length
        if size < _LENGTH_BYTES or start > size:
            raise ValueError(f"its header ends at byte {start:,}, the file at {size:,}")
        if length > MAX_BYTES:
            raise ValueError(f"a header of {length:,} bytes, at most {MAX_BYTES:,} make sense")
        header = parse_object(os.pread(self.file.fileno(), length, _LENGTH_BYTES), "the header")
        about = header.pop("__metadata__", {})
        if names := about.get("class_names"):
            self.class_names = {"": tuple(_strings(json.loads(names)))}
        found = [_Tensor(self, name, start, size - start, spec) for name, spec in header.items()]
        end = 0
        for tensor in sorted(found, key=lambda one: (one.begin, one.nbytes)):
            if tensor.begin != end:
                raise ValueError(f"'{tensor.name}' does not begin where the one before it ends")
            end += tensor.nbytes
        if end != size - start:
            raise ValueError(
                f"its arrays take {end:,} bytes, behind the header are {size - start:,}"
            )
        return found


class _Tensor(FlatArray):
    def __init__(
        self, container: Container, name: str, start: int, size: int, spec: dict[str, Any]
    ) -> None:
        self.name = name
        self.where = f"{container.path}: {name}"
        self._file = container.file
        shape, (begin, end) = spec["shape"], spec["data_offsets"]
        if not all(type(n) is int and 0 <= n < 2**48 for n in (*shape, begin, end)):
            raise ValueError(f"'{name}' has sizes that are no whole numbers")
        self.begin: int = begin
        self._at = start + begin
        self.shape = tuple(shape)
        self.dtype = _DTYPES.get(spec["dtype"], str(spec["dtype"]))
        if spec["dtype"] not in _DTYPES:
            self.fault = "a type that is not read"
        self.stored = np.dtype(BITS.get(self.dtype, self.dtype if self.fault is None else "u1"))
        self.stored = self.stored.newbyteorder("<")
        if end > size or begin > end:
            raise ValueError(f"'{name}' ends at byte {end:,} of {size:,}")
        if self.fault is None and end - begin != super().nbytes:
            raise ValueError(f"'{name}' has {end - begin:,} bytes for its shape and type")
        self._nbytes = end - begin

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def bytes_at(self, offset: int, count: int, lane: int) -> bytes:
        return read_at(self._file.fileno(), self._at + offset, count)


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Bytes of a file, fewer only at its end."""
    parts = []
    while count and (part := os.pread(descriptor, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("'class_names' is no list of strings")
    return value
