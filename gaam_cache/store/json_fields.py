"""Takes the fields of a JSON object one by one and checks the type of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeGuard, TypeVar

from gaam_cache.common.messages import excerpt

T = TypeVar("T")
D = TypeVar("D")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class JsonType(Generic[T_co]):
    """A type of JSON values."""

    words: str
    """What it is, for messages: 'a text'."""
    includes: Callable[[object], TypeGuard[T_co]]
    """Whether a value is of this type."""


class JsonFields:
    """The fields of a JSON object that have not been taken yet.

    A reader takes every field that it knows; ``rest`` has the fields that are left.
    The object itself is not changed.

    Args:
        name: of the object, for messages.
        content: the object.

    Raises:
        ValueError: ``content`` is no object.
    """

    def __init__(self, name: str, content: object) -> None:
        self._name = name
        if not _is_object(content):
            raise ValueError(f"'{name}' is {excerpt(content)}, not an object")
        self._fields = dict(content)

    def take(self, key: str, json_type: JsonType[T]) -> T:
        """Remove a field that must be there, and return its value.

        Raises:
            ValueError: the field is missing, or its value is not of ``json_type``.
        """
        if key not in self._fields:
            raise ValueError(f"no '{self._name}.{key}'")
        value = self._fields.pop(key)
        if not json_type.includes(value):
            raise ValueError(
                f"'{self._name}.{key}' is {excerpt(value)}, not {json_type.words}"
            )
        return value

    def take_optional(self, key: str, json_type: JsonType[T], default: D) -> T | D:
        """Remove a field that may be missing, and return its value or ``default``.

        Raises:
            ValueError: the value is not of ``json_type``.
        """
        return self.take(key, json_type) if key in self._fields else default

    def rest(self) -> dict[str, Any]:
        """The fields that were not taken, in their order."""
        return self._fields


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number.

    In Python True and False are numbers, too; in JSON they are not.
    """
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_text_or_null(value: object) -> TypeGuard[str | None]:
    return value is None or isinstance(value, str)


def _is_truth_value(value: object) -> TypeGuard[bool]:
    return isinstance(value, bool)


def _is_truth_value_or_null(value: object) -> TypeGuard[bool | None]:
    return value is None or isinstance(value, bool)


def _is_count(value: object) -> TypeGuard[int]:
    return is_integer(value) and value > 0


def _is_count_or_null(value: object) -> TypeGuard[int | None]:
    return value is None or _is_count(value)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, Mapping)


def _is_object_of_texts(value: object) -> TypeGuard[dict[str, str]]:
    return _is_object(value) and all(map(_is_text, value.values()))


TEXT = JsonType("a text", _is_text)
TEXT_OR_NULL = JsonType("a text or null", _is_text_or_null)
TRUTH_VALUE = JsonType("true or false", _is_truth_value)
TRUTH_VALUE_OR_NULL = JsonType("true, false or null", _is_truth_value_or_null)
COUNT = JsonType("a whole number above 0", _is_count)
COUNT_OR_NULL = JsonType("a whole number above 0 or null", _is_count_or_null)
OBJECT = JsonType("an object", _is_object)
TEXT_BY_NAME = JsonType("an object of texts", _is_object_of_texts)
