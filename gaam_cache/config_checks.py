"""What several configurations check alike, and the settings of rows that are more than a word."""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import fields
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
COLUMN_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""What a kept column may be called: it becomes part of the name of an array."""
PUBLISHED_SECONDS = 5.0
"""Of every sound in the published code."""
CLIP_OF = "clip_of"
"""The kept column that says, where long sounds become several rows, which each is a piece of."""
PLACE = "{text}"
"""Of the text in a prompt."""


def require(holds: object, message: str, expected: str, found: object, *, hint: str = "") -> None:
    """Refuse settings unless something holds of them.

    Raises:
        ConfigError: of that message.
    """
    if not holds:
        raise ConfigError(message, expected=expected, found=shortened(str(found)), hint=hint)


def spelled(config: object, name: str) -> str:
    """How a field of a configuration is written: ``--limit``, or ``shard-rows`` without option."""
    field = next(one for one in fields(config) if one.name == name)  # type: ignore[arg-type]
    option = field.metadata.get("option") or option_of(name)
    return str(option[2:] if "key" in field.metadata else option)


def check_at_least(config: object, minimum: int, *names: str) -> None:
    """Refuse values below ``minimum`` or senselessly large; None means not set and passes.

    Raises:
        ConfigError: naming the setting, the bounds and the value.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            high = f" and at most {LARGEST_NUMBER:,}" if value > LARGEST_NUMBER else ""
            message = f"{spelled(config, name)} is out of range"
            require(False, message, f">= {minimum}{high}", value)


def parse_delimiter(value: Any) -> str | None:
    """A character, or a word for one; a tab is always 'tab', which can be seen.

    Raises:
        TypeError: no text.
        ValueError: more than a character.
    """
    if value is None or value in ("tab", "\t"):
        return value and "tab"
    if not isinstance(value, str):
        raise TypeError("a character")
    character = DELIMITERS.get(value, value)
    if len(character) != 1 or character in '"\r\n\0' or "\ud800" <= character <= "\udfff":
        words = ", ".join(DELIMITERS)
        raise ValueError(f"one character other than a quote or a line end, or a word: {words}")
    return character


def delimiter_of(config: ExtractConfig) -> str:
    """The character that parts fields."""
    given = "comma" if config.delimiter is None else config.delimiter
    return DELIMITERS.get(given, given)


def check_rows(config: ExtractConfig) -> None:
    """Refuse settings of rows that cannot work, alone or together.

    Raises:
        ConfigError: naming the option.
    """
    try:
        parse_delimiter(config.delimiter)
    except (TypeError, ValueError) as error:
        require(False, "delimiter is none", str(error), repr(config.delimiter))
    if config.encoding is not None:
        try:
            known = codecs.lookup(config.encoding)._is_text_encoding  # open() asks for it too
        except (LookupError, ValueError):
            known = False
        expected = "one that Python knows, such as cp1252, latin-1, utf-16, gb18030 or shift_jis"
        hint = "'file --mime-encoding FILE' guesses"
        require(known, "unknown encoding", expected, config.encoding, hint=hint)
    require(
        not (config.file_column and config.text_columns),
        "rows are texts, or they are sounds or pictures",
        "--text-column or --file-column",
        f"--text-column {', '.join(config.text_columns)} and --file-column {config.file_column}",
    )
    for name in config.keep_columns:
        message = f"a kept column cannot be called '{shortened(name)}'"
        expected = "a letter, then letters, digits and '_', 64 at most"
        hint = "it becomes the name of an array: give the column another name in the data"
        found = f"--keep-column {name}"
        require(COLUMN_PATTERN.fullmatch(name), message, expected, found, hint=hint)
        require(config.keep_columns.count(name) == 1, f"{found} is given twice", "once", found)
        if name == CLIP_OF and config.clip_mode == "split":
            message = f"--set clip-mode=split makes a kept column '{CLIP_OF}'"
            require(False, message, "no other of that name", found)
    check_at_least(config, 0, "split_seed")
    fraction, splits, unlabelled = config.test_fraction, config.splits, config.unlabelled
    if fraction is None:
        found = f"--set split-seed={config.split_seed} alone"
        expected = "--test-fraction beside it"
        require(not config.split_seed, "split-seed is for --test-fraction", expected, found)
    else:
        message = "--test-fraction is out of range"
        require(0 < fraction < 1, message, "> 0 and < 1", fraction)
        message = "--test-fraction makes the splits 'train' and 'test'"
        only = sorted(splits) == ["test", "train"]
        require(only, message, "no --split beside it", ", ".join(splits))
        message = "--test-fraction needs the labels of all rows"
        require(not unlabelled, message, "no unlabelled beside it", ", ".join(unlabelled))
    reference = "train" if "train" in splits else splits[0]
    for split in unlabelled:
        found = f"--set unlabelled={split}"
        message = f"{shortened(found)} is no split that is read"
        require(split in splits, message, f"one of: {', '.join(splits)}", split)
        expected = "labels in the split that says which classes there are"
        require(split != reference, f"'{split}' cannot be unlabelled", expected, found)


def check_place(prompt: str, where: str) -> None:
    """A text has its place in a prompt once; all other braces are themselves.

    Args:
        prompt: as it was given.
        where: that was.

    Raises:
        ConfigError: nothing, or not one place for the text.
    """
    count = prompt.count(PLACE)
    if count != 1:
        raise ConfigError(
            "a prompt says once where the text stands",
            expected=f"'{PLACE}' exactly once",
            found=f"{excerpt(prompt)}, which has it {count} times" if prompt else "nothing",
            where=where,
        )
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "a prompt is text", expected="characters that UTF-8 has", found=str(error), where=where
        ) from error


def check_sounds(config: ExtractConfig) -> None:
    """Refuse settings that contradict what the published code does with a sound.

    Raises:
        ConfigError: naming the option.
    """
    seconds, published = config.clip_seconds, config.published_audio
    right = seconds is None or 0.1 <= seconds < math.inf
    require(right, "clip-seconds is out of range", ">= 0.1", seconds)
    require(
        config.clip_mode != "split" or seconds is not None or published,
        "--set clip-mode=split splits nothing",
        "the length of a piece: --set clip-seconds=5",
        "--set clip-mode=split alone",
    )
    if published:
        message = "published-audio has its own length"
        expected = f"--set clip-seconds={PUBLISHED_SECONDS:g}, or none"
        found = f"--set clip-seconds={seconds}"
        require(seconds in (None, PUBLISHED_SECONDS), message, expected, found)
        message = "published-audio is the mean over all that the encoder hears"
        require(config.pool == ("mean",), message, "--pool mean", f"--pool {','.join(config.pool)}")
