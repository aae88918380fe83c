"""What settings are called, may be and mean: for help and ``gaam describe --settings``.

The string under a field of a configuration says what the setting means.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal

from gaam_cache.config_checks import key_of

KINDS: dict[Any, str] = {bool: "true|false", int: "N", float: "NUMBER", Path: "PATH"}
"""What a list of settings calls a type; any other is TEXT."""


@functools.cache
def keys(cls: type) -> list[dict[str, Any]]:
    """All settings: key, type, default, meaning, and whether there is an option."""
    meanings: dict[str, str] = {}
    for base in cls.__mro__[:-1]:
        source = Path(inspect.getfile(base)).read_text("utf-8")
        source = source.partition(f"\nclass {base.__name__}")[2].partition("\n@dataclass")[0]
        meanings |= re.findall(r'^    (\w+): .*?\n    """(.*?)"""', source, re.M | re.S)
    hints, found = typing.get_type_hints(cls), []
    for field in fields(cls):
        parts = (hints[field.name], *typing.get_args(hints[field.name]))
        choices = [p for part in parts if typing.get_origin(part) is Literal for p in part.__args__]
        several = ["LIST" for part in parts if typing.get_origin(part) is tuple]
        named = [KINDS[part] for part in parts if part in KINDS]
        default = None if field.default is MISSING else field.default
        about = {
            "key": key_of(field),
            "type": "|".join(choices) if choices else [*several, *named, "TEXT"][0],
            "default": str(default) if isinstance(default, Path) else default,
            "option": "key" not in field.metadata,
            "meaning": " ".join(meanings[field.name].split()),
        }
        found.append(about)
    return found


def in_words(cls: type, key: str) -> str:
    """What a setting means, with the words that it may be and its default, in one line."""
    about = next(one for one in keys(cls) if one["key"] == key)
    text, default = about["meaning"].split(". ")[0].removesuffix("."), about["default"]
    said = [about["type"].replace("|", ", ")] if about["type"][0].islower() else []
    said = [] if isinstance(default, bool) else said
    if default not in (None, False, (), (None,)) and "default:" not in text:
        several = default if isinstance(default, tuple) else [default]
        said.append(f"default: {', '.join(map(str, several)).replace('True', 'yes')}")
    return f"{text} ({'; '.join(said)})." if said else f"{text}."


def list_in_words(sections: Mapping[str, type], width: int) -> str:
    """All settings of commands, each with what it means and what it is without it."""
    lines = []
    for section, cls in sections.items():
        lines.append(f"[{section}]")
        for about in keys(cls):
            kind = about["type"] if about["type"].isupper() else ""
            text = f"{about['key']} {kind}".ljust(26) + in_words(cls, about["key"])
            lines.append(textwrap.fill(text, width, subsequent_indent=" " * 26))
    return "\n".join(lines)
