"""States that others made become a cache: files or arrays in, shards out.

N rows, L layers, D features.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from gaam_cache.config import NAME_PATTERN
from gaam_cache.config_checks import SHARD_ROWS
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.extraction.job import content_of, new_plan, plan_fields, warn
from gaam_cache.extraction.recorded import settings_of_import
from gaam_cache.extraction.shards import RowArrays, discard_broken
from gaam_cache.import_config import IMPORTED, ImportConfig
from gaam_cache.messages import shortened, visible
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.store.arrays import Array, open_file
from gaam_cache.store.choose import Taken, choose
from gaam_cache.store.digest import digest_of, hash_file, short_digest
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import check_folder
from gaam_cache.store.imported import SHOWN, ImportedRows, imported_rows
from gaam_cache.store.plan import (
    KEY,
    PLAN_FILE,
    Plan,
    adopt_plan,
    fingerprint,
    read_plan,
    write_plan,
)
from gaam_cache.store.shard import (
    embeddings_key,
    missing_shards,
    prepare_folder,
    receipt_path,
    write_shard,
)
from gaam_cache.terminal import Report, silent


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPreview:
    """An import that is ready to begin: what it takes as what."""

    splits: Mapping[str, ImportedRows]
    plan: Plan
    """Of the cache; files and states, of which the fingerprint is made, are not hashed yet."""
    left: tuple[str, ...]
    """Arrays of the files that are not taken."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        plan, splits = self.plan, {}
        for name, split in self.splits.items():
            splits[name] = {"rows": len(split), **split.taken}
            if split.labelled:
                counts = Counter(split.labels)
                splits[name]["rows_per_class"] = {one: counts[one] for one in plan.class_names}
        return {
            "splits": splits,
            "class_names": list(plan.class_names),
            "num_layers": plan.num_layers,
            "hidden_size": plan.hidden_size,
            "storage_dtype": plan.storage_dtype,
            "shards": plan.num_shards,
            "bytes": plan.row_bytes * sum(plan.rows.values()),
            "left": list(self.left),
        }

    def in_words(self) -> str:
        """Lines for people."""
        plan, about, lines = self.plan, self.to_dict(), []
        for name, split in about["splits"].items():
            first, last = split["states"][0], split["states"][-1]
            names = first if first == last else f"{first} to {last}, one for each layer"
            labels = split.get("labels", "none: to predict on")
            if counts := split.get("rows_per_class"):
                shown = [f"{one} {count:,}" for one, count in list(counts.items())[:SHOWN]]
                labels += f": {', '.join(shown)}" + ", ..." * (len(counts) > SHOWN)
            lines += [
                f"{name}: {split['rows']:,} rows",
                f"  states       {names}, {'/'.join(split['dtypes'])}, axes {split['axes']}",
                f"  labels       {labels}",
                f"  tokens       {split.get('num_tokens', 'not known')}",
                *(f"  column       {array}" for array in split["columns"].values()),
            ]
        lines.append(
            f"{plan.num_layers} layers x {plan.hidden_size}, to be stored as "
            f"{plan.storage_dtype}: {plan.num_shards:,} shards, {about['bytes'] / 1e6:,.1f} MB"
        )
        return visible("\n".join([*lines, *_not_taken(self.left)]), keep="\n")


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
        run = f"{self.shards_made:,} of {self.shards:,} shards in {self.seconds:.1f} s"
        lines = [
            f"the cache in '{self.path}' is complete",
            f"  encoder      {self.encoder}: states that were computed elsewhere, "
            f"{self.num_layers} layers x {self.hidden_size}, stored as {self.storage_dtype}",
            f"  rows         {', '.join(f'{name} {count:,}' for name, count in self.rows.items())}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  this run     {run if self.shards_made else 'nothing to do, every shard was there'}",
            *_not_taken(self.left),
        ]
        return visible("\n".join(lines), keep="\n")


def _not_taken(left: tuple[str, ...]) -> list[str]:
    more = [f"{len(left) - SHOWN:,} more"] if len(left) > SHOWN else []
    return [f"  not taken    {array}" for array in (*left[:SHOWN], *more)]


