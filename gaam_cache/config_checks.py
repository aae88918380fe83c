"""What several configurations check alike, and the settings of rows that are more than a word."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages import excerpt, option_of, shortened

if TYPE_CHECKING:
    from gaam_cache.config import ExtractConfig

KEY = {"key": True}
"""Metadata of a setting without an option: a key of TOML files and of ``--set``."""
UNCHECKED = "unchecked"
"""Metadata of a field that may be any text, white space too."""
LARGEST_NUMBER = 2**31 - 1
"""Of any setting that counts something; more is a slip of the finger."""
SHARD_ROWS = 2048
"""Of one shard at most, where nobody says."""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for what shells and people trip over."""
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
"""What a split may be called: it becomes part of a file name."""
COLUMN_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""What a kept column may be called: it becomes part of the name of an array."""
COLUMN_NAME = "a letter, then letters, digits and '_', 64 at most"
PUBLISHED_SECONDS = 5.0
"""Of every sound in the published code."""
CLIP_OF = "clip_of"
"""The kept column that says, where long sounds become several rows, which each is a piece of."""
PLACE = "{text}"
"""Of the text in a prompt."""
Rule = tuple[str, object, str, str]
"""Settings, what must hold of them, what is wrong with the first where it does not, what to do."""


def key_of(field: Field[Any]) -> str:
    """How a field is written as a key: ``text-column`` for ``text_columns``."""
    return str(field.metadata.get("option") or option_of(field.name))[2:]


def words(field: Field[Any], value: Any) -> Iterator[str]:
    """A setting as the command line has it; of a list each by itself."""
    key, is_key = key_of(field), "key" in field.metadata
    if isinstance(value, bool) and not is_key:
        yield from [f"--{key}"] * value + [f"--no-{key}"] * (field.default is True and not value)
        return
    for one in value if isinstance(value, (list, tuple)) else [value]:
        text = str(one).lower() if isinstance(one, bool) else str(one)
        yield from ("--set", f"{key}={text}") if is_key else (f"--{key}", text)


def spelled(config: object, name: str) -> str:
    """How a field of a configuration is called: ``--limit``, or ``shard-rows`` without option."""
    field = next(one for one in fields(config) if one.name == name)  # type: ignore[arg-type]
    return key_of(field) if "key" in field.metadata else f"--{key_of(field)}"


def settle_paths(config: object) -> None:
    """Make paths of texts, which Python code hands over too."""
    for one in fields(config):  # type: ignore[arg-type]
        if str(one.type).startswith("Path") and isinstance(text := getattr(config, one.name), str):
            object.__setattr__(config, one.name, Path(text))


def check_at_least(config: object, minimum: int, *names: str) -> None:
    """Refuse values below ``minimum`` or senselessly large; None means not set and passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            high = f" and at most {LARGEST_NUMBER:,}" if value > LARGEST_NUMBER else ""
            message, expected = f"{spelled(config, name)} is out of range", f">= {minimum}{high}"
            raise ConfigError(message, expected=expected, found=shortened(str(value)))


def check_rules(config: Any, rules: Iterable[Rule]) -> None:
    """Refuse settings that cannot work, alone or together; a rule may rely on those before it."""
    for names, holds, problem, expected in rules:
        if not holds:
            shown = [one for one in fields(config) if one.name in names.split()]
            found = " ".join(w for one in shown for w in words(one, getattr(config, one.name)))
            message = f"{spelled(config, names.split()[0])} {problem}"
            raise ConfigError(message, expected=expected, found=shortened(found))


def delimiter_of(config: ExtractConfig) -> str:
    """The character that parts fields."""
    return DELIMITERS.get(config.delimiter or "comma", config.delimiter or "")


def _is_encoding(name: str) -> bool:
    try:  # open() asks for it too
        return codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        return False


