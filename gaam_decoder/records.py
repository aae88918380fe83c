"""Read JSON values strictly into the dataclasses that record them.

Errors are ValueError and TypeError: the reader of the file adds its name.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")


def read_record(cls: type[Record], values: object, name: str) -> Record:
    """Read a JSON object as a dataclass whose fields have the names of its keys.

    Args:
        cls: the dataclass; a field without a default is a key that must be there.
        values: the JSON object.
        name: of the object in its file, for messages.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"'{name}' is no JSON object")
    check_names(cls, values, name)
    # mypy takes a type variable for unhashable.
    hints = _hints_of(typing.cast(Any, cls))
    arguments = {
        key: read_value(value, hints[key], f"{name}.{key}")
        for key, value in values.items()
    }
    return cls(**arguments)


def check_names(cls: type, values: Mapping[str, object], name: str) -> None:
    """Refuse keys that are no fields of a dataclass, and fields without a key.

    Args:
        cls: the dataclass.
        values: key -> value.
        name: of the values, for the message.

    Raises:
        ValueError: an unknown key, or none for a field without a default.
    """
    required_names = set()
    field_names = set()
    for field in fields(cls):
        field_names.add(field.name)
        if field.default is MISSING and field.default_factory is MISSING:
            required_names.add(field.name)
    unknown = sorted(values.keys() - field_names)
    if unknown:
        raise ValueError(f"'{name}' has an unknown key '{unknown[0]}'")
    missing = sorted(required_names - values.keys())
    if missing:
        raise ValueError(f"'{name}' has no key '{missing[0]}'")


def read_field(cls: type, field: str, value: object, name: str) -> Any:
    """Read a JSON value as the type of a field."""
    return read_value(value, _hints_of(cls)[field], name)


def read_value(value: Any, hint: Any, name: str) -> Any:
    """Read a JSON value as a type: a list becomes a tuple, a whole number a float.

    Args:
        value: the JSON value.
        hint: the type: of one value, ``T | None``, a literal, a dict or a tuple.
        name: of the value in its file, for messages.
    """
    if hint is Any:
        return value
    # of dict[str, int]: dict, and (str, int)
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        # of T | None: as T
        return read_value(value, parts[0], name)
    if origin is Literal and value in parts:
        return value
    container = _read_container(value, origin, parts, name)
    if container is not None:
        return container
    if isinstance(hint, type) and is_dataclass(hint):
        return read_record(hint, value, name)
    if hint is float and type(value) in (int, float):
        return float(value)
    # The exact type: True is an integer for isinstance.
    if type(value) is hint:
        return value
    raise TypeError(f"'{name}' is {value!r}, not {_type_in_words(hint)}")


def _read_container(
    value: Any, origin: Any, parts: tuple[Any, ...], name: str
) -> dict[str, Any] | list[Any] | tuple[Any, ...] | None:
    """Read the entries of an object or array as a dict, list or tuple of a type.

    Args:
        value: the JSON value.
        origin: dict, list, tuple, or another type.
        parts: the types of the entries.
        name: of the value in its file, for messages.

    Returns:
        None if the type is no container, or the value is another one.
    """
    if origin is dict and isinstance(value, dict):
        return {
            key: read_value(entry, parts[1], f"{name}.{key}")
            for key, entry in value.items()
        }
    if origin in (list, tuple) and isinstance(value, list | tuple):
        entries = [read_value(entry, parts[0], name) for entry in value]
        return entries if origin is list else tuple(entries)
    return None


def _type_in_words(hint: Any) -> str:
    """A type for an error message, such as ``int`` or ``one of val, last``."""
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    return str(getattr(hint, "__name__", hint))


@cache
def _hints_of(cls: type) -> dict[str, object]:
    hints: dict[str, object] = typing.get_type_hints(cls)
    return hints
