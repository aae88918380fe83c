"""Which settings of an extraction go together: what cannot work or has no effect is refused."""

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
NOT_OF_FILES = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
"""Codecs of Python that are said to be of text, and are of domain names and source code."""


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
            raise ConfigError(
                f"{spelled(config, name)} is out of range",
                expected=f">= {minimum}{high}",
                found=shortened(str(value)),
            )


def parse_delimiter(value: Any) -> str | None:
    """A character, or a word for one; a tab is always 'tab', which can be seen.

    Raises:
        TypeError: no text.
        ValueError: more than a character.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError("a character")
    if value in ("tab", "\t"):
        return "tab"
    character = DELIMITERS.get(value, value)
    if problem := _not_a_delimiter(character):
        raise ValueError(problem)
    return character


def delimiter_of(config: ExtractConfig) -> str:
    """The character that parts fields."""
    given = "comma" if config.delimiter is None else config.delimiter
    return DELIMITERS.get(given, given)


def _not_a_delimiter(character: str) -> str | None:
    if len(character) == 1 and character not in '"\r\n\0' and not "\ud800" <= character <= "\udfff":
        return None
    return f"one character other than a quote or a line end, or a word: {', '.join(DELIMITERS)}"


def check_rows(config: ExtractConfig) -> None:
    """Refuse settings of rows that cannot work, alone or together.

    Raises:
        ConfigError: naming the option.
    """
    if config.delimiter is not None and (problem := _not_a_delimiter(delimiter_of(config))):
        raise ConfigError(
            "delimiter is none", expected=problem, found=shortened(repr(config.delimiter))
        )
    if config.encoding is not None:
        codec_of(config.encoding)
    if config.file_column is not None and config.text_columns:
        raise ConfigError(
            "rows are texts, or they are sounds or pictures",
            expected="--text-column or --file-column",
            found=f"--text-column {', '.join(config.text_columns)} and "
            f"--file-column {config.file_column}",
        )
    _check_kept(config.keep_columns)
    if CLIP_OF in config.keep_columns and config.clip_mode == "split":
        raise ConfigError(
            f"--set clip-mode=split makes a kept column '{CLIP_OF}'",
            expected="no other of that name",
            found=f"--keep-column {CLIP_OF}",
        )
    _check_fraction(config)
    _check_unlabelled(config)


def codec_of(encoding: str) -> str:
    """What Python calls an encoding of characters, whatever a person calls it.

    Raises:
        ConfigError: it is none that a file can have.
    """
    try:
        info = codecs.lookup(encoding)
        # it has no public name; open() asks for it too
        known = info._is_text_encoding and info.name.replace("_", "-") not in NOT_OF_FILES
    except (LookupError, ValueError, UnicodeError):
        known = False
    if not known:
        raise ConfigError(
            f"unknown encoding '{shortened(encoding)}'",
            expected="an encoding of characters that Python knows, such as cp1252, latin-1, "
            "utf-16, gb18030 or shift_jis",
            hint="'file --mime-encoding FILE' guesses",
        )
    return info.name


def _check_kept(names: tuple[str, ...]) -> None:
    for name in names:
        if not COLUMN_PATTERN.fullmatch(name):
            raise ConfigError(
                f"a kept column cannot be called '{shortened(name)}'",
                expected="a letter, then letters, digits and '_', 64 at most",
                found=f"--keep-column {shortened(name)}",
                hint="it becomes the name of an array: give the column another name in the data",
            )
        if names.count(name) > 1:
            raise ConfigError(f"--keep-column {name} is given twice")


def _check_fraction(config: ExtractConfig) -> None:
    check_at_least(config, 0, "split_seed")
    fraction = config.test_fraction
    if fraction is None:
        if config.split_seed:
            raise ConfigError(
                "split-seed is for --test-fraction",
                expected="--test-fraction beside it",
                found=f"--set split-seed={config.split_seed} alone",
            )
        return
    if not 0 < fraction < 1:
        raise ConfigError(
            "--test-fraction is out of range", expected="> 0 and < 1", found=str(fraction)
        )
    if sorted(config.splits) != ["test", "train"]:
        raise ConfigError(
            "--test-fraction makes the splits 'train' and 'test'",
            expected="no --split beside it",
            found=", ".join(config.splits),
        )
    if config.unlabelled:
        raise ConfigError(
            "--test-fraction needs the labels of all rows",
            expected="no unlabelled beside it",
            found=", ".join(config.unlabelled),
        )


def _check_unlabelled(config: ExtractConfig) -> None:
    reference = "train" if "train" in config.splits else (*config.splits, "")[0]
    for split in config.unlabelled:
        if split not in config.splits:
            raise ConfigError(
                f"--set unlabelled={shortened(split)} is no split that is read",
                expected=f"one of: {', '.join(config.splits)}",
            )
        if split == reference:
            raise ConfigError(
                f"'{split}' cannot be unlabelled",
                expected="labels in the split that says which classes there are",
                found=f"--set unlabelled={split}",
            )


POOL_OVER = ("all", "text")
PLACE = "{text}"
"""Of the text in a prompt."""


def check_prompt(config: ExtractConfig) -> None:
    """There is one prompt at most, and a text has a place in it.

    Raises:
        ConfigError: two, or one that is none.
    """
    if config.pool_over not in POOL_OVER:
        raise ConfigError(
            "pool-over is out of range",
            expected=f"one of: {', '.join(POOL_OVER)}",
            found=shortened(str(config.pool_over)),
        )
    if config.prompt is not None and config.prompt_file is not None:
        raise ConfigError(
            "the prompt is given twice",
            expected="--prompt or prompt-file",
            found=f"--prompt {shortened(config.prompt)!r} and prompt-file {config.prompt_file}",
        )
    if config.prompt is not None:
        check_place(config.prompt, "--prompt")


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
    seconds = config.clip_seconds
    if seconds is not None and not 0.1 <= seconds < math.inf:
        raise ConfigError("clip-seconds is out of range", expected=">= 0.1", found=f"{seconds}")
    if config.clip_mode == "split" and seconds is None and not config.published_audio:
        raise ConfigError(
            "--set clip-mode=split splits nothing",
            expected="the length of a piece: --set clip-seconds=5",
            found="--set clip-mode=split alone",
        )
    if not config.published_audio:
        return
    if seconds not in (None, PUBLISHED_SECONDS):
        raise ConfigError(
            "published-audio has its own length",
            expected=f"--set clip-seconds={PUBLISHED_SECONDS:g}, or none",
            found=f"--set clip-seconds={seconds:g}",
        )
    if config.pool != ("mean",):
        raise ConfigError(
            "published-audio is the mean over all that the encoder hears",
            expected="--pool mean",
            found=f"--pool {','.join(config.pool)}",
        )