def extract_rules(config: ExtractConfig) -> Iterator[Rule]:
    """What must hold of an extraction."""
    speed, seconds, fraction = config.tokens_per_second, config.clip_seconds, config.test_fraction
    kept, splits, unlabelled = config.keep_columns, config.splits, config.unlabelled
    device_map, split_clips = config.device_map, config.clip_mode == "split"
    range_, twice = "is out of range", "is given twice"
    # fmt: off
    yield "tokens_per_second", speed is None or 0 < speed < math.inf, range_, "> 0"
    yield ("encoder_seed", config.encoder_seed is None or config.untrained_encoder,
           "is for random weights", "--untrained-encoder beside it")
    maps = DEVICE_MAPS if device_map else (None,)
    yield "device_map", device_map in maps, "is unknown", f"one of: {', '.join(DEVICE_MAPS)}"
    yield ("device_map", not (device_map and config.untrained_encoder),
           "cannot spread an untrained encoder", "one device that holds it: --device")
    yield ("device_map devices", not device_map or config.alone or config.engine != "local",
           "spreads one encoder over all GPUs", "one worker, --engine ray, or device-map=none")
    yield "splits", splits, "is empty", "at least one"
    yield "pool", config.pool, "is empty", "at least one"
    yield ("splits", all(map(NAME_PATTERN.fullmatch, splits)),
           "cannot be part of a file name", "letters, digits, '_' and '.'")
    yield ("file_column text_columns", not (config.file_column and config.text_columns),
           "is for sounds and pictures, --text-column for texts", "one of the two")
    yield ("keep_columns", all(map(COLUMN_PATTERN.fullmatch, kept)),
           "becomes the name of an array: give the column another name in the data", COLUMN_NAME)
    yield ("split_seed", fraction is not None or not config.split_seed,
           "is for --test-fraction", "--test-fraction beside it")
    if fraction is not None:
        yield "test_fraction", 0 < fraction < 1, range_, "> 0 and < 1"
        yield ("test_fraction splits", sorted(splits) == ["test", "train"],
               "makes the splits 'train' and 'test'", "no --split beside it")
        yield ("test_fraction unlabelled", not unlabelled,
               "needs the labels of all rows", "no unlabelled beside it")
    yield ("unlabelled", set(unlabelled) <= set(splits),
           "is no split that is read", f"one of: {', '.join(splits)}")
    labels = "train" if "train" in splits else splits[0]
    yield ("unlabelled", labels not in unlabelled,
           f"cannot be '{labels}'", "labels in the split that says which classes there are")
    one = re.fullmatch('[^"\r\n\0\ud800-\udfff]', delimiter_of(config))
    yield "delimiter", one, "is none", f"a character, no quote, or: {', '.join(DELIMITERS)}"
    yield ("encoding", config.encoding is None or _is_encoding(config.encoding), "is unknown",
           "one that Python knows, such as cp1252, latin-1, utf-16, gb18030 or shift_jis")
    yield "pool_over", config.pool_over in ("all", "text"), range_, "all or text"
    yield ("prompt prompt_file", config.prompt is None or config.prompt_file is None,
           twice, "--prompt or prompt-file")
    yield "clip_seconds", seconds is None or 0.1 <= seconds < math.inf, range_, ">= 0.1"
    yield ("clip_mode", not split_clips or seconds is not None or config.published_audio,
           "splits nothing", "the length of a piece: --set clip-seconds=5")
    if config.published_audio:
        yield ("published_audio clip_seconds", seconds in (None, PUBLISHED_SECONDS),
               "has its own length", f"--set clip-seconds={PUBLISHED_SECONDS:g}, or none")
        yield ("published_audio pool", config.pool == ("mean",),
               "is the mean over all that the encoder hears", "--pool mean")
    # fmt: on


def check_place(prompt: str, where: str) -> None:
    """A text has its place in a prompt once; all other braces are themselves."""
    count, why = prompt.count(PLACE), "a prompt says once where the text stands"
    if count != 1:
        found = f"{excerpt(prompt)}, which has it {count} times" if prompt else "nothing"
        raise ConfigError(why, expected=f"'{PLACE}' exactly once", found=found, where=where)
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        expected = "characters that UTF-8 has"
        raise ConfigError(
            "a prompt is text", expected=expected, found=str(error), where=where
        ) from error
