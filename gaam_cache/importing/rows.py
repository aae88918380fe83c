"""Rows of states, as the checks of rows and the fingerprint see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.format.digest import digest_of
from gaam_cache.format.finite import check_digits
from gaam_cache.format.plan import MAX_VALUE_BYTES
from gaam_cache.import_config import IMPORTED
from gaam_cache.importing.containers._base import STRINGS, Array
from gaam_cache.importing.labels import READ_AT_A_TIME, NamedLabels
from gaam_cache.importing.states import States
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows
from gaam_cache.terminal import Report

DIGEST_BYTES = 32
MOST_TOKENS = 2**31 - 1
"""What the array of a shard holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """A split that is ready to be read: what its rows are, row by row."""

    states: States
    labels: NamedLabels
    labelled: bool
    kept: Mapping[str, Sequence[str]]
    """Columns that the cache keeps."""
    num_tokens: NDArray[np.int32] | None
    """How many tokens each was pooled from, where somebody says so."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.labels)


class RowDigests(Sequence[bytes]):
    """SHA-256 of the stored states of every row, 32 bytes a row in memory."""

    def __init__(self, joined: bytes | bytearray) -> None:
        self._joined = joined

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._joined) // DIGEST_BYTES

    def __getitem__(self, index: int | slice) -> bytes:  # type: ignore[override]
        """Of one row; of a slice, one behind the other."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return bytes(self._joined[start * DIGEST_BYTES : stop * DIGEST_BYTES])
        row = range(len(self))[index]
        return bytes(self._joined[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES])


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRows(Rows):
    """Rows whose inputs nobody has: digests of their states stand for them."""

    kind: ClassVar[str] = IMPORTED
    noun: ClassVar[str] = "state"
    inputs: RowDigests

    def contents(self) -> Iterator[bytes]:
        """The digest of every row."""
        return (self.inputs[row] for row in range(len(self.inputs)))

    def essences(self) -> Iterator[bytes]:
        """The same: rows are the same where all their states are, bit by bit."""
        return self.contents()

    def excerpt(self, row: int) -> str:
        """All that people know of a row."""
        return f"all layers are the same; its label is '{self.labels[row]}'"


def digests_of(rows_NLD: NDArray[np.generic]) -> bytes:
    """Of every row, one behind the other."""
    return b"".join(
        bytes.fromhex(digest_of(row.data)) for row in rows_NLD.reshape(len(rows_NLD), -1)
    )


def look_at(
    materials: Mapping[str, Material],
    origins: Mapping[str, str],
    storage_dtype: str,
    report: Report,
) -> dict[str, ImportedRows]:
    """Read and check every number once.

    Raises:
        NumericsError: one that is not finite, or that cannot be stored; or a layer of numbers that
            are too small for the storage type.
        DataError: a file is damaged.
    """
    found = {}
    total, done = sum(map(len, materials.values())), 0
    for split, material in materials.items():
        joined, states = bytearray(), material.states
        digits_2L = np.zeros((2, states.num_layers), np.int64)
        for start in range(0, len(material), states.block_rows()):
            report(done + start, total, f"checking '{split}'")
            stop = min(start + states.block_rows(), len(material))
            joined += digests_of(states.stored(start, stop, storage_dtype, digits_2L))
        where = f"{origins[split]}, row 1 to row {len(material)}"
        check_digits(digits_2L, storage_dtype, first_layer=1, where=where)
        done += len(material)
        found[split] = ImportedRows(
            inputs=RowDigests(joined),
            labels=material.labels,
            class_names=None,
            origin=origins[split],
            kept=material.kept,
            labelled=material.labelled,
        )
    return found


def read_column(array: Array, rows: int, split: str) -> list[str]:
    """A column that is kept; whole numbers become their digits.

    Raises:
        DataError: not one text for every row that a shard can keep.
    """
    whole = array.dtype.startswith(("int", "uint"))
    if array.fault is not None or array.shape != (rows,) or not (whole or array.dtype == STRINGS):
        raise DataError(
            f"the array '{array.name}' cannot be a column of '{split}'",
            expected=f"{rows:,} strings or whole numbers",
            found=f"{array.dtype} {array.shape}",
            where=array.where,
        )
    found: list[str] = []
    known: dict[str, str] = {}  # one object for a value that many rows have
    for start in range(0, rows, READ_AT_A_TIME):
        part = array.read(start, min(start + READ_AT_A_TIME, rows)).tolist()
        for row, value in enumerate(map(str, part), start):
            content = value.encode("utf-8", "surrogatepass")
            if "\0" in value or len(content) > MAX_VALUE_BYTES or not _is_whole(content):
                raise DataError(
                    f"a value of the column '{array.name}' cannot be kept",
                    expected=f"text of at most {MAX_VALUE_BYTES:,} bytes without NUL",
                    found=excerpt(value),
                    where=f"{array.where}, row {row + 1}",
                )
            found.append(known.setdefault(value, value))
    return found


def _is_whole(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_num_tokens(array: Array, rows: int, split: str) -> NDArray[np.int32]:
    """How many tokens every row was pooled from.

    Raises:
        DataError: not one whole number from 1 for every row.
    """
    if array.fault is None and array.shape == (rows,) and array.dtype.startswith(("int", "uint")):
        values = array.read(0, rows)
        wrong_N = (values < 1) | (values > MOST_TOKENS)
        if not wrong_N.any():
            return values.astype(np.int32)
        row = int(wrong_N.argmax())
        found, where = str(values[row]), f"{array.where}, row {row + 1}"
    else:
        found, where = f"{array.dtype} {array.shape}", array.where
    raise DataError(
        f"the array '{array.name}' cannot be the numbers of tokens of '{split}'",
        expected=f"{rows:,} whole numbers from 1",
        found=found,
        where=where,
    )
