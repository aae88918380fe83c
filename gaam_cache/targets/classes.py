"""Classes: what a label is in a table, in a program and on disk.

In a table a label is the name of a class, or its number. Rows hold names. On disk a
label is a whole number: the position of its class in the plan's ``class_names``.

N rows.
"""

import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import (
    is_blank,
    is_missing_word,
    lookalike_warning,
    parse_list,
    refuse_byte_order_mark,
    unusable_cell_error,
    value_with_type,
)
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import excerpt, join_first
from gaam_cache.targets.base import (
    CLASSIFICATION,
    SKIP_HINT,
    DoubtfulLabelError,
    LabelColumns,
    NoLabelError,
    Target,
)

UNLABELLED = -1
"""Number on disk in place of the label of a row without one."""
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
"""Numbers that people write for a missing label. Where the number before it is a class
too, such a number is an ordinary class."""
NEGATIVE_NUMBER = re.compile(r"-0*[1-9]\d{0,17}(\.0*)?", re.ASCII)
DECIMAL_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE
)
NUMBERS_WITH_COMMAS = re.compile(r"\s*[+-]?\d+(,\s*\d+)+\s*", re.ASCII)
LOOKS_LIKE_NUMBERS = "the column looks like numbers"
TASKS_OF_NUMBERS = "--task regression, or --task classification"
MAX_NAMES_SHOWN = 10  # names in one message
MIN_DISTINCT_SHARE = 0.9
"""Whole numbers are quantities if there are more distinct ones than this share of the
rows. Classes have several rows each."""
MIN_ROWS_OF_QUANTITIES = 50
"""With fewer rows, distinct whole numbers do not prove that labels are quantities."""


class Classes(Target):
    """The classes of a data set: ``names``, in the order of their numbers."""

    kind = "classes"
    task = CLASSIFICATION
    dtype = "int64"

    def shape(self, num_rows: int) -> tuple[int, ...]:
        """Shape of the labels of some rows: one number a row."""
        return (num_rows,)

    def encode(self, labels: Sequence[str]) -> NDArray[np.int64]:
        """The number of every label, (N,); KeyError for a label that is no class."""
        numbers = [self._position_by_name[label] for label in labels]
        return np.array(numbers, np.int64)

    def encode_unlabelled(self, num_rows: int) -> NDArray[np.int64]:
        """-1 for every row, (N,)."""
        return np.full(num_rows, UNLABELLED, np.int64)

    def decode(self, values: Iterable[int]) -> list[str]:
        """The names of the classes with these numbers."""
        return [self.names[number] for number in values]

    def unknown_names(self, labels: Sequence[str]) -> set[str]:
        """The labels that are no class."""
        return set(labels) - set(self.names)

    def summary(self, values: NDArray[Any]) -> dict[str, Any]:
        """The number of rows of every class."""
        counts = np.bincount(values, minlength=len(self.names)).tolist()
        return {"rows_per_class": dict(zip(self.names, counts, strict=True))}

    def warnings(
        self, labels_by_split: Mapping[str, Sequence[str]], confirmed: Collection[str]
    ) -> Iterator[str]:
        """Yield a line for each doubt about the classes.

        Classes may be absent in a split, too many, alike, or words for a missing label.

        Args:
            labels_by_split: split -> the label of every row.
            confirmed: class names that the user has confirmed although they are odd.
        """
        yield from _class_warnings(labels_by_split, self.names)
        yield from _doubtful_class_warning(labels_by_split, confirmed)

    @classmethod
    def from_labels(
        cls, labels: Sequence[str], declared: tuple[str, ...] | None
    ) -> Self:
        """The declared classes, or else the distinct labels in ``class_order``."""
        return cls(declared or class_order(set(labels)))

    @classmethod
    def strata(cls, labels: Sequence[str]) -> Sequence[str]:
        """The strata of classes are the classes."""
        return labels

    @classmethod
    def read(cls, record: Mapping[str, Any], columns: LabelColumns) -> str:
        """The class that the only label column names; see ``class_of``."""
        [column] = columns.names
        return class_of(
            record[column],
            columns.declared_names,
            strip=columns.strip,
            confirmed_classes=columns.confirmed_classes,
        )


