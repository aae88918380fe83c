"""Import: make a cache of arrays of states that other programs computed.

Shapes: N rows, L layers, D features; n rows of one shard.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, DataError, NumericsError
from gaam_cache.common.messages import brief, counted, shortened, size_in_words, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import IMPORTED, NAME_PATTERN, ImportConfig
from gaam_cache.extraction import job
from gaam_cache.extraction.reopen import settings_of_import
from gaam_cache.importing.arrays import (
    LABELS,
    STATES,
    Array,
    SplitArrays,
    choose_arrays,
    open_file,
)
from gaam_cache.importing.labels import LabelArrays, read_target
from gaam_cache.sources.base import Rows
from gaam_cache.sources.rows import checks as row_checks
from gaam_cache.store import dtypes
from gaam_cache.store.files import check_writable, hash_file, short_digest
from gaam_cache.store.plan import MAX_VALUE_BYTES, Plan, ShardSpec, write_plan
from gaam_cache.store.records import PLANTED_KEY, DatasetRecord, EncoderRecord
from gaam_cache.store.shard import (
    TypedArray,
    embeddings_key,
    prepare_folder,
    remove_locks,
    write_shard,
)
from gaam_cache.store.spread import FEWEST_ROWS, Spread, SpreadSums
from gaam_cache.targets.base import CLASSIFICATION, NO_LABEL, Target

IMPORTABLE_DTYPES = (*dtypes.ITEM_BYTES, "float64")
UNUSUAL_SIZE = 10.0
"""A row is unusual if its states are so many times as large as the median row's. Texts
of real encoders have up to 2.3 times its size."""
EXPECTED_COLUMN_VALUES = (
    f"whole numbers, or texts of at most {MAX_VALUE_BYTES:,} bytes without NUL"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    """The result of an import, or of a preview of it."""

    path: str
    fingerprint: str  # empty for a preview, which does not read the states
    dataset: str  # the name, which tells data sets apart in a report over several
    encoder: str
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]  # split -> number of rows
    splits: dict[str, dict[str, Any]]  # split -> role -> array; and rows of each class
    shards: int  # number of all shards
    shards_made: int  # number of shards that this run wrote; the others existed
    bytes: int  # of the states of all rows
    unused_arrays: tuple[str, ...]  # of the files

    to_dict = asdict

    def in_words(self) -> str:
        """The result as lines of text for the terminal."""
        if self.fingerprint:
            title = (
                f"the cache in '{shown_path(self.path)}' is complete "
                f"({short_digest(self.fingerprint)}): "
                f"{counted(self.shards_made, 'shard')} made"
            )
        else:
            title = "nothing was written; this would be taken:"
        lines = [title]
        for split, entries in self.splits.items():
            lines.append(f"  {split:<12} {counted(self.rows[split], 'row')}")
            # figures of the labels, then what was taken for what
            for name, value in entries.items():
                # lists and dictionaries are shown without brackets and quotes; there is
                # nothing to show of empty ones
                text = re.sub(r"[][{}']", "", str(_rounded(value)))
                if text:
                    lines.append(f"    {name:<14} {brief(text, 200)}")
        lines.append(
            f"  stored       {counted(self.num_layers, 'layer')} x {self.hidden_size}, "
            f"{self.storage_dtype}, {counted(self.shards, 'shard')}, "
            f"{size_in_words(self.bytes)}"
        )
        lines.append(
            f"  names        data set '{self.dataset}', encoder '{self.encoder}': "
            "others by --set dataset-name=NAME, encoder-name=NAME"
        )
        lines += [f"  not taken    {array}" for array in self.unused_arrays]
        return visible("\n".join(lines), keep="\n")


def _rounded(value: object) -> object:
    """Round the fractions in a dictionary to six decimals, for people.

    Any other value is returned as it is.
    """
    if not isinstance(value, dict):
        return value
    return {
        key: round(entry, 6) if isinstance(entry, float) else entry
        for key, entry in value.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRows(Rows):
    """The rows of a split whose states other programs computed.

    The states are one array (N, L, D), (L, N, D) or (N, D), or one array (N, D) for
    each layer. They are read when they are needed. The texts or sounds of the rows are
    unknown: digests of the stored states stand in their place, as ``inputs``.
    """

    kind: ClassVar[str] = IMPORTED
    noun: ClassVar[str] = "state"
    inputs: list[bytes]
    """The digest of the stored states of every row; empty until they are read."""
    arrays: Sequence[Array]
    """The states: one array, or one for each layer."""
    axes: str
    """The axes of an array of states: 'nld', 'lnd' or 'nd'."""
    num_layers: int
    hidden_size: int
    array_names: dict[str, Any]
    """Role -> names of arrays, as JSON values; the fingerprint covers them."""

    @classmethod
    def from_arrays(
        cls,
        split: str,
        arrays: SplitArrays,
        axes: str | None,
        label_arrays: LabelArrays,
    ) -> Self:
        """The rows of a split; the values of the states are not read yet.

        Args:
            split: name of the split.
            arrays: of the split.
            axes: the axes of the states; None if no option says them.
            label_arrays: reads the labels.

        Raises:
            DataError: a label is unusable, or the arrays do not fit together.
        """
        first_array = arrays.states[0]
        known_axes = axes or _usual_axes(first_array)
        labels: list[str] | None = None
        if arrays.labels is not None:
            labels = label_arrays.read(split, arrays.labels)
            _check_label_count(
                split, arrays.labels, len(labels), first_array, known_axes
            )
        _check_shapes(
            split, arrays.states, labels, known_axes, are_axes_given=axes is not None
        )

        size_by_axis = dict(zip(known_axes, first_array.shape, strict=False))
        num_rows = size_by_axis["n"]
        kept_columns = {
            name: _read_column(array, num_rows)
            for name, array in arrays.columns.items()
        }
        return cls(
            inputs=[],
            labels=labels or [NO_LABEL] * num_rows,
            class_names=None,
            origin=_origin_of(arrays.states),
            kept_columns=kept_columns,
            task=label_arrays.target.task,
            labelled=labels is not None,
            arrays=arrays.states,
            axes=known_axes,
            # without an axis of layers, every array is a layer
            num_layers=size_by_axis.get("l", len(arrays.states)),
            hidden_size=size_by_axis["d"],
            array_names=_names_by_role(arrays, known_axes),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def contents(self) -> Iterator[bytes]:
        return iter(self.inputs)

    def excerpt(self, row: int) -> str:
        return f"all layers are the same; its label is '{self.labels[row]}'"

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the states of rows ``start`` to ``stop``, (n, L, D).

        They have the type of the array; bfloat16 comes as its bits in uint16.
        """
        # one array has all layers, as its first or its second axis; or there is an
        # array (N, D) for each layer
        if self.axes == "lnd":
            states_LND = self.arrays[0].read((slice(None), slice(start, stop)))
            return np.swapaxes(states_LND, 0, 1)
        if self.axes == "nld":
            return self.arrays[0].read(slice(start, stop))
        layers_ND = [array.read(slice(start, stop)) for array in self.arrays]
        return np.stack(layers_ND, axis=1)

    def read_for_storage(
        self,
        shard: ShardSpec,
        storage_dtype: str,
        spread_sums: SpreadSums | None = None,
    ) -> NDArray[Any]:
        """Read the states of a shard, (n, L, D), and round them to the storage type.

        Args:
            shard: its rows are read.
            storage_dtype: type of the stored states.
            spread_sums: collects the states before and after rounding, to measure what
                rounding changes.

        Raises:
            NumericsError: the storage type cannot hold a value.
        """
        dtype = self.arrays[0].dtype
        original_NLD = self.read(shard.start, shard.stop)
        stored_NLD = np.ascontiguousarray(
            dtypes.to_storage_dtype(original_NLD, dtype, storage_dtype)
        )
        bad_index = dtypes.first_not_finite(stored_NLD, storage_dtype)
        if bad_index is not None:
            raise self._not_finite_error(original_NLD, bad_index, shard, storage_dtype)
        if spread_sums is not None:
            # sums need numbers in place of the bits of bfloat16
            exact_NLD = original_NLD
            if dtype == "bfloat16":
                exact_NLD = dtypes.as_float32(original_NLD)
            rounded_NLD = stored_NLD
            if storage_dtype == "bfloat16":
                rounded_NLD = dtypes.as_float32(stored_NLD)
            spread_sums.add(exact_NLD, rounded_NLD)
        return stored_NLD

    def _not_finite_error(
        self,
        original_NLD: NDArray[Any],
        index: tuple[int, ...],
        shard: ShardSpec,
        storage_dtype: str,
    ) -> NumericsError:
        """The error for a number that is not finite, or too large for its type.

        Args:
            original_NLD: the states of the shard as they were read.
            index: row of the shard, layer and feature of the number, each from 0.
            shard: the shard.
            storage_dtype: type of the stored states.
        """
        row, layer_index, feature = index
        value = original_NLD[index]
        if self.arrays[0].dtype == "bfloat16":
            value = dtypes.as_float32(value)
        array = self.arrays[0]
        if len(self.arrays) > 1:
            array = self.arrays[layer_index]
        # people count rows and layers from 1
        layer = layer_index + 1
        location = f"row {shard.start + row + 1}, layer {layer}, feature {feature}"
        problem = f"cannot be stored as {storage_dtype}"
        hint = "--storage-dtype bfloat16 or float32"
        if not np.isfinite(value):
            problem = "is NaN" if np.isnan(value) else "is infinite"
            hint = "correct the state, or remove the row"
        return NumericsError(
            f"a state of layer {layer} {problem}",
            expected=f"finite values up to {dtypes.LARGEST[storage_dtype]:g}",
            found=f"{float(value):g}",
            where=f"{array.where}, {location}",
            hint=hint,
        )


