"""Arrays in an archive of NumPy's, compressed or not."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import IO

from gaam_cache.importing.containers._base import (
    Container,
    FlatArray,
    dtype_word,
    fault_of,
    refusing,
)
from gaam_cache.importing.containers._npy_header import read_header
from gaam_cache.importing.containers.safetensors import read_at

_SUFFIX = ".npy"
_LOCAL_HEADER_BYTES = 30
_PIECE_BYTES = 2**20


class Npz(Container):
    """A file of ``np.savez`` or ``np.savez_compressed``; nothing in it is ever unpickled.

    A compressed array is read from its beginning to its end: of an array (L, N, D) every layer
    begins at the beginning, so that reading it takes L / 2 times as long.
    """

    suffixes = (".npz",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with refusing(str(path)):
            archive = zipfile.ZipFile(self.file)
            infos = archive.infolist()
            names = [info.filename.removesuffix(_SUFFIX) for info in infos]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"'{twice[0]}' is there twice")
            members = [info for info in infos if not info.is_dir()]
            self.arrays = [_Member(self, archive, info) for info in members]


class _Member(FlatArray):
    def __init__(self, container: Npz, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        self.name = info.filename.removesuffix(_SUFFIX)
        self.where = f"{container.path}: {self.name}"
        self._archive, self._info = archive, info
        self._descriptor = container.file.fileno()
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"'{self.name}' is compressed in another way than NumPy does")
        with archive.open(info) as file:
            header = read_header(file, info.file_size)  # type: ignore[arg-type]
        self.shape, self.stored, self._begin = header.shape, header.dtype, header.bytes
        self.dtype = dtype_word(header.dtype)
        self.fault = fault_of(header.dtype, fortran_order=header.fortran_order)
        self._lanes: dict[int, tuple[IO[bytes], int]] = {}
        self._at: int | None = None
        if info.compress_type == zipfile.ZIP_STORED:
            self._at = self._place(container.identity.bytes)

    def _place(self, size: int) -> int:
        """Where a member that is not compressed lies in the archive."""
        local = os.pread(self._descriptor, _LOCAL_HEADER_BYTES, self._info.header_offset)
        lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        at = self._info.header_offset + _LOCAL_HEADER_BYTES + lengths
        if self._info.compress_size != self._info.file_size or at + self._info.file_size > size:
            raise ValueError(f"'{self.name}' ends beyond the end of the file")
        return at

    def check(self) -> None:
        """Compare the checksum of what is not compressed; what is, is compared while it is read."""
        if self._at is None:
            return
        found, left, at = 0, self._info.file_size, self._at
        with refusing(self.where):
            while left and (piece := os.pread(self._descriptor, min(left, _PIECE_BYTES), at)):
                found = zlib.crc32(piece, found)
                left, at = left - len(piece), at + len(piece)
            if left or found != self._info.CRC:
                raise ValueError(f"Bad CRC-32 for file {self._info.filename!r}")

    def bytes_at(self, offset: int, count: int, lane: int) -> bytes:
        if self._at is not None:
            return read_at(self._descriptor, self._at + self._begin + offset, count)
        offset += self._begin
        file, at = self._lanes.get(lane, (None, 0))
        if file is None or at > offset:
            file, at = self._archive.open(self._info), 0
        while at < offset and (skipped := file.read(min(offset - at, _PIECE_BYTES))):
            at += len(skipped)
        parts = []
        while count and (part := file.read(count)):
            parts.append(part)
            at, count = at + len(part), count - len(part)
        self._lanes[lane] = file, at
        return parts[0] if len(parts) == 1 else b"".join(parts)
