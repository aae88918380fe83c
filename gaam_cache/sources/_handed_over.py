"""Rows that one worker has read and checked, in a file for the others.

Reading five million rows, looking for what is suspicious and hashing them takes minutes, and needs
to be done once. The file carries a digest of all its content, which whoever opens it checks, and
again of every piece that is read later. It says of what it was made: of data that were changed
since, or of other columns, nobody takes it.

    header (JSON behind its length), then for each split: class numbers (int32; -1: not known), and
    as texts what inputs are made of, each kept column, and where rows were left out

    texts: sizes (int64), then they themselves in UTF-8 one behind the other
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
from gaam_cache.sources._base import NO_LABEL, Packed, Rows
from gaam_cache.sources._kinds import rows_of_kind
from gaam_cache.sources._spool import PackedTexts, packed

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
    """Write rows for others; False where nobody else can make their inputs, so that each reads.

    Args:
        checked: the rows.
        folder: of the cache.
        key: of what they are.

    Raises:
        StorageError: the file system refused.
    """
    inputs = {name: part.packed_inputs() for name, part in checked.rows.items()}
    if None in inputs.values():
        return False
    number = {name: place for place, name in enumerate(checked.class_names)} | {NO_LABEL: -1}
    splits, parts = [], []
    for name, part in checked.rows.items():
        packed_inputs = inputs[name]
        assert packed_inputs is not None
        splits.append(
            {
                "name": name,
                "kind": part.kind,
                "rows": len(part),
                "about": packed_inputs.about,
                "origin": part.origin,
                "revision": part.revision,
                "labelled": part.labelled,
                "kept": list(part.kept),
                "skipped": len(part.skipped),
            }
        )
        texts = [packed_inputs.texts, *map(packed, part.kept.values()), packed(part.skipped)]
        parts.append((part.labels, texts))
    header = {
        "key": key,
        "class_names": checked.class_names,
        "content": checked.content,
        "shared_texts": checked.shared_texts,
        "splits": splits,
    }
    about = json.dumps(header).encode()  # in its order: the plan has the splits so

    def content() -> Iterator[bytes]:
        yield len(about).to_bytes(8, "little") + about
        for labels, texts in parts:
            yield np.array([number[label] for label in labels], "<i4").tobytes()
            for one in texts:
                yield one.sizes().astype("<i8").tobytes()
                yield from one.raw()

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
        numbers = np.frombuffer(file.read(at, 4 * count), "<i4").tolist()
        inputs, at = _texts(file, at + 4 * count, count)
        kept = {}
        for column in split["kept"]:
            kept[column], at = _texts(file, at, count)
        skipped, at = _texts(file, at, split["skipped"])
        cls = rows_of_kind(split["kind"])
        rows[split["name"]] = cls(
            inputs=cls.unpacked_inputs(Packed(inputs, split["about"])),
            labels=[NO_LABEL if number < 0 else names[number] for number in numbers],
            class_names=names,
            origin=split["origin"],
            revision=split["revision"],
            kept=kept,
            skipped=skipped,
            labelled=split["labelled"],
        )
    return CheckedRows(rows, names, header["content"], header["shared_texts"])


def _texts(file: SealedFile, at: int, count: int) -> tuple[_SharedTexts, int]:
    """So many texts that begin there, and where what follows them does."""
    sizes = np.frombuffer(file.read(at, 8 * count), "<i8")
    begin = at + 8 * count
    ends = array("Q", np.concatenate([[begin], begin + np.cumsum(sizes)]).tolist())
    return _SharedTexts(file, ends), ends[-1]


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