def _usual_axes(array: Array) -> str:
    """The axes of an array of states, by their number, if no option says them."""
    return "nld" if len(array.shape) == 3 else "nd"


def _origin_of(state_arrays: Sequence[Array]) -> str:
    """Where the states of a split are from: one array, or the first to the last."""
    origin = state_arrays[0].where
    if len(state_arrays) > 1:
        origin += f" to {state_arrays[-1].name}"
    return origin


def _names_by_role(arrays: SplitArrays, axes: str) -> dict[str, Any]:
    """The names of the arrays of a split by role; also type and axes of the states.

    The fingerprint of a cache covers these JSON values: which array was taken for what.

    Args:
        arrays: of the split.
        axes: the axes of the states: 'nld', 'lnd' or 'nd'.
    """
    names: dict[str, Any] = {
        STATES: [array.name for array in arrays.states],
        # all have one type; the list is a form that fingerprints have kept
        "dtypes": [arrays.states[0].dtype],
        "axes": axes,
        "columns": {name: array.name for name, array in arrays.columns.items()},
    }
    if arrays.labels is not None:
        names[LABELS] = arrays.labels.name
    return names


def _read_column(array: Array, num_rows: int) -> list[str]:
    """The value of a kept column in every row, as text."""
    values = array.read_one_per_row(
        "a column",
        is_valid=_can_be_kept,
        expected=EXPECTED_COLUMN_VALUES,
        num_rows=num_rows,
    )
    return list(map(str, values))


