"""Settings that are lists, as text: ``10``, ``0-31``, ``1-8,12``, ``1e-4,3e-4``, ``100,1k,all``.

Every ``parse_`` raises ValueError with what must be there, and leaves alone what it made.
"""

import re
from collections.abc import Sequence
from typing import Any

MOST_NUMBERS = 100_000  # of one range
PER_CLASS = "/class"
DRAWN_BY = ("train_rows", "shots")
"""Settings of a recipe that say how many of the training rows are learned from; not there: all."""
EACH = "each"
Layers = tuple[int, ...] | None  # ascending layer numbers; None is all layers
LayerSets = tuple[Layers | str, ...]
"""Sets of layers; ``EACH`` stands for one set for every layer, whose numbers a cache knows."""
Sizes = tuple[int | str | None, ...]
"""Numbers of rows, or of rows of every class (``5/class``); None is all rows."""
_NUMBER = r"(0|[1-9]\d{0,8})"


def _several(value: Any) -> list[Any]:
    """What commas part, of one text or of several; what is no text is itself."""
    values = value if isinstance(value, (list, tuple)) else [value]
    each = (
        one.replace(" ", "").split(",") if isinstance(one, str) else [one]
        for one in values
    )
    return [part for parts in each for part in parts]


def parse_numbers(value: Any) -> tuple[int, ...]:
    """Numbers and ranges, ``1-8,12``, in a text or a list: ascending, each once."""
    numbers: set[int] = set()
    for part in _several(value):
        found = re.fullmatch(f"{_NUMBER}(-{_NUMBER})?", str(part), re.ASCII)
        if found is None:  # of 1,000 too, which would be 1 and 0
            raise ValueError(
                "a list (3,5,9), a range (0-31), or both (1-8,12), no leading zeros"
            )
        first, last = int(found[1]), int(found[3] or found[1])
        if not first <= last < first + MOST_NUMBERS:
            raise ValueError(f"a range that rises, of at most {MOST_NUMBERS:,} numbers")
        numbers |= set(range(first, last + 1))
    if not numbers:
        raise ValueError("at least one number")
    return tuple(sorted(numbers))


def spell_numbers(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``parse_numbers`` reads them, as short as can be: ``1-8,12``."""
    parts: list[list[int]] = []
    for number in numbers:
        if not parts or number > parts[-1][-1] + 1:
            parts.append([])
        parts[-1][1:] = [number]
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Seeds: ``10`` is 0 to 9, ``0-31`` a range, ``3,5,9`` a list; several texts are one list."""
    alone = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    how_many = isinstance(alone, str) or alone is value
    if how_many and re.fullmatch(r"\d{1,9}", str(alone), re.ASCII):
        return parse_numbers(f"0-{int(alone) - 1}")
    return parse_numbers(value)


def parse_layer_sets(value: Any) -> LayerSets:
    """One set of layers or several: ``19-21`` is one, ``["1-20", "21-40", "all"]`` are three.

    Numbers in a list are one set: ``[19, 20, 21]``. ``each`` is every layer by itself.
    """
    if isinstance(value, (list, tuple)) and not all(
        isinstance(one, int) for one in value
    ):
        return tuple(layers for each in value for layers in parse_layer_sets(each))
    if value in (None, "all"):
        return (None,)
    if value == EACH:
        return (EACH,)
    try:
        return (parse_numbers(value),)
    except ValueError as error:
        raise ValueError(f"{error}; or all, or each") from None


def parse_sizes(value: Any) -> Sizes:
    """Numbers of rows, each from 1 on: ``100,1k,all,5/class``; None is all rows."""
    sizes: list[int | str | None] = []
    for part in _several(value):
        found = re.fullmatch(
            rf"([1-9]\d{{0,8}})(k?)({PER_CLASS})?", str(part), re.ASCII
        )
        if found is None and part not in (None, "all"):
            raise ValueError("numbers of rows, all, or of every class: 100,1k,5/class")
        rows = int(found[1]) * (1000 if found[2] else 1) if found else None
        sizes.append(f"{rows}{PER_CLASS}" if found and found[3] else rows)
    return tuple(sizes)


def parse_rates(value: Any) -> tuple[float, ...]:
    """One number or several: ``1e-4,3e-4``."""
    try:
        return tuple(float(str(one)) for one in _several(value))
    except ValueError:
        raise ValueError("a number, or several: 1e-4,3e-4") from None


def parse_shuffle(value: Any) -> str:
    """``full``, or ``window:ROWS``."""
    if not re.fullmatch("full|window:[1-9][0-9]{,14}", str(value)):
        raise ValueError("full, or window:ROWS, such as window:100000")
    return str(value)
