"""States that others made become a cache: files or arrays in, shards out.

N rows, L layers, D features.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, DataError, NumericsError
from gaam_cache.common.messages import brief, shortened, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import IMPORTED, NAME_PATTERN, ImportConfig
from gaam_cache.extraction import job
from gaam_cache.extraction.reopen import settings_of_import
from gaam_cache.importing.arrays import (
    LABELS,
    STATES,
    STRINGS,
    Array,
    Roles,
    choose,
    open_file,
)
from gaam_cache.sources.base import NO_LABEL, Rows
from gaam_cache.sources.rows import checks as row_checks
from gaam_cache.sources.rows.cells import NO_REGRESSION, refuse_quantities
from gaam_cache.store import dtypes
from gaam_cache.store.files import check_writable, fingerprint, hash_file, short_digest
from gaam_cache.store.plan import MAX_VALUE_BYTES, PLANTED_KEY, ShardSpec, write_plan
from gaam_cache.store.shard import (
    embeddings_key,
    missing_shards,
    prepare_folder,
    remove_locks,
    write_shard,
)
from gaam_cache.store.spread import FEWEST_ROWS, Spread, SpreadSums

READABLE = (*dtypes.ITEM_BYTES, "float64")
MOST_CLASSES = 10**6  # a number beyond this is no class: a plan names every class
KEPT = f"whole numbers, or texts of at most {MAX_VALUE_BYTES:,} bytes without NUL"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    """What an import did; or, of a preview, what it would do."""

    path: str
    fingerprint: str  # empty of a preview: it covers the states, which are not read
    encoder: str
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]  # of every split
    splits: dict[
        str, dict[str, Any]
    ]  # what is taken as what, and the rows of every class
    shards: int
    shards_made: int  # in this run; the others were there
    bytes: int
    left: tuple[str, ...]  # arrays of the files that are not taken

    to_dict = asdict

    def in_words(self) -> str:
        done = f"the cache in '{shown_path(self.path)}' is complete "
        done += f"({short_digest(self.fingerprint)}): {self.shards_made:,} shards made"
        lines = [
            done if self.fingerprint else "nothing was written; this would be taken:"
        ]
        for name, taken in self.splits.items():
            lines.append(f"  {name:<12} {self.rows[name]:,} rows")
            for what, found in taken.items():
                text = re.sub(r"[][{}']", "", str(found))
                lines += [f"    {what:<14} {brief(text, 200)}"] * bool(text)
        lines += [
            f"  stored       {self.num_layers} layers x {self.hidden_size}, {self.storage_dtype}, "
            f"{self.shards:,} shards, {self.bytes / 1e6:,.1f} MB; encoder: {self.encoder}",
            *(f"  not taken    {one}" for one in self.left),
        ]
        return visible("\n".join(lines), keep="\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRows(Rows):
    """Rows of which states are all that is known, in arrays that are read as they are needed.

    In one array (N, L, D), (L, N, D) or (N, D), or in one (N, D) for each layer. Their inputs are
    digests of the stored states, bit by bit: they stand for what nobody has.
    """

    kind: ClassVar[str] = IMPORTED
    noun: ClassVar[str] = "state"
    inputs: list[bytes]
    arrays: Sequence[Array]
    axes: str
    num_layers: int
    hidden_size: int
    taken: dict[str, Any]  # what is taken as what, for the fingerprint: JSON values

    @classmethod
    def of(
        cls, split: str, roles: Roles, axes: str | None, class_of: Mapping[Any, str]
    ) -> Self:
        """The rows of a split, whose labels stand for classes; states are looked at, not read."""
        labels, arrays, first = None, roles[STATES], roles[STATES][0]
        named = axes or ("nld" if len(first.shape) == 3 else "nd")
        sizes = dict(zip(named, first.shape, strict=False))
        if LABELS in roles:
            good = (
                class_of.__contains__,
                brief(f"one of {', '.join(map(repr, class_of))}", 200),
            )
            numbers = roles[LABELS][0].values(f"labels of '{split}'", None, *good)
            labels = [class_of[one] for one in numbers]
        fits = (
            first.dtype in READABLE
            and len(first.shape) == len(named)
            and 0 not in first.shape
        )
        fits &= labels is None or len(labels) == sizes.get("n")
        fits &= len(arrays) == 1 or named == "nd"
        # rows and layers cannot be told apart where there are as many
        fits &= (
            axes is not None
            or named == "nd"
            or labels is None
            or sizes["n"] != sizes["l"]
        )
        for array in arrays:
            if not fits or (array.dtype, array.shape) != (first.dtype, first.shape):
                rows = "rows" if labels is None else f"{len(labels):,} rows"
                raise DataError(
                    f"the array '{array.name}' cannot be states of '{split}'",
                    expected=f"{rows} (n), layers (l) and features (d) as {named}, of "
                    f"{', '.join(READABLE)}; all of a split alike",
                    found=f"{array.dtype} {array.shape}",
                    where=array.where,
                    hint="--set axes=nld, lnd or nd; states of tokens have to be pooled before",
                )
        names, kept = (
            {role: one.name for role, [one, *_] in roles.items()},
            dict[str, list[str]](),
        )
        for name in [role for role in roles if role not in (STATES, LABELS)]:
            values = roles[name][0].values("a column", sizes["n"], _can_be_kept, KEPT)
            kept[name] = list(map(str, values))
        taken: dict[str, Any] = {
            "states": [array.name for array in arrays],
            "dtypes": [first.dtype],
            "axes": named,
        }
        taken["columns"] = {name: names[name] for name in kept}
        return cls(
            inputs=[],
            labels=labels or [NO_LABEL] * sizes["n"],
            class_names=None,
            origin=first.where + f" to {arrays[-1].name}" * (len(arrays) > 1),
            kept=kept,
            labelled=labels is not None,
            arrays=arrays,
            axes=named,
            num_layers=sizes.get("l", len(arrays)),
            hidden_size=sizes["d"],
            taken=taken | ({LABELS: names[LABELS]} if LABELS in names else {}),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def contents(self) -> Iterator[bytes]:
        return iter(self.inputs)

    def excerpt(self, row: int) -> str:
        return f"all layers are the same; its label is '{self.labels[row]}'"

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows as they were given, (n, L, D); bfloat16 as its bits."""
        if self.axes == "lnd":
            return np.swapaxes(
                self.arrays[0].read((slice(None), slice(start, stop))), 0, 1
            )
        parts = [one.read(slice(start, stop)) for one in self.arrays]
        return parts[0] if self.axes == "nld" else np.stack(parts, axis=1)

    def stored(
        self, shard: ShardSpec, storage_dtype: str, sums: SpreadSums | None = None
    ) -> NDArray[Any]:
        """Rows as they are stored, (n, L, D); those of other content are added to ``sums``."""
        dtype, given_NLD = self.arrays[0].dtype, self.read(shard.start, shard.stop)
        kept = np.ascontiguousarray(
            dtypes.to_storage_dtype(given_NLD, dtype, storage_dtype)
        )
        if (bad := dtypes.first_not_finite(kept, storage_dtype)) is not None:
            row, layer, feature = bad
            value = (
                given_NLD[bad]
                if dtype != "bfloat16"
                else dtypes.as_float32(given_NLD[bad])
            )
            of_layer = self.arrays[layer if len(self.arrays) > 1 else 0].where
            place = f"row {shard.start + row + 1}, layer {layer + 1}, feature {feature}"
            raise NumericsError(
                f"a state of layer {layer + 1} cannot be stored as {storage_dtype}",
                expected=f"finite values up to {dtypes.LARGEST[storage_dtype]:g}",
                found=f"{float(value):g}",
                where=f"{of_layer}, {place}",
                hint="of a finite value: --storage-dtype bfloat16 or float32",
            )
        if sums is not None:
            exact_NLD = (
                dtypes.as_float32(given_NLD) if dtype == "bfloat16" else given_NLD
            )
            rounded_NLD = (
                dtypes.as_float32(kept) if storage_dtype == "bfloat16" else kept
            )
            sums.add(exact_NLD, rounded_NLD)
        return kept


