"""Classes: what a label is in a table, in a program and on disk.

In a table a label is the name of a class, or its number. Rows hold names. On disk a
label is a whole number: the position of its class in the plan's ``class_names``.

N rows.
"""

import math
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import (
    is_blank,
    is_missing_word,
    refuse_byte_order_mark,
    unusable_cell_error,
    value_with_type,
)
from gaam_cache.common.errors import ConfigError, DataError

NO_LABEL = ""
"""Label of every row of a split without labels; no class has this name."""
UNLABELLED = -1
"""Label of such a row on disk."""
MAX_NUM_CLASSES = 10**6  # a plan names every class: a larger label is no class
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


@dataclass(frozen=True)
class Classes:
    """The classes of a data set: how its labels are stored.

    Args:
        names: the names of all classes, in the order of their numbers.
    """

    task: ClassVar[str] = "classification"
    """Name of the task that predicts it."""
    key: ClassVar[str] = "label"
    """Name of the array of labels in a shard."""
    dtype: ClassVar[str] = "int64"
    """Type of this array, as a receipt names it."""
    names: tuple[str, ...]

    @staticmethod
    def shape(num_rows: int) -> tuple[int, ...]:
        """Shape of the labels of some rows: one number a row."""
        return (num_rows,)

    @cached_property
    def _number_by_name(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def encode(self, labels: Sequence[str]) -> NDArray[np.int64]:
        """The number of every label, (N,); KeyError for a label that is no class."""
        numbers = [self._number_by_name[label] for label in labels]
        return np.array(numbers, np.int64)

    def encode_unlabelled(self, num_rows: int) -> NDArray[np.int64]:
        """The labels of rows without labels, (N,)."""
        return np.full(num_rows, UNLABELLED, np.int64)

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The names of the classes with these numbers."""
        return [self.names[number] for number in numbers]

    def unknown(self, labels: Iterable[str]) -> set[str]:
        """The labels that are no class."""
        return set(labels) - set(self.names)


def strata(labels: Sequence[str]) -> Sequence[str]:
    """The stratum of every row: splits and limits take the same share of each.

    The strata of classes are the classes.
    """
    return labels


def class_order(labels: set[str]) -> tuple[str, ...]:
    """Sort class names: by their numbers if all are numbers, else by the alphabet.

    This is for sources that declare no order of their classes.
    """
    if not all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in labels):
        return tuple(sorted(labels))
    # '1' and '01' are one number: then the label decides, and not the order of the set
    return tuple(sorted(labels, key=lambda label: (int(label), label)))


def class_of(
    value: object,
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
        found=value_with_type(value),
        hint="remove such rows; if it is a class: "
        f"--set odd-classes={shlex.quote(name.strip())}",
    )


def _is_whole_number(value: object) -> TypeGuard[int | float]:
    """Whether a cell holds an integer, or a fraction without a rest."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # an integer may be larger than every float, which math.isfinite cannot take
    if isinstance(value, int):
        return True
    return math.isfinite(value) and value.is_integer()


def _class_at_index(index: int, value: object, names: tuple[str, ...]) -> str:
    """The declared class at an index; ``value`` is the cell, for messages."""
    if index < 0:
        raise _missing_label_error(value, names)
    if index >= len(names):
        raise _unusable_label_error(value, names)
    return names[index]


def _class_name(value: object, names: tuple[str, ...] | None, *, strip: bool) -> str:
    """The name of the class in a cell that is not the index of a declared class."""
    if value is None:
        raise _missing_label_error(value, names)
    if isinstance(value, str):
        refuse_byte_order_mark(value, "a label")
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


def names_of_array(
    labels: Sequence[Any], given_names: tuple[str, ...], *, are_texts: bool
) -> tuple[str, ...]:
    """The names of the classes of labels that another program made, in order.

    Args:
        labels: whole numbers from 0, or texts.
        given_names: the names that the user gives to the classes; may be empty.
        are_texts: whether the labels are texts.

    Raises:
        ConfigError: two classes have the same name, or one has none.
    """
    names = given_names
    if are_texts:
        names = names or class_order(set(labels))
    # classes that are numbers and have no names are called 0, 1, 2 and so on
    if not names:
        num_classes = min(max(labels, default=-1) + 1, MAX_NUM_CLASSES)
        names = tuple(map(str, range(num_classes)))
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(
            "class names must differ, and none be empty", found=", ".join(names)
        )
    return names


def refuse_fractions(name: str, dtype: str, shape: tuple[int, ...], where: str) -> None:
    """Refuse fractions as labels: a decoder would learn each number as a class.

    Args:
        name: of the array of labels.
        dtype: name of its type.
        shape: of the array.
        where: its file and name.
    """
    if dtype.startswith(("float", "bfloat")):
        raise DataError(
            f"the labels '{name}' are floating-point numbers: {NO_REGRESSION}",
            expected="classes: whole numbers from 0, or strings",
            found=f"{dtype} {shape}",
            where=where,
            hint="numbers of classes that were stored so: labels.astype(int)",
        )


def _missing_label_error(value: object, names: tuple[str, ...] | None) -> NoLabelError:
    """The error for a cell without a label; ``names`` are the declared classes."""
    return NoLabelError(
        "a label is missing or unusable",
        expected=_expected_label(names),
        found=value_with_type(value),
        hint="correct or remove the row, or name another column with --label-column",
    )


def _unusable_label_error(value: object, names: tuple[str, ...] | None) -> DataError:
    """The error for a cell that no class can be; ``names`` are the declared classes."""
    expected = _expected_label(names)
    return unusable_cell_error("a label is unusable", value, expected, "--label-column")


def _expected_label(names: tuple[str, ...] | None) -> str:
    """The labels that are valid, in words; ``names`` are the declared classes."""
    if not names:
        return "a class name or a number"
    return f"a class name or a number below {len(names)}"
