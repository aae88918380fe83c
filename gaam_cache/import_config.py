"""What an import of states that others made is: one frozen dataclass that validates itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gaam_cache.config_checks import (
    COLUMN_NAME,
    COLUMN_PATTERN,
    KEY,
    NAME_PATTERN,
    SHARD_ROWS,
    Rule,
    check_at_least,
    check_rules,
    settle_paths,
)
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of, shortened

IMPORTED = "imported"
"""Kind of the encoder in the plan of a cache of such states, and its name where nobody says one."""


def parse_words(value: Any) -> tuple[str, ...]:
    """Texts as they were given: a comma in one is part of it."""
    words = value if isinstance(value, (list, tuple)) else [value]
    return tuple(map(str, words))


def _words(option: str, **more: Any) -> Any:
    return field(default=(), metadata={"option": option, "parse": parse_words, **more})


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportConfig:
    """Everything ``gaam import`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    files: tuple[str, ...] = field(default=(), metadata={"parse": parse_words, "positional": True})
    """Files of arrays: safetensors, npz, npy, HDF5."""
    out: Path = Path("cache")
    """Folder of the cache."""
    arrays: tuple[str, ...] = _words("--array")
    """States of a split: one array, or one for each layer ('layer_*'); repeatable."""
    labels: tuple[str, ...] = _words("--labels")
    """Labels of a split: whole numbers from 0, or strings; repeatable."""
    num_tokens: tuple[str, ...] = _words("--num-tokens", **KEY)
    """SPLIT=NAME: how many tokens each row was pooled from."""
    axes: Literal["nld", "lnd", "nd"] | None = field(default=None, metadata=KEY)
    """What the axes of states are: rows n, layers l, features d (default: nld, or nd of two)."""
    class_names: tuple[str, ...] = _words("--class-name", **KEY)
    """Names of the classes in order, where labels are numbers."""
    keep_columns: tuple[str, ...] = _words("--keep-column", **KEY)
    """Arrays of strings or whole numbers, one for each row, that the cache keeps."""
    unlabelled: tuple[str, ...] = _words("--unlabelled", **KEY)
    """Splits without labels: to predict on, never to report on."""
    storage_dtype: Literal["float16", "float32", "bfloat16"] | None = None
    """What the cache stores (default: the type of the states, or float32)."""
    encoder_name: str = field(default=IMPORTED, metadata=KEY)
    """What reports call the encoder."""
    dataset_name: str | None = field(default=None, metadata=KEY)
    """What reports call the data (default: the files)."""
    pool: str = field(default=IMPORTED, metadata=KEY)
    """What reports call the way the states were pooled."""
    shard_rows: int = field(default=SHARD_ROWS, metadata=KEY)
    """Rows of one shard at most; a shard is also at most 512 MB."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before a file is opened."""
        settle_paths(self)
        check_at_least(self, 1, "shard_rows")
        if not self.files:
            raise ConfigError("nothing to import", expected="one file of arrays, or several")
        check_rules(self, self._rules())
        for option in ("arrays", "labels", "num_tokens"):
            of_splits(self, option)

    def _rules(self) -> Iterator[Rule]:
        columns = all(map(COLUMN_PATTERN.fullmatch, self.keep_columns))
        yield "keep_columns", columns, "cannot be the name of a column", COLUMN_NAME
        pool = re.fullmatch(r"[a-z]{1,16}", self.pool)
        yield "pool", pool, "cannot be a name", "1 to 16 lower-case letters, such as mean"


def of_splits(config: ImportConfig, option: str) -> dict[str, list[str]]:
    """Split -> the names that were given for it after ``option``, in order."""
    found: dict[str, list[str]] = {}
    spelled = "--array" if option == "arrays" else option_of(option)
    for text in getattr(config, option):
        split, _, name = text.partition("=")
        if not name or not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"{spelled} {shortened(text)!r} does not say which array is of which split",
                expected=f"{spelled} SPLIT=NAME, such as {spelled} train=embeddings",
            )
        found.setdefault(split, []).append(name)
        if option != "arrays" and len(found[split]) > 1:
            raise ConfigError(f"{spelled} is given twice for '{split}'", expected="one array")
    return found