def _can_be_kept(value: Any) -> bool:
    return "\0" not in str(value) and len(str(value).encode()) <= MAX_VALUE_BYTES


def import_states(
    config: ImportConfig,
    *,
    preview: bool = False,
    progress: ReportProgress | None = None,
) -> ImportSummary:
    """Make a cache of the states in files, or complete one: ``write``, for what a disk has.

    A ``preview`` says what would be taken as what; it checks labels, but no states, and writes
    nothing.

    >>> config = gaam_cache.ImportConfig(files=("train.npz", "test.npz"), out="imported")
    >>> gaam_cache.import_states(config).rows
    {'train': 60, 'test': 30}

    Raises:
        GaamError: as of ``write``; ConfigError also where it is not clear what to take.
    """
    report = None if preview else progress or no_progress
    check_writable(config.out, option="--out")
    paths, files = [absolute_path(file) for file in config.files], {}
    with ExitStack() as stack:
        taken, left = choose(
            [one for path in paths for one in open_file(path, stack)], config
        )
        if report:
            folder = os.path.commonpath([path.parent for path in paths])
            files = {
                path.relative_to(folder).as_posix(): hash_file(path) for path in paths
            }
        recorded = {"import": settings_of_import(config)}
        return _make(taken, config, report, {"files": files}, recorded, left)


