"""One array as NumPy saves it; its name is that of the file."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.importing.containers._base import (
    Container,
    FlatArray,
    dtype_word,
    fault_of,
    refusing,
)
from gaam_cache.importing.containers._npy_header import read_header
from gaam_cache.importing.containers.safetensors import read_at


class Npy(Container):
    """A file of ``np.save``."""

    suffixes = (".npy",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with refusing(str(path)):
            self.arrays = [_Whole(self)]


class _Whole(FlatArray):
    def __init__(self, container: Npy) -> None:
        self.name = container.path.stem
        self.where = str(container.path)
        self._file = container.file
        header = read_header(self._file, container.identity.bytes)
        self.shape, self.stored, self._at = header.shape, header.dtype, header.bytes
        self.dtype = dtype_word(header.dtype)
        self.fault = fault_of(header.dtype, fortran_order=header.fortran_order)

    def bytes_at(self, offset: int, count: int, lane: int) -> bytes:
        return read_at(self._file.fileno(), self._at + offset, count)