def _can_be_kept(value: Any) -> bool:
    """Whether a shard can store a value as text: short enough, and without NUL."""
    return "\0" not in str(value) and len(str(value).encode()) <= MAX_VALUE_BYTES


def _check_label_count(
    split: str, label_array: Array, num_labels: int, states: Array, axes: str
) -> None:
    """Refuse labels of another number than that of the rows of the states.

    Where another axis of the states has as many entries as there are labels, the axes
    are at fault: ``_check_shapes`` refuses them.

    Args:
        split: name of the split.
        label_array: its labels.
        num_labels: their number.
        states: its states, or those of its first layer.
        axes: the axes of the states: 'nld', 'lnd' or 'nd'.

    Raises:
        DataError: no axis of the states fits the labels.
    """
    is_possible = len(states.shape) == len(axes) and states.dtype in IMPORTABLE_DTYPES
    if not is_possible or 0 in states.shape or num_labels in states.shape:
        return
    num_rows = states.shape[axes.index("n")]
    raise DataError(
        f"the array '{label_array.name}' has not one label for every row of '{split}'",
        expected=f"{num_rows:,} labels, one for every row of '{states.name}' "
        f"{states.shape} with the axes {axes}",
        found=f"{num_labels:,} labels",
        where=label_array.where,
        hint="save the labels of the same rows as the states, in their order; where "
        "the states have other axes, --set axes=nld, lnd or nd",
    )


def _check_shapes(
    split: str,
    state_arrays: Sequence[Array],
    labels: Sequence[str] | None,
    axes: str,
    *,
    are_axes_given: bool,
) -> None:
    """Refuse arrays that cannot be the states of a split.

    Args:
        split: name of the split.
        state_arrays: one array, or one for each layer.
        labels: the label of every row; None for a split without labels.
        axes: the axes of each array: 'nld', 'lnd' or 'nd'.
        are_axes_given: whether an option says the axes. If not, they are a guess, which
            must be the only one that fits.

    Raises:
        DataError: an array has a type or shape that does not fit.
    """
    # if the first array fits, all that are like it fit, too
    first_array = state_arrays[0]
    is_first_usable = (
        first_array.dtype in IMPORTABLE_DTYPES
        and _has_fitting_axes(first_array, labels, axes, are_axes_given=are_axes_given)
        # where there are several arrays, each is one layer and has no axis of layers
        and (len(state_arrays) == 1 or axes == "nd")
    )
    for array in state_arrays:
        has_dtype_of_first = array.dtype == first_array.dtype
        has_shape_of_first = array.shape == first_array.shape
        if is_first_usable and has_dtype_of_first and has_shape_of_first:
            continue
        rows = "rows" if labels is None else f"{len(labels):,} rows"
        hint = "--set axes=nld, lnd or nd; states of tokens have to be pooled before"
        if labels is not None and array.shape[:2] == (len(labels), len(labels)):
            hint = "as many rows as layers: say which is which by --set axes=nld or lnd"
        # the type of an array that is partly written has further words before it
        if not array.dtype.endswith(IMPORTABLE_DTYPES):
            hint = "make them floating-point numbers: states.astype('float32')"
        raise DataError(
            f"the array '{array.name}' cannot be states of '{split}'",
            expected=f"{rows} (n), layers (l) and features (d) as {axes}, of "
            f"floating-point numbers ({', '.join(IMPORTABLE_DTYPES)}); all layers of a "
            "split of one shape and type",
            found=f"{array.dtype} {array.shape}",
            where=array.where,
            hint=hint,
        )


