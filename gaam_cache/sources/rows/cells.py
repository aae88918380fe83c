"""What a cell of a table says: a text, a class, a value to keep, or nothing."""

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
WRITTEN_FOR_NOTHING = frozenset({"nan", "-nan", "null", "nat", "<na>", "#n/a", "\\n"})
"""What programs write into a table where there is no value, in lower case."""
DOUBTFUL = frozenset(
    {
        "none",
        "na",
        "n/a",
        "n.a",
        "unknown",
        "unk",
        "undefined",
        "missing",
        "nil",
        "tbd",
        "?",
        "-",
    }
    | {
        "unlabeled",
        "unlabelled",
        "not labeled",
        "not labelled",
        "no label",
        "no_label",
        "--",
        "",
    }
    | {"not available", "not applicable"}
)
"""What people write where there is no label, and what classes are called too: in lower case,
without what ``AROUND`` has."""
AROUND = " <>[](){}_.'\""
CODES = frozenset({"99", "255", "999", "9999"})
"""Numbers that stand for no label where the number before them is no class."""
NEGATIVE = re.compile(r"-0*[1-9]\d{0,17}(\.0*)?", re.ASCII)
NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE
)
NO_REGRESSION = "gaam tells classes apart, and regression does not exist yet"
ONE_EACH = 0.9  # different whole numbers to a row: classes have several rows each
FEWEST_NUMBERS = 50  # rows that can say so


class NoLabelError(DataError):
    """A cell of the label column has no label, or what is often written where there is none."""


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space; None where nothing is in them.

    They are kept as they stand, white space included; those that are null or blank are left out.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is not None and not isinstance(part, str):
            # a number could be written in several ways: which one is not ours to choose
            problem = f"a text in column '{column}' is no string"
            raise _unusable(problem, part, "a string", "--text-column")
        if part is not None:
            _refuse_mark(part, f"a text in column '{column}'")
        if part is not None and not is_blank(part):
            parts.append(part)
    return " ".join(parts) or None


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: white space, control and zero-width characters."""
    if text[:1].isalnum():  # nearly every text
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
    """The class that a cell names; one object for each class.

    Strings stay as they are written. Whole numbers are their decimal digits (of fractions without
    a rest too: 3.0 is '3'), or index the declared classes; truth values are 'true' and 'false'.

    Args:
        value: the cell.
        names: the declared classes, in order.
        strip: leave out white space around strings.
        odd_classes: classes that are called as what is written where there is no label.

    Raises:
        NoLabelError: there is no label, or what is often written where there is none.
        DataError: the value can be no label.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (number and math.isnan(value)):
        raise _missing(value, names)
    if isinstance(value, bool):
        name = str(value).lower()
    elif isinstance(value, str):
        _refuse_mark(value, "a label")
        if is_blank(value):
            raise _missing(value, names)
        name = value.strip() if strip else value
    elif number and math.isfinite(value):
        whole = value == int(value)
        name = str(int(value)) if whole else repr(value)
        if names is not None and whole:
            if value < 0:
                raise _missing(value, names)
            if value >= len(names):
                raise _unusable(
                    "a label is unusable", value, _expected(names), "--label-column"
                )
            return sys.intern(names[int(value)])
    else:
        raise _unusable(
            "a label is unusable", value, _expected(names), "--label-column"
        )
    if not is_odd(name) or spelling(name) in map(spelling, odd_classes):
        return sys.intern(name)
    hint = f"remove such rows; if it is a class: --set odd-classes={shlex.quote(name.strip())}"
    raise NoLabelError(
        "a label may say that nobody knows the class",
        expected="a class; negative numbers, and words such as nan, often stand for no label",
        found=_typed(value),
        hint=hint,
    )


def is_odd(name: str) -> bool:
    """Whether a class is called as what programs write where there is no label: -1, nan."""
    if name[0] not in "-nN<#\\ \t":  # nearly every name
        return False
    return is_nothing(name) or NEGATIVE.fullmatch(name.strip()) is not None


def is_nothing(text: str) -> bool:
    """Whether a text is what programs write where there is no value."""
    return text.strip().casefold() in WRITTEN_FOR_NOTHING


