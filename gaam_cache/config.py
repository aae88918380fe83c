"""The configurations of an extraction, of an import, and of their workers.

Each configuration is a frozen dataclass. Its constructor parses every value and checks
the rules of the class.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
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
    parse_fields,
    setting_rule,
)

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_DATASET = "news-sample"
ENGINES = "gaam_cache.workers.engines"
IMPORTED = "imported"
"""Kind of the encoder in the plan of a cache of imported states."""
AUTO = "auto"
"""Value of the setting ``task`` if the labels themselves decide the task."""
SHARD_ROWS = 2048
"""Most rows of a shard by default."""
SHARD_ROWS_OF_KIND = {"audio": 128, "vision": 512}
"""The same for kinds of rows that take long to encode, by the kind of the encoder: an
interruption loses fewer of them."""
MAX_GPUS_PER_WORKER = 1024  # no machine has so many: a larger number is a mistake
CPU_BATCH_TOKENS = 2048  # more is slower on a CPU: the activations leave its cache
GPU_BATCH_TOKENS = 16384
PUBLISHED_SECONDS = 5.0
"""Length of every sound where ``published_audio`` prepares sounds as the published
code does."""
VALIDATION_NAMES = ("validation", "valid", "val", "dev")
"""Names of one and the same split."""
CLIP_OF = "clip_of"
"""Kept column with the name of the sound that a row is a piece of, if long sounds are
split into several rows."""
TEXT_PLACEHOLDER = "{text}"
"""What stands in a prompt in place of the row's text."""
SURROGATES = "\ud800-\udfff"
"""Range of characters, as in a pattern, that UTF-8 cannot encode: halves of others."""
RECORDED = "recorded"
"""Metadata of a field that a plan records if its value is not the default.

Its value is the part of the plan: ``dataset`` for settings that decide which rows are
read, ``encoder`` for settings that decide how they are encoded.
"""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for delimiters that are hard to type in a shell."""
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
"""Names of splits: they become parts of file names."""
COLUMN_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""Names of kept columns: they become parts of the names of arrays."""
EXPECTED_COLUMN_NAME = "a letter, then letters, digits and '_', 64 at most"
OUT_OF_RANGE = "is out of range"


def max_batch_tokens(batch_tokens: int | None, device_type: str) -> int:
    """The largest number of tokens of a batch, padding included.

    Args:
        batch_tokens: the setting of this name; None stands for the default of the
            device.
        device_type: 'cpu' or a kind of GPU.
    """
    if batch_tokens is not None:
        return batch_tokens
    if device_type == "cpu":
        return CPU_BATCH_TOKENS
    return GPU_BATCH_TOKENS


def parse_devices(value: object) -> str:
    """Check the setting ``devices`` and return it as text without spaces.

    A valid value is a number of workers ('2'), 'all', or the numbers of some GPUs with
    commas between them ('0,2'; '0,' for a single GPU).

    Raises:
        ValueError: the value is none of these; the text of the error says what is
            expected.
    """
    if isinstance(value, (list, tuple)):
        are_integers = all(type(number) is int for number in value)
        value = ",".join(map(str, value))
        # the list [1] means GPU 1: as text it needs a comma, since '1' is one worker
        if are_integers:
            value += ","
    text = "".join(str(value).split())
    if not re.fullmatch(r"all|[1-9]\d{0,3}|(\d{1,4},)+(\d{1,4})?", text, re.ASCII):
        raise ValueError(
            "1, a number, all, or numbers of GPUs such as 0,2 (one alone: 0,)"
        )
    # in the forms 'all' and '2' there are no numbers to repeat
    gpu_numbers = [int(digits) for digits in re.findall(r"\d+", text)]
    if len(set(gpu_numbers)) < len(gpu_numbers):
        raise ValueError("numbers of GPUs, each once")
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """The workers of a command: part of every configuration that may use several."""

    engine: str = option("local", "Engine that runs the workers: local or ray.")
    devices: str = option(
        "1",
        "Workers, one for each GPU or group of cores: a number, all, or which "
        "GPUs (0,2).",
        parse=parse_devices,
    )
    address: str | None = key(None, "Address of a running Ray cluster; auto finds one.")
    gpus_per_worker: float | None = key(
        None, "GPUs of one worker of a cluster.", shown_default="1, or 0 on a CPU"
    )
    rank: str | None = key(
        None,
        "Number of this process among n workers that you start yourself: i/n, from 0.",
    )

    @property
    def has_single_local_worker(self) -> bool:
        """Whether the command runs in this process, without other workers."""
        return self.engine == "local" and self.devices == "1"


