"""Reads the cells of a table: texts, and values of kept columns.

gaam refuses a cell that could mean several things. It never guesses.
"""

from collections.abc import Mapping, Sequence

from gaam_cache.common.cells import (
    is_blank,
    refuse_byte_order_mark,
    unusable_cell_error,
)
from gaam_cache.store.plan import MAX_VALUE_BYTES


def text_of(record: Mapping[str, object], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space.

    Cells that are null or blank are left out. The others stay as they are written,
    white space and invisible characters included: texts of people begin with a
    byte-order mark, too. ``read_lines`` refuses the marks that joined files leave.

    Returns:
        The text; None if all cells are null or blank.

    Raises:
        DataError: a cell is not a string.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is None:
            continue
        if not isinstance(part, str):
            # a number can be written in several ways: the user has to choose one
            problem = f"a text in column '{column}' is not a string"
            raise unusable_cell_error(problem, part, "a string", "--text-column")
        if not is_blank(part):
            parts.append(part)
    return " ".join(parts) or None


def kept_value(value: object, column: str) -> str:
    """The value of a kept column as text: a string, or the digits of a whole number.

    Args:
        value: the cell.
        column: name of the column, for messages.

    Raises:
        DataError: the cell holds another type, is too long, or has a zero character.
    """
    can_be_text = isinstance(value, str | int) and not isinstance(value, bool)
    text = str(value) if can_be_text else ""
    is_too_long = len(text.encode(errors="replace")) > MAX_VALUE_BYTES
    # a shard stores strings of a fixed length, which end at the first zero
    if not can_be_text or "\0" in text or is_too_long:
        expected = f"a string of at most {MAX_VALUE_BYTES:,} bytes, or a whole number"
        problem = f"the column '{column}' cannot be kept"
        raise unusable_cell_error(problem, value, expected, "--keep-column")
    refuse_byte_order_mark(text, f"the column '{column}'")
    return text
