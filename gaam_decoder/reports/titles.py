"""The words that tell caches apart whose tables would have the same title.

A run holds the plan of its cache. The fingerprint of the plan covers every setting that
decides the states; only the settings in which the caches differ enter the titles.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gaam_cache.common.messages import brief
from gaam_cache.config import ExtractConfig
from gaam_cache.store.files import digest_of, short_digest
from gaam_cache.store.records import NOT_SETTINGS, PLANTED_KEY
from gaam_decoder.runs.records import CacheRecord

DIGEST = re.compile(r"[0-9a-f]{64}")
# characters of a value that a title quotes; it shows a longer one by its digest
LONGEST = 80
# keys of a data set in a plan that say nothing of how its rows were read: every title
# has the name, and ``PLANTED_KEY`` has figures of planted labels
NOT_OF_READING = (*NOT_SETTINGS, "name", PLANTED_KEY)
MAX_LENGTH = "encoder.max_length"  # its words need the kind of the encoder
# name of a setting -> makes the words of a title from its value; settings without such
# a function are called by the last part of their name
WORDS: dict[str, Callable[[Any], str]] = {
    "revision": lambda commit: (
        f"revision {short_digest(commit)}" if commit else "no revision"
    ),
    "encoder.pooling": lambda names: f"--pool {','.join(names)}",
    "encoder.pool_over": lambda over: (
        f"pooled over {'its own' if over == 'text' else 'all'} tokens"
    ),
    "encoder.prompt": lambda text: (
        f"prompt {brief(repr(text), LONGEST)}" if text else "no prompt"
    ),
    "encoder.dtype": "computed in {}".format,
    "encoder.special_tokens": lambda kept: (
        "special tokens" if kept else "no special tokens"
    ),
    "storage_dtype": "stored as {}".format,
    "class_names": lambda names: brief(f"classes {', '.join(names)}"),
    "columns": lambda names: f"columns {', '.join(names)}" if names else "no columns",
    "dataset.text_columns": lambda names: (
        f"text columns {', '.join(names) or 'by default'}"
    ),
}
DEFAULTS = {option.name: option.default for option in fields(ExtractConfig)}
WordsByName = Mapping[str, Sequence[str]]
"""Name of a setting in which caches differ -> its words for each cache."""


def distinguishing_words(caches: Sequence[CacheRecord]) -> list[str]:
    """The words in which caches differ: for each cache, an addition to its title.

    ``caches`` are the records of runs, and would have the same title. Where no setting
    tells them apart, a digest of their states does.
    """
    settings = [dict(_settings(cache)) for cache in caches]
    words_by_name = _without_idle_settings(_differing_words(settings))

    # digests of weights and long values tell caches apart, but say nothing to people
    opaque = [
        name
        for name in words_by_name
        if any(_is_opaque(name, values.get(name)) for values in settings)
    ]
    readable = [name for name in words_by_name if name not in opaque]

    # try the readable settings alone, then with one opaque setting, weights first
    opaque.sort(key=lambda name: "safetensors" not in name)  # False stands first
    sets_of_names = [readable, *([*readable, name] for name in opaque)]
    for names in sets_of_names:
        additions = _additions(words_by_name, names, len(caches))
        if len(set(additions)) == len(caches):
            return additions

    additions = []
    readable_additions = _additions(words_by_name, readable, len(caches))
    for text, cache in zip(readable_additions, caches, strict=True):
        digest = f"cache {short_digest(cache.name_of_states)}"
        additions.append(f"{text}, {digest}" if text else digest)
    return additions


def _differing_words(settings: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Name of a setting in which caches differ -> the words of every cache.

    ``settings`` has names and values of each cache.
    """
    # a dictionary keeps the order of the names
    names = dict.fromkeys(name for values in settings for name in values)
    words_by_name = {}
    for name in names:
        words = [_in_words(name, values.get(name)) for values in settings]
        if len(set(words)) > 1:
            words_by_name[name] = words
    return words_by_name


def _without_idle_settings(words_by_name: WordsByName) -> dict[str, Sequence[str]]:
    """The words without settings that differ, but made no difference to the states.

    How rows were read matters only where rows differ; a revision of the encoder only
    where its files differ.
    """
    # beginnings of the names of settings that say which rows there are
    row_settings = ("content.", "class_names", "columns")
    rows_differ = any(name.startswith(row_settings) for name in words_by_name)
    files_differ = any(name.startswith("encoder.files.") for name in words_by_name)

    telling_words = dict(words_by_name)
    for name in words_by_name:
        is_idle_reading = name.startswith("dataset.") and not rows_differ
        is_idle_revision = name == "revision" and not files_differ
        if is_idle_reading or is_idle_revision:
            del telling_words[name]
    return telling_words