def _has_fitting_axes(
    array: Array, labels: Sequence[str] | None, axes: str, *, are_axes_given: bool
) -> bool:
    """Whether an array of states can have these axes, and has a row for every label.

    Args:
        array: the states of a split, or of one of its layers.
        labels: the label of every row; None for a split without labels.
        axes: the axes in question: 'nld', 'lnd' or 'nd' (rows n, layers l, features d).
        are_axes_given: whether an option says the axes.
    """
    if len(array.shape) != len(axes) or 0 in array.shape:
        return False
    if labels is None:
        return True
    size_by_axis = dict(zip(axes, array.shape, strict=True))
    if len(labels) != size_by_axis["n"]:
        return False
    # with as many rows as layers, only an option tells which axis has the rows
    if are_axes_given or axes == "nd":
        return True
    return size_by_axis["n"] != size_by_axis["l"]


def import_states(
    config: ImportConfig,
    *,
    preview: bool = False,
    progress: ReportProgress | None = None,
) -> ImportSummary:
    """Make a cache of the states in files, or complete an interrupted import.

    With ``preview`` gaam checks the labels, but reads no states and writes nothing.

    >>> files = ("train.npz", "test.npz")
    >>> config = gaam_cache.ImportConfig(files=files, out="imported")
    >>> gaam_cache.import_states(config).rows
    {'train': 60, 'test': 30}

    Raises:
        GaamError: as for ``gaam_cache.write``; ConfigError if it is not clear which
            array has which role.
    """
    # hours of reading are lost if the folder turns out to be read-only
    check_writable(config.out, option="--out")
    paths = [absolute_path(file) for file in config.files]
    hash_by_path: dict[str, str] = {}
    with ExitStack() as stack:
        arrays: list[Array] = []
        for path in paths:
            arrays += open_file(path, stack)
        arrays_by_split, unused_arrays = choose_arrays(arrays, config)
        # a preview is quick: it does not hash the files
        if not preview:
            folder = os.path.commonpath([path.parent for path in paths])
            for path in paths:
                hash_by_path[path.relative_to(folder).as_posix()] = hash_file(path)
        return _make_cache(
            arrays_by_split,
            config,
            progress or no_progress,
            preview=preview,
            fingerprint_extras={"files": hash_by_path},
            imported=settings_of_import(config),
            unused_arrays=unused_arrays,
        )


class PlantedLabels(NamedTuple):
    """How ``gaam plant`` drew labels: JSON values, in which fractions are text."""

    rule: Mapping[str, Any]
    """What decides the labels; the fingerprint of the cache covers it."""
    teacher: Mapping[str, Any]
    """Figures of the model that drew them, for people."""


