"""How a value of an annotated type is read from TOML, a variable or the command line."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal


def parser(hint: Any) -> Callable[[Any], Any]:
    """How a value of the annotated type is read; it raises TypeError or ValueError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else parser(inner)(value)
    if origin is tuple:
        return _strings
    if origin is Literal:
        return lambda value: _choice(value, arguments)
    return lambda value: _scalar(hint, value)


def _strings(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise TypeError("a list of strings")
    named = tuple(part for item in parts for part in item.split(",") if part)
    if parts and not named:
        raise ValueError("a list of strings with something in it")
    return named


def _choice(value: Any, options: tuple[Any, ...]) -> Any:
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"one of: {', '.join(map(str, options))}")
    return value


def _scalar(kind: type, value: Any) -> Any:
    if kind is bool:
        value = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise TypeError("true or false")
        return value
    readable = {int: (int, str), float: (int, float, str), str: (str,), Path: (str, Path)}[kind]
    name = {int: "a whole number", float: "a number", str: "a string", Path: "a path"}[kind]
    if isinstance(value, bool) or not isinstance(value, readable):
        raise TypeError(name)
    if kind is Path:
        return Path(str(value)).expanduser()  # RuntimeError: no such user
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise ValueError(name) from None
