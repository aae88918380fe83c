"""States that others made become a cache: files or arrays in, shards out.

N rows, L layers, D features.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.config import NAME_PATTERN
from gaam_cache.config_checks import SHARD_ROWS
from gaam_cache.engines._claims import Claims
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamWarning, NumericsError
from gaam_cache.extraction.job import class_order, content_of
from gaam_cache.extraction.recorded import settings_of_import
from gaam_cache.extraction.shards import CLAIM_FOLDER, RowArrays, Undone, discard_broken
from gaam_cache.import_config import IMPORTED, ImportConfig, check_class_names
from gaam_cache.messages import excerpt, shortened, visible
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.sources._base import NO_LABEL, Rows
from gaam_cache.store.arrays import STRINGS, Array, File, open_file
from gaam_cache.store.choose import READABLE, Taken, choose
from gaam_cache.store.digest import digest_of, hash_file, hash_values, short_digest
from gaam_cache.store.dtypes import (
    ITEM_BYTES,
    LARGEST,
    NUMPY_DTYPES,
    as_float32,
    check_digits,
    count_digits,
    first_not_finite,
    stored,
    width_of,
)
from gaam_cache.store.files import check_folder, storage_errors
from gaam_cache.store.plan import (
    FORMAT_VERSION,
    KEY,
    MAX_SHARD_BYTES,
    MAX_VALUE_BYTES,
    PLAN_FILE,
    Plan,
    Planted,
    ShardSpec,
    adopt_plan,
    fingerprint,
    read_plan,
    rows_per_shard,
    write_plan,
)
from gaam_cache.store.shard import (
    build_image,
    embeddings_key,
    missing_shards,
    prepare_folder,
    publish,
    receipt_path,
    shard_attributes,
)
from gaam_cache.terminal import Report, in_thread, silent

BLOCK_BYTES = 8 * 2**20
"""Of states that are read and converted at a time: enough that a read costs more than asking."""
MOST_CLASSES = 10**6
"""A number beyond this is no class: a plan names every class, and would be too large to be read."""
DIMENSIONS = {"nd": 2, "nld": 3, "lnd": 3}
SHOWN = 12
"""Classes, and arrays that are not taken, that are listed for people."""
PAUSE_SECONDS = 0.2
"""Between two looks at what another import makes."""


class States:
    """States in one array (N, L, D), (L, N, D) or (N, D), or in one (N, D) for each layer.

    Args:
        split: whose they are.
        arrays: one, or one for every layer.
        rows: how many there must be; None: as many as there are.
        axes: what those of an array are; None: as its dimensions say, rows first.
    """

    def __init__(
        self, split: str, arrays: Sequence[Array], rows: int | None, axes: str | None
    ) -> None:
        self.arrays, self._split = arrays, split
        first = arrays[0].shape
        self.axes = axes or ("nld" if len(arrays) == 1 and len(first) == 3 else "nd")
        for array in arrays:
            if array.dtype not in READABLE:
                expected = f"one of the types {', '.join(READABLE)}"
                raise self._refused(array, "cannot be states", expected, array.dtype)
        fits = len(first) == DIMENSIONS[self.axes]
        self.rows = rows or (first[self.axes.index("n")] if fits else 0)
        for array in arrays:
            self._check_shape(array, axes, rows is not None)
        self.num_layers = first[self.axes.index("l")] if "l" in self.axes else len(arrays)
        self.hidden_size = first[-1]
        self.dtypes = sorted({array.dtype for array in arrays})
        if self.num_layers * self.hidden_size * min(ITEM_BYTES.values()) > MAX_SHARD_BYTES:
            expected = f"at most {MAX_SHARD_BYTES:,} bytes"
            raise self._refused(arrays[0], "has rows that fit no shard", expected)

    def _check_shape(self, array: Array, axes: str | None, labelled: bool) -> None:
        dimensions, shape, at = len(array.shape), array.shape, self.axes.index("n")
        if len(self.arrays) > 1 and (dimensions != 2 or self.axes != "nd"):
            raise self._refused(array, "cannot be one of several layers", "(rows, features)")
        if dimensions == 4 or (dimensions == 3 and self.axes == "nd"):
            raise self._refused(
                array,
                "has too many axes",
                "(rows, layers, features), (rows, features), or --set axes=lnd: "
                "(layers, rows, features)",
                hint="states of every token have to be pooled before: one vector for each layer",
            )
        if dimensions != DIMENSIONS[self.axes]:
            raise self._refused(array, "has other axes", " x ".join(self.axes))
        if 0 in shape:
            raise self._refused(array, "is empty", "at least one row, layer and feature")
        if shape[at] != self.rows:
            fits = dimensions == 3 and shape[1 - at] == self.rows
            better = "nld" if self.axes == "lnd" else "lnd"
            raise self._refused(
                array,
                "has not one entry per label",
                f"{self.rows:,} rows, as there are labels",
                hint=f"--set axes={better}, if that is what its axes are" if fits else None,
            )
        if axes is None and dimensions == 3 and shape[1] == self.rows and labelled:
            says = "--set axes=nld or --set axes=lnd, which says what its axes are"
            raise self._refused(array, "has as many rows as layers", says)
        if shape != self.arrays[0].shape:
            expected = str(self.arrays[0].shape)
            raise self._refused(array, "is of another shape than the first layer", expected)

    def _refused(
        self, array: Array, what: str, expected: str, found: str = "", hint: str | None = None
    ) -> DataError:
        return DataError(
            f"the array '{array.name}' {what}",
            expected=expected,
            found=found or f"{array.dtype} {array.shape}",
            where=f"{array.where}, for '{self._split}'",
            hint=hint,
        )

    def stored(
        self, start: int, stop: int, storage_dtype: str, digits: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Rows as they are stored, (n, L, D); bfloat16 as its bits.

        To ``digits``, (2, L), are added those that lost their digits, and those that are not 0.
        """
        out = np.empty(
            (stop - start, self.num_layers, self.hidden_size), NUMPY_DTYPES[storage_dtype]
        )
        whole, step = self.axes == "nld", self.block_rows()
        for first in range(start, stop, step):
            last = min(first + step, stop)
            for layer in range(1 if whole else self.num_layers):
                array = self.arrays[layer if len(self.arrays) > 1 else 0]
                given = array.read(first, last, layer if self.axes == "lnd" else None)
                given_NLD = given if whole else given[:, None]
                kept = stored(given_NLD, array.dtype, storage_dtype)
                if (bad := first_not_finite(kept, storage_dtype)) is not None:
                    of_bf16 = array.dtype == "bfloat16"
                    value = float(as_float32(given_NLD[bad]) if of_bf16 else given_NLD[bad])
                    number, row = layer + bad[1] + 1, first + bad[0] + 1
                    raise _unstorable(value, storage_dtype, number, row, bad[2], array.where)
                layers = slice(None) if whole else slice(layer, layer + 1)
                out[first - start : last - start, layers] = kept
                if digits is not None and array.dtype != storage_dtype:
                    digits[:, layers] += count_digits(given_NLD, kept, array.dtype, storage_dtype)
        return out

    def block_rows(self) -> int:
        """Rows to read at a time."""
        return max(1, BLOCK_BYTES // (self.num_layers * self.hidden_size * 8))


def _unstorable(
    value: float, storage_dtype: str, layer: int, row: int, feature: int, where: str
) -> NumericsError:
    overflow = bool(np.isfinite(value))
    wider = "--storage-dtype bfloat16 or float32" if storage_dtype == "float16" else None
    return NumericsError(
        f"a state of layer {layer} cannot be stored as {storage_dtype}"
        if overflow
        else f"a state of layer {layer} is {value}",
        expected=f"finite values up to {LARGEST[storage_dtype]:g}",
        found=f"{value:g} in feature {feature}",
        where=f"{where}, row {row}, layer {layer}, feature {feature}",
        hint=wider if overflow else "look at the row: whoever made it computed no number there",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSplit:
    """A split that is ready to be read."""

    states: States
    labels: NDArray[np.int64]
    labelled: bool
    kept: Mapping[str, Sequence[str]]
    """Columns that the cache keeps."""
    num_tokens: NDArray[np.int32] | None
    """How many tokens each was pooled from, where somebody says so."""
    taken: dict[str, Any]
    """What is taken as what, for the fingerprint: JSON values."""
    origin: str
    """Where its rows come from, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportJob:
    """An import that is ready to begin."""

    splits: Mapping[str, ImportSplit]
    class_names: tuple[str, ...]
    storage_dtype: str
    num_layers: int
    hidden_size: int
    columns: dict[str, int]
    """Columns that are kept, and how many bytes the longest value takes."""
    left: tuple[str, ...] = ()
    """Arrays that are not taken, for people."""
    files: Sequence[File] = ()

    @property
    def rows(self) -> dict[str, int]:
        """Of every split."""
        return {name: split.states.rows for name, split in self.splits.items()}

    @property
    def bytes_per_row(self) -> int:
        """Of states and columns, as they are stored."""
        states = self.num_layers * self.hidden_size * ITEM_BYTES[self.storage_dtype]
        return states + sum(self.columns.values())


@contextmanager
def opened(config: ImportConfig) -> Iterator[ImportJob]:
    """Open the files of an import and find out what to take; reads labels, but no states."""
    with ExitStack() as stack:
        files = [open_file(Path(name).expanduser(), stack) for name in config.files]
        splits, names, left = choose(files, config)
        told = tuple(f"{array.where} {array.dtype} {array.shape}" for array in left)
        yield _job(splits, config, names, told, files)


def _job(
    splits: Mapping[str, Taken],
    config: ImportConfig,
    class_names: tuple[str, ...] | None,
    left: tuple[str, ...] = (),
    files: Sequence[File] = (),
) -> ImportJob:
    """Check that what is taken fits together."""
    check_class_names(class_names or ())
    labels = {split: one.labels for split, one in splits.items() if one.labels is not None}
    if not labels:
        raise ConfigError("no split has labels", expected="one at least that has")
    found = {}
    names, numbers = _read_labels(labels, class_names)
    for split, taken in splits.items():
        rows = len(numbers[split]) if split in labels else None
        states = States(split, taken.states, rows, config.axes)
        first, last = taken.states[0], taken.states[-1]
        one_each = {"labels": taken.labels, "num_tokens": taken.num_tokens}
        found[split] = ImportSplit(
            states=states,
            labels=numbers.get(split, np.zeros(states.rows, np.int64)),
            labelled=split in labels,
            kept={k: _read_column(array, states.rows) for k, array in taken.columns.items()},
            num_tokens=_read_num_tokens(taken.num_tokens, states.rows),
            taken={
                "states": [array.name for array in taken.states],
                "dtypes": states.dtypes,
                "axes": states.axes,
                "columns": {name: array.name for name, array in taken.columns.items()},
                **{role: array.name for role, array in one_each.items() if array is not None},
            },
            origin=first.where if first is last else f"{first.where} to {last.name}",
        )
    sizes = {name: (s.states.num_layers, s.states.hidden_size) for name, s in found.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the splits have states of different sizes",
            expected="as many layers and features in every split",
            found=", ".join(f"{split}: {size[0]} x {size[1]}" for split, size in sizes.items()),
            hint="where the second axis is tokens: pool them before, to one vector for each layer",
        )
    dtypes = set().union(*(split.states.dtypes for split in found.values()))
    lossless = next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= LARGEST.keys() else "float32"
    num_layers, hidden_size = next(iter(sizes.values()))
    return ImportJob(
        splits=found,
        class_names=names,
        storage_dtype=config.storage_dtype or lossless,
        num_layers=num_layers,
        hidden_size=hidden_size,
        columns={
            name: max(width_of(split.kept[name]) for split in found.values())
            for name in config.keep_columns
        },
        left=left,
        files=files,
    )


def _whole(array: Array) -> bool:
    return array.dtype.startswith(("int", "uint"))


def _read_labels(
    arrays: Mapping[str, Array], names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """What the classes are called, and of every labelled split the number of every row."""
    reference = "train" if "train" in arrays else next(iter(arrays))
    for split, array in arrays.items():
        if len(array.shape) != 1 or not (_whole(array) or array.dtype == STRINGS):
            raise DataError(
                f"the array '{array.name}' cannot be the labels of '{split}'",
                expected="one whole number from 0, or one string, for every row",
                found=f"{array.dtype} {array.shape}",
                where=array.where,
                hint="--labels SPLIT=NAME names another array",
            )
        if not array.shape[0]:
            raise DataError(f"'{split}' has no rows", where=array.where)
        if _whole(array) != _whole(arrays[reference]):
            raise DataError(
                "labels are numbers in one split and strings in another",
                expected="the same everywhere",
                found=", ".join(f"{one}: {arrays[one].dtype}" for one in arrays),
            )
    values = {split: array.read(0, array.shape[0]) for split, array in arrays.items()}
    if _whole(arrays[reference]):
        count = len(names) if names else int(values[reference].max()) + 1
        for split, number_N in values.items():
            wrong_N = (number_N < 0) | (number_N >= min(count, MOST_CLASSES))
            if wrong_N.any():
                row = int(wrong_N.argmax())
                known = f"{count:,} classes" + ("" if names else f", as in '{reference}'")
                raise DataError(
                    "a label is no class",
                    expected=f"0 to {min(count, MOST_CLASSES) - 1:,} ({known})",
                    found=str(number_N[row]),
                    where=f"{arrays[split].where}, row {row + 1}",
                    hint="--set class-name=NAME, once for each class, says how many there are",
                )
        numbers = {split: number_N.astype(np.int64) for split, number_N in values.items()}
        return names or tuple(map(str, range(count))), numbers
    texts = {split: value_N.tolist() for split, value_N in values.items()}
    for split, text, row in ((s, t, row) for s in texts for row, t in enumerate(texts[s])):
        if not isinstance(text, str) or not text or not _is_whole(text):
            raise DataError(
                "a label is no text",
                expected="a string with something in it, in whole characters",
                found=excerpt(text),
                where=f"{arrays[split].where}, row {row + 1}",
            )
    known_names = names or class_order(set(texts[reference]))
    number = {name: index for index, name in enumerate(known_names)}
    for split, of_split in texts.items():
        for text in sorted(set(of_split) - number.keys(), key=of_split.index):
            shown = ", ".join(excerpt(name) for name in known_names[:20])
            source = "the class names" if names else f"'{reference}'"
            raise DataError(
                f"the label {excerpt(text)} occurs in '{split}' but not in {source}",
                expected=f"one of: {shown}" + (", ..." if len(known_names) > 20 else ""),
                found=excerpt(text),
                where=f"{arrays[split].where}, row {of_split.index(text) + 1}",
                hint="no decoder can learn a class without examples: mend the labels",
            )
    return tuple(known_names), {
        split: np.array([number[text] for text in of_split], np.int64)
        for split, of_split in texts.items()
    }


def _is_whole(text: str) -> bool:
    """Whether it is made of whole characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_column(array: Array, rows: int) -> list[str]:
    """A column that is kept; whole numbers become their digits."""
    if array.shape != (rows,) or not (_whole(array) or array.dtype == STRINGS):
        raise DataError(
            f"the array '{array.name}' cannot be a column",
            expected=f"{rows:,} strings or whole numbers",
            found=f"{array.dtype} {array.shape}",
            where=array.where,
        )
    found = list(map(str, array.read(0, rows).tolist()))
    for row, value in enumerate(found):
        if "\0" in value or not _is_whole(value) or len(value.encode()) > MAX_VALUE_BYTES:
            raise DataError(
                f"a value of the column '{array.name}' cannot be kept",
                expected=f"text of at most {MAX_VALUE_BYTES:,} bytes without NUL",
                found=excerpt(value),
                where=f"{array.where}, row {row + 1}",
            )
    return found


def _read_num_tokens(array: Array | None, rows: int) -> NDArray[np.int32] | None:
    """How many tokens every row was pooled from."""
    if array is None:
        return None
    found, where = f"{array.dtype} {array.shape}", array.where
    if array.shape == (rows,) and _whole(array):
        values = array.read(0, rows)
        wrong_N = (values < 1) | (values > 2**31 - 1)
        if not wrong_N.any():
            return values.astype(np.int32)
        row = int(wrong_N.argmax())
        found, where = str(values[row]), f"{array.where}, row {row + 1}"
    raise DataError(
        f"the array '{array.name}' cannot be numbers of tokens",
        expected=f"{rows:,} whole numbers from 1",
        found=found,
        where=where,
    )


def hash_files(files: Sequence[File], report: Report = silent) -> dict[str, str]:
    """SHA-256 of the files, by their names from the folder that all are in."""
    found: dict[str, str] = {}
    folder = os.path.commonpath([file.path.absolute().parent for file in files])
    for file in files:
        report(0, 0, f"hashing {file.path.name}")
        name = file.path.absolute().relative_to(folder).as_posix()
        if name in found:
            raise CacheError(f"'{name}' is there twice")
        found[name] = hash_file(file.path)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRows(Rows):
    """Rows whose inputs nobody has: digests of their stored states, bit by bit, stand for them."""

    kind: ClassVar[str] = IMPORTED
    noun: ClassVar[str] = "state"

    def contents(self) -> Iterator[bytes]:
        """The digest of every row."""
        return iter(self.inputs)

    def excerpt(self, row: int) -> str:
        """All that people know of a row."""
        return f"all layers are the same; its label is '{self.labels[row]}'"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    """What an import did."""

    path: str
    fingerprint: str
    encoder: str
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: Mapping[str, int]
    shards: int
    shards_made: int
    """In this run; the others were there."""
    seconds: float
    left: tuple[str, ...]
    """Arrays of the files that were not taken."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        run = f"{self.shards_made:,} of {self.shards:,} shards in {self.seconds:.1f} s"
        lines = [
            f"the cache in '{visible(self.path)}' is complete",
            f"  encoder      {visible(self.encoder)}: states that were computed elsewhere, "
            f"{self.num_layers} layers x {self.hidden_size}, stored as {self.storage_dtype}",
            f"  rows         {rows}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  this run     {run if self.shards_made else 'nothing to do, every shard was there'}",
            *_not_taken(self.left),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPreview:
    """What an import would take as what."""

    splits: Mapping[str, dict[str, Any]]
    class_names: tuple[str, ...]
    num_layers: int
    hidden_size: int
    storage_dtype: str
    shards: int
    bytes: int
    """On disk, of states and columns."""
    left: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        lines = []
        for name, split in self.splits.items():
            first, last = split["states"][0], split["states"][-1]
            names = first if first == last else f"{first} to {last}, one for each layer"
            labels = "none: to predict on"
            if "labels" in split:
                counts = list(split["rows_per_class"].items())
                shown = [f"{visible(one)} {count:,}" for one, count in counts[:SHOWN]]
                more = ["..."] if len(counts) > SHOWN else []
                labels = f"{visible(split['labels'])}: {', '.join(shown + more)}"
            kept = [visible(array) for array in split["columns"].values()]
            lines += [
                f"{visible(name)}: {split['rows']:,} rows",
                f"  states       {visible(names)}, {'/'.join(split['dtypes'])}, "
                f"axes {split['axes']}",
                f"  labels       {labels}",
                f"  tokens       {visible(split.get('num_tokens', 'not known'))}",
                *([f"  columns      {', '.join(kept)}"] if kept else []),
            ]
        size = f"{self.num_layers} layers x {self.hidden_size}, to be stored as "
        size += f"{self.storage_dtype}: {self.shards:,} shards, {self.bytes / 1e6:,.1f} MB"
        return "\n".join([*lines, size, *_not_taken(self.left)])


def _not_taken(left: tuple[str, ...]) -> list[str]:
    lines = [f"  not taken    {visible(array)}" for array in left[:SHOWN]]
    return [*lines, f"  not taken    {len(left) - SHOWN:,} more"] if len(left) > SHOWN else lines


def preview_import(config: ImportConfig) -> ImportPreview:
    """What ``import_states`` would take as what; reads labels, but no states; writes nothing.

    Raises:
        ConfigError: what to take is not clear.
        DataError: a file is damaged, or its arrays do not fit together.
    """
    check_folder(config.out, option="--out")
    with opened(config) as job:
        splits = {}
        for name, split in job.splits.items():
            splits[name] = {"rows": split.states.rows, **split.taken}
            if split.labelled:
                counts = np.bincount(split.labels, minlength=len(job.class_names)).tolist()
                splits[name]["rows_per_class"] = dict(zip(job.class_names, counts, strict=True))
        most = rows_per_shard(job.bytes_per_row, config.shard_rows)
        return ImportPreview(
            splits=splits,
            class_names=job.class_names,
            num_layers=job.num_layers,
            hidden_size=job.hidden_size,
            storage_dtype=job.storage_dtype,
            shards=sum(-(-count // most) for count in job.rows.values()),
            bytes=sum(job.rows.values()) * job.bytes_per_row,
            left=job.left,
        )


def import_states(config: ImportConfig, *, progress: Report | None = None) -> ImportSummary:
    """Make a cache of states that somebody else computed, or complete one.

    Every number is read twice: once to check and hash it before anything is written, and once to
    write it. At most the rows of one shard are in memory, but of an npz all that is taken.

    Args:
        config: which files, what to take from them, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: what to take is not clear, or the folder holds another cache.
        DataError: a file is damaged, or its arrays do not fit together.
        NumericsError: a state that is no number, or that cannot be stored.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    check_folder(config.out, option="--out")
    with opened(config) as job:
        recorded = {"import": settings_of_import(config)}
        return _publish(job, config, progress or silent, recorded=recorded)


def write(
    out: str | Path,
    splits: Mapping[str, tuple[Any, Any]],
    *,
    class_names: Sequence[str] = (),
    num_tokens: Mapping[str, Any] | None = None,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    axes: Literal["nld", "lnd", "nd"] | None = None,
    storage_dtype: Literal["float16", "float32", "bfloat16"] | None = None,
    encoder_name: str = IMPORTED,
    dataset_name: str = "arrays of a program",
    pool: str = IMPORTED,
    shard_rows: int = SHARD_ROWS,
    planted: Planted | None = None,
    progress: Report | None = None,
) -> ImportSummary:
    """Make a cache of states that this program has, or complete one.

    >>> gaam_cache.write("cache", {"train": (states, labels), "test": (others, theirs)})
    ... # doctest: +SKIP

    Every number is read twice: once to check and hash it before anything is written, and once to
    write it. At most the rows of one shard are copied; what is larger than memory comes as a memory
    map (``np.lib.format.open_memmap``) or a data set of h5py.

    Shape:
        states: (N, L, D); or a list of L arrays (N, D), one for each layer; or (N, D), which is
            one layer; or (L, N, D) with ``axes="lnd"``.
        labels: (N,).

    Args:
        out: folder of the cache.
        splits: name -> states (float16, bfloat16, float32 or float64, of NumPy, torch or h5py) and
            labels (whole numbers from 0, or strings; None of a split without, to predict on).
        class_names: in order, where labels are numbers; default: the numbers.
        num_tokens: name -> how many tokens each row was pooled from, (N,).
        columns: name of a column that the cache keeps -> split -> a string for every row.
        axes: what those of an array are: n rows, l layers, d features.
        storage_dtype: default: the type of the states, or float32.
        encoder_name: what reports call the encoder.
        dataset_name: what reports call the data.
        pool: what reports call the way in which states were pooled: 1 to 16 lower-case letters.
        shard_rows: rows of one shard at most.
        planted: what is known of the teacher of the labels, where there was one.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: an argument is wrong, or the folder holds another cache.
        DataError: arrays that do not fit together.
        NumericsError: a state that is no number, or that cannot be stored.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    tokens, kept = num_tokens or {}, columns or {}
    config = ImportConfig(
        files=(dataset_name,),  # it checks what is the same for files
        out=Path(out).expanduser(),
        class_names=tuple(class_names),
        keep_columns=tuple(kept),
        axes=axes,
        storage_dtype=storage_dtype,
        encoder_name=encoder_name,
        dataset_name=dataset_name,
        pool=pool,
        shard_rows=shard_rows,
    )
    check_folder(config.out, option="out")
    if not splits:
        raise ConfigError("nothing to write", expected="at least one split")
    taken = {}
    for split, pair in splits.items():
        if not isinstance(split, str) or not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"split '{shortened(str(split))}' cannot be part of a file name",
                expected="letters, digits, '_' and '.'",
            )
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ConfigError(
                f"'{split}' is no pair", expected="(states, labels)", found=type(pair).__name__
            )
        states, labels = pair
        arrays = [(f"states of '{split}'", states)]
        if isinstance(states, (list, tuple)):
            arrays = [(f"layer {n} of '{split}'", one) for n, one in enumerate(states, start=1)]
        if not arrays:
            raise ConfigError(f"'{split}' has no layers", expected="at least one array (N, D)")
        for column, of_splits in kept.items():
            if split not in of_splits:
                raise ConfigError(f"'{split}' has no column '{shortened(column)}'")
        taken[split] = Taken(
            states=[Array(*one) for one in arrays],
            labels=None if labels is None else Array(f"labels of '{split}'", labels),
            num_tokens=Array(f"num_tokens of '{split}'", tokens[split])
            if split in tokens
            else None,
            columns={
                name: Array(f"column '{name}' of '{split}'", of_splits[split])
                for name, of_splits in kept.items()
            },
        )
    if unknown := sorted(set(chain(tokens, *kept.values())) - set(splits)):
        raise ConfigError(
            f"something of '{shortened(unknown[0])}', which is no split",
            expected=f"one of: {', '.join(splits)}",
        )
    job = _job(taken, config, config.class_names or None)
    return _publish(job, config, progress or silent, planted=planted)


def _publish(
    job: ImportJob,
    config: ImportConfig,
    report: Report,
    *,
    recorded: Mapping[str, Any] | None = None,
    planted: Planted | None = None,
) -> ImportSummary:
    """Make what a cache of these states lacks; ``recorded`` is what its plan says of the files."""
    began, out = time.perf_counter(), config.out
    fields = _fields(job, config.pool, hash_files(job.files, report) if job.files else {}, planted)
    with storage_errors(out / PLAN_FILE):
        there = (out / PLAN_FILE).exists()
    if there:  # another cache is refused before the states are read
        found = read_plan(out)
        content = found.fingerprint_fields["content"]
        adopt_plan(out, {**fields, "content": content}, found.dataset)
    rows = {name: _look_at(name, job, report) for name in job.splits}
    groups = list(row_checks.repeated_texts(rows, report))
    for message in row_checks.check_rows(rows, job.class_names, groups):
        warnings.warn(message, GaamWarning, stacklevel=3)
    fields["content"] = content_of(rows, report)
    no_place = {"path": None, "revision": None}
    shown = ", ".join(Path(name).name for name in config.files)
    dataset = {
        "name": config.dataset_name or shown,
        **no_place,
        "origin": {name: split.origin for name, split in job.splits.items()},
        "shared_texts": row_checks.shared_texts(groups),
        **(recorded or {}),
        **({} if planted is None else {KEY: dict(planted.figures)}),
    }
    encoder = {"kind": IMPORTED, "name": config.encoder_name, **no_place, "batching": "alone"}
    plan = Plan(
        fingerprint=fingerprint(fields),
        fingerprint_fields=fields,
        encoder=encoder,
        dataset=dataset,
        num_layers=job.num_layers,
        hidden_size=job.hidden_size,
        pooling=(config.pool,),
        storage_dtype=job.storage_dtype,
        class_names=job.class_names,
        rows=job.rows,
        columns=job.columns,
        unlabelled=tuple(fields.get("unlabelled", ())),
        shard_rows=rows_per_shard(job.bytes_per_row, config.shard_rows),
        created_with={
            "gaam": gaam_cache.__version__,
            **{name: version(name) for name in ("h5py", "numpy")},
        },
    )
    in_thread(prepare_folder, out)
    plan = in_thread(write_plan, out, plan)
    for name, why in in_thread(discard_broken, out, plan).items():
        warnings.warn(f"{name} is made again: {why}", GaamWarning, stacklevel=3)
    made = _make_missing(out, plan, job, rows, report)
    return ImportSummary(
        path=str(out),
        fingerprint=plan.fingerprint,
        encoder=plan.encoder_label,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        storage_dtype=plan.storage_dtype,
        rows=plan.rows,
        shards=sum(1 for _ in plan.shards()),
        shards_made=made,
        seconds=time.perf_counter() - began,
        left=job.left,
    )


def _fields(
    job: ImportJob, pool: str, files: Mapping[str, str], planted: Planted | None
) -> dict[str, Any]:
    """All that decides the numbers of the cache, but for the numbers themselves."""
    known = {name: s.num_tokens for name, s in job.splits.items() if s.num_tokens is not None}
    imported = {
        "files": dict(files),
        "taken": {name: split.taken for name, split in job.splits.items()},
        "num_tokens": {name: digest_of(tokens.data) for name, tokens in known.items()},
        **({} if planted is None else {KEY: dict(planted.parameters)}),
    }
    columns = {
        column: {name: hash_values(split.kept[column]) for name, split in job.splits.items()}
        for column in job.columns
    }
    unlabelled = [name for name, split in job.splits.items() if not split.labelled]
    return {
        "format_version": FORMAT_VERSION,
        "encoder": {
            "imported": imported,
            "pooling": [pool],
            "layers": "as in the files",  # nobody knows more of them than their order
            "dtype": "unknown",
            "max_length": max((int(tokens.max()) for tokens in known.values()), default=1),
        },
        "storage_dtype": job.storage_dtype,
        "class_names": list(job.class_names),
        "rows": job.rows,
        "content": {},
        **({"columns": columns} if columns else {}),
        **({"unlabelled": unlabelled} if unlabelled else {}),
    }


def _look_at(name: str, job: ImportJob, report: Report) -> ImportedRows:
    """Read and check every number of a split once."""
    split, digests = job.splits[name], list[bytes]()
    states, dtype = split.states, job.storage_dtype
    digits_2L = np.zeros((2, states.num_layers), np.int64)
    for start in range(0, states.rows, states.block_rows()):
        report(start, states.rows, f"checking '{name}'")
        stop = min(start + states.block_rows(), states.rows)
        for row in states.stored(start, stop, dtype, digits_2L).reshape(stop - start, -1):
            digests.append(bytes.fromhex(digest_of(row.data)))
    where = f"{split.origin}, row 1 to row {states.rows}"
    check_digits(digits_2L, dtype, first_layer=1, where=where)
    names = job.class_names if split.labelled else (NO_LABEL,)
    return ImportedRows(
        inputs=digests,
        labels=[names[number] for number in split.labels.tolist()],
        class_names=None,
        origin=split.origin,
        kept=split.kept,
        labelled=split.labelled,
    )


def _make_missing(
    out: Path, plan: Plan, job: ImportJob, rows: Mapping[str, ImportedRows], report: Report
) -> int:
    """How many shards were made; others that import the same beside us may make the rest."""
    missing = set(missing_shards(out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    total, made = sum(plan.rows.values()), 0
    row_arrays = RowArrays(plan, rows)

    def make(shard: ShardSpec) -> None:
        split = job.splits[shard.split]
        states = split.states.stored(shard.start, shard.stop, plan.storage_dtype)
        tokens = split.num_tokens
        length_N = np.ones(split.states.rows, np.int64) if tokens is None else tokens
        arrays = {embeddings_key(plan, plan.pooling[0]): (plan.storage_dtype, states)}
        arrays |= row_arrays.of(shard, length_N[shard.start : shard.stop].astype(np.int64))
        image, specs = build_image(arrays, shard_attributes(plan, shard))
        receipt = {
            "fingerprint": plan.fingerprint,
            "split": shard.split,
            "start": shard.start,
            "stop": shard.stop,
            "truncated": 0,
            "datasets": specs,
        }
        in_thread(publish, out, shard.name, image, receipt)

    with Claims(out / CLAIM_FOLDER) as claims:
        undone = Undone(todo, claims, lambda shard: receipt_path(out, shard.name).exists())
        while undone.rows:
            report(total - undone.rows, total, "writing shards")
            taken = undone.take()
            if taken is None:
                time.sleep(PAUSE_SECONDS)
                continue
            shard, claim = taken
            make(shard)
            undone.finish(shard)
            claim.done()
            made += 1
        claims.clear()
    return made
