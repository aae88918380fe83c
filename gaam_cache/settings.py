"""One configuration out of several places: command line > file > preset > GAAM_* > default."""

from __future__ import annotations

import dataclasses
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from gaam_cache.bundle import data_path
from gaam_cache.errors import ConfigError, NotFoundError

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
        ConfigError: an unknown key or preset, or a value of the wrong type; says where.
    """
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("the environment", _from_environment(fields, environ))
    ]
    if preset is not None:
        layers.append((f"preset '{preset}'", _read(_preset_path(preset, section), section)))
    if config_file is not None:
        layers.append((str(config_file), _read(config_file, section)))
    layers.append(
        ("the command line", {key: value for key, value in given.items() if value is not None})
    )
    for where, layer in layers:
        for key, value in layer.items():
            name = key.replace("-", "_")
            if name not in fields:
                raise ConfigError(
                    f"unknown setting '{key}'",
                    expected=f"one of: {', '.join(sorted(fields))}",
                    where=where,
                )
            parse = fields[name].metadata.get("parse") or _parser(hints[name])
            try:
                values[name] = parse(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"bad value for '{key}'", found=repr(value), expected=str(error), where=where
                ) from error
    return cls(**values)


def _from_environment(
    fields: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, str | list[str]]:
    return {
        name: environ[variable]
        for name in fields
        if (variable := f"GAAM_{name.upper()}") in environ
    }


def _preset_path(preset: str, section: str) -> Path:
    names = preset_names(section)
    if preset not in names:
        raise ConfigError(
            f"no preset '{preset}' for gaam {section}", expected=f"one of: {', '.join(names)}"
        )
    return data_path() / "presets" / f"{preset}.toml"


def _read(path: Path, section: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise NotFoundError(
            f"cannot read the configuration file '{path}'", found=error.strerror
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"'{path}' is not valid TOML", expected="UTF-8 TOML", found=str(error)
        ) from error
    unknown = set(content) - {"extract", "train"}
    if unknown:
        raise ConfigError(
            f"unknown section in '{path}'",
            expected="[extract] and [train]",
            found=", ".join(sorted(unknown)),
        )
    table = content.get(section, {})
    return dict(table)


def _parser(hint: Any) -> typing.Callable[[Any], Any]:
    """How a value of the annotated type is read from TOML or from a string."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else _parser(inner)(value)
    if origin is tuple:
        return _strings
    if origin is Literal:
        return lambda value: _choice(value, arguments)
    return lambda value: _scalar(hint, value)


def _strings(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise TypeError("a list of strings")
    return tuple(part for item in parts for part in item.split(",") if part)


def _choice(value: Any, options: tuple[Any, ...]) -> Any:
    if value not in options:
        raise ValueError(f"one of: {', '.join(map(str, options))}")
    return value


def _scalar(kind: type, value: Any) -> Any:
    if kind is bool:
        value = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise TypeError("true or false")
        return value
    readable = {int: (int, str), float: (int, float, str), str: (str,), Path: (str, Path)}[kind]
    if isinstance(value, bool) or not isinstance(value, readable):
        raise TypeError(f"a {kind.__name__}")
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"a {kind.__name__}") from None
