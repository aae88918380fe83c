"""Cells of a table: what is blank or missing, and the errors of unusable cells."""

import ast
import json
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt, join_first

BYTE_ORDER_MARK = "\ufeff"
MAX_PAIRS_SHOWN = 10
NO_LITERAL = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
"""Errors of Python's parser for a text that is no literal."""
MISSING_WORDS = frozenset({"nan", "-nan", "null", "nat", "<na>", "#n/a", "\\n"})
"""What programs write into a table for a missing value, in lower case."""

SPELLING = (
    "case, white space, quotes, characters that look alike or the spelling of a number"
)
"""In what the names of ``lookalike_pairs`` differ, for messages."""


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


def is_missing(cell: object) -> bool:
    """Whether a cell holds None, NaN, a blank text or a word for a missing value."""
    if isinstance(cell, str):
        return is_blank(cell) or is_missing_word(cell)
    return cell is None or cell != cell  # noqa: PLR0124 only NaN differs from itself


def parse_list(text: str) -> list[Any] | None:
    """Parse a text that is a JSON array, or a list as Python writes it; else None.

    pandas writes the lists of a column as Python does: ``['a', 'b']``.
    """
    stripped = text.strip()
    if not (stripped.startswith("[") and stripped.endswith("]")):
        return None
    with suppress(ValueError, RecursionError):
        array: list[Any] = json.loads(stripped)
        return array
    # ['a' 'b'], as NumPy prints an array, would be the one text 'ab' to Python, so only
    # a text that Python itself would write counts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            value = ast.literal_eval(stripped)
    except NO_LITERAL:
        return None
    return value if isinstance(value, list) and repr(value) == stripped else None


def lookalike_pairs(names: Iterable[str]) -> list[str]:
    """Pairs of names that may be one name, written differently: see ``SPELLING``.

    Returns:
        A text for each pair, such as "'a' and 'A'".
    """
    first_names: dict[str | float, str] = {}  # form that names share -> first such name
    pairs = []
    for name in names:
        first_name = first_names.setdefault(_comparable_name(name), name)
        if first_name != name:
            pairs.append(f"{excerpt(first_name)} and {excerpt(name)}")
    return pairs


def lookalike_warning(names: Iterable[str], noun: str) -> Iterator[str]:
    """Yield a warning if some names may be one name, written differently.

    Args:
        names: of classes or labels.
        noun: what they are, in the plural: "classes".
    """
    pairs = lookalike_pairs(names)
    if pairs:
        yield (
            f"{noun} that differ only in {SPELLING} are separate {noun} here: "
            f"{join_first(pairs, MAX_PAIRS_SHOWN)}"
        )


def _comparable_name(name: str) -> str | float:
    """The text or the number that all spellings of a name share.

    Spellings differ in case, white space, quotes, invisible characters, or in the way
    in which a number is written.
    """
    # 1, +1 and 1.0 are one number
    if re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", name, re.ASCII):
        return float(name)
    # Cf: characters of format, such as a zero-width space, are invisible
    normal = unicodedata.normalize("NFKC", name)
    visible = [char for char in normal if unicodedata.category(char) != "Cf"]
    return " ".join("".join(visible).replace('"', " ").casefold().split())


def lookalike_groups(names: Iterable[str], source: str) -> str:
    """A warning of groups that may be one group, written differently; or nothing.

    Args:
        names: the group of every row.
        source: the column or file that they are from.
    """
    pairs = lookalike_pairs(dict.fromkeys(names))
    if not pairs:
        return ""
    more_pairs = "" if len(pairs) == 1 else f" and {len(pairs) - 1:,} more such pairs"
    return (
        f"groups of '{source}' that differ only in {SPELLING} are separate groups "
        f"here, so one person may be in training and test rows: {pairs[0]}{more_pairs}"
    )


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