def class_order(labels: set[str]) -> tuple[str, ...]:
    """Sort class names: by their numbers if all are numbers, else by the alphabet.

    This is for sources that declare no order of their classes.
    """
    if not all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in labels):
        return tuple(sorted(labels))
    # '1' and '01' are one number: then the text decides, for a set has no fixed order
    return tuple(sorted(labels, key=lambda label: (int(label), label)))


def class_of(
    value: object,
    names: tuple[str, ...] | None,
    *,
    strip: bool = False,
    confirmed_classes: Collection[str] = (),
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
        confirmed_classes: classes that the user has confirmed, although their names
            often stand for a missing label.

    Returns:
        The name of the class. Equal names are the same object.

    Raises:
        NoLabelError: the label is missing, or its name often stands for a missing one;
            DoubtfulLabelError if it is a negative number.
        DataError: the value cannot be a label.
    """
    # millions of rows share few classes, so memory holds each name once
    if names is not None and _is_whole_number(value):
        return sys.intern(_class_at_index(int(value), value, names))
    name = _class_name(value, names, strip=strip)
    confirmed_spellings = map(normal_spelling, confirmed_classes)
    if not is_odd(name) or normal_spelling(name) in confirmed_spellings:
        return sys.intern(name)

    error_class = NoLabelError
    remedy = SKIP_HINT
    if not is_missing_word(name):
        error_class = DoubtfulLabelError
        remedy = "remove such rows"
    raise error_class(
        "a label may stand for a missing label",
        expected="a class; negative numbers, and words such as nan, often mean that "
        "there is no label",
        found=value_with_type(value),
        hint=f"{remedy}; if it is a class: "
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
    """The declared class at an index.

    Args:
        index: the number in a cell of the label column.
        value: the cell itself, for messages.
        names: the declared classes.

    Raises:
        DataError: there is no class at the index; NoLabelError if it is negative.
    """
    if index < 0:
        raise _missing_label_error(value, names)
    if index >= len(names):
        raise _unusable_label_error(value, names)
    return names[index]


def _class_name(value: object, names: tuple[str, ...] | None, *, strip: bool) -> str:
    """The name of the class in a cell: its text, or the text of its number.

    Args:
        value: the cell; it is not the index of a declared class.
        names: the declared classes, for messages; None if none are declared.
        strip: remove white space around the name.

    Raises:
        NoLabelError: the cell is empty, blank or NaN.
        DataError: the cell holds something that cannot be the name of a class.
    """
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
    """Whether a name is odd: programs write it for a missing label, as -1 or 'nan'."""
    # the first character is fast to look at, and rules out nearly every name
    if name[0] not in "-nN<#\\ \t":
        return False
    return is_missing_word(name) or NEGATIVE_NUMBER.fullmatch(name.strip()) is not None


def is_doubtful(name: str, classes: Collection[str]) -> bool:
    """Whether a name is doubtful: people or programs write it for a missing label.

    People write 'unknown' or 99. Names that programs write, such as 'nan', are odd, see
    ``is_odd``.

    Args:
        name: the name.
        classes: the names of all classes.
    """
    # a code such as 99 is an ordinary class if it continues a sequence: 97, 98, 99
    if name in MISSING_CODES:
        number_before = str(int(name) - 1)
        return number_before not in classes
    return name.casefold().strip(OUTER_CHARACTERS) in DOUBTFUL_WORDS or is_odd(name)


def doubtful_names(names: Collection[str], confirmed: Iterable[str]) -> list[str]:
    """The doubtful names, see ``is_doubtful``, that the user has not confirmed."""
    confirmed_spellings = set(map(normal_spelling, confirmed))
    return [
        name
        for name in names
        if is_doubtful(name, names) and normal_spelling(name) not in confirmed_spellings
    ]


def is_number(name: str) -> bool:
    """Whether the name of a class is a number."""
    return DECIMAL_NUMBER.fullmatch(name) is not None


def normal_spelling(name: str) -> str:
    """The same text for all spellings of an odd class name.

    'NaN' and 'nan' give 'nan'; '-1' and '-1.0' give '-1'.
    """
    word = name.strip().casefold()
    if NEGATIVE_NUMBER.fullmatch(word):
        return str(int(float(word)))
    return word


def refuse_quantities(
    labels: Sequence[str],
    origin: str,
    *,
    sampled: bool = False,
    confirmed_classes: Collection[str] = (),
) -> None:
    """Refuse labels that are lists, or quantities such as prices, rather than classes.

    Labels are quantities in two cases. All are numbers and some have a fraction. Or all
    are whole numbers with gaps between them, and nearly every row has its own number.

    Args:
        labels: the label of every row that was read.
        origin: where the labels are from, for messages.
        sampled: whether ``--limit`` chose the rows. A limit takes few rows of each of
            many classes, so many distinct labels then prove nothing.
        confirmed_classes: labels that the user has confirmed as classes.

    Raises:
        DataError: the labels are lists or quantities.
    """
    # confirmed classes may be any numbers: only the other labels are examined
    confirmed_spellings = set(map(normal_spelling, confirmed_classes))
    distinct_labels = [
        label
        for label in dict.fromkeys(labels)
        if normal_spelling(label) not in confirmed_spellings
    ]
    _refuse_lists(distinct_labels, origin)
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
        f"the labels are {kind}: {LOOKS_LIKE_NUMBERS}",
        expected="classes: words, or whole numbers that many rows share",
        found=f"{len(distinct_labels):,} different numbers in {len(labels):,} rows: "
        f"{', '.join(distinct_labels[:3])}, ...",
        where=origin,
        hint=f"{TASKS_OF_NUMBERS}; --label-column names another column",
    )


def _refuse_lists(distinct_labels: Sequence[str], origin: str) -> None:
    """Refuse labels that are lists, or numbers with commas: each would be a class.

    Args:
        distinct_labels: the labels.
        origin: where they are from, for messages.
    """
    lists = [label for label in distinct_labels if parse_list(label) is not None]
    if lists:
        raise DataError(
            "a label is a list",
            expected="the name of one class",
            found=excerpt(lists[0]),
            where=origin,
            hint="lists of names: --task multi-label; --task classification takes each "
            "list for a class",
        )
    with_commas = list(filter(NUMBERS_WITH_COMMAS.fullmatch, distinct_labels))
    num_numbers = sum(map(is_number, distinct_labels))
    if with_commas and len(with_commas) + num_numbers == len(distinct_labels):
        raise DataError(
            "the labels are numbers with commas",
            expected="classes: words, or whole numbers",
            found=excerpt(with_commas[0]),
            where=origin,
            hint="several labels in a cell: --task multi-label --set "
            "label-separator=','; numbers: write 0.5 or 1234; classes: --task "
            "classification",
        )


def _are_quantities(numbers: Sequence[float], num_rows: int) -> bool:
    """Whether distinct whole numbers are too many, and too far apart, to be classes.

    Args:
        numbers: the distinct labels.
        num_rows: number of rows that have them.
    """
    if num_rows < MIN_ROWS_OF_QUANTITIES:
        return False
    if len(numbers) <= MIN_DISTINCT_SHARE * num_rows:
        return False
    # classes are usually numbered without gaps; here at least half of the range is gaps
    return max(numbers) - min(numbers) >= 2 * len(numbers)


def names_of_array(
    labels: Sequence[Any], given_names: tuple[str, ...], *, are_texts: bool
) -> tuple[str, ...]:
    """The names of the classes, in order, for labels that another program made.

    Args:
        labels: the label of every row: whole numbers from 0, or texts.
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
    """Refuse an array of floating-point numbers as the labels of classes.

    A decoder would learn each number as a class of its own.

    Args:
        name: name of the array.
        dtype: name of its type.
        shape: its shape, for the message.
        where: its file and name, for the message.
    """
    if dtype.startswith(("float", "bfloat")):
        raise DataError(
            f"the labels '{name}' are floating-point numbers, and no classes",
            expected="classes: whole numbers from 0, or strings",
            found=f"{dtype} {shape}",
            where=where,
            hint="--task regression; numbers of classes that were stored so: "
            "labels.astype(int)",
        )


def _missing_label_error(value: object, names: tuple[str, ...] | None) -> NoLabelError:
    """The error for a cell without a label; ``names`` are the declared classes."""
    return NoLabelError(
        "a label is missing or unusable",
        expected=_expected_label(names),
        found=value_with_type(value),
        hint=f"{SKIP_HINT}; --label-column names another column",
    )


def _unusable_label_error(value: object, names: tuple[str, ...] | None) -> DataError:
    """The error for a cell that names no class; ``names`` are the declared classes."""
    expected = _expected_label(names)
    return unusable_cell_error("a label is unusable", value, expected, "--label-column")


def _expected_label(names: tuple[str, ...] | None) -> str:
    """The labels that are valid, in words; ``names`` are the declared classes."""
    if not names:
        return "a class name or a number"
    return f"a class name or a number below {len(names)}"


def _class_warnings(
    labels_by_split: Mapping[str, Sequence[str]], class_names: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each doubt about the set of classes.

    There may be a single class, classes without rows in a split, too many classes for
    the rows, or names that look alike.

    Args:
        labels_by_split: split -> the label of every row.
        class_names: the names of all classes.
    """
    if len(class_names) == 1:
        label = excerpt(class_names[0])
        yield f"every row has the label {label}: a decoder has nothing to learn"
        return

    lowest = _lowest_number(labels_by_split, class_names)
    if lowest:
        have = "class 0 has" if lowest == 1 else f"classes 0 to {lowest - 1} have"
        yield (
            f"the lowest label is {lowest}, but labels count from 0: {have} no row in "
            f"any split; if yours count from {lowest}, pass labels - {lowest}, or "
            "labels.astype(str)"
        )

    # the line above is about the classes before the lowest label
    for split, labels in labels_by_split.items():
        present = set(labels)
        absent = [
            excerpt(label) for label in class_names[lowest:] if label not in present
        ]
        if absent:
            shown_names = join_first(absent, MAX_NAMES_SHOWN)
            yield (
                f"'{split}' has no row of {len(absent):,} of {len(class_names):,} "
                f"classes ({shown_names}): its accuracy says nothing of them"
            )

    # a column of names or texts has nearly as many values as rows
    num_rows = sum(map(len, labels_by_split.values()))
    if len(class_names) > MAX_NAMES_SHOWN and 2 * len(class_names) > num_rows:
        examples = join_first(list(map(excerpt, class_names)), 3)
        yield (
            f"{len(class_names):,} classes for {num_rows:,} rows ({examples}): is that "
            "the column of labels?"
        )

    yield from lookalike_warning(class_names, "classes")


def _lowest_number(
    labels_by_split: Mapping[str, Sequence[str]], class_names: Sequence[str]
) -> int:
    """The lowest number that is a label; 0 where classes are not named 0, 1, 2, ...

    Args:
        labels_by_split: split -> the label of every row.
        class_names: the names of all classes.
    """
    if list(class_names) != list(map(str, range(len(class_names)))):
        return 0
    present = set[str]().union(*labels_by_split.values())
    return next(
        (number for number, name in enumerate(class_names) if name in present), 0
    )


def _doubtful_class_warning(
    labels_by_split: Mapping[str, Sequence[str]], confirmed: Collection[str]
) -> Iterator[str]:
    """Yield one line if names of classes are words that often mean a missing label.

    Args:
        labels_by_split: split -> the label of every row.
        confirmed: names that the user has confirmed as classes.
    """
    counts = Counter(label for labels in labels_by_split.values() for label in labels)
    doubtful = [
        f"{excerpt(name)} (rows: {counts[name]:,})"
        for name in doubtful_names(counts, confirmed)
    ]
    if doubtful:
        yield (
            "these classes may stand for a missing label; if so, remove their rows: "
            f"{join_first(doubtful, MAX_NAMES_SHOWN)}"
        )
