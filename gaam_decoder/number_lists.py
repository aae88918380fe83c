"""Read settings that are lists: ``10``, ``0-31``, ``1-8,12``, ``1e-4``, ``100,1k,all``.

Every ``parse_`` function raises a ValueError that says what it expects. It returns its
own results unchanged.
"""

import re
from collections.abc import Sequence
from typing import Any

MOST_NUMBERS = 100_000
"""Numbers of one range."""
PER_CLASS = "/class"
DRAWN_BY = ("train_rows", "shots")
"""Settings of a recipe for the number of training rows; without them, all rows."""
EACH = "each"
Layers = tuple[int, ...] | None
"""Layer numbers, ascending; None is all layers."""
LayerSets = tuple[Layers | str, ...]
"""Sets of layers; ``EACH`` stands for one set per layer of the cache."""
Sizes = tuple[int | str | None, ...]
"""Numbers of rows, in all or of every class (``5/class``); None is all rows."""
_NUMBER = r"(?:0|[1-9]\d{0,8})"
_NUMBER_OR_RANGE = re.compile(
    rf"(?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))?", re.ASCII
)
_SIZE = re.compile(
    rf"(?P<rows>[1-9]\d{{0,8}})(?P<thousands>k?)(?P<per_class>{PER_CLASS})?", re.ASCII
)


def _split_commas(value: object) -> list[object]:
    """The parts of one text or of several, separated by commas; other values as is."""
    values = value if isinstance(value, (list, tuple)) else [value]
    parts: list[object] = []
    for entry in values:
        if isinstance(entry, str):
            parts += entry.replace(" ", "").split(",")
        else:
            parts.append(entry)
    return parts


def parse_numbers(value: Any) -> tuple[int, ...]:
    """Read numbers and ranges, ``1-8,12``, of a text or a list: ascending, unique."""
    numbers: set[int] = set()
    for part in _split_commas(value):
        match = _NUMBER_OR_RANGE.fullmatch(str(part))
        if match is None:
            # Leading zeros are refused: '1,000' would be the numbers 1 and 0.
            raise ValueError(
                "a list (3,5,9), a range (0-31), or both (1-8,12), no leading zeros"
            )
        first = int(match["first"])
        last = int(match["last"] or match["first"])
        if not first <= last < first + MOST_NUMBERS:
            raise ValueError(f"a range that rises, of at most {MOST_NUMBERS:,} numbers")
        numbers.update(range(first, last + 1))
    if not numbers:
        raise ValueError("at least one number")
    return tuple(sorted(numbers))


def spell_numbers(numbers: Sequence[int]) -> str:
    """The shortest text that ``parse_numbers`` reads as these ascending numbers."""
    # the first and the last number of each range
    firsts: list[int] = []
    lasts: list[int] = []
    for number in numbers:
        continues_range = bool(lasts) and number == lasts[-1] + 1
        if continues_range:
            lasts[-1] = number
        else:
            firsts.append(number)
            lasts.append(number)
    parts = [
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return ",".join(parts)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Read seeds: ``10`` is 0 to 9, ``0-31`` a range, ``3,5,9`` a list.

    Several texts are one list. A list of one integer is that seed.
    """
    # 10 and "10" are a number of seeds, as is ["10"]; [10] is the seed 10
    possible_count = value
    if isinstance(value, (list, tuple)):
        is_one_text = len(value) == 1 and isinstance(value[0], str)
        possible_count = value[0] if is_one_text else None
    if re.fullmatch(r"\d{1,9}", str(possible_count), re.ASCII):
        if int(possible_count) == 0:
            raise ValueError("at least one seed")
        return parse_numbers(f"0-{int(possible_count) - 1}")
    return parse_numbers(value)


def parse_layer_sets(value: object) -> LayerSets:
    """Read sets of layers: ``19-21`` is one, ``["1-20", "21-40", "all"]`` are three.

    A list of numbers is one set: ``[19, 20, 21]``. ``each`` is every layer by itself.
    """
    if isinstance(value, (list, tuple)):
        is_one_set = all(isinstance(entry, int) for entry in value)
        if not is_one_set:
            return tuple(
                layers for entry in value for layers in parse_layer_sets(entry)
            )
    if value in (None, "all"):
        return (None,)
    if value == EACH:
        return (EACH,)
    try:
        return (parse_numbers(value),)
    except ValueError as error:
        raise ValueError(f"{error}; or all, or each") from None


def parse_sizes(value: object) -> Sizes:
    """Read numbers of rows, each from 1: ``100,1k,all,5/class``; None is all rows."""
    return tuple(_parse_size(part) for part in _split_commas(value))


def _parse_size(part: object) -> int | str | None:
    """Read one number of rows: ``100``, ``1k``, ``5/class``; None is all rows."""
    match = _SIZE.fullmatch(str(part))
    if match is None:
        if part in (None, "all"):
            return None
        raise ValueError("numbers of rows, all, or of every class: 100,1k,5/class")
    rows = int(match["rows"])
    if match["thousands"]:
        rows *= 1000
    return f"{rows}{PER_CLASS}" if match["per_class"] else rows


def parse_rates(value: object) -> tuple[float, ...]:
    """Read one number or several: ``1e-4,3e-4``."""
    try:
        numbers = [float(str(part)) for part in _split_commas(value)]
    except ValueError:
        raise ValueError("a number, or several: 1e-4,3e-4") from None
    # a number that is written twice, such as 0.01 and 1e-2, is one
    return tuple(dict.fromkeys(numbers))


def parse_shuffle(value: object) -> str:
    """Read ``full``, or ``window:ROWS``."""
    if not re.fullmatch("full|window:[1-9][0-9]{,14}", str(value)):
        raise ValueError("full, or window:ROWS, such as window:100000")
    return str(value)
