"""What one cell of a table means: a text, a class, a value to keep, or nothing.

Cells that could mean several things are refused, never guessed.
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
DOUBTFUL = frozenset({
    "none", "na", "n/a", "n.a", "unknown", "unk", "undefined", "missing", "nil", "tbd",
    "unlabeled", "unlabelled", "not labeled", "not labelled", "no label", "no_label",
    "not available", "not applicable", "?", "-", "--", "",
})
# fmt: on
"""What people write for a missing label, although it may name a class.

In lower case, without the characters of ``AROUND`` at either end."""
AROUND = " <>[](){}_.'\""
CODES = frozenset({"99", "255", "999", "9999"})
"""Numbers that stand for a missing label unless the number before is a class too."""
NEGATIVE = re.compile(r"-0*[1-9]\d{0,17}(\.0*)?", re.ASCII)
NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE
)
NO_REGRESSION = "gaam classifies, and regression does not exist yet"
ONE_EACH = 0.9  # of the rows have a number of their own: classes have several rows each
FEWEST_NUMBERS = 50  # with fewer rows, distinct whole numbers prove nothing


class NoLabelError(DataError):
    """A label is missing, or is a word that often stands for a missing one."""


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space; None if all are blank.

    Columns that are null or blank are left out. The others stay as they are written,
    white space included.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is None:
            continue
        if not isinstance(part, str):
            # a number could be written in several ways, and the choice is the user's
            problem = f"a text in column '{column}' is not a string"
            raise _unusable(problem, part, "a string", "--text-column")
        _refuse_mark(part, f"a text in column '{column}'")
        if not is_blank(part):
            parts.append(part)
    return " ".join(parts) or None


def is_blank(text: str) -> bool:
    """Whether a text is invisible: white space, control and zero-width characters."""
    # nearly every text ends here, and looking up categories is slow
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
    """The class that a cell names; equal classes are one object.

    Strings stay as they are written. A whole number indexes the declared classes. Where
    none are declared, its decimal digits are the class; the fraction 3.0 counts as 3.
    Truth values are 'true' and 'false'.

    Args:
        value: the cell.
        names: the declared classes, in order.
        strip: leave out white space around strings.
        odd_classes: classes that the user has confirmed, although their names often
            stand for a missing label.

    Raises:
        NoLabelError: the label is missing, or its name often stands for a missing one.
        DataError: the value cannot be a label.
    """
    # millions of rows share few classes, so their names are kept in memory once
    if names is not None and _is_whole_number(value):
        return sys.intern(_declared_class(int(value), value, names))
    name = _class_name(value, names, strip=strip)
    if not is_odd(name) or spelling(name) in map(spelling, odd_classes):
        return sys.intern(name)

    raise NoLabelError(
        "a label may stand for a missing label",
        expected="a class; negative numbers, and words such as nan, often mean that "
        "there is no label",
        found=_with_type(value),
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


def _declared_class(index: int, value: Any, names: tuple[str, ...]) -> str:
    """The declared class with this index; ``value`` is the cell, for messages."""
    if index < 0:
        raise _missing(value, names)
    if index >= len(names):
        raise _unusable_label(value, names)
    return names[index]


def _class_name(value: Any, names: tuple[str, ...] | None, *, strip: bool) -> str:
    """The name of the class in a cell that is not the index of a declared class."""
    if value is None:
        raise _missing(value, names)
    if isinstance(value, str):
        _refuse_mark(value, "a label")
        if is_blank(value):
            raise _missing(value, names)
        return value.strip() if strip else value
    # in Python True is the number 1, but in a table it is a word
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        raise _unusable_label(value, names)

    # 3 and 3.0 are one class, in JSON and elsewhere
    if _is_whole_number(value):
        return str(int(value))
    if math.isnan(value):
        raise _missing(value, names)
    if not math.isfinite(value):
        raise _unusable_label(value, names)
    return repr(value)


def is_odd(name: str) -> bool:
    """Whether programs write the name of a class for a missing label: -1, nan."""
    # nearly every name ends here
    if name[0] not in "-nN<#\\ \t":
        return False
    return is_missing_word(name) or NEGATIVE.fullmatch(name.strip()) is not None


def is_missing_word(text: str) -> bool:
    """Whether a text is what programs write for a missing value."""
    return text.strip().casefold() in MISSING_WORDS


def is_doubtful(name: str, classes: Collection[str]) -> bool:
    """Whether people write the name of one of the classes for a missing label."""
    # 99 is a class where 98 is one, and a code where classes end before
    if name in CODES:
        return str(int(name) - 1) not in classes
    return name.casefold().strip(AROUND) in DOUBTFUL or is_odd(name)


def is_number(name: str) -> bool:
    """Whether the name of a class is a number."""
    return NUMBER.fullmatch(name) is not None


def spelling(name: str) -> str:
    """The same word for all spellings of an odd class: 'NaN', 'nan'; '-1', '-1.0'."""
    word = name.strip().casefold()
    return str(int(float(word))) if NEGATIVE.fullmatch(word) else word


def refuse_quantities(
    labels: Sequence[str],
    origin: str,
    *,
    sampled: bool = False,
    odd_classes: Collection[str] = (),
) -> None:
    """Refuse labels that are quantities, such as prices or scores, rather than classes.

    Quantities are numbers of which some have a fraction; or whole numbers with gaps
    between them, nearly every row with one of its own.

    Args:
        labels: names of the classes of all rows that are read.
        origin: where they are from, in messages.
        sampled: whether a limit chose the rows. It takes few rows of each of many
            classes, so the number of distinct labels proves nothing.
        odd_classes: labels that the user has confirmed as classes.

    Raises:
        DataError: they are quantities.
    """
    # classes that the user has confirmed prove nothing about the others
    confirmed = set(map(spelling, odd_classes))
    distinct = [
        label for label in dict.fromkeys(labels) if spelling(label) not in confirmed
    ]
    if len(distinct) < 2 or not all(map(is_number, distinct)):
        return

    # fractions are measured; whole numbers may name classes
    numbers = list(map(float, distinct))
    if not all(map(float.is_integer, numbers)):
        kind = "numbers with fractions"
    elif not sampled and _are_measured(numbers, len(labels)):
        kind = "a whole number of its own for nearly every row"
    else:
        return

    raise DataError(
        f"the labels are {kind}: {NO_REGRESSION}",
        expected="classes: words, or whole numbers that many rows share",
        found=f"{len(distinct):,} different numbers in {len(labels):,} rows: "
        f"{', '.join(distinct[:3])}, ...",
        where=origin,
        hint="--label-column names the column of the classes; if these are classes: "
        f"--set odd-classes={','.join(distinct[:2])},... names all of them",
    )


def _are_measured(numbers: Sequence[float], rows: int) -> bool:
    """Whether distinct whole numbers are too many, and too far apart, for classes."""
    if rows < FEWEST_NUMBERS or len(numbers) <= ONE_EACH * rows:
        return False
    return max(numbers) - min(numbers) >= 2 * len(numbers)


def kept_value(value: Any, column: str) -> str:
    """The value of a kept column: a string, or the decimal text of a whole number."""
    can_be_text = isinstance(value, str | int) and not isinstance(value, bool)
    text = str(value) if can_be_text else ""
    is_too_long = len(text.encode(errors="replace")) > MAX_VALUE_BYTES
    # a shard stores strings of a fixed length, which end at the first zero
    if not can_be_text or "\0" in text or is_too_long:
        expected = f"a string of at most {MAX_VALUE_BYTES:,} bytes, or a whole number"
        problem = f"the column '{column}' cannot be kept"
        raise _unusable(problem, value, expected, "--keep-column")
    _refuse_mark(text, f"the column '{column}'")
    return text


def _refuse_mark(text: str, subject: str) -> None:
    """Refuse a field that begins with a byte-order mark, as joined files leave it."""
    if text.startswith(BYTE_ORDER_MARK):
        raise DataError(
            f"{subject} begins with a byte-order mark",
            expected="such a mark only at the start of a file",
            found=excerpt(text),
            hint="remove the mark (U+FEFF); in joined files, also the second header",
        )


def _missing(value: Any, names: tuple[str, ...] | None) -> NoLabelError:
    return NoLabelError(
        "a label is missing or unusable",
        expected=_expected_label(names),
        found=_with_type(value),
        hint="correct or remove the row, or name another column with --label-column",
    )


def _unusable_label(value: Any, names: tuple[str, ...] | None) -> DataError:
    expected = _expected_label(names)
    return _unusable("a label is unusable", value, expected, "--label-column")


def _expected_label(names: tuple[str, ...] | None) -> str:
    if not names:
        return "a class name or a number"
    return f"a class name or a number below {len(names)}"


def _unusable(message: str, value: Any, expected: str, option: str) -> DataError:
    hint = f"correct the row, or name another column with {option}"
    return DataError(message, expected=expected, found=_with_type(value), hint=hint)


def _with_type(value: Any) -> str:
    return f"{excerpt(value)} ({type(value).__name__})"
