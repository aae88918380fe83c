"""Cells of a table: what is blank or missing, and the errors of unusable cells."""

import unicodedata

from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt

BYTE_ORDER_MARK = "\ufeff"
MISSING_WORDS = frozenset({"nan", "-nan", "null", "nat", "<na>", "#n/a", "\\n"})
"""What programs write into a table for a missing value, in lower case."""


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: empty, or only white space and invisible marks.

    Invisible marks are control characters and zero-width characters.
    """
    # nearly every text begins with a letter or digit; to look up categories is slow
    if text[:1].isalnum():
        return False
    # Cc: control characters; Cf: zero-width ones
    return all(
        char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text
    )


def is_missing_word(text: str) -> bool:
    """Whether a text is what programs write for a missing value."""
    return text.strip().casefold() in MISSING_WORDS


def refuse_byte_order_mark(text: str, subject: str) -> None:
    """Refuse a text that begins with a byte-order mark, which joined files leave.

    Args:
        text: the cell.
        subject: what the cell is, for messages: 'a label'.
    """
    if text.startswith(BYTE_ORDER_MARK):
        raise DataError(
            f"{subject} begins with a byte-order mark",
            expected="such a mark only at the start of a file",
            found=excerpt(text),
            hint="remove the mark (U+FEFF); in joined files, also the second header",
        )


def unusable_cell_error(
    message: str, value: object, expected: str, option: str
) -> DataError:
    """The error for a cell that cannot be used.

    Args:
        message: what is wrong with the cell.
        value: the content of the cell.
        expected: what the cell should hold.
        option: the option with which a user chooses another column, for the hint.
    """
    hint = f"correct the row, or name another column with {option}"
    return DataError(
        message, expected=expected, found=value_with_type(value), hint=hint
    )


def value_with_type(value: object) -> str:
    """A value and its type, for messages: '3.5 (float)'."""
    return f"{excerpt(value)} ({type(value).__name__})"
