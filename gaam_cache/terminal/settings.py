"""One configuration out of several places: command line > file > preset > GAAM_* > default."""

from __future__ import annotations

import dataclasses
import os
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gaam_cache import plugins
from gaam_cache.bundle import data_path
from gaam_cache.config import UNCHECKED
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.format.files import read_bytes
from gaam_cache.messages.checks import option_of, problem_with, shortened
from gaam_cache.messages.spelling import nearest
from gaam_cache.terminal.values import parser

PREFIX = "GAAM_"
SECTIONS = ("extract", "train")
LARGEST_FILE = 2**20
"""Bytes of a configuration; more is no configuration."""
Config = TypeVar("Config")


def preset_names(section: str) -> list[str]:
    """Presets that say something about ``section`` ('extract' or 'train'), sorted."""
    files = sorted((data_path() / "presets").glob("*.toml"))
    return [file.stem for file in files if section in tomllib.loads(file.read_text("utf-8"))]


def defaults(cls: type, **texts: str) -> dict[str, Any]:
    """The default of every field of a config, for help texts; ``texts`` speak for a None."""
    fields = {field.name: field.default for field in dataclasses.fields(cls)}
    return fields | texts


def resolve(
    cls: type[Config],
    section: str,
    given: Mapping[str, Any],
    *,
    config_file: Path | None = None,
    preset: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Build a config dataclass from every place that may set its fields.

    Args:
        cls: the dataclass.
        section: the table of TOML files that belongs to it: 'extract' or 'train'.
        given: what the command line says; None means not given.
        config_file: a TOML file of the user's.
        preset: name of a file in ``data/presets``.
        environ: where ``GAAM_<FIELD>`` variables are looked up.

    Raises:
        ConfigError: an unknown key or preset, a key twice, or a value of the wrong type;
            says where.
    """
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    named = {key: value for key, value in given.items() if value is not None}
    layers: list[tuple[str, Mapping[str, Any]]] = []
    names = _spellings(cls)
    variables = {name: environ[_variable(name)] for name in names if _variable(name) in environ}
    layers.append(("the environment", variables))
    if preset is not None:
        layers.append((f"preset '{preset}'", _read(_preset_path(preset, section), section)))
    if config_file is not None:
        layers.append((str(config_file), _read(config_file, section)))
    layers.append(("the command line", named))
    values: dict[str, Any] = {}
    for where, layer in layers:
        written: dict[str, str] = {}
        for key, value in layer.items():
            name = names.get(key.replace("-", "_"))
            if name is None:
                there = sorted(_option(fields[one])[2:] for one in fields)
                raise plugins.unknown("setting", key.replace("_", "-"), there, where=where)
            if name in written:
                raise ConfigError(
                    f"'{name}' is set twice",
                    expected="one value",
                    found=f"{written[name]} = {_shown(layer[written[name]])} and "
                    f"{key} = {_shown(value)}",
                    where=where,
                )
            written[name] = key
            about = fields[name].metadata
            parse = about.get("parse") or parser(hints[name])
            try:
                values[name] = parse(value if about.get(UNCHECKED) else _checked(value))
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                if isinstance(error, GaamError):
                    raise
                option = _option(fields[name])
                spelled = {"the environment": _variable(key), "the command line": option}
                raise ConfigError(
                    f"bad value for '{spelled.get(where, key)}'",
                    found=_shown(value),
                    expected=str(error),
                    where=where,
                    hint=_meant(hints[name], value),
                ) from error
    return cls(**values)


def _option(field: dataclasses.Field[Any]) -> str:
    """How a field is written on the command line."""
    return field.metadata.get("option") or option_of(field.name)


def _spellings(cls: type) -> dict[str, str]:
    """The option of every field of a config, and the field itself -> its name."""
    fields = dataclasses.fields(cls)
    options = {_option(field)[2:].replace("-", "_"): field.name for field in fields}
    return {field.name: field.name for field in fields} | options


def _checked(value: Any) -> Any:
    """The value, or of a list each, if it is something at all."""
    for part in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(part, (str, Path)) and (problem := problem_with(str(part))):
            raise ValueError(problem)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return shortened(", ".join(map(str, value)))
    return shortened(repr(str(value) if isinstance(value, Path) else value))


def _meant(hint: Any, value: Any) -> str | None:
    options = [
        one for part in (hint, *typing.get_args(hint)) for one in typing.get_args(part) or ()
    ]
    words = [one for one in options if isinstance(one, str)]
    meant = nearest(value, words) if isinstance(value, str) and words else None
    return f"did you mean '{meant}'?" if meant else None


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def check_variables(*classes: type, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a variable that would be ours and sets a field of none of these dataclasses.

    Raises:
        ConfigError: naming it.
    """
    known = {_variable(name) for cls in classes for name in _spellings(cls)}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in known:
            raise plugins.unknown(
                "variable",
                variable,
                sorted(known),
                where="the environment",
                hint=_unset(variable, known),
            )


def _unset(variable: str, known: Iterable[str]) -> str:
    meant = nearest(variable, sorted(known))
    mean = f"did you mean '{meant}'? If not, " if meant else ""
    return f"{mean}unset {shortened(variable)}"


def _preset_path(preset: str, section: str) -> Path:
    names = preset_names(section)
    if preset not in names:
        where = f"presets for gaam {section}"
        raise plugins.unknown(
            "preset", preset, names, found=f"--preset {shortened(preset)}", where=where
        )
    return data_path() / "presets" / f"{preset}.toml"


def _read(path: Path, section: str) -> dict[str, Any]:
    try:
        # links are the user's own; what hangs or never ends is nobody's configuration
        text = read_bytes(path.resolve(), max_bytes=LARGEST_FILE).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_toml(path, error) from error
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"cannot read the configuration file '{shortened(str(path))}'",
            expected="--config FILE.toml",
            found=getattr(error, "strerror", None) or str(error),
        ) from error
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_toml(path, error) from error
    unknown = sorted(set(content) - set(SECTIONS))
    if unknown:
        meant = nearest(unknown[0], SECTIONS)
        raise ConfigError(
            f"unknown section in '{path}'",
            expected="[extract] and [train]",
            found=", ".join(map(shortened, unknown)),
            hint=f"did you mean '{meant}'?" if meant else None,
        )
    table = content.get(section, {})
    if not isinstance(table, dict):
        raise ConfigError(
            f"'{section}' is no section in '{path}'", expected=f"[{section}]", found=_shown(table)
        )
    return table


def _not_toml(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"'{path}' is not valid TOML", expected="UTF-8 TOML", found=str(error))