def is_doubtful(name: str, classes: Collection[str]) -> bool:
    """Whether one of the classes is called as rows are whose class nobody knows."""
    if name in CODES:
        return str(int(name) - 1) not in classes
    return name.casefold().strip(AROUND) in DOUBTFUL or is_odd(name)


def is_number(name: str) -> bool:
    """Whether a class is called as a number is written."""
    return NUMBER.fullmatch(name) is not None


def spelling(name: str) -> str:
    """What spellings of one odd class share: 'NaN' and 'nan', '-1' and '-1.0'."""
    word = name.strip().casefold()
    return str(int(float(word))) if NEGATIVE.fullmatch(word) else word


def refuse_quantities(
    labels: Sequence[str],
    origin: str,
    *,
    sampled: bool = False,
    odd_classes: Collection[str] = (),
) -> None:
    """Refuse labels that are quantities, such as prices or scores, and no classes.

    These are numbers of which some have a fraction, or whole numbers of which nearly every row has
    another, with gaps between them. Whole numbers that name classes are none.

    Args:
        labels: of all rows that are read, as classes are called.
        origin: where they are from, in messages.
        sampled: whether a limit took some rows: of many classes it takes few rows each.
        odd_classes: labels that somebody says are classes.

    Raises:
        DataError: they are quantities.
    """
    known = set(map(spelling, odd_classes))
    distinct = [
        label for label in dict.fromkeys(labels) if spelling(label) not in known
    ]
    if len(distinct) < 2 or not all(map(is_number, distinct)):
        return
    numbers = list(map(float, distinct))
    fractions = not all(map(float.is_integer, numbers))
    spread = max(numbers) - min(numbers)
    many = len(labels) >= FEWEST_NUMBERS and len(distinct) > ONE_EACH * len(labels)
    if not fractions and (sampled or not many or spread < 2 * len(distinct)):
        return
    what = (
        "numbers with fractions"
        if fractions
        else "a whole number of its own for nearly every row"
    )
    shown = ", ".join(distinct[:3])
    raise DataError(
        f"the labels are {what}: {NO_REGRESSION}",
        expected="classes: words, or whole numbers that many rows share",
        found=f"{len(distinct):,} different numbers in {len(labels):,} rows: {shown}, ...",
        where=origin,
        hint="--label-column names the column of the classes; if these are classes: --set "
        f"odd-classes={','.join(distinct[:2])},... names all of them",
    )


def kept_value(value: Any, column: str) -> str:
    """What a kept column has of a row: a string, or the decimal text of a whole number."""
    text = (
        str(value)
        if isinstance(value, str | int) and not isinstance(value, bool)
        else "\0"
    )
    if "\0" in text or len(text.encode(errors="replace")) > MAX_VALUE_BYTES:
        expected = f"a string of at most {MAX_VALUE_BYTES:,} bytes, or a whole number"
        problem = f"the column '{column}' cannot be kept"
        raise _unusable(problem, value, expected, "--keep-column")
    _refuse_mark(text, f"the column '{column}'")
    return text


def _refuse_mark(text: str, what: str) -> None:
    """Refuse a field that begins with a byte-order mark: files were joined as they were."""
    if text.startswith(BYTE_ORDER_MARK):
        raise DataError(
            f"{what} begins with a byte-order mark",
            expected="such a mark at the start of a file alone",
            found=excerpt(text),
            hint="remove the mark (U+FEFF); if files were joined, the second header too",
        )


def _missing(value: Any, names: tuple[str, ...] | None) -> NoLabelError:
    return NoLabelError(
        "a label is missing or unusable",
        expected=_expected(names),
        found=_typed(value),
        hint="mend or remove the row, or name another column with --label-column",
    )


def _expected(names: tuple[str, ...] | None) -> str:
    return "a class name or a number" + (f" below {len(names)}" if names else "")


def _unusable(message: str, value: Any, expected: str, option: str) -> DataError:
    hint = f"mend the row, or name another column with {option}"
    return DataError(message, expected=expected, found=_typed(value), hint=hint)


def _typed(value: Any) -> str:
    return f"{excerpt(value)} ({type(value).__name__})"
