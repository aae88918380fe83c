"""Reads the cells of a table: texts, labels, and values of kept columns.

gaam refuses a cell that could mean several things. It never guesses.
"""

import math
import re
import shlex
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt
from gaam_cache.store.plan import MAX_VALUE_BYTES

BYTE_ORDER_MARK = "\ufeff"
MISSING_WORDS = frozenset({"nan", "-nan", "null", "nat", "<na>", "#n/a", "\\n"})
"""What programs write into a table for a missing value, in lower case."""
# fmt: off
DOUBTFUL_WORDS = frozenset({
    "none", "na", "n/a", "n.a", "unknown", "unk", "undefined", "missing", "nil", "tbd",
    "unlabeled", "unlabelled", "not labeled", "not labelled", "no label", "no_label",
    "not available", "not applicable", "?", "-", "--", "",
})
# fmt: on
"""What people write for a missing label, although it may name a class.

In lower case, without the characters of ``OUTER_CHARACTERS`` at either end."""
OUTER_CHARACTERS = " <>[](){}_.'\""
MISSING_CODES = frozenset({"99", "255", "999", "9999"})
"""Numbers that stand for a missing label, such as 99; but where 98 is a class, 99 is
one too."""
NEGATIVE_NUMBER = re.compile(r"-0*[1-9]\d{0,17}(\.0*)?", re.ASCII)
DECIMAL_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE
)
NO_REGRESSION = "gaam classifies, and regression does not exist yet"
MIN_DISTINCT_SHARE = 0.9
"""Whole numbers are quantities if there are more distinct ones than this share of the
rows. Classes have several rows each."""
MIN_ROWS_OF_QUANTITIES = 50
"""With fewer rows, distinct whole numbers do not prove that labels are quantities."""


class NoLabelError(DataError):
    """A label is missing, or is a word that often stands for a missing one."""


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space.

    Cells that are null or blank are left out. The others stay as they are written,
    white space included.

    Returns:
        The text; None if all cells are null or blank.

    Raises:
        DataError: a cell is not a string, or begins with a byte-order mark.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is None:
            continue
        if not isinstance(part, str):
            # a number can be written in several ways: the user has to choose one
            problem = f"a text in column '{column}' is not a string"
            raise _unusable_cell_error(problem, part, "a string", "--text-column")
        _refuse_byte_order_mark(part, f"a text in column '{column}'")
        if not is_blank(part):
            parts.append(part)
    return " ".join(parts) or None


def is_blank(text: str) -> bool:
    """Whether a text is invisible: white space, control and zero-width characters."""
    # this is fast, and true for nearly every text; looking up categories is slow
    if text[:1].isalnum():
        return False
    return all(
        char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text
    )


def class_of(
    value: Any,
    names: tuple[str, ...] | None,
    *,
    strip: bool = False,
    odd_classes: Collection[str] = (),
) -> str:
    """The class that a cell of a label column names.

    A string is the name of a class, as it is written. A whole number is the index of a
    declared class. If the data set declares no classes, the decimal digits of the
    number are the class; the fraction 3.0 counts as 3. Truth values are 'true' and
    'false'.

    Args:
        value: the cell.
        names: the classes that the data set declares, in order; None if it declares
            none.
        strip: remove white space around strings.
        odd_classes: classes that the user has confirmed, although their names often
            stand for a missing label.

    Returns:
        The name of the class. Equal names are the same object.

    Raises:
        NoLabelError: the label is missing, or its name often stands for a missing one.
        DataError: the value cannot be a label.
    """
    # millions of rows share few classes, so memory holds each name once
    if names is not None and _is_whole_number(value):
        return sys.intern(_class_at_index(int(value), value, names))
    name = _class_name(value, names, strip=strip)
    if not is_odd(name) or spelling(name) in map(spelling, odd_classes):
        return sys.intern(name)

    raise NoLabelError(
        "a label may stand for a missing label",
        expected="a class; negative numbers, and words such as nan, often mean that "
        "there is no label",
        found=_value_with_type(value),
        hint="remove such rows; if it is a class: "
        f"--set odd-classes={shlex.quote(name.strip())}",
    )