def write(
    out: str | Path,
    splits: Mapping[str, tuple[Any, Any]],
    *,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    planted: PlantedLabels | None = None,
    progress: ReportProgress | None = None,
    **settings: Any,
) -> ImportSummary:
    """Make a cache of arrays in this program, or complete an interrupted call.

    gaam reads every number twice: first to check and hash it, before it writes
    anything, and then to write it. It copies at most the rows of one shard at a time.
    Pass a memory map or a data set of h5py if the states are larger than memory.

    >>> splits = {
    ...     "train": (train_states, train_labels),
    ...     "test": (test_states, test_labels),
    ... }
    >>> gaam_cache.write("cache", splits).rows
    {'train': 60, 'test': 30}

    Shape:
        states: (N, L, D); or a list of L arrays (N, D), one for each layer; or (N, D),
            which is one layer; or (L, N, D) with ``axes="lnd"``.
        labels: (N,); of several numbers, or of 0 and 1 for every label, (N, K).

    Args:
        out: folder of the cache.
        splits: name -> states and labels. States are float16, bfloat16, float32 or
            float64, of NumPy, torch or h5py. Labels are whole numbers from 0, or
            strings (classification); fractions (regression); truth values, or 0 and 1
            with ``task="multi-label"``; None for a split without labels, to predict on.
        columns: name of a kept column -> split -> a string for every row.
        planted: how ``gaam plant`` drew the labels; None for labels of people.
        progress: called with (rows done, rows in all, current work).
        settings: of ``ImportConfig``: ``task``, ``class_names``, ``target_names``,
            ``axes``, ``storage_dtype``, ``shard_rows``, and the names for reports:
            ``encoder_name``, ``dataset_name``, ``pool``.

    Raises:
        ConfigError: an argument is wrong, or the folder holds another cache.
        DataError: arrays do not fit together.
        NumericsError: a state cannot be stored.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    columns = columns or {}
    config = ImportConfig(
        files=("arrays of a program",),  # a placeholder: at least one file is required
        out=Path(out),
        keep_columns=tuple(columns),
        **settings,
    )
    check_writable(config.out, option="out")
    arrays_by_split: dict[str, SplitArrays] = {}
    for split, (states, labels) in splits.items():
        if not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"split '{shortened(split)}' cannot be part of a file name",
                expected="letters, digits, '_' and '.'",
            )
        column_values = {name: column[split] for name, column in columns.items()}
        arrays_by_split[split] = _split_arrays(split, states, labels, column_values)

    # no file was read
    fingerprint_extras: dict[str, Any] = {"files": {}}
    teacher: Mapping[str, Any] | None = None
    if planted is not None:
        fingerprint_extras[PLANTED_KEY] = dict(planted.rule)
        teacher = dict(planted.teacher)
    return _make_cache(
        arrays_by_split,
        config,
        progress or no_progress,
        fingerprint_extras=fingerprint_extras,
        planted=teacher,
    )


def _split_arrays(
    split: str, states: Any, labels: Any, columns: Mapping[str, Any]
) -> SplitArrays:
    """The arrays of a split that a program passes.

    Args:
        split: its name, for the names of the arrays in messages.
        states: an array, or a list with one array for each layer.
        labels: an array; None for a split without labels.
        columns: name of a kept column -> its array.
    """
    states_by_name = {"states": states}
    if isinstance(states, (list, tuple)):
        numbered_layers = enumerate(states, start=1)
        states_by_name = {f"layer {number}": layer for number, layer in numbered_layers}

    def named_array(name: str, values: Any) -> Array:
        return Array(f"{name} of '{split}'", values)

    label_array: Array | None = None
    if labels is not None:
        label_array = named_array("labels", labels)
    return SplitArrays(
        states=[named_array(name, layer) for name, layer in states_by_name.items()],
        labels=label_array,
        columns={name: named_array(name, values) for name, values in columns.items()},
    )


def _make_cache(
    arrays_by_split: Mapping[str, SplitArrays],
    config: ImportConfig,
    report: ReportProgress,
    *,
    preview: bool = False,
    fingerprint_extras: Mapping[str, Any],
    imported: Mapping[str, Any] | None = None,
    planted: Mapping[str, Any] | None = None,
    unused_arrays: Sequence[Array] = (),
) -> ImportSummary:
    """Make the cache of the arrays of all splits, or preview it.

    Args:
        arrays_by_split: split -> its arrays.
        config: the settings.
        report: called with (rows done, rows in all, current work).
        preview: whether to read no states, and to write nothing.
        fingerprint_extras: further JSON values that the fingerprint covers, such as the
            hashes of the files.
        imported: the settings with which the files can be imported again, as JSON
            values; None for arrays that no file holds.
        planted: for labels that ``gaam plant`` drew, figures of the model (teacher)
            that drew them.
        unused_arrays: arrays without a role, for the summary.
    """
    if len({split.casefold() for split in arrays_by_split}) < len(arrays_by_split):
        raise ConfigError(
            "splits differ in case alone",
            expected="names that every file system tells apart",
            found=", ".join(arrays_by_split),
        )
    label_arrays = read_target(arrays_by_split, config)
    rows = {
        split: ImportedRows.from_arrays(split, arrays, config.axes, label_arrays)
        for split, arrays in arrays_by_split.items()
    }
    _check_equal_sizes(rows)
    dataset = _dataset_record(config, rows, imported, planted)
    plan = _new_plan(config, rows, label_arrays.target, dataset, fingerprint_extras)
    shards_made = 0
    # without the states, the plan of a preview has no fingerprint yet
    fingerprint = ""
    if not preview:
        plan = _finish_plan(config, plan, rows, report)
        fingerprint = plan.fingerprint
        shards_made = _write_shards(config, plan, rows, report)
    return _summarise(config, plan, rows, fingerprint, shards_made, unused_arrays)


def _summarise(
    config: ImportConfig,
    plan: Plan,
    rows: Mapping[str, ImportedRows],
    fingerprint: str,
    shards_made: int,
    unused_arrays: Sequence[Array],
) -> ImportSummary:
    """Summarise an import, or a preview of it.

    Args:
        config: the settings.
        plan: the plan of the cache.
        rows: split -> its rows.
        fingerprint: the fingerprint of the plan; empty for a preview.
        shards_made: number of shards that this run wrote.
        unused_arrays: arrays of the files that are neither states nor labels, columns
            or row numbers.
    """
    # for each split its figures, such as "rows_per_class", and the arrays that it was
    # made of: a role, such as "states" -> the name of the array
    splits = {
        split: {**_label_figures(split_rows, plan.target), **split_rows.array_names}
        for split, split_rows in rows.items()
    }
    return ImportSummary(
        path=str(config.out),
        fingerprint=fingerprint,
        dataset=plan.dataset.name,
        encoder=plan.encoder_label,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        storage_dtype=plan.storage_dtype,
        rows=plan.rows,
        splits=splits,
        shards=plan.num_shards,
        shards_made=shards_made,
        bytes=plan.row_bytes * sum(plan.rows.values()),
        unused_arrays=tuple(map(str, unused_arrays)),
    )


def _label_figures(rows: ImportedRows, target: Target) -> dict[str, Any]:
    """Figures of the labels of a split for people, such as the rows of each class.

    A split without labels has no figures.
    """
    if rows.labelled and rows.labels:
        return target.summary(target.encode(rows.labels))
    # programs expect this key wherever the task is classification
    if target.task == CLASSIFICATION:
        return {"rows_per_class": {}}
    return {}


def _check_equal_sizes(rows: Mapping[str, ImportedRows]) -> None:
    """Refuse splits that differ in the number of layers or features."""
    sizes = {
        split: f"{split_rows.num_layers} x {split_rows.hidden_size}"
        for split, split_rows in rows.items()
    }
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the splits have states of different sizes",
            found=", ".join(f"{split}: {size}" for split, size in sizes.items()),
            hint="pool states of tokens before, to one vector for each layer",
        )


def _new_plan(
    config: ImportConfig,
    rows: Mapping[str, ImportedRows],
    target: Target,
    dataset: DatasetRecord,
    fingerprint_extras: Mapping[str, Any],
) -> Plan:
    """The plan of the cache; ``_finish_plan`` adds the states to its fingerprint.

    Args:
        config: the settings.
        rows: the rows of every split.
        target: what is predicted.
        dataset: what the plan records of the data set.
        fingerprint_extras: further JSON values that the fingerprint covers.
    """
    # all splits have the same number of layers and the same hidden size
    first_rows = next(iter(rows.values()))
    identity = _encoder_identity(config, rows, fingerprint_extras)
    encoder = EncoderRecord(
        kind=IMPORTED, name=config.encoder_name, revision=None, batching="alone"
    )
    storage_dtype = config.storage_dtype or _default_storage_dtype(rows)
    fields = job.plan_fields(
        rows,
        target,
        content={},  # the states are not read yet
        identity=identity,
        storage_dtype=storage_dtype,
    )
    return job.new_plan(
        fields,
        rows,
        target=target,
        encoder=encoder,
        dataset=dataset,
        num_layers=first_rows.num_layers,
        hidden_size=first_rows.hidden_size,
        shard_rows=config.shard_rows,
        libraries=("h5py", "numpy"),
    )


def _dataset_record(
    config: ImportConfig,
    rows: Mapping[str, ImportedRows],
    imported: Mapping[str, Any] | None,
    planted: Mapping[str, Any] | None,
) -> DatasetRecord:
    """What the plan records of the data set before the states are read.

    Args:
        config: the settings.
        rows: the rows of every split.
        imported: the settings with which the files can be imported again.
        planted: figures of the model (teacher) that drew planted labels.
    """
    file_names = ", ".join(Path(name).name for name in config.files)
    return DatasetRecord(
        name=config.dataset_name or file_names,
        origin={split: split_rows.origin for split, split_rows in rows.items()},
        shared_texts={},
        imported=imported,
        planted=planted,
    )


def _encoder_identity(
    config: ImportConfig,
    rows: Mapping[str, ImportedRows],
    fingerprint_extras: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields of the fingerprint that describe the encoder.

    The encoder is unknown, so the arrays and files of the import stand in its place.

    Args:
        config: the settings.
        rows: the rows of every split.
        fingerprint_extras: further JSON values, such as the hashes of the files.
    """
    imported = {
        # which arrays were taken as what
        "taken": {split: split_rows.array_names for split, split_rows in rows.items()},
        # no split has an array of numbers of tokens: every row counts as one token
        "num_tokens": {},
        **fingerprint_extras,
    }
    return {
        "imported": imported,
        "pooling": [config.pool],
        "layers": "as in the files",  # their numbers in the encoder are unknown
        "dtype": "unknown",
        "max_length": 1,  # in tokens
    }