def write(
    out: str | Path,
    splits: Mapping[str, tuple[Any, Any]],
    *,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    planted: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    progress: ReportProgress | None = None,
    **settings: Any,
) -> ImportSummary:
    """Make a cache of states that this program has, or complete one.

    Every number is read twice: to check and hash it before anything is written, and to write it. At
    most the rows of one shard are copied: what is larger than memory comes as a memory map or a
    data set of h5py.

    >>> made = gaam_cache.write("cache", {"train": (states, labels), "test": (others, theirs)})
    >>> made.rows
    {'train': 60, 'test': 30}

    Shape:
        states: (N, L, D); or a list of L arrays (N, D), one for each layer; or (N, D), which is
            one layer; or (L, N, D) with ``axes="lnd"``.
        labels: (N,).

    Args:
        out: folder of the cache.
        splits: name -> states (float16, bfloat16, float32 or float64, of NumPy, torch or h5py) and
            labels (whole numbers from 0, or strings; None of a split without, to predict on).
        columns: name of a column that the cache keeps -> split -> a string for every row.
        planted: what decides the labels, which the fingerprint covers, and what is known of their
            teacher: JSON values, fractions as text.
        progress: called with (rows done, rows in all, what is going on).
        settings: of ``ImportConfig``: ``class_names``, ``axes``, ``storage_dtype``, ``shard_rows``,
            and what reports call things: ``encoder_name``, ``dataset_name``, ``pool``.

    Raises:
        ConfigError: an argument is wrong, or the folder holds another cache.
        DataError, NumericsError: arrays that do not fit together; a state that cannot be stored.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    columns = columns or {}
    config = ImportConfig(
        files=("arrays of a program",),  # it checks what is the same for files
        out=Path(out),
        keep_columns=tuple(columns),
        **settings,
    )
    check_writable(config.out, option="out")
    taken: dict[str, Roles] = {}
    for split, (states, labels) in splits.items():
        if not NAME_PATTERN.fullmatch(split):
            what = f"split '{shortened(split)}' cannot be part of a file name"
            raise ConfigError(what, expected="letters, digits, '_' and '.'")
        layers = {"states": states}
        if isinstance(states, (list, tuple)):
            layers = {f"layer {n}": one for n, one in enumerate(states, start=1)}
        others = {name: of[split] for name, of in columns.items()}
        others |= {} if labels is None else {LABELS: labels}
        taken[split] = {
            STATES: [
                Array(f"{what} of '{split}'", one) for what, one in layers.items()
            ],
            **{
                role: [Array(f"{role} of '{split}'", one)]
                for role, one in others.items()
            },
        }
    covered, recorded = (
        ({PLANTED_KEY: dict(one)} for one in planted) if planted else ({}, {})
    )
    return _make(
        taken, config, progress or no_progress, {"files": {}, **covered}, recorded
    )


def _make(
    taken: Mapping[str, Roles],
    config: ImportConfig,
    report: ReportProgress | None,
    covered: Mapping[str, Any],
    recorded: Mapping[str, Any],
    left: Sequence[Array] = (),
) -> ImportSummary:
    """The cache of these arrays; without ``report`` what it would be.

    The fingerprint holds what is ``covered``, the data set what is ``recorded``.
    """
    made = 0
    if len({split.casefold() for split in taken}) < len(taken):
        expected = "names that every file system tells apart"
        raise ConfigError(
            "splits differ in case alone", expected=expected, found=", ".join(taken)
        )
    names, class_of = _classes(taken, config.class_names)
    rows = {
        split: ImportedRows.of(split, of, config.axes, class_of)
        for split, of in taken.items()
    }
    sizes = {split: (one.num_layers, one.hidden_size) for split, one in rows.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the splits have states of different sizes",
            found=", ".join(
                f"{split}: {size[0]} x {size[1]}" for split, size in sizes.items()
            ),
            hint="pool states of tokens before, to one vector for each layer",
        )
    types = {one.arrays[0].dtype for one in rows.values()}
    lossless = (
        types.pop()
        if len(types) == 1 and types <= dtypes.ITEM_BYTES.keys()
        else "float32"
    )
    as_what = {split: one.taken for split, one in rows.items()}
    identity = {
        "imported": {"taken": as_what, "num_tokens": {}, **covered},
        "pooling": [config.pool],
        "layers": "as in the files",  # nobody knows more of them than their order
        "dtype": "unknown",
        "max_length": 1,
    }
    no_place: dict[str, Any] = {"path": None, "revision": None}
    num_layers, hidden_size = next(iter(sizes.values()))
    plan = job.new_plan(
        job.plan_fields(rows, names, {}, identity, config.storage_dtype or lossless),
        rows,
        encoder={
            "kind": IMPORTED,
            "name": config.encoder_name,
            **no_place,
            "batching": "alone",
        },
        dataset={
            "name": config.dataset_name
            or ", ".join(Path(name).name for name in config.files),
            **no_place,
            "origin": {split: one.origin for split, one in rows.items()},
            "shared_texts": {},
            **recorded,
        },
        num_layers=num_layers,
        hidden_size=hidden_size,
        shard_rows=config.shard_rows,
        libraries=("h5py", "numpy"),
    )
    if report:
        fields = plan.fingerprint_fields
        for name, part in rows.items():
            sums = SpreadSums()
            for shard in plan.shards(name):
                kept_NLD = part.stored(shard, plan.storage_dtype, sums)
                part.inputs.extend(sha256(row_LD).digest() for row_LD in kept_NLD)
                report(shard.stop, len(part), f"checking '{name}'")
            job.warn(_rounded_away(sums.spread(), plan.storage_dtype, name, part))
        groups = list(row_checks.repeated_texts(rows, report))
        job.warn(row_checks.check_rows(rows, plan.class_names, groups))
        fields["content"] = job.content_of(rows, report)
        plan.dataset["shared_texts"] = row_checks.shared_texts(groups)
        if copies := row_checks.equal_rows(groups):
            plan.dataset["equal_rows"] = copies
        prepare_folder(config.out)
        plan = write_plan(config.out, replace(plan, fingerprint=fingerprint(fields)))
        broken = job.discard_broken(config.out, plan)
        job.warn(f"{name} is made again: {why}" for name, why in broken.items())
        row_arrays, missing = (
            job.RowArrays(plan, rows),
            set(missing_shards(config.out, plan)),
        )
        for shard in plan.shards():
            report(
                shard.start,
                plan.rows[shard.split],
                f"writing shards of '{shard.split}'",
            )
            if shard.name in missing:
                states = rows[shard.split].stored(shard, plan.storage_dtype)
                arrays = {
                    embeddings_key(plan, plan.pooling[0]): (plan.storage_dtype, states)
                }
                arrays |= row_arrays.of_shard(shard, np.ones(len(states), np.int64))
                write_shard(config.out, plan, shard, arrays)
                made += 1
        remove_locks(config.out)
    splits = {}
    for split, one in rows.items():
        of = Counter(one.labels) if one.labelled else {}
        splits[split] = {
            "rows_per_class": {name: of[name] for name in names if of},
            **one.taken,
        }
    return ImportSummary(
        path=str(config.out),
        fingerprint=plan.fingerprint if report else "",
        encoder=plan.encoder_label,
        num_layers=num_layers,
        hidden_size=hidden_size,
        storage_dtype=plan.storage_dtype,
        rows=plan.rows,
        splits=splits,
        shards=plan.num_shards,
        shards_made=made,
        bytes=plan.row_bytes * sum(plan.rows.values()),
        left=tuple(map(str, left)),
    )


def _rounded_away(
    spread: Spread, storage_dtype: str, split: str, rows: ImportedRows
) -> Iterator[str]:
    """Lines where all rows of a split are one, or where rounding takes a part of a layer away.

    Raises:
        NumericsError: it takes away too much of a layer.
    """
    flat_L = spread.flat_layers(0.0, "float32")
    if spread.rows >= FEWEST_ROWS and flat_L.any():
        layers = brief(", ".join(str(layer + 1) for layer in np.flatnonzero(flat_L)))
        yield f"all rows of '{split}' have one state in layers {layers}: nothing tells them apart"
    where = f"{rows.origin}, row 1 to row {len(rows)}"
    coarse = spread.check_storage_precision(
        storage_dtype, flat_L, first_layer=1, where=where
    )
    for layer, lost in coarse.items():
        yield (
            f"{storage_dtype} rounds away part of what tells rows of '{split}' apart in layer "
            f"{layer}: {lost}; --storage-dtype float32 and a new --out keep it"
        )


def _classes(
    taken: Mapping[str, Roles], names: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[Any, str]]:
    """Names of the classes in order, and label -> class: 'train' decides, or the first split."""
    given = {
        split: roles[LABELS][0] for split, roles in taken.items() if LABELS in roles
    }
    if not given:
        raise ConfigError("no split has labels", expected="one at least that has")
    reference = given.get("train", next(iter(given.values())))
    if reference.dtype.startswith(("float", "bfloat")):
        raise DataError(
            f"the labels '{reference.name}' are floating-point numbers: {NO_REGRESSION}",
            expected="classes: whole numbers from 0, or strings",
            found=f"{reference.dtype} {reference.shape}",
            where=reference.where,
            hint="numbers of classes that were stored so: labels.astype(int)",
        )
    known = reference.values(
        "labels", None, lambda label: True, "whole numbers or strings"
    )
    strings = reference.dtype == STRINGS
    if strings:
        refuse_quantities(known, reference.where)
    if not names and strings:
        names = job.class_order(set(known))
    names = names or tuple(
        map(str, range(min(max(known, default=-1) + 1, MOST_CLASSES)))
    )
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(
            "class names must differ, and none be empty", found=", ".join(names)
        )
    return names, dict(zip(names, names, strict=True)) if strings else dict(
        enumerate(names)
    )
