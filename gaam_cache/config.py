"""What an extraction is, an import of states that others made, and who does the work.

Each is a frozen dataclass that validates itself by a table of rules.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from gaam_cache.common import plugins
from gaam_cache.common.devices import check_device
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import shortened
from gaam_cache.common.settings import (
    Rule,
    check_at_least,
    check_rules,
    key,
    name_in_messages,
    option,
    settle,
)

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_DATASET = "news-sample"
ENGINES = "gaam_cache.workers.engines"
IMPORTED = "imported"
"""Kind of the encoder in the plan of a cache of states that others made."""
SHARD_ROWS = 2048
"""Of one shard at most, where nobody says."""
CPU_BATCH_TOKENS = 2048  # more is slower on a CPU: the activations leave its cache
GPU_BATCH_TOKENS = 16384
PUBLISHED_SECONDS = 5.0
"""Of every sound in the published code."""
CLIP_OF = "clip_of"
"""The kept column that says, where long sounds become several rows, which each is a piece of."""
PLACE = "{text}"
"""Of the text in a prompt."""
RECORDED = "recorded"
"""Metadata of a field that a plan records where it is not at its default: under ``dataset`` what it
takes to read the same rows again, under ``encoder`` what it takes to encode them alike."""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for what shells and people trip over."""
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
"""What a split may be called: it becomes part of a file name."""
COLUMN_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""What a kept column may be called: it becomes part of the name of an array."""
COLUMN_NAME = "a letter, then letters, digits and '_', 64 at most"
RANGE = "is out of range"


def budget_of(asked: int | None, device_type: str) -> int:
    """Tokens of a batch: as asked for, else what suits the kind of device."""
    if asked is not None:
        return asked
    return CPU_BATCH_TOKENS if device_type == "cpu" else GPU_BATCH_TOKENS


def parse_devices(value: Any) -> str:
    """How many devices, 'all', or which, from a number, text or list."""
    if isinstance(
        value, (list, tuple)
    ):  # [1] of a file is GPU 1, and no number of workers
        value = ",".join(map(str, value)) + "," * all(
            type(number) is int for number in value
        )
    text = "".join(str(value).split())
    if not re.fullmatch(r"all|[1-9]\d{0,3}|(\d{1,4},)+(\d{1,4})?", text, re.ASCII):
        raise ValueError(
            "1, a number, all, or numbers of GPUs such as 0,2 (one alone: 0,)"
        )
    numbers = re.findall(r"\d+", text)
    if len(set(map(int, numbers))) < len(numbers):
        raise ValueError("numbers of GPUs, each once")
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """Which workers there are to be: part of every configuration that has work for them."""

    engine: str = option("local", "Who starts the workers.")
    devices: str = option(
        "1",
        "Workers, one for each GPU or group of cores: a number, all, or which "
        "GPUs (0,2).",
        parse=parse_devices,
    )
    address: str | None = key(
        None, "Address of a cluster of Ray that is there already; auto finds one."
    )
    gpus_per_worker: float | None = key(
        None, "GPUs of one worker of a cluster; default: 1, or 0 on a CPU."
    )
    rank: str | None = key(
        None, "This process is worker i of n that were started by hand: i/n, from 0."
    )

    @property
    def alone(self) -> bool:
        return self.engine == "local" and self.devices == "1"


P = TypeVar("P", bound=WorkerConfig)


def without_workers(config: P) -> P:
    values: dict[str, Any] = {one.name: one.default for one in fields(WorkerConfig)}
    return replace(config, **values)


def check_workers(config: WorkerConfig) -> None:
    if config.engine not in (known := plugins.names(ENGINES)):
        raise plugins.unknown("engine", config.engine, known)
    if config.rank is not None:
        parse_rank(config.rank)
    share = config.gpus_per_worker
    fits = share is None or 0 < share < 1 or (1 <= share < 1024 and share == int(share))
    check_rules(
        config,
        [("gpus_per_worker", fits, RANGE, "a part of one GPU (0.25), or whole ones")],
    )


def parse_rank(text: str) -> tuple[int, int]:
    """Number of a worker, from 0, and how many there are."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not number < count:
        expected = "i/n, from 0/n to n-1/n, such as 0/4"
        raise ConfigError("bad rank", expected=expected, found=shortened(text))
    return number, count


def parse_range(value: Any) -> str:
    """Layers that follow each other, ``20-40`` or ``7``."""
    found = re.fullmatch(r"(0|[1-9]\d{0,3})(?:-([1-9]\d{0,3}))?", str(value), re.ASCII)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise ValueError("layers that follow each other, such as 20-40, or one")
    return str(value)