@contextmanager
def opened(config: ImportConfig) -> Iterator[ImportPreview]:
    """Open the files of an import and find out what to take; reads labels, but no states."""
    check_folder(config.out, option="--out")
    with ExitStack() as stack:
        files = [open_file(Path(name).expanduser(), stack) for name in config.files]
        splits, names, left = choose([array for file in files for array in file], config)
        told = tuple(f"{array.where} {array.dtype} {array.shape}" for array in left)
        recorded = {"import": settings_of_import(config)}
        yield _preview(splits, config, names, recorded=recorded, left=told)


def hash_files(files: Sequence[str], report: Report = silent) -> dict[str, str]:
    """SHA-256 of the files, by their names from the folder that all are in."""
    paths = [Path(file).expanduser().absolute() for file in files]
    folder, found = os.path.commonpath([path.parent for path in paths or [Path("/")]]), {}
    for path in paths:
        report(0, 0, f"hashing {path.name}")
        found[path.relative_to(folder).as_posix()] = hash_file(path)
    return found


def _preview(
    taken: Mapping[str, Taken],
    config: ImportConfig,
    class_names: tuple[str, ...] | None,
    *,
    recorded: Mapping[str, Any] = MappingProxyType({}),
    planted: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    left: tuple[str, ...] = (),
) -> ImportPreview:
    """Check that what is taken fits together; ``recorded`` is what a plan says of the files."""
    splits, names = imported_rows(taken, config.axes, class_names)
    sizes = {name: (one.states.num_layers, one.states.hidden_size) for name, one in splits.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the splits have states of different sizes",
            expected="as many layers and features in every split",
            found=", ".join(f"{split}: {size[0]} x {size[1]}" for split, size in sizes.items()),
            hint="where the second axis is tokens: pool them before, to one vector for each layer",
        )
    num_layers, hidden_size = next(iter(sizes.values()))
    dtypes = {split.states.dtype for split in splits.values()}
    lossless = dtypes.pop() if len(dtypes) == 1 and dtypes <= ITEM_BYTES.keys() else "float32"
    known = {name: one.tokens for name, one in splits.items() if "num_tokens" in one.taken}
    identity = {
        "imported": {
            "files": {},
            "taken": {name: split.taken for name, split in splits.items()},
            "num_tokens": {name: digest_of(tokens.data) for name, tokens in known.items()},
            **({KEY: dict(planted[0])} if planted else {}),
        },
        "pooling": [config.pool],
        "layers": "as in the files",  # nobody knows more of them than their order
        "dtype": "unknown",
        "max_length": max((int(tokens.max()) for tokens in known.values()), default=1),
    }
    no_place = {"path": None, "revision": None}
    plan = new_plan(
        plan_fields(splits, names, {}, identity, config.storage_dtype or lossless),
        splits,
        encoder={"kind": IMPORTED, "name": config.encoder_name, **no_place, "batching": "alone"},
        dataset={
            "name": config.dataset_name or ", ".join(Path(name).name for name in config.files),
            **no_place,
            "origin": {name: part.origin for name, part in splits.items()},
            "shared_texts": {},
            **recorded,
            **({KEY: dict(planted[1])} if planted else {}),
        },
        num_layers=num_layers,
        hidden_size=hidden_size,
        shard_rows=config.shard_rows,
        libraries=("h5py", "numpy"),
    )
    return ImportPreview(splits=splits, plan=plan, left=left)


def preview_import(config: ImportConfig) -> ImportPreview:
    """What ``import_states`` would take as what; reads labels, but no states; writes nothing.

    >>> config = gaam_cache.ImportConfig(files=("train.npz", "test.npz"), out="imported")
    >>> print(gaam_cache.preview_import(config).in_words())  # doctest: +ELLIPSIS
    train: 60 rows...

    Raises:
        ConfigError: what to take is not clear.
        DataError: a file is damaged, or its arrays do not fit together.
    """
    with opened(config) as found:
        return found