def _is_whole_number(value: Any) -> bool:
    """Whether a cell holds an integer, or a fraction without a rest."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # an integer may be larger than every float, which math.isfinite cannot take
    if isinstance(value, int):
        return True
    return math.isfinite(value) and value.is_integer()


def _class_at_index(index: int, value: Any, names: tuple[str, ...]) -> str:
    """The declared class at an index; ``value`` is the cell, for messages."""
    if index < 0:
        raise _missing_label_error(value, names)
    if index >= len(names):
        raise _unusable_label_error(value, names)
    return names[index]


def _class_name(value: Any, names: tuple[str, ...] | None, *, strip: bool) -> str:
    """The name of the class in a cell that is not the index of a declared class."""
    if value is None:
        raise _missing_label_error(value, names)
    if isinstance(value, str):
        _refuse_byte_order_mark(value, "a label")
        if is_blank(value):
            raise _missing_label_error(value, names)
        return value.strip() if strip else value
    # in Python True is the number 1, but in a table it is a word
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        raise _unusable_label_error(value, names)

    # 3 and 3.0 are one class, in JSON and elsewhere
    if _is_whole_number(value):
        return str(int(value))
    if math.isnan(value):
        raise _missing_label_error(value, names)
    if not math.isfinite(value):
        raise _unusable_label_error(value, names)
    return repr(value)


def is_odd(name: str) -> bool:
    """Whether programs write the name of a class for a missing label: -1, nan."""
    # the first character is fast to look at, and rules out nearly every name
    if name[0] not in "-nN<#\\ \t":
        return False
    return is_missing_word(name) or NEGATIVE_NUMBER.fullmatch(name.strip()) is not None


def is_missing_word(text: str) -> bool:
    """Whether a text is what programs write for a missing value."""
    return text.strip().casefold() in MISSING_WORDS


def is_doubtful(name: str, classes: Collection[str]) -> bool:
    """Whether people write the name of a class for a missing label.

    Args:
        name: the name.
        classes: the names of all classes.
    """
    # 99 is a class if 98 is one too, and otherwise a code
    if name in MISSING_CODES:
        return str(int(name) - 1) not in classes
    return name.casefold().strip(OUTER_CHARACTERS) in DOUBTFUL_WORDS or is_odd(name)


def is_number(name: str) -> bool:
    """Whether the name of a class is a number."""
    return DECIMAL_NUMBER.fullmatch(name) is not None


def spelling(name: str) -> str:
    """One word for all spellings of an odd class: for 'NaN' and 'nan'; '-1', '-1.0'."""
    word = name.strip().casefold()
    if NEGATIVE_NUMBER.fullmatch(word):
        return str(int(float(word)))
    return word


def refuse_quantities(
    labels: Sequence[str],
    origin: str,
    *,
    sampled: bool = False,
    odd_classes: Collection[str] = (),
) -> None:
    """Refuse labels that are quantities, such as prices or scores, rather than classes.

    Labels are quantities in two cases. All are numbers and some have a fraction. Or all
    are whole numbers with gaps between them, and nearly every row has its own number.

    Args:
        labels: the label of every row that was read.
        origin: where the labels are from, for messages.
        sampled: whether ``--limit`` chose the rows. A limit takes few rows of each of
            many classes, so many distinct labels then prove nothing.
        odd_classes: labels that the user has confirmed as classes.

    Raises:
        DataError: the labels are quantities.
    """
    # confirmed classes may be any numbers: only the other labels are examined
    confirmed_spellings = set(map(spelling, odd_classes))
    distinct_labels = [
        label
        for label in dict.fromkeys(labels)
        if spelling(label) not in confirmed_spellings
    ]
    if len(distinct_labels) < 2 or not all(map(is_number, distinct_labels)):
        return

    # a fraction never names a class; a whole number may
    numbers = list(map(float, distinct_labels))
    if not all(map(float.is_integer, numbers)):
        kind = "numbers with fractions"
    elif not sampled and _are_quantities(numbers, len(labels)):
        kind = "a whole number of its own for nearly every row"
    else:
        return

    raise DataError(
        f"the labels are {kind}: {NO_REGRESSION}",
        expected="classes: words, or whole numbers that many rows share",
        found=f"{len(distinct_labels):,} different numbers in {len(labels):,} rows: "
        f"{', '.join(distinct_labels[:3])}, ...",
        where=origin,
        hint="--label-column names the column of the classes; if these are classes: "
        f"--set odd-classes={','.join(distinct_labels[:2])},... names all of them",
    )


def _are_quantities(numbers: Sequence[float], num_rows: int) -> bool:
    """Whether distinct whole numbers are too many, and too far apart, for classes.

    Args:
        numbers: the distinct labels.
        num_rows: number of rows that have them.
    """
    if num_rows < MIN_ROWS_OF_QUANTITIES:
        return False
    if len(numbers) <= MIN_DISTINCT_SHARE * num_rows:
        return False
    # numbers of classes leave few gaps
    return max(numbers) - min(numbers) >= 2 * len(numbers)


def kept_value(value: Any, column: str) -> str:
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
        raise _unusable_cell_error(problem, value, expected, "--keep-column")
    _refuse_byte_order_mark(text, f"the column '{column}'")
    return text


def _refuse_byte_order_mark(text: str, subject: str) -> None:
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


def _missing_label_error(value: Any, names: tuple[str, ...] | None) -> NoLabelError:
    """The error for a cell without a label; ``names`` are the declared classes."""
    return NoLabelError(
        "a label is missing or unusable",
        expected=_expected_label(names),
        found=_value_with_type(value),
        hint="correct or remove the row, or name another column with --label-column",
    )


def _unusable_label_error(value: Any, names: tuple[str, ...] | None) -> DataError:
    """The error for a cell that no class can be; ``names`` are the declared classes."""
    expected = _expected_label(names)
    return _unusable_cell_error(
        "a label is unusable", value, expected, "--label-column"
    )


def _expected_label(names: tuple[str, ...] | None) -> str:
    """The labels that are valid, in words; ``names`` are the declared classes."""
    if not names:
        return "a class name or a number"
    return f"a class name or a number below {len(names)}"


def _unusable_cell_error(
    message: str, value: Any, expected: str, option: str
) -> DataError:
    """The error for a cell that cannot be used; ``option`` names another column."""
    hint = f"correct the row, or name another column with {option}"
    return DataError(
        message, expected=expected, found=_value_with_type(value), hint=hint
    )


def _value_with_type(value: Any) -> str:
    """A value and its type, for messages: '3.5 (float)'."""
    return f"{excerpt(value)} ({type(value).__name__})"