P = TypeVar("P", bound=WorkerConfig)


def without_workers(config: P) -> P:
    """A copy of a configuration that asks for one worker, in this process."""
    worker_defaults: dict[str, Any] = {
        field.name: field.default for field in fields(WorkerConfig)
    }
    return replace(config, **worker_defaults)


def check_workers(config: WorkerConfig) -> None:
    """Check the settings of workers: the engine, the rank and the GPUs of a worker.

    Raises:
        ConfigError: no installed engine has this name; or the rank is not ``i/n``; or
            Ray cannot give a worker so many GPUs.
    """
    engines = plugins.names(ENGINES)
    if config.engine not in engines:
        raise plugins.unknown("engine", config.engine, engines)
    if config.rank is not None:
        # only for its error: the parts of the rank are not needed here
        parse_rank(config.rank)
    gpus_rule = setting_rule(
        "gpus_per_worker",
        holds=_can_ray_give(config.gpus_per_worker),
        problem=OUT_OF_RANGE,
        expected="a part of one GPU (0.25), or whole ones",
    )
    check_rules(config, [gpus_rule])


def _can_ray_give(gpus_per_worker: float | None) -> bool:
    """Whether Ray can give a worker so many GPUs: a part of one, or whole ones.

    None stands for the default, which Ray can give.
    """
    if gpus_per_worker is None or 0 < gpus_per_worker < 1:
        return True
    is_in_range = 1 <= gpus_per_worker < MAX_GPUS_PER_WORKER
    return is_in_range and gpus_per_worker == int(gpus_per_worker)