def _default_storage_dtype(rows: Mapping[str, ImportedRows]) -> str:
    """The type in which a cache stores states if the user names none.

    It is the type of the arrays of states; but float32 if the splits have different
    types, or a type that no cache stores.
    """
    input_dtypes = {split_rows.arrays[0].dtype for split_rows in rows.values()}
    if len(input_dtypes) == 1:
        dtype = input_dtypes.pop()
        # a cache cannot store float64
        if dtype in dtypes.ITEM_BYTES:
            return dtype
    return "float32"


def _finish_plan(
    config: ImportConfig,
    plan: Plan,
    rows: Mapping[str, ImportedRows],
    report: ReportProgress,
) -> Plan:
    """Check and hash every state, and write the plan with its fingerprint.

    Args:
        config: the settings.
        plan: the plan of ``_new_plan``, whose fingerprint lacks the states.
        rows: the rows of every split; this fills their empty ``inputs``.
        report: called with (rows done, rows in all, current work).

    Returns:
        The plan as it was written.

    Raises:
        NumericsError: a state cannot be stored, or rounding makes rows equal.
    """
    for split, split_rows in rows.items():
        _read_all_states(split, split_rows, plan, report)

    # The digest of its states stands for the text of a row. Equal states in two splits
    # leak test rows into training, as equal texts do.
    equal_rows = row_checks.find_equal_texts(rows, report)
    copy_groups = row_checks.repeated_texts(equal_rows)
    job.warn(row_checks.check_rows(rows, plan.target, copy_groups))
    dataset = replace(
        plan.dataset,
        # how many rows have a text that is in another split or again in their own
        shared_texts=row_checks.count_shared_texts(copy_groups),
        # the rows of each split that are copies of one another
        equal_rows=row_checks.list_equal_rows(copy_groups),
        row_sketches=row_checks.sketch_splits(equal_rows),
    )
    plan = plan.with_content(job.content_hashes(rows, report), dataset)
    prepare_folder(config.out)
    plan = write_plan(config.out, plan)
    _check_names(config, plan)
    return plan