def _or_none(word: str) -> str | None:
    return None if word == "none" else word  # which takes back what a preset says


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractConfig(WorkerConfig):
    """Everything ``gaam extract`` can be told; ``gaam describe --settings`` says what each means.

    >>> config = gaam_cache.ExtractConfig(dataset="news.csv", text_columns=("title", "body"))

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    encoder: str = option(
        DEFAULT_ENCODER,
        "Folder or hub id of an encoder of texts, sounds or pictures; or tfidf.",
    )
    revision: str | None = key(None, "Branch, tag or commit of the encoder on the hub.")
    untrained_encoder: bool = option(
        False, "Random weights: the control for pre-training."
    )
    encoder_seed: int | None = key(None, "Seed of the random weights; default: 0.")
    dataset: str = option(
        DEFAULT_DATASET,
        "File, folder with train.csv and test.csv (sounds, pictures: one per "
        "class), or hub id.",
    )
    dataset_revision: str | None = key(
        None, "Branch, tag or commit of the data set on the hub."
    )
    subset: str | None = option(
        None,
        "Subset (configuration) of a data set on the hub.",
        recorded="dataset",
    )
    text_columns: tuple[str, ...] = option(
        (),
        "Column of the text; several are joined by a space (default: text).",
        flag="--text-column",
    )
    label_column: str = option("label", "Column of the class.")
    file_column: str | None = option(
        None,
        "Column of sounds or pictures (default: file, audio or image).",
        recorded="dataset",
    )
    allow_outside: bool = key(
        False,
        "Take files outside of the folder of the table that names them.",
        recorded="dataset",
    )
    keep_columns: tuple[str, ...] = option(
        (),
        "Column that the cache keeps, such as who speaks; repeatable.",
        flag="--keep-column",
        recorded="dataset",
    )
    delimiter: str | None = key(
        None,
        "What parts the fields of a CSV file: a character, or tab, semicolon, "
        "pipe, space (default: a comma).",
        unchecked=True,
        recorded="dataset",
    )
    encoding: str | None = key(
        None,
        "How characters are stored in CSV and JSON lines (default: UTF-8).",
        recorded="dataset",
    )
    strip_labels: bool = key(
        False,
        "Leave out white space around class names.",
        recorded="dataset",
    )
    odd_classes: tuple[str, ...] = key(
        (),
        "Classes that are called as what often means 'no label' (-1, nan), or as "
        "a quantity (0.5).",
    )
    skip_empty: bool = key(
        False,
        "Leave out rows of which nothing is to be encoded, and count them.",
        recorded="dataset",
    )
    test_fraction: float | None = option(
        None,
        "Part of a single file, or of the only split, that becomes 'test', stratified.",
        recorded="dataset",
    )
    test_groups: str | None = option(
        None,
        "Column by which test-fraction takes whole groups, such as who speaks; "
        "the cache keeps it.",
        recorded="dataset",
    )
    split_seed: int = key(
        0,
        "Which rows test-fraction takes.",
        recorded="dataset",
    )
    unlabelled: tuple[str, ...] = key(
        (),
        "Splits without labels: to predict on, never to report on.",
        recorded="dataset",
    )
    clip_seconds: float | None = key(
        None,
        "Longest sound, or piece of one (default: 30, or less where the encoder "
        "takes less).",
        recorded="dataset",
    )
    clip_mode: Literal["cut", "split"] = key(
        "cut",
        "What becomes of a longer sound: its beginning, or a row for every piece "
        "(limit: sounds).",
        recorded="dataset",
    )
    grey_bits: int | None = key(
        None,
        "Bits that grey pictures of 16 bits use: 12 of many cameras (default: 16).",
        recorded="dataset",
    )
    published_audio: bool = key(
        False,
        "Sounds as the published code has them: filled with zeros to 5 s, not "
        "normalised.",
        recorded="dataset",
    )
    splits: tuple[str, ...] = option(
        ("train", "test"),
        "Split to encode, repeatable.",
        flag="--split",
    )
    out: Path = option(Path("cache"), "Folder of the cache.")
    pool: tuple[str, ...] = option(
        ("mean",), "Of a layer's tokens to one vector; several from one pass."
    )
    pool_over: Literal["all", "text"] = key(
        "all",
        "Which tokens are pooled: all, or those of the row's own text without the "
        "prompt.",
        recorded="encoder",
    )
    prompt: str | None = option(
        None,
        "Text around every text, which stands where '{text}' is.",
        unchecked=True,
    )
    chat_template: bool = option(
        False,
        "Write every text as a user's message, by the tokenizer's own chat template.",
        recorded="encoder",
    )
    layers: str | None = option(
        None,
        "Layers to keep: 20-40, or one; 0 is the input of the first (default: "
        "all, from 1).",
        parse=parse_range,
        recorded="encoder",
    )
    layer_zero: bool = key(
        False,
        "Keep the input of the first layer too, as layer 0.",
        recorded="encoder",
    )
    max_length: int | None = option(
        None, "Tokens of the longest text (default: 512, or the encoder's limit)."
    )
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = option(
        "float32",
        "Arithmetic of the encoder. Pooling is float32 always. auto: bfloat16 "
        "where the device computes in it natively, else float16 on a GPU of CUDA "
        "and float32 elsewhere.",
    )
    storage_dtype: Literal["float16", "float32", "bfloat16"] = option(
        "float16", "What the cache stores."
    )
    batch_tokens: int | None = key(
        None,
        "Tokens of one batch, padding included (default: 2,048 on a CPU, 16,384 "
        "on a GPU).",
    )
    shard_rows: int = key(
        SHARD_ROWS, "Rows of one shard at most; a shard is also at most 512 MB."
    )
    limit: int | None = option(
        None,
        "Only so many rows of each split: of every class its share, the first ones.",
    )
    limit_rule: Literal["classes", "first"] = key(
        "classes",
        "Which rows limit takes: of every class its share, or the first as before "
        "gaam 0.3.",
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    device_map: str | None = key(
        None,
        "auto spreads an encoder over several GPUs (accelerate); none does not.",
        parse=_or_none,
    )
    tokens_per_second: float | None = key(
        None,
        "What the encoder reads, for a dry run, which then needs no weights "
        "(default: timed here).",
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.test_groups is not None and self.test_groups not in self.keep_columns:
            object.__setattr__(
                self, "keep_columns", (*self.keep_columns, self.test_groups)
            )
        check_at_least(self, 1, "max_length", "batch_tokens", "shard_rows", "limit")
        check_at_least(self, 0, "encoder_seed", "split_seed")
        check_rules(self, self._rules())
        check_device(self.device)
        check_workers(self)

    def _rules(self) -> Iterator[Rule]:
        speed, seconds, part = (
            self.tokens_per_second,
            self.clip_seconds,
            self.test_fraction,
        )
        splits, unlabelled, spread = self.splits, self.unlabelled, self.device_map
        # fmt: off
        yield "tokens_per_second", speed is None or 0 < speed < math.inf, RANGE, "> 0"
        yield "clip_seconds", seconds is None or 0.1 <= seconds < math.inf, RANGE, ">= 0.1"
        yield "grey_bits", self.grey_bits in (None, *range(8, 17)), RANGE, "8 to 16"
        yield "test_fraction", part is None or 0 < part < 1, RANGE, "> 0 and < 1"
        yield ("device_map", spread in (None, *DEVICE_MAPS),
               "is unknown", f"one of: {', '.join(DEVICE_MAPS)}")
        yield ("encoding", _is_encoding(self.encoding or "utf-8"), "is unknown",
               "one that Python knows, such as cp1252, latin-1, utf-16, gb18030 or shift_jis")
        yield ("delimiter", re.fullmatch('[^"\r\n\0\ud800-\udfff]', delimiter_of(self)), "is none",
               f"a character, no quote, or: {', '.join(DELIMITERS)}")
        yield ("splits", all(map(NAME_PATTERN.fullmatch, splits)),
               "cannot be part of a file name", "letters, digits, '_' and '.'")
        yield ("splits", len({one.casefold() for one in splits}) == len({*splits}),
               "differ in case alone", "names that every file system tells apart")
        yield ("keep_columns", all(map(COLUMN_PATTERN.fullmatch, self.keep_columns)),
               "becomes the name of an array: rename the column in the data", COLUMN_NAME)
        yield ("layer_zero layers", not (self.layer_zero and self.layers),
               "is what layers from 0 are", "one of the two")
        yield ("layers", not (self.layers and self.encoder.startswith("tfidf")),
               "are of an encoder that has several", "another --encoder")
        yield ("chat_template", not (self.chat_template and self.encoder.startswith("tfidf")),
               "is of an encoder with a tokenizer", "another --encoder")
        yield ("device_map", not (spread and self.untrained_encoder),
               "cannot spread an untrained encoder", "one device that holds it: --device")
        yield ("device_map devices", not spread or self.alone or self.engine != "local",
               "spreads one encoder over all GPUs", "one worker, --engine ray, or device-map=none")
        yield ("file_column text_columns", not (self.file_column and self.text_columns),
               "is for sounds and pictures, --text-column for texts", "one of the two")
        yield ("test_fraction splits", part is None or sorted(splits) == ["test", "train"],
               "makes the splits 'train' and 'test'", "no --split beside it")
        yield ("test_fraction unlabelled", part is None or not unlabelled,
               "needs the labels of all rows", "no unlabelled beside it")
        yield ("unlabelled", set(unlabelled) <= set(splits),
               "is no split that is read", f"one of: {', '.join(splits)}")
        yield ("unlabelled", ("train" if "train" in splits else splits[0]) not in unlabelled,
               "leaves no classes", "labels in 'train', or in the first split")
        yield ("prompt", self.prompt is None or (self.prompt.count(PLACE) == 1
               and not re.search("[\ud800-\udfff]", self.prompt)),
               "says once where the text stands", f"'{PLACE}' exactly once")
        yield ("published_audio clip_seconds", not self.published_audio
               or seconds in (None, PUBLISHED_SECONDS), "is of 5 s", "no clip-seconds beside it")
        yield ("published_audio pool", not self.published_audio or self.pool == ("mean",),
               "is the mean over all that the encoder hears", "--pool mean")
        # fmt: on


def _is_encoding(name: str) -> bool:
    try:
        return "".encode(name) is not None
    except (LookupError, ValueError):
        return False


def delimiter_of(config: ExtractConfig) -> str:
    return DELIMITERS.get(config.delimiter or "comma", config.delimiter or "")


def parse_words(value: Any) -> tuple[str, ...]:
    """Texts as they were given: a comma in one is part of it."""
    words = value if isinstance(value, (list, tuple)) else [value]
    return tuple(map(str, words))


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportConfig:
    """Everything ``gaam import`` can be told.

    >>> config = gaam_cache.ImportConfig(files=("train.npz", "test.npz"), axes="nld")

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    files: tuple[str, ...] = option(
        (),
        "Files of arrays: safetensors, npz, npy, HDF5.",
        parse=parse_words,
    )
    out: Path = option(Path("cache"), "Folder of the cache.")
    arrays: tuple[str, ...] = option(
        (),
        "States of a split: one array, or one for each layer ('layer_*'); repeatable.",
        flag="--array",
        parse=parse_words,
    )
    labels: tuple[str, ...] = option(
        (),
        "Labels of a split: whole numbers from 0, or strings; repeatable.",
        parse=parse_words,
    )
    axes: Literal["nld", "lnd", "nd"] | None = key(
        None,
        "What the axes of states are: rows n, layers l, features d (default: nld, "
        "or nd of two).",
    )
    class_names: tuple[str, ...] = key(
        (),
        "Names of the classes in order, where labels are numbers.",
        flag="--class-name",
        parse=parse_words,
    )
    keep_columns: tuple[str, ...] = key(
        (),
        "Arrays of strings or whole numbers, one for each row, that the cache keeps.",
        flag="--keep-column",
        parse=parse_words,
    )
    unlabelled: tuple[str, ...] = key(
        (),
        "Splits without labels: to predict on, never to report on.",
        parse=parse_words,
    )
    storage_dtype: Literal["float16", "float32", "bfloat16"] | None = option(
        None, "What the cache stores (default: the type of the states, or float32)."
    )
    encoder_name: str = key(IMPORTED, "What reports call the encoder.")
    dataset_name: str | None = key(
        None, "What reports call the data (default: the files)."
    )
    pool: str = key(IMPORTED, "What reports call the way the states were pooled.")
    shard_rows: int = key(
        SHARD_ROWS, "Rows of one shard at most; a shard is also at most 512 MB."
    )

    def __post_init__(self) -> None:
        settle(self)
        check_at_least(self, 1, "shard_rows")
        if not self.files:
            raise ConfigError(
                "nothing to import", expected="one file of arrays, or several"
            )
        columns = all(map(COLUMN_PATTERN.fullmatch, self.keep_columns))
        pool, letters = (
            re.fullmatch(r"[a-z]{1,16}", self.pool),
            "1 to 16 lower-case letters",
        )
        rules: list[Rule] = [
            ("keep_columns", columns, "cannot be the name of a column", COLUMN_NAME),
            ("pool", pool, "cannot be a name", f"{letters}, such as mean"),
        ]
        check_rules(self, rules)
        for name in ("arrays", "labels"):
            names_by_split(self, name)


def names_by_split(config: ImportConfig, setting: str) -> dict[str, list[str]]:
    """The names of every split in ``arrays`` or ``labels``, in order.

    Raises:
        ConfigError: a text that is not ``SPLIT=NAME``, or a second array of labels.
    """
    names: dict[str, list[str]] = {}
    option_name = name_in_messages(config, setting)
    for text in getattr(config, setting):
        split, _, name = text.partition("=")
        is_repeated = setting != "arrays" and split in names
        if not name or is_repeated or not NAME_PATTERN.fullmatch(split):
            raise ConfigError(
                f"{option_name} {shortened(text)!r} does not say which array belongs "
                "to which split",
                expected=f"{option_name} SPLIT=NAME, such as "
                f"{option_name} train=embeddings",
                found="another array of that split" if is_repeated else None,
            )
        names.setdefault(split, []).append(name)
    return names