def parse_rank(text: str) -> tuple[int, int]:
    """The parts of a rank ``i/n``: this worker's index i, from 0, and n workers.

    Raises:
        ConfigError: the text has another form, or i is not below n.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if match is not None:
        worker_index = int(match[1])
        num_workers = int(match[2])
        if worker_index < num_workers:
            return worker_index, num_workers
    expected = "i/n, from 0/n to n-1/n, such as 0/4"
    raise ConfigError("bad rank", expected=expected, found=shortened(text))


def parse_range(value: object) -> str:
    """Check a range of layers, ``20-40``, or one layer, ``7``; return it as text.

    Raises:
        ValueError: the value has another form, or the last layer is before the first;
            the text of the error says what is expected.
    """
    expected = "consecutive layers, such as 20-40, or one"
    match = re.fullmatch(r"(0|[1-9]\d{0,3})(?:-([1-9]\d{0,3}))?", str(value), re.ASCII)
    if match is None:
        raise ValueError(expected)
    first_layer, last_layer = match.groups()
    if last_layer is not None and int(last_layer) < int(first_layer):
        raise ValueError(expected)
    return str(value)


def parse_dataset(value: object) -> str:
    """Check that a data set is given by its path or id, and return it as text.

    Raises:
        ConfigError: the value is a table of pandas, Arrow or ``datasets``, a list of
            dictionaries, or a dictionary.
        TypeError: the value is something else.
    """
    if isinstance(value, str | PurePath):
        return str(value)
    rows = value if isinstance(value, list | tuple) else [value]
    if has_columns(value):
        library = type(value).__module__.partition(".")[0]
        found = f"a {type(value).__name__} of {library}"
        table = "the table"
    elif rows and all(isinstance(row, dict) for row in rows):
        found = f"rows or columns in a {type(value).__name__}"
        table = "a table, df = pandas.DataFrame(rows)"
    else:
        raise TypeError("text")
    raise ConfigError(
        "--dataset takes a path or an id, and no table",
        expected="text, such as rows.parquet",
        found=found,
        hint=f'write {table}, and give the path: df.to_parquet("rows.parquet"); '
        'of the library datasets: dataset.save_to_disk("rows")',
    )


def _none_if_word_is_none(word: str) -> str | None:
    """None for the word 'none', with which a user overrides a preset; else the word."""
    if word == "none":
        return None
    return word


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractConfig(WorkerConfig):
    """The settings of ``gaam extract``; ``gaam describe --settings`` explains each.

    >>> config = gaam_cache.ExtractConfig(dataset="news.csv", text_columns=("title",))

    Raises:
        ConfigError: on construction, when a value is out of its range.
    """

    # the encoder and its revision
    encoder: str = option(
        DEFAULT_ENCODER,
        "Folder or hub id of an encoder of texts, sounds or pictures; or tfidf, which "
        "counts words.",
    )
    revision: str | None = key(None, "Branch, tag or commit of the encoder on the hub.")
    untrained_encoder: bool = option(
        False, "Give the encoder random weights: a control for its pre-training."
    )
    encoder_seed: int | None = key(
        None, "Seed of the random weights.", shown_default="0"
    )
    # the data set, its columns and its tables
    dataset: str = option(
        DEFAULT_DATASET,
        "A file; a folder with train.csv and test.csv, or with a folder of sounds or "
        "pictures for each class; or a hub id.",
        parse=parse_dataset,
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
        "Column of the text, repeatable: several are joined by a space.",
        shown_default="text",
        flag="--text-column",
    )
    label_column: tuple[str, ...] = option(
        ("label",),
        "Column of the label; for several numbers a row, or a column of 0 and 1 for "
        "each label, name several.",
    )
    task: Literal["auto", "classification", "regression", "multi-label"] = option(
        AUTO,
        "What the labels are: classes, numbers or sets of labels; auto: words and "
        "whole numbers are classes, lists are sets, fractions are refused.",
        recorded="dataset",
    )
    label_separator: str | None = key(
        None,
        "Separator of the labels in a text, for sets of labels.",
        shown_default="JSON lists",
        unchecked=True,
        recorded="dataset",
    )
    file_column: str | None = option(
        None,
        "Column of sounds or pictures.",
        shown_default="file, audio or image",
        recorded="dataset",
    )
    allow_outside: bool = key(
        False,
        "Allow files outside of the folder of their table.",
        recorded="dataset",
    )
    keep_columns: tuple[str, ...] = option(
        (),
        "Column to keep in the cache, such as the speaker; repeatable.",
        flag="--keep-column",
        recorded="dataset",
    )
    delimiter: str | None = key(
        None,
        "Delimiter of a CSV file: a character, or tab, semicolon, pipe, space.",
        shown_default="a comma",
        unchecked=True,
        recorded="dataset",
    )
    encoding: str | None = key(
        None,
        "Encoding of CSV and JSON lines.",
        shown_default="UTF-8",
        recorded="dataset",
    )
    strip_labels: bool = key(
        False,
        "Strip white space around class names.",
        recorded="dataset",
    )
    odd_classes: tuple[str, ...] = key(
        (),
        "Class names to accept although they look like 'no label' (-1, nan) or a "
        "quantity (0.5).",
    )
    skip_empty: bool = key(
        False,
        "Skip and count rows with nothing to encode.",
        recorded="dataset",
    )
    skip_unlabelled: bool = key(
        False,
        "Skip and count rows without a label (an empty cell, null, NaN; -1 where the "
        "data set declares its classes).",
        recorded="dataset",
    )
    # rows that become 'test', and splits without labels
    test_fraction: float | None = option(
        None,
        "Share of a single file, or of the only split, that becomes 'test': of "
        "every class, or of all rows of numbers.",
        shown_default="0.2 for a single file; else the splits stay as they are",
        recorded="dataset",
    )
    test_groups: str | None = option(
        None,
        "Column of groups that test-fraction never splits, such as the speaker; "
        "the cache keeps it.",
        recorded="dataset",
    )
    split_seed: int = key(
        0,
        "Seed of the rows that test-fraction draws.",
        recorded="dataset",
    )
    unlabelled: tuple[str, ...] = key(
        (),
        "Splits without labels: to predict on, never to report on.",
        recorded="dataset",
    )
    # sounds and pictures
    clip_seconds: float | None = key(
        None,
        "Seconds of the longest sound or piece of a sound.",
        shown_default="30, or the encoder's limit if it is less",
        recorded="dataset",
    )
    clip_mode: Literal["cut", "split"] = key(
        "cut",
        "Cut a longer sound to its beginning, or split it into a row for every "
        "piece (limit then counts sounds).",
        recorded="dataset",
    )
    grey_bits: int | None = key(
        None,
        "Bits that grey pictures of 16 bits use: 12 with many cameras.",
        shown_default="16",
        recorded="dataset",
    )
    published_audio: bool = key(
        False,
        "Prepare sounds as the published code does: padded with zeros to 5 s, not "
        "normalised.",
        recorded="dataset",
    )
    # what is encoded, and where the states go
    splits: tuple[str, ...] = option(
        ("train", "test"),
        "Split to encode, repeatable.",
        flag="--split",
    )
    out: Path = option(Path("cache"), "Folder of the cache.")
    states_from: Path | None = key(
        None,
        "Cache of the same rows, encoder and settings whose states are copied: other "
        "labels or kept columns then need no encoding.",
    )
    pool: tuple[str, ...] = option(
        ("mean",),
        "How a layer's tokens become one vector: mean, last, first or max; repeatable: "
        "one pass keeps several.",
    )
    pool_over: Literal["all", "text"] = key(
        "all",
        "Tokens to pool: all, or those of the row's own text without the prompt.",
        recorded="encoder",
    )
    # how texts become tokens
    prompt: str | None = option(
        None,
        "Template around every text; '{text}' stands for the text.",
        unchecked=True,
    )
    chat_template: bool = option(
        False,
        "Write every text as a user's message in the tokenizer's chat template.",
        recorded="encoder",
    )
    # which states are stored, and in which precision
    layers: str | None = option(
        None,
        "Layers to keep: 20-40, or one; 0 is the input of the first layer.",
        shown_default="all, from 1",
        parse=parse_range,
        recorded="encoder",
    )
    layer_zero: bool = key(
        False,
        "Keep the input of the first layer too, as layer 0.",
        recorded="encoder",
    )
    max_length: int | None = option(
        None,
        "Tokens of the longest text.",
        shown_default="512, or the encoder's limit",
    )
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = option(
        "float32",
        "Arithmetic of the encoder. Pooling is float32 always. auto: bfloat16 "
        "where the device computes in it natively, else float16 on a GPU of CUDA "
        "and float32 elsewhere.",
    )
    storage_dtype: Literal["float16", "float32", "bfloat16"] = option(
        "float16", "Type of the stored states."
    )
    # sizes of batches, shards and splits
    batch_tokens: int | None = key(
        None,
        "Tokens of one batch, padding included.",
        shown_default="2,048 on a CPU, 16,384 on a GPU",
    )
    shard_rows: int | None = key(
        None,
        "Rows of one shard at most; a shard is also at most 512 MB.",
        shown_default="2,048; of sounds 128, of pictures 512",
    )
    limit: int | None = option(
        None,
        "Largest number of rows of each split: the first ones of every class, so that "
        "each class keeps its share.",
    )
    limit_rule: Literal["classes", "first"] = key(
        "classes",
        "Rows that limit takes: from every class its share, or the first rows of the "
        "split, as before gaam 0.3.",
    )
    # the machine
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    device_map: str | None = key(
        None,
        "auto spreads an encoder over several GPUs (accelerate); none does not.",
        shown_default="none",
        parse=_none_if_word_is_none,
    )
    compile: Literal["on", "off"] = key(
        "off",
        "Use torch.compile for the encoder's layers: faster on a GPU for long "
        "extractions; the last digits of states differ.",
    )
    tokens_per_second: float | None = key(
        None,
        "Speed of the encoder for a dry run, which then needs no weights.",
        shown_default="measured here",
    )

    def __post_init__(self) -> None:
        # parse every value into the type of its field
        parse_fields(self)
        # the cache keeps the column of groups, too: training needs the groups of rows
        if self.test_groups is not None and self.test_groups not in self.keep_columns:
            columns = (*self.keep_columns, self.test_groups)
            # the dataclass is frozen, except for its constructor
            object.__setattr__(self, "keep_columns", columns)
        check_at_least(self, 1, "max_length", "batch_tokens", "shard_rows", "limit")
        check_at_least(self, 0, "encoder_seed", "split_seed")
        check_rules(self, self._rules())
        check_device(self.device)
        check_workers(self)

    def _rules(self) -> Iterator[Rule]:
        """The rules of all settings, in the order in which they are checked."""
        yield from self._rules_of_numbers()
        yield from self._rules_of_words()
        yield from self._rules_of_names()
        yield from self._rules_of_labels()
        yield from self._rules_of_layers()
        yield from self._rules_of_device_map()
        yield from self._rules_of_splits()
        yield from self._rules_of_unlabelled()
        yield from self._rules_of_inputs()
        yield from self._rules_of_copies()

    def _rules_of_numbers(self) -> Iterator[Rule]:
        """Rules: each of these numbers must be in its range; None means "not set"."""
        speed = self.tokens_per_second
        yield setting_rule(
            "tokens_per_second",
            holds=speed is None or 0 < speed < math.inf,
            problem=OUT_OF_RANGE,
            expected="> 0",
        )
        seconds = self.clip_seconds
        yield setting_rule(
            "clip_seconds",
            holds=seconds is None or 0.1 <= seconds < math.inf,
            problem=OUT_OF_RANGE,
            expected=">= 0.1",
        )
        yield setting_rule(
            "grey_bits",
            holds=self.grey_bits is None or 8 <= self.grey_bits <= 16,
            problem=OUT_OF_RANGE,
            expected="8 to 16",
        )
        fraction = self.test_fraction
        yield setting_rule(
            "test_fraction",
            holds=fraction is None or 0 < fraction < 1,
            problem=OUT_OF_RANGE,
            expected="> 0 and < 1",
        )

    def _rules_of_words(self) -> Iterator[Rule]:
        """Rules: device map and encoding are known; a delimiter is one character."""
        yield setting_rule(
            "device_map",
            holds=self.device_map is None or self.device_map in DEVICE_MAPS,
            problem="is unknown",
            expected=f"one of: {', '.join(DEVICE_MAPS)}",
        )
        yield setting_rule(
            "encoding",
            holds=_is_encoding(self.encoding or "utf-8"),
            problem="is unknown",
            expected="an encoding of Python, such as cp1252, utf-16, gb18030 "
            "or shift_jis",
        )
        # neither a quote nor the end of a line can stand between two fields
        delimiter = delimiter_of(self)
        yield setting_rule(
            "delimiter",
            holds=re.fullmatch(f'[^"\r\n\0{SURROGATES}]', delimiter) is not None,
            problem="is not valid",
            expected=f"a character, no quote, or: {', '.join(DELIMITERS)}",
        )

    def _rules_of_names(self) -> Iterator[Rule]:
        """Rules: splits can be part of file names, and kept columns of array names."""
        yield setting_rule(
            "splits",
            holds=all(map(NAME_PATTERN.fullmatch, self.splits)),
            problem="cannot be part of a file name",
            expected="letters, digits, '_' and '.'",
        )
        # macOS and Windows do not tell Train from train
        folded_names = {split.casefold() for split in self.splits}
        yield setting_rule(
            "splits",
            holds=len(folded_names) == len(set(self.splits)),
            problem="differ in case alone",
            expected="names that every file system tells apart",
        )
        yield setting_rule(
            "keep_columns",
            holds=all(map(COLUMN_PATTERN.fullmatch, self.keep_columns)),
            problem="becomes the name of an array: rename the column in the data",
            expected=EXPECTED_COLUMN_NAME,
        )

    def _rules_of_labels(self) -> Iterator[Rule]:
        """Rules of the label columns, and of the separator of labels in one text.

        Several columns hold the numbers of a regression, or 0 and 1 for each label. A
        separator is for the labels of a multi-label task in a single column.
        """
        columns = self.label_column
        separator = self.label_separator
        has_use_for_separator = self.task == "multi-label" and len(columns) == 1
        yield setting_rule(
            "label_column",
            holds=len(set(columns)) == len(columns),
            problem="names a column twice",
            expected="every column once",
        )
        yield setting_rule(
            "label_column",
            "task",
            holds=len(columns) == 1 or self.task in ("regression", "multi-label"),
            problem="names several columns",
            expected="--task regression (numbers) or --task multi-label (0 and 1)",
        )
        yield setting_rule(
            "label_separator",
            "task",
            holds=separator is None or has_use_for_separator,
            problem="separates the labels of one column",
            expected="--task multi-label, and one --label-column",
        )
        yield setting_rule(
            "label_separator",
            holds=separator != "",
            problem="is empty",
            expected="one or several characters, such as ;",
        )

    def _rules_of_layers(self) -> Iterator[Rule]:
        """Rule: ``layers`` and ``layer_zero`` exclude each other."""
        if self.layer_zero:
            yield setting_rule(
                "layer_zero",
                "layers",
                holds=not self.layers,
                problem="and --layers exclude each other",
                expected="--layers 0-N without layer-zero",
            )

    def _rules_of_device_map(self) -> Iterator[Rule]:
        """Rules: one worker alone may spread its encoder over all GPUs."""
        if not self.device_map:
            return
        yield setting_rule(
            "device_map",
            holds=not self.untrained_encoder,
            problem="cannot spread an untrained encoder",
            expected="one device that holds it: --device",
        )
        # several local workers would share the GPUs; Ray gives every worker its own
        yield setting_rule(
            "device_map",
            "devices",
            holds=self.has_single_local_worker or self.engine != "local",
            problem="spreads one encoder over all GPUs",
            expected="one worker, --engine ray, or device-map=none",
        )

    def _rules_of_splits(self) -> Iterator[Rule]:
        """Rules of the input columns, and of a data set without splits.

        Inputs are texts or files, not both. ``test_fraction`` makes the splits 'train'
        and 'test' itself, so the user must not name others.
        """
        if self.file_column:
            yield setting_rule(
                "file_column",
                "text_columns",
                holds=not self.text_columns,
                problem="is for sounds and pictures, --text-column for texts",
                expected="one of the two",
            )
        if self.test_fraction is not None:
            yield setting_rule(
                "test_fraction",
                "splits",
                holds=sorted(self.splits) == ["test", "train"],
                problem="makes the splits 'train' and 'test'",
                expected="no --split beside it",
            )
            yield setting_rule(
                "test_fraction",
                "unlabelled",
                holds=not self.unlabelled,
                problem="needs the labels of all rows",
                expected="no unlabelled beside it",
            )

    def _rules_of_unlabelled(self) -> Iterator[Rule]:
        """Rules: splits without labels are encoded, and one split has labels."""
        yield setting_rule(
            "unlabelled",
            holds=set(self.unlabelled) <= set(self.splits),
            problem="names a split that is not encoded",
            expected=f"one of: {', '.join(self.splits)}",
        )
        # the labels of one split decide which classes there are
        split_of_classes = "train" if "train" in self.splits else self.splits[0]
        yield setting_rule(
            "unlabelled",
            holds=split_of_classes not in self.unlabelled,
            problem="leaves no classes",
            expected="labels in 'train', or in the first split",
        )

    def _rules_of_inputs(self) -> Iterator[Rule]:
        """Rules of the prompt, and of sounds that are prepared as in the publication.

        A prompt has one place for the text. ``published_audio`` prepares sounds as the
        code of the publication does, which fixes their length and the pooling.
        """
        if self.prompt is not None:
            yield setting_rule(
                "prompt",
                holds=_is_valid_prompt(self.prompt),
                problem="needs one place for the text",
                expected=f"'{TEXT_PLACEHOLDER}' exactly once",
            )
        if self.published_audio:
            seconds = self.clip_seconds
            yield setting_rule(
                "published_audio",
                "clip_seconds",
                holds=seconds is None or seconds == PUBLISHED_SECONDS,
                problem="uses sounds of 5 s",
                expected="no clip-seconds beside it",
            )
            yield setting_rule(
                "published_audio",
                "pool",
                holds=self.pool == ("mean",),
                problem="takes the mean over the whole sound",
                expected="--pool mean",
            )

    def _rules_of_copies(self) -> Iterator[Rule]:
        """Rules: states are copied from another folder, by one process."""
        if self.states_from is None:
            return
        yield setting_rule(
            "states_from",
            "out",
            holds=self.states_from != self.out,
            problem="names the folder that is written",
            expected="another folder as --out",
        )
        yield setting_rule(
            "states_from",
            "devices",
            "engine",
            holds=self.has_single_local_worker and self.rank is None,
            problem="encodes nothing that workers could share",
            expected="no --devices, --engine or rank beside it",
        )


def _is_valid_prompt(prompt: str) -> bool:
    """Whether a prompt has exactly one place for the text and UTF-8 can encode it."""
    has_one_placeholder = prompt.count(TEXT_PLACEHOLDER) == 1
    has_surrogates = re.search(f"[{SURROGATES}]", prompt) is not None
    return has_one_placeholder and not has_surrogates


def _is_encoding(name: str) -> bool:
    """Whether Python can write text in an encoding of this name."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def delimiter_of(config: ExtractConfig) -> str:
    """The character between the fields of a CSV file; a comma if nothing is set.

    A setting that is not one of the words in ``DELIMITERS`` is returned as it is.
    """
    delimiter = config.delimiter or "comma"
    return DELIMITERS.get(delimiter, delimiter)