def _read_all_states(
    split: str, rows: ImportedRows, plan: Plan, report: ReportProgress
) -> None:
    """Check every state of a split, and keep the digests of its rows as ``inputs``.

    Args:
        split: its name.
        rows: its rows; this fills their empty ``inputs``.
        plan: the plan of the cache.
        report: called with (rows done, rows in all, current work).

    Raises:
        NumericsError: a state cannot be stored, or rounding makes rows equal.
    """
    spread_sums = SpreadSums()
    sizes_of_shards: list[NDArray[np.float32]] = []
    for shard in plan.shards(split):
        stored_NLD = rows.read_for_storage(shard, plan.storage_dtype, spread_sums)
        sizes_of_shards.append(_sizes_of_rows(stored_NLD, plan.storage_dtype))
        # the digest of a row stands in place of its text or sound, which is unknown
        rows.inputs.extend(sha256(row_LD).digest() for row_LD in stored_NLD)
        report(shard.stop, len(rows), f"checking '{split}'")
    # the spread says how far the states of the rows lie apart, layer by layer
    spread = spread_sums.spread()
    job.warn(_rounding_warnings(spread, plan.storage_dtype, split, rows))
    job.warn(_unusual_row_warnings(np.concatenate(sizes_of_shards), split))


def _check_names(config: ImportConfig, plan: Plan) -> None:
    """Refuse names that differ from those that an existing cache records.

    Runs on the cache have recorded them, too. A default is no name that a user chose.
    """
    given_and_recorded = {
        "encoder-name": (config.encoder_name, plan.encoder.name),
        "dataset-name": (config.dataset_name, plan.dataset.name),
    }
    for setting, (given, recorded) in given_and_recorded.items():
        if given not in (None, IMPORTED, recorded):
            raise ConfigError(
                f"'{shown_path(config.out)}' holds these states under another name",
                expected=f"{setting}={recorded}",
                found=f"{setting}={given}",
                hint="choose another folder with --out; it has its own runs",
            )


