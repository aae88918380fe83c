"""Rows that one worker has read and checked, in a file for the others.

Reading five million rows, looking for what is suspicious and hashing them takes minutes, and needs
to be done once. The file carries a digest of all its content, which whoever opens it checks, and
again of every piece that is read later. It says of what it was made: of data that were changed
since, or of other columns, nobody takes it.

    header (JSON behind its length), then for each split: sizes of the texts (int64), class numbers
    (int32), the texts in UTF-8 one behind the other
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gaam_cache.errors import ConfigError, StorageError
from gaam_cache.format.files import write_file
from gaam_cache.format.sealed import SealedFile, SealedParts
from gaam_cache.sources._base import Rows
from gaam_cache.sources._spool import PackedTexts
from gaam_cache.sources._texts import Texts

FILE_NAME = "rows-{:.16}"
"""In the folder of the cache, while it is made: of rows with this key."""


class CheckedRows(NamedTuple):
    """Rows of all splits, read and checked, with what was found."""

    rows: dict[str, Rows]
    class_names: tuple[str, ...]
    content: dict[str, str]
    """Hash of every split."""
    shared_texts: dict[str, dict[str, int]]
    """Rows of a split whose text a split has too."""


def hand_over(checked: CheckedRows, folder: Path, key: str) -> bool:
    """Write rows for others; False where they are not texts, which each reads for itself.

    Args:
        checked: the rows.
        folder: of the cache.
        key: of what they are.

    Raises:
        StorageError: the file system refused.
    """
    parts = checked.rows.values()
    if not all(isinstance(part, Texts) and isinstance(part.inputs, PackedTexts) for part in parts):
        return False
    number = {name: place for place, name in enumerate(checked.class_names)}
    header = {
        "key": key,
        "class_names": checked.class_names,
        "content": checked.content,
        "shared_texts": checked.shared_texts,
        "splits": [
            {"name": name, "rows": len(part), "origin": part.origin, "revision": part.revision}
            for name, part in checked.rows.items()
        ],
    }
    about = json.dumps(header).encode()  # in its order: the plan has the splits so

    def content() -> Iterator[bytes]:
        yield len(about).to_bytes(8, "little") + about
        for part in parts:
            assert isinstance(part.inputs, PackedTexts)
            yield part.inputs.sizes().astype("<i8").tobytes()
            yield np.array([number[label] for label in part.labels], "<i4").tobytes()
            yield from part.inputs.raw()

    name = FILE_NAME.format(key)
    write_file(folder / name, SealedParts(name, content))
    return True


def take_over(folder: Path, key: str) -> CheckedRows | None:
    """Rows that another worker has written; None where there are none, or not these.

    Raises:
        OSError: they cannot be read.
    """
    try:
        file = SealedFile(folder / FILE_NAME.format(key))
        size = int.from_bytes(file.read(0, 8), "little")
        header = json.loads(file.read(8, size))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if header["key"] != key:
        return None
    names = tuple(header["class_names"])
    rows: dict[str, Rows] = {}
    at = 8 + size
    for split in header["splits"]:
        count = split["rows"]
        sizes = np.frombuffer(file.read(at, 8 * count), "<i8")
        labels = np.frombuffer(file.read(at + 8 * count, 4 * count), "<i4")
        begin = at + 12 * count
        ends = array("Q", np.concatenate([[begin], begin + np.cumsum(sizes)]).tolist())
        rows[split["name"]] = Texts(
            inputs=_SharedTexts(file, ends),
            labels=[names[label] for label in labels.tolist()],
            class_names=names,
            origin=split["origin"],
            revision=split["revision"],
        )
        at = ends[-1]
    return CheckedRows(rows, names, header["content"], header["shared_texts"])


class _SharedTexts(PackedTexts):
    """Texts in a file that others may write to: what is no longer what it was is refused."""

    def __init__(self, file: SealedFile, ends: array[int]) -> None:
        super().__init__(ends)
        self._sealed = file

    def _pread(self, offset: int, count: int) -> bytes:
        try:
            return self._sealed.read(offset, count)
        except ValueError as error:
            raise StorageError(
                "the rows that were read for all workers were changed",
                expected="the texts that were checked when they were read",
                found=str(error),
                hint="look at the disk and at who else writes there, and run the same again",
            ) from error


def put_away(folder: Path, key: str = "*") -> None:
    """Remove the file of these rows; or all of them, when the cache is complete."""
    for path in folder.glob(FILE_NAME.format(key)):
        path.unlink(missing_ok=True)


def needed(checked: CheckedRows | None, key: str) -> CheckedRows:
    """Rows that must be there.

    Raises:
        ConfigError: they are not.
    """
    if checked is None:
        raise ConfigError(
            "the rows that were read for all workers are gone",
            expected=f"the file '{FILE_NAME.format(key)}' in the folder of the cache",
            found="none, or it was changed",
            hint="run the same again, and nothing else on this folder meanwhile",
        )
    return checked
