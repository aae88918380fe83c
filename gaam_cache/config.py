"""What an extraction is, and an import of states that others made: each validates itself."""

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
    SHARD_ROWS,
    UNCHECKED,
    Rule,
    check_at_least,
    check_place,
    check_rules,
    extract_rules,
    settle_paths,
)
from gaam_cache.config_checks import NAME_PATTERN as NAME_PATTERN
from gaam_cache.devices import check_device
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of, shortened
from gaam_cache.placing import Placing, check_placing

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_DATASET = "news-sample"
IMPORTED = "imported"
"""Kind of the encoder in the plan of a cache of states that others made."""
RECORDED = "recorded"
"""Metadata of a field that a plan records where it is not at its default: under ``dataset`` what it
takes to read the same rows again, under ``encoder`` what it takes to encode them alike."""
OF_ROWS = {RECORDED: "dataset"}
OF_ENCODER = {RECORDED: "encoder"}


def _or_none(word: str) -> str | None:
    return None if word == "none" else word  # which takes back what a preset says


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractConfig(Placing):
    """Everything ``gaam extract`` can be told.

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    encoder: str = DEFAULT_ENCODER
    """Folder or hub id of an encoder of texts, sounds or pictures; or tfidf."""
    revision: str | None = field(default=None, metadata=KEY)
    """Branch, tag or commit of the encoder on the hub."""
    untrained_encoder: bool = False
    """Random weights: the control for pre-training."""
    encoder_seed: int | None = field(default=None, metadata=KEY)
    """Seed of the random weights; default: 0."""
    dataset: str = DEFAULT_DATASET
    """File, folder with train.csv and test.csv or with a folder per class, or hub id."""
    dataset_revision: str | None = field(default=None, metadata=KEY)
    """Branch, tag or commit of the data set on the hub."""
    text_columns: tuple[str, ...] = field(default=(), metadata={"option": "--text-column"})
    """Column of the text; several are joined by a space (default: text)."""
    label_column: str = "label"
    """Column of the class."""
    file_column: str | None = field(default=None, metadata=OF_ROWS)
    """Column of sounds or pictures (default: file, audio or image)."""
    allow_outside: bool = field(default=False, metadata=OF_ROWS | KEY)
    """Take files outside of the folder of the table that names them."""
    keep_columns: tuple[str, ...] = field(
        default=(), metadata={"option": "--keep-column"} | OF_ROWS
    )
    """Column that the cache keeps, such as who speaks; repeatable."""
    delimiter: str | None = field(default=None, metadata={UNCHECKED: True} | KEY | OF_ROWS)
    """What parts the fields of a CSV file: a character, or tab, semicolon, pipe, space (default: a
    comma)."""
    encoding: str | None = field(default=None, metadata=OF_ROWS | KEY)
    """How characters are stored in CSV and JSON lines (default: UTF-8)."""
    strip_labels: bool = field(default=False, metadata=OF_ROWS | KEY)
    """Leave out white space around class names."""
    skip_empty: bool = field(default=False, metadata=OF_ROWS | KEY)
    """Leave out rows of which nothing is to be encoded, and name them."""
    test_fraction: float | None = field(default=None, metadata=OF_ROWS)
    """Part of a single file, or of the only split, that becomes 'test', stratified."""
    split_seed: int = field(default=0, metadata=OF_ROWS | KEY)
    """Which rows test-fraction takes."""
    unlabelled: tuple[str, ...] = field(default=(), metadata=OF_ROWS | KEY)
    """Splits without labels: to predict on, never to report on."""
    clip_seconds: float | None = field(default=None, metadata=OF_ROWS | KEY)
    """Longest sound, or piece of one (default: 30, or less where the encoder takes less)."""
    clip_mode: Literal["cut", "split"] = field(default="cut", metadata=OF_ROWS | KEY)
    """What becomes of a longer sound: its beginning, or a row for every piece."""
    published_audio: bool = field(default=False, metadata=OF_ROWS | KEY)
    """Sounds as the published code has them: filled with zeros to 5 s, not normalised."""
    splits: tuple[str, ...] = field(default=("train", "test"), metadata={"option": "--split"})
    """Split to encode, repeatable."""
    out: Path = Path("cache")
    """Folder of the cache."""
    pool: tuple[str, ...] = ("mean",)
    """Of a layer's tokens to one vector; several from one pass."""
    pool_over: Literal["all", "text"] = field(default="all", metadata=OF_ENCODER | KEY)
    """Which tokens are pooled: all, or those of the row's own text without the prompt."""
    prompt: str | None = field(default=None, metadata={UNCHECKED: True})
    """Text around every text, which stands where '{text}' is."""
    prompt_file: Path | None = field(default=None, metadata=KEY)
    """A UTF-8 file that holds the prompt; a line end at its end is not part of it."""
    layer_zero: bool = field(default=False, metadata=OF_ENCODER | KEY)
    """Keep the input of the first layer too, as layer 0."""
    max_length: int | None = None
    """Tokens of the longest text (default: 512, or the encoder's limit)."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Arithmetic of the encoder. Pooling is float32 always. auto: bfloat16 where the device
    computes in it natively, else float16 on a GPU of CUDA and float32 elsewhere."""
    storage_dtype: Literal["float16", "float32", "bfloat16"] = "float16"
    """What the cache stores."""
    batch_tokens: int | None = field(default=None, metadata=KEY)
    """Tokens of one batch, padding included (default: 2,048 on a CPU, 16,384 on a GPU)."""
    shard_rows: int = field(default=SHARD_ROWS, metadata=KEY)
    """Rows of one shard at most; a shard is also at most 512 MB."""
    limit: int | None = None
    """Only so many rows of each split, the first."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    device_map: str | None = field(default=None, metadata={"parse": _or_none} | KEY)
    """auto spreads an encoder over several GPUs (accelerate); none does not."""
    tokens_per_second: float | None = field(default=None, metadata=KEY)
    """What the encoder reads, for a dry run, which then needs no weights (default: timed here)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is loaded."""
        settle_paths(self)
        check_at_least(self, 1, "max_length", "batch_tokens", "shard_rows", "limit")
        check_at_least(self, 0, "encoder_seed", "split_seed")
        check_rules(self, extract_rules(self))
        check_device(self.device)
        check_placing(self)
        if self.prompt is not None:
            check_place(self.prompt, "--prompt")


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
    called = "--array" if option == "arrays" else option_of(option)
    for text in getattr(config, option):
        split, _, name = text.partition("=")
        twice = option != "arrays" and split in found
        if not name or twice or not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"{called} {shortened(text)!r} does not say which array is of which split",
                expected=f"{called} SPLIT=NAME, such as {called} train=embeddings",
                found="another array of that split" if twice else None,
            )
        found.setdefault(split, []).append(name)
    return found
