"""``gaam_cache.write``: arrays of a program become a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gaam_cache.config import NAME_PATTERN
from gaam_cache.config_checks import SHARD_ROWS
from gaam_cache.errors import ConfigError
from gaam_cache.format.planted import Planted
from gaam_cache.format.targets import check_folder
from gaam_cache.import_config import IMPORTED, ImportConfig
from gaam_cache.importing.choose import Taken
from gaam_cache.importing.given import GivenArray
from gaam_cache.importing.job import make_job
from gaam_cache.importing.publish import publish_states
from gaam_cache.importing.summary import ImportSummary
from gaam_cache.messages import shortened
from gaam_cache.terminal import Report, silent

NAME_OF_DATA = "arrays of a program"


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
    dataset_name: str = NAME_OF_DATA,
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
        DataError: arrays that do not fit together, or that change while they are read.
        NumericsError: a state that is no number, or that cannot be stored.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    config = ImportConfig(
        files=(dataset_name,),  # it checks what is the same for files
        out=Path(out).expanduser(),
        class_names=tuple(class_names),
        keep_columns=tuple(columns or ()),
        axes=axes,
        storage_dtype=storage_dtype,
        encoder_name=encoder_name,
        pool=pool,
        shard_rows=shard_rows,
    )
    check_folder(config.out, option="out")
    tokens, kept = num_tokens or {}, columns or {}
    _check_splits(splits, {"num_tokens": tokens, **kept})
    for column, of_splits in kept.items():
        if missing := [split for split in splits if split not in of_splits]:
            raise ConfigError(f"'{missing[0]}' has no column '{shortened(column)}'")
    taken = {
        split: Taken(
            states=_states(split, states),
            labels=None if labels is None else GivenArray(f"labels of '{split}'", labels),
            num_tokens=GivenArray(f"num_tokens of '{split}'", tokens[split])
            if split in tokens
            else None,
            columns={
                name: GivenArray(f"column '{name}' of '{split}'", of_splits[split])
                for name, of_splits in kept.items()
            },
        )
        for split, (states, labels) in splits.items()
    }
    job = make_job(
        taken,
        axes=config.axes,
        class_names=config.class_names or None,
        storage_dtype=config.storage_dtype,
    )
    return publish_states(
        job,
        config.out,
        names={"encoder": encoder_name, "dataset": dataset_name},
        files={},
        again=None,
        pool=pool,
        shard_rows=shard_rows,
        report=progress or silent,
        planted=planted,
    )


def _check_splits(splits: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> None:
    if not splits:
        raise ConfigError("nothing to write", expected="at least one split")
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
    for what, of_splits in others.items():
        if unknown := sorted(set(of_splits) - set(splits)):
            raise ConfigError(
                f"{shortened(what)} of '{shortened(unknown[0])}', which is no split",
                expected=f"one of: {', '.join(splits)}",
            )


def _states(split: str, states: Any) -> tuple[GivenArray, ...]:
    if isinstance(states, (list, tuple)):
        names = [f"layer {layer + 1} of '{split}'" for layer in range(len(states))]
        if not states:
            raise ConfigError(f"'{split}' has no layers", expected="at least one array (N, D)")
        return tuple(GivenArray(n, one) for n, one in zip(names, states, strict=True))
    return (GivenArray(f"states of '{split}'", states),)