def _write_shards(
    config: ImportConfig,
    plan: Plan,
    rows: Mapping[str, ImportedRows],
    report: ReportProgress,
) -> int:
    """Write the shards that are missing or broken, and return their number.

    Args:
        config: the settings.
        plan: the plan of the cache.
        rows: the rows of every split.
        report: called with (rows done, rows in all, current work).
    """
    row_arrays = job.RowArrays(plan, rows)
    # an earlier import, which was interrupted, has written the other shards
    shards = job.shards_to_make(config.out, plan)
    for shard in shards:
        split_size = plan.rows[shard.split]
        report(shard.start, split_size, f"writing shards of '{shard.split}'")
        states_NLD = rows[shard.split].read_for_storage(shard, plan.storage_dtype)
        key = embeddings_key(plan, plan.pooling[0])
        arrays = {key: TypedArray(plan.storage_dtype, states_NLD)}
        # the numbers of tokens are unknown: every row counts as one token
        num_tokens = np.ones(len(states_NLD), np.int64)
        arrays |= row_arrays.arrays_of(shard, num_tokens)
        write_shard(config.out, plan, shard, arrays)
    remove_locks(config.out)
    return len(shards)


def _sizes_of_rows(stored_NLD: NDArray[Any], storage_dtype: str) -> NDArray[np.float32]:
    """The root mean square of every row in every layer, (N, L).

    ``stored_NLD`` are states of the storage type, (N, L, D); those of bfloat16 are its
    bits.
    """
    if storage_dtype == "bfloat16":
        stored_NLD = dtypes.as_float32(stored_NLD)
    square_NL = np.einsum("nld,nld->nl", stored_NLD, stored_NLD, dtype=np.float64)
    size_NL: NDArray[np.float64] = np.sqrt(square_NL / stored_NLD.shape[2])
    return size_NL.astype(np.float32)


def _unusual_row_warnings(size_NL: NDArray[np.float32], split: str) -> Iterator[str]:
    """Yield a warning of rows whose states are far larger than those of most rows.

    Args:
        size_NL: root mean square of every row of the split in every layer, (N, L).
        split: name of the split.
    """
    median_L = np.median(size_NL, axis=0)
    # of a layer that is zero in most rows nothing is known
    is_known_L = median_L > 0
    ratio_NL = np.zeros_like(size_NL)
    np.divide(size_NL, median_L, out=ratio_NL, where=is_known_L)
    num_unusual = int((ratio_NL > UNUSUAL_SIZE).any(1).sum())
    if not num_unusual:
        return
    row, layer = np.unravel_index(ratio_NL.argmax(), ratio_NL.shape)
    yield (
        f"'{split}': states of {num_unusual:,} of {len(size_NL):,} rows are more than "
        f"{UNUSUAL_SIZE:.0f} times as large as those of the median row: row "
        f"{row + 1:,} in layer {layer + 1}, {ratio_NL[row, layer]:,.0f} times. Look "
        "whether they are broken: a few such rows can decide what a decoder learns"
    )


def _rounding_warnings(
    spread: Spread, storage_dtype: str, split: str, rows: ImportedRows
) -> Iterator[str]:
    """Yield warnings of layers in which rows have equal states, or nearly equal ones.

    Rounding to the storage type makes states more alike than they were.

    Args:
        spread: how far the states of a split lie apart in each layer, before and after
            rounding.
        storage_dtype: the type to which they are rounded.
        split: name of the split.
        rows: its rows.

    Raises:
        NumericsError: rounding makes too many rows of a layer equal.
    """
    # Which layers are the same in all rows: rounding is not to blame for them. The
    # arithmetic of the encoder is unknown; float32 has the smallest errors.
    is_flat_L = spread.flat_layers(noise_LD=0.0, compute_dtype="float32")
    if spread.rows >= FEWEST_ROWS and is_flat_L.any():
        flat_layers = [str(layer + 1) for layer in np.flatnonzero(is_flat_L)]
        yield (
            f"all rows of '{split}' have one state in layers "
            f"{brief(', '.join(flat_layers))}: nothing tells them apart"
        )
    where = f"{rows.origin}, row 1 to row {len(rows)}"
    loss_by_layer = spread.check_storage_precision(
        storage_dtype, is_flat_L, first_layer=1, where=where
    )
    for layer, loss in loss_by_layer.items():
        yield (
            f"{storage_dtype} rounds away part of what tells rows of '{split}' apart "
            f"in layer {layer}: {loss}; --storage-dtype float32 and a new --out keep it"
        )