def import_states(config: ImportConfig, *, progress: Report | None = None) -> ImportSummary:
    """Make a cache of the states in files, or complete one: ``write``, for what a disk has.

    >>> config = gaam_cache.ImportConfig(files=("train.npz", "test.npz"), out="imported")
    >>> gaam_cache.import_states(config).rows
    {'train': 60, 'test': 30}

    Args:
        config: which files, what to take from them, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        GaamError: as of ``write``; ConfigError also where it is not clear what to take.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    with opened(config) as found:
        return _publish(found, config.out, config.files, progress or silent)


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
    planted: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    progress: Report | None = None,
) -> ImportSummary:
    """Make a cache of states that this program has, or complete one.

    Every number is read twice: once to check and hash it before anything is written, and once to
    write it. At most the rows of one shard are copied: what is larger than memory comes as a memory
    map or a data set of h5py.

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
        class_names: in order, where labels are numbers; default: the numbers.
        num_tokens: name -> how many tokens each row was pooled from, (N,).
        columns: name of a column that the cache keeps -> split -> a string for every row.
        axes: what those of an array are: n rows, l layers, d features.
        storage_dtype: default: the type of the states, or float32.
        encoder_name: what reports call the encoder.
        dataset_name: what reports call the data.
        pool: what reports call the way in which states were pooled: 1 to 16 lower-case letters.
        shard_rows: rows of one shard at most.
        planted: what decides the labels, which the fingerprint covers, and what is known of their
            teacher, where there was one: JSON values, fractions as text.
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
    for name, of in {"num_tokens": tokens, **kept}.items():
        if not of.keys() <= splits.keys() or (name in kept and len(of) < len(splits)):
            raise ConfigError(
                f"'{shortened(name)}' is of other splits",
                expected=", ".join(splits),
                found=", ".join(map(shortened, of)),
            )

    def array(what: str, split: str, values: Any) -> Array | None:
        return None if values is None else Array(f"{what} of '{split}'", values)

    taken = {}
    for split, (states, labels) in splits.items():
        if not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"split '{shortened(split)}' cannot be part of a file name",
                expected="letters, digits, '_' and '.'",
            )
        layers = {"states": states}
        if isinstance(states, (list, tuple)):
            layers = {f"layer {n}": one for n, one in enumerate(states, start=1)}
        taken[split] = Taken(
            [Array(f"{what} of '{split}'", one) for what, one in layers.items()],
            array("labels", split, labels),
            array("num_tokens", split, tokens.get(split)),
            {name: Array(f"column '{name}' of '{split}'", kept[name][split]) for name in kept},
        )
    found = _preview(taken, config, config.class_names or None, planted=planted)
    return _publish(found, config.out, (), progress or silent)


def _publish(
    found: ImportPreview, out: Path, files: Sequence[str], report: Report
) -> ImportSummary:
    """Make what a cache of these states lacks."""
    began, plan, rows = time.perf_counter(), found.plan, found.splits
    fields = plan.fingerprint_fields
    fields["encoder"]["imported"]["files"] = hash_files(files, report)
    if (out / PLAN_FILE).exists():  # another cache is refused before the states are read
        there = read_plan(out)
        content = there.fingerprint_fields["content"]
        adopt_plan(out, {**fields, "content": content}, there.dataset)
    for name, part in rows.items():
        part.check(name, plan.storage_dtype, report)
    groups = list(row_checks.repeated_texts(rows, report))
    warn(row_checks.check_rows(rows, plan.class_names, groups))
    fields["content"] = content_of(rows, report)
    plan.dataset["shared_texts"] = row_checks.shared_texts(groups)
    prepare_folder(out)
    plan = write_plan(out, replace(plan, fingerprint=fingerprint(fields)))
    broken = discard_broken(out, plan)
    warn([f"{name} is made again: {why}" for name, why in broken.items()])
    row_arrays, missing = RowArrays(plan, rows), set(missing_shards(out, plan))
    total, done, made = sum(plan.rows.values()), 0, 0
    for shard in plan.shards():
        report(done, total, "writing shards")
        done += shard.stop - shard.start
        if shard.name not in missing or receipt_path(out, shard.name).exists():
            continue
        part = rows[shard.split]
        states = part.states.stored(shard.start, shard.stop, plan.storage_dtype)
        arrays = {embeddings_key(plan, plan.pooling[0]): (plan.storage_dtype, states)}
        arrays |= row_arrays.of(shard, part.tokens[shard.start : shard.stop].astype(np.int64))
        write_shard(out, plan, shard, arrays)
        made += 1
    return ImportSummary(
        path=str(out),
        fingerprint=plan.fingerprint,
        encoder=plan.encoder_label,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        storage_dtype=plan.storage_dtype,
        rows=plan.rows,
        shards=plan.num_shards,
        shards_made=made,
        seconds=time.perf_counter() - began,
        left=found.left,
    )
