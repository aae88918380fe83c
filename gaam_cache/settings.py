"""One configuration out of several places: command line > config file > preset > default.

A setting is a field of a configuration. The string under the field says what it means, for the help
of its option and for ``gaam describe --settings``. One with ``KEY`` in its metadata has no option:
it is a key of TOML files and of ``--set``.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from gaam_cache import plugins
from gaam_cache.bundle import data_path
from gaam_cache.config_checks import UNCHECKED, key_of
from gaam_cache.config_checks import words as words
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.messages import did_you_mean, shortened

SECTIONS = ("extract", "import", "train", "plant")
KINDS: dict[Any, tuple[str, str, tuple[type, ...]]] = {
    bool: ("true|false", "true or false", (bool,)),
    int: ("N", "a whole number", (int, str)),
    float: ("NUMBER", "a number", (int, float, str)),
    str: ("TEXT", "text", (str,)),
    Path: ("PATH", "path", (str, Path)),
}
"""What a list of settings calls a type, what people call it, and what may stand for it."""
Config = TypeVar("Config")


def preset_names(section: str) -> list[str]:
    """Presets that say something about ``section``, sorted."""
    files = sorted((data_path() / "presets").glob("*.toml"))
    return [file.stem for file in files if section in tomllib.loads(file.read_text("utf-8"))]


def resolve(
    cls: type[Config],
    section: str,
    given: Mapping[str, Any],
    *,
    sets: Iterable[str] | None = None,
    config_file: Path | None = None,
    preset: str | None = None,
) -> Config:
    """Build a configuration from every place that may set its fields.

    Args:
        cls: its dataclass.
        section: the table of TOML files that belongs to it.
        given: what options say; None means not given.
        sets: ``KEY=VALUE``; a key that is there several times has all its values.
        config_file: a TOML file of the user's, or of a run.
        preset: name of a file in ``data/presets``.

    Raises:
        ConfigError: an unknown key or preset, a key twice, or a value of the wrong type.
    """
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if preset is not None:
        if preset not in (known := preset_names(section)):
            raise plugins.unknown("preset", preset, known, where=f"presets for gaam {section}")
        file = data_path() / "presets" / f"{preset}.toml"
        layers.append((f"preset '{preset}'", _read(file, section)))
    if config_file is not None:
        layers.append((str(config_file), _read(config_file, section)))
    options = {key: value for key, value in given.items() if value is not None}
    layers += [("--set", pairs(sets or ())), ("the command line", options)]
    there: dict[str, Field[Any]] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        there |= {field.name: field, key_of(field).replace("-", "_"): field}
    hints, values = typing.get_type_hints(cls), {}
    for where, layer in layers:
        written = set(options) if where == "--set" else set()
        for key, value in layer.items():
            if (name := key.replace("-", "_")) not in there:
                known = sorted(set(map(key_of, there.values())))
                raise plugins.unknown("setting", key, known, where=where)
            field = there[name]
            if field.name in written:
                raise ConfigError(f"'{key}' is set twice", expected="one value", where=where)
            written.add(field.name)
            try:
                values[field.name] = _parsed(value, hints[field.name], field.metadata)
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                if isinstance(error, GaamError):
                    raise
                said = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
                _, several, choices = str(error).partition("one of: ")
                raise ConfigError(
                    f"bad value for '{f'--{key_of(field)}' if layer is options else key}'",
                    found=shortened(repr(str(said))),
                    expected=str(error),
                    where=where,
                    hint=did_you_mean(str(value), choices.split(", ")) if several else None,
                ) from error
    return cls(**values)


def _read(path: Path, section: str) -> dict[str, Any]:
    """A table of a TOML file."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        found = error.strerror
        raise NotFoundError(f"cannot read '{shortened(str(path))}'", found=found) from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid TOML", found=str(error)) from error
    for name in content:
        if name not in SECTIONS:
            raise plugins.unknown("section", name, SECTIONS, where=str(path))
    if not isinstance(table := content.get(section, {}), dict):
        raise ConfigError(f"'{section}' is no section in '{path}'", expected=f"[{section}]")
    return table


def pairs(
    texts: Iterable[str], option: str = "--set", known: Collection[str] | None = None
) -> dict[str, Any]:
    """Values by key, of ``KEY=VALUE``; several of one key are a list."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"{option} {shortened(text)} is none", expected=f"{option} KEY=VALUE")
        if known is not None and key not in known:
            raise plugins.unknown("key", key, known, where=option)
        found.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _parsed(value: Any, hint: Any, about: Mapping[str, Any]) -> Any:
    """A value of a TOML file or the command line as the field holds it.

    Raises:
        TypeError, ValueError, OverflowError, RuntimeError: with what must be there.
    """
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(one, str) and (not one.strip() or "\0" in one) and not about.get(UNCHECKED):
            raise ValueError("something: the value is empty")
    if parse := about.get("parse"):
        return parse(value)
    parts = typing.get_args(hint)  # None stands for what is not set
    kind: Any = parts[0] if type(None) in parts else hint
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise ValueError(f"one of: {', '.join(typing.get_args(kind))}")
        return value
    if typing.get_origin(kind) is tuple:
        several = [value] if isinstance(value, str) else value
        if not isinstance(several, (list, tuple)) or not all(isinstance(v, str) for v in several):
            raise TypeError("a list of strings")
        return tuple(part for item in several for part in item.split(",") if part)
    if kind is bool and value in ("true", "false"):
        return value == "true"
    _, words, taken = KINDS[kind]
    if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(words)
    try:
        return Path(str(value)).expanduser() if kind is Path else kind(value)
    except (ValueError, OverflowError):
        raise ValueError(words) from None


@functools.cache
def keys(cls: type) -> list[dict[str, Any]]:
    """All settings: key, type, default, meaning, and whether there is an option."""
    meanings: dict[str, str] = {}
    for base in cls.__mro__[:-1]:
        source = Path(inspect.getfile(base)).read_text("utf-8")
        meanings |= re.findall(r'^    (\w+): .*?\n    """(.*?)"""', source, re.M | re.S)
    hints, found = typing.get_type_hints(cls), []
    for field in fields(cls):
        parts = (hints[field.name], *typing.get_args(hints[field.name]))
        choices = [p for part in parts if typing.get_origin(part) is Literal for p in part.__args__]
        several = ["LIST" for part in parts if typing.get_origin(part) is tuple]
        named = [KINDS[part][0] for part in parts if part in KINDS and part is not str]
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