def parse_words(value: object) -> tuple[str, ...]:
    """The texts of a list, or a single text, as a tuple; commas do not split them."""
    return tuple(map(str, entries_of(value)))


def entries_of(value: object) -> list[object]:
    """The entries of a list, array, column or generator; a single text is one entry.

    Raises:
        TypeError: a table or a dictionary, which yield names, or no collection.
    """
    if isinstance(value, str | PurePath):
        return [value]
    yields_names = isinstance(value, Mapping) or has_columns(value)
    if yields_names or isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError("a text, or a list or column of texts")
    return list(value)


def has_columns(value: object) -> bool:
    """Whether a value is a table of pandas or Arrow; a single column of it is none."""
    return hasattr(value, "columns") or hasattr(value, "column_names")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportConfig:
    """The settings of ``gaam import``.

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
        "Labels of a split: whole numbers from 0, or strings; fractions, or 0 and 1 "
        "for every label; repeatable.",
        parse=parse_words,
    )
    task: Literal["auto", "classification", "regression", "multi-label"] = option(
        AUTO,
        "What the labels are: classes, numbers or sets of labels; auto: fractions are "
        "numbers, several truth values a row are sets.",
    )
    # what the arrays mean
    axes: Literal["nld", "lnd", "nd"] | None = key(
        None,
        "Axes of the states: rows n, layers l, features d.",
        shown_default="nld, or nd of two",
    )
    class_names: tuple[str, ...] = key(
        (),
        "Names of the classes in order, where labels are numbers.",
        flag="--class-name",
        parse=parse_words,
    )
    target_names: tuple[str, ...] = key(
        (),
        "Names of the columns of the labels in order, where they are numbers or 0 and "
        "1.",
        shown_default="0, 1, 2 and so on",
        flag="--target-name",
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
        None,
        "Type of the stored states.",
        shown_default="the type of the arrays, or float32",
    )
    # names in reports
    encoder_name: str = key(IMPORTED, "Name of the encoder in reports.")
    dataset_name: str | None = key(
        None, "Name of the data set in reports.", shown_default="the files"
    )
    pool: str = key(IMPORTED, "Name of the pooling in reports.")
    shard_rows: int = key(
        SHARD_ROWS, "Rows of one shard at most; a shard is also at most 512 MB."
    )

    def __post_init__(self) -> None:
        parse_fields(self)
        check_at_least(self, 1, "shard_rows")
        if not self.files:
            raise ConfigError(
                "nothing to import", expected="one file of arrays, or several"
            )
        check_rules(self, self._rules())
        # only for its error: the setting must say which array belongs to which split
        for name in ("arrays", "labels"):
            names_by_split(self, name)

    def _rules(self) -> Iterator[Rule]:
        """Rules of the names of classes or targets, kept columns and the pooling."""
        yield setting_rule(
            "target_names",
            "class_names",
            holds=not (self.target_names and self.class_names),
            # the message begins with the first setting: 'target-name and class-name'
            problem="and class-name exclude each other",
            expected="class-name of classes, target-name of numbers and sets of labels",
        )
        yield setting_rule(
            "keep_columns",
            holds=all(map(COLUMN_PATTERN.fullmatch, self.keep_columns)),
            problem="cannot be the name of a column",
            expected=EXPECTED_COLUMN_NAME,
        )
        yield setting_rule(
            "pool",
            holds=re.fullmatch(r"[a-z]{1,16}", self.pool) is not None,
            problem="cannot be a name",
            expected="1 to 16 lower-case letters, such as mean",
        )


def names_by_split(config: ImportConfig, setting: str) -> dict[str, list[str]]:
    """Group the names of arrays in a setting by the split to which they belong.

    Args:
        config: the import.
        setting: 'arrays' or 'labels': the name of a setting whose value is a list of
            texts ``SPLIT=NAME``.

    Returns:
        Split -> names of its arrays, in the order of the setting.

    Raises:
        ConfigError: a text has another form, or a split has two arrays of labels.
    """
    names: dict[str, list[str]] = {}
    option_name = name_in_messages(config, setting)
    for text in getattr(config, setting):
        split, _, array_name = text.partition("=")
        # states may be several arrays, one for each layer; labels are one array
        has_labels_already = setting == "labels" and split in names
        is_pair = bool(array_name) and NAME_PATTERN.fullmatch(split) is not None
        if not is_pair or has_labels_already:
            raise ConfigError(
                f"{option_name} {shortened(text)!r} does not say which array belongs "
                "to which split",
                expected=f"{option_name} SPLIT=NAME, such as "
                f"{option_name} train=embeddings",
                found="another array of that split" if has_labels_already else None,
            )
        names.setdefault(split, []).append(array_name)
    return names
