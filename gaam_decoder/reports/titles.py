"""What tells caches apart whose tables would have the same title: that in words, and only that.

A run holds the plan of its cache, and the plan's fingerprint covers all that decides the states.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gaam_cache.common.messages import brief
from gaam_cache.config import ExtractConfig
from gaam_cache.store.files import digest_of, short_digest
from gaam_cache.store.plan import NOT_SETTINGS
from gaam_decoder.runs.result import states_of

DIGEST = re.compile(r"[0-9a-f]{64}")
LONGEST = (
    80  # characters of a value that people read; a longer one is known by its digest
)
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
    "columns": lambda kept: f"columns {', '.join(kept)}" if kept else "no columns",
    "dataset.text_columns": lambda names: (
        f"text columns {', '.join(names) or 'by default'}"
    ),
}
"""How a title puts a setting of a plan; any other is called by the end of its name."""
DEFAULTS = {one.name: one.default for one in fields(ExtractConfig)}


def apart(caches: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the title of each of several caches has to add, which go by the same title.

    ``caches`` are as runs have them. Where nothing is known to differ but the fingerprint, that.
    """
    places = range(len(caches))
    settings = [dict(_settings(cache)) for cache in caches]
    names = dict.fromkeys(name for one in settings for name in one)
    words = {
        name: [_in_words(name, one.get(name)) for one in settings] for name in names
    }
    words = {
        name: of_caches for name, of_caches in words.items() if len(set(of_caches)) > 1
    }
    words = _that_decide(words)

    def joined(chosen: Sequence[str]) -> list[str]:
        titles = []
        for place in places:
            rare = [
                words[n][place]
                for n in chosen
                if not _is_usual(words[n][place], words[n])
            ]
            # the cache that has what most have says all of it
            titles.append(", ".join(rare or [words[name][place] for name in chosen]))
        return titles

    opaque = [n for n in words if any(_is_opaque(n, one.get(n)) for one in settings)]
    opaque.sort(key=lambda name: "safetensors" not in name)  # of an encoder its weights
    readable = [name for name in words if name not in opaque]
    for chosen in (readable, *([*readable, name] for name in opaque)):
        if len(set(joined(chosen))) == len(caches):
            return joined(chosen)
    return [
        f"{text}{', ' if text else ''}cache {short_digest(states_of(cache))}"
        for text, cache in zip(joined(readable), caches, strict=True)
    ]


def _settings(cache: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that decides the states of a cache, and how its rows were read, by dotted names."""
    plan: Mapping[str, Any] = cache.get("plan", {})
    yield "revision", plan.get("encoder", {}).get("revision")
    for name, value in plan.get("dataset", {}).items():
        if name not in (*NOT_SETTINGS, "name", "planted"):
            yield f"dataset.{name}", value
    identity = plan.get("fingerprint_fields", {})
    yield "encoder.max_length", _cut(plan.get("encoder", {}).get("kind"), identity)
    yield from _flat(identity, "")


def _cut(kind: str | None, identity: Mapping[str, Any]) -> str:
    length = identity.get("encoder", {}).get("max_length", 0)
    return f"cut at {length:,} tokens" if kind == "text" else f"at most {length:,} long"


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and name not in WORDS:
            yield from _flat(inner, f"{name}.")
        elif name != "encoder.max_length":
            yield name, inner


def _that_decide(words: dict[str, list[str]]) -> dict[str, list[str]]:
    """Without what would be said twice, or of settings that made no difference here.

    How rows were read counts where rows differ; a revision where files of the encoder do.
    """
    rows = any(
        name.startswith(("content.", "class_names", "columns")) for name in words
    )
    files = any(name.startswith("encoder.files.") for name in words)
    return {
        name: of_caches
        for name, of_caches in words.items()
        if (rows or not name.startswith("dataset.")) and (files or name != "revision")
    }


def _is_usual(words: str, of_caches: Sequence[str]) -> bool:
    """Whether most caches have what one of them has."""
    return 2 * of_caches.count(words) > len(of_caches)


def _is_opaque(name: str, value: Any) -> bool:
    """Whether a value says that something differs, and not how."""
    if name in WORDS:
        return False
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return DIGEST.fullmatch(text) is not None or len(text) > LONGEST


def _in_words(name: str, value: Any) -> str:
    part, _, end = name.rpartition(".")
    value = DEFAULTS.get(end) if value is None else value
    if name == "encoder.max_length":
        return str(value)
    if name in WORDS:
        return WORDS[name](value)
    label = f"rows of {end}" if part == "content" else end.replace("_", " ")
    if name.startswith("encoder.files."):
        label = name.removeprefix("encoder.files.")  # there may be dots in it
    if isinstance(value, bool):
        return label if value else f"no {label}"
    if value is None:
        return f"default {label}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        text = ", ".join(value)
    if _is_opaque(name, value):
        text = short_digest(
            text if DIGEST.fullmatch(text) else digest_of(text.encode())
        )
    return f"{label} {brief(text, LONGEST)}"
