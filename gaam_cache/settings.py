"""One configuration out of several places: command line > config file > preset > default.

A setting is a field of a configuration. One with ``KEY`` in its metadata has no option: it is a key
of TOML files and of ``--set``.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from gaam_cache import plugins
from gaam_cache.bundle import data_path
from gaam_cache.config_checks import UNCHECKED, key_of
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.messages import did_you_mean, shortened

SECTIONS = ("extract", "import", "train", "plant")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "path"}
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
    # an option and --set are one place: a setting in both is set twice
    options = {f"--{key}": value for key, value in given.items() if value is not None}
    layers.append(("the command line", pairs(sets or ()) | options))
    every = fields(cls)  # type: ignore[arg-type]
    named = {one.name: one for one in every} | {key_of(one).replace("-", "_"): one for one in every}
    hints, values = typing.get_type_hints(cls), {}
    for where, layer in layers:
        written = set()
        for key, value in layer.items():
            if (field := named.get(key.removeprefix("--").replace("-", "_"))) is None:
                known = sorted(set(map(key_of, every)))
                raise plugins.unknown("setting", key, known, where=where)
            if field.name in written:
                raise ConfigError(f"'{key_of(field)}' is set twice", expected="once", where=where)
            written.add(field.name)
            try:
                values[field.name] = parsed(value, hints[field.name], field.metadata)
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                if isinstance(error, GaamError):
                    raise
                said = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
                _, several, choices = str(error).partition("one of: ")
                raise ConfigError(
                    f"bad value for '{f'--{key_of(field)}' if key in options else key}'",
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


def parsed(value: Any, hint: Any, about: Mapping[str, Any]) -> Any:
    """A value of a TOML file or the command line as the field holds it.

    Raises:
        TypeError, ValueError, OverflowError, RuntimeError: with what must be there.
    """
    several = value if isinstance(value, (list, tuple)) else [value]
    for one in several:
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
        if not all(isinstance(one, str) for one in several):
            raise TypeError("a list of strings")
        return tuple(part for one in several for part in one.split(",") if part)
    if kind is bool and value in ("true", "false"):
        return value == "true"
    number = isinstance(value, Real) and not isinstance(value, bool)
    whole, path = number and isinstance(value, Integral), isinstance(value, Path)
    own = {bool: isinstance(value, bool), int: whole, float: number, str: path, Path: path}
    if not (own[kind] or (isinstance(value, str) and kind is not bool)):
        raise TypeError(WORDS[kind])
    try:
        return Path(value).expanduser() if kind is Path else kind(value)
    except (ValueError, OverflowError):
        raise ValueError(WORDS[kind]) from None
