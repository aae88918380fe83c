"""What stands in the cells of a row beside its input: a class, and what is kept."""

from __future__ import annotations

import sys
from typing import Any

from gaam_cache.errors import ConfigError, DataError
from gaam_cache.format.plan import MAX_VALUE_BYTES
from gaam_cache.messages import excerpt
from gaam_cache.sources._texts import check_encodable, is_blank


class Labels:
    """Reads labels; one object per class, not per row.

    Args:
        class_names: all classes in order where they are declared; integer labels then index them.
        strip: whether white space around a name is left out.

    Raises:
        ConfigError: declared classes are one without the white space.
    """

    def __init__(self, class_names: tuple[str, ...] | None, *, strip: bool) -> None:
        self._strip = strip
        self.class_names = class_names
        if strip and class_names is not None:
            self.class_names = tuple(name.strip() for name in class_names)
            if len(set(self.class_names)) < len(class_names):
                raise ConfigError(
                    "declared classes differ in white space alone",
                    expected="no strip-labels",
                    found=", ".join(map(excerpt, class_names[:20])),
                )
        self._known: dict[str, str] = {}  # of strings alone: 1, 1.0 and True are one key

    def read(self, value: Any) -> str:
        """The class that a cell names.

        Raises:
            DataError: missing, neither a string nor a whole number, or a lone surrogate.
        """
        label = self._known.get(value) if type(value) is str else None
        if label is None:
            label = sys.intern(self._read(value))
            if type(value) is str:
                self._known[value] = label
        return label

    def _read(self, value: Any) -> str:
        # True is an int to Python, but which class it means is anybody's guess
        whole = isinstance(value, int) and not isinstance(value, bool)
        names = self.class_names
        if whole and names is not None:
            if 0 <= value < len(names):
                return names[value]
        elif whole:
            return str(value)
        elif isinstance(value, str) and not is_blank(value):
            check_encodable(value, "label")
            return value.strip() if self._strip else value
        hint = "mend the row or name another column with --label-column"
        if isinstance(value, bool):
            hint = 'write truth values as "true" and "false" in quotes, or as 1 and 0'
        elif isinstance(value, float):
            hint = "write whole numbers without a decimal point; " + hint
        raise DataError(
            "a label is missing or unusable",
            expected="a class name or a whole number"
            if names is None
            else f"a class name or a whole number from 0 to {len(names) - 1}",
            found=f"{excerpt(value)} ({type(value).__name__})",
            hint=hint,
        )


def kept_text(value: Any, column: str) -> str:
    """What a kept column has of a row: a string, or the decimal text of a whole number.

    Raises:
        DataError: anything else, a NUL character, a lone surrogate, or too long.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value:
        raise _cannot_keep(column, "a string or a whole number, without NUL", value)
    check_encodable(value, "kept value")
    # a character has four bytes at most
    if 4 * len(value) > MAX_VALUE_BYTES and len(value.encode()) > MAX_VALUE_BYTES:
        raise _cannot_keep(column, f"at most {MAX_VALUE_BYTES:,} bytes of UTF-8", value)
    return value


def _cannot_keep(column: str, expected: str, value: Any) -> DataError:
    return DataError(
        f"the column '{column}' cannot be kept",
        expected=expected,
        found=f"{excerpt(value)} ({type(value).__name__})",
        hint="mend the row, or leave out --keep-column",
    )