def _additions(
    words_by_name: WordsByName, names: Sequence[str], num_caches: int
) -> list[str]:
    """The words about some settings for the title of every cache.

    Words that more than half of the caches share are left out, unless that leaves none.
    """
    additions = []
    for index in range(num_caches):
        all_words = []
        unusual_words = []
        for name in names:
            words_of_caches = words_by_name[name]
            words = words_of_caches[index]
            all_words.append(words)
            if not _is_usual(words, words_of_caches):
                unusual_words.append(words)
        additions.append(", ".join(unusual_words or all_words))
    return additions


def _is_usual(words: str, words_of_caches: Sequence[str]) -> bool:
    """Whether more than half of the caches have the same words."""
    return 2 * words_of_caches.count(words) > len(words_of_caches)


def _settings(cache: CacheRecord) -> Iterator[tuple[str, Any]]:
    """Name and value of all settings that decide states and rows of a cache.

    A setting of a nested table has a dotted name, such as ``encoder.dtype``. The value
    of ``MAX_LENGTH`` is in words already.
    """
    plan: Mapping[str, Any] = cache.plan or {}
    encoder = plan.get("encoder", {})
    # the fingerprint covers files, not the revision that they are from
    yield "revision", encoder.get("revision")
    for name, value in plan.get("dataset", {}).items():
        if name not in NOT_OF_READING:
            yield f"dataset.{name}", value
    fingerprint_fields = plan.get("fingerprint_fields", {})
    yield MAX_LENGTH, _longest_input(encoder.get("kind"), fingerprint_fields)
    yield from _flatten(fingerprint_fields, "")


def _longest_input(kind: str | None, fingerprint_fields: Mapping[str, Any]) -> str:
    """How long an input may be, in words: texts have tokens, others frames."""
    length = fingerprint_fields.get("encoder", {}).get("max_length", 0)
    return f"cut at {length:,} tokens" if kind == "text" else f"at most {length:,} long"


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every setting in nested mappings, but ``MAX_LENGTH``."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        # a mapping that has words of its own is spelled as a whole
        if isinstance(value, Mapping) and name not in WORDS:
            yield from _flatten(value, f"{name}.")
        elif name != MAX_LENGTH:
            yield name, value


def _is_opaque(name: str, value: Any) -> bool:
    """Whether a value is a digest or too long to quote."""
    if name in WORDS:
        return False
    # digests of the token ids of fixed texts
    if name.startswith("encoder.tokens."):
        return True
    text = _as_text(value)
    return DIGEST.fullmatch(text) is not None or len(text) > LONGEST


def _as_text(value: Any) -> str:
    """A value as JSON; a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _in_words(name: str, value: object) -> str:
    """A setting and its value as a title spells them.

    ``content.train`` is spelled ``rows of train ...``; ``encoder.revision`` is
    ``revision main``, or ``default revision`` where it is None. A flag is its
    name, with "no" before it where it is off.

    Args:
        name: of the setting in the plan of a cache: its group, a dot, its own name.
        value: in the plan; None: the plan does not record it.
    """
    # the value of this setting is in words already
    if name == MAX_LENGTH:
        return str(value)

    group, _, last_part = name.rpartition(".")
    # a plan does not record a setting that had its default: fill it in
    if value is None:
        value = DEFAULTS.get(last_part)
    if name in WORDS:
        return WORDS[name](value)

    label = last_part.replace("_", " ")
    if group == "content":
        label = f"rows of {last_part}"
    elif name.startswith("encoder.files."):
        # the name of a file may have dots
        label = name.removeprefix("encoder.files.")

    if isinstance(value, bool):
        return label if value else f"no {label}"
    if value is None:
        return f"default {label}"
    return f"{label} {brief(_value_in_words(name, value), LONGEST)}"


def _value_in_words(name: str, value: Any) -> str:
    """A value as text, a list of names with commas; a digest where it is opaque."""
    text = _as_text(value)
    is_list = isinstance(value, (list, tuple))
    if is_list and all(isinstance(element, str) for element in value):
        text = ", ".join(value)
    if not _is_opaque(name, value):
        return text
    if not DIGEST.fullmatch(text):
        text = digest_of(text.encode())
    return short_digest(text)
