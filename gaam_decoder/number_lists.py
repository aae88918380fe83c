"""Settings that are lists, as text: ``10``, ``0-31``, ``1-8,12``, ``1e-4,3e-4``, ``100,1k,all``.

Every ``parse_`` raises ValueError with what must be there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import PurePath
from typing import Any

MAX_NUMBERS = 100_000
"""Of one list of seeds or layers: a slip of the finger must not fill the memory."""
PER_CLASS = "/class"
DRAWN_BY = ("train_rows", "shots")
"""Settings of a recipe that say how many of the training rows are learned from; not there: all."""
Layers = tuple[int, ...] | None
"""Ascending layer numbers; None is all layers."""
Sizes = tuple[int | str | None, ...]
"""Numbers of rows, or of rows of every class (``5/class``); None is all rows."""
_RANGE = r"(0|[1-9]\d{0,8})(-(0|[1-9]\d{0,8}))?"
_SIZE = rf"([1-9]\d{{0,2}}(?:_\d{{3}})+|[1-9]\d{{0,8}})(k?)({PER_CLASS})?"


def _pieces(value: Any) -> list[Any]:
    """What commas part, of one text or of several; what is no text is itself."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    each = (part.split(",") if isinstance(part, str) else [part] for part in parts)
    return [one.strip() if isinstance(one, str) else one for several in each for one in several]


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _each_once(numbers: Iterable[Any], what: str) -> tuple[int, ...]:
    counts = Counter(map(int, numbers))
    if not counts or min(counts) < 0 or max(counts) >= 10**9:
        raise ValueError(f"at least one {what}, each from 0 to 999999999")
    twice, count = counts.most_common(1)[0]
    if count > 1:
        raise ValueError(f"each {what} only once, {twice} is there twice")
    return tuple(sorted(counts))


def parse_numbers(text: str) -> list[int]:
    """Numbers and ranges separated by commas: ``1-8,12``, in the order given."""
    text = text.replace(" ", "")
    if not re.fullmatch(rf"{_RANGE}(,{_RANGE})*,?", text, re.ASCII):
        raise ValueError(
            "a list (3,5,9), a range (0-31), or both (1-8,12); without leading zeros: a comma "
            "parts two numbers, not the digits of one"
        )
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, last = (int(end) for end in (part.partition("-")[0], part.rpartition("-")[2]))
        if last < first:
            raise ValueError(f"a range that rises: {last}-{first}")
        numbers += range(first, min(last, first + MAX_NUMBERS) + 1)
        if len(numbers) > MAX_NUMBERS:
            raise ValueError(f"at most {MAX_NUMBERS:,} numbers")
    return numbers


def spell_numbers(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``parse_numbers`` reads them, as short as can be: ``1-8,12``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Seeds: ``10`` is 0 to 9, ``0-31`` a range, ``3,5,9`` a list; several texts are one list."""
    several = isinstance(value, (list, tuple))
    if several and all(map(_whole, value)):
        return _each_once(value, "seed")
    text = ",".join(str(part).strip() for part in (value if several else [value]))
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        text = f"0-{int(text) - 1}"
    try:
        return _each_once(parse_numbers(text), "seed")
    except ValueError as error:
        raise ValueError(f"a number of seeds (10), or {error}") from None


def parse_layers(value: Any) -> tuple[int, ...]:
    """Layer numbers: ``19,20,21``, ``19-21`` or ``1-8,12``; 0 is what layer 1 reads."""
    layers = list(value) if isinstance(value, (list, tuple)) else parse_numbers(str(value))
    if not all(map(_whole, layers)):
        raise ValueError("layer numbers from 1 on, or 0 of a cache that has it")
    return _each_once(layers, "layer")


def parse_layer_sets(value: Any) -> tuple[Layers, ...]:
    """One set of layers or several: ``19-21`` is one, ``["1-20", "21-40", "all"]`` are three.

    Numbers in a list are one set: ``[19, 20, 21]``.
    """
    if isinstance(value, (list, tuple)) and not all(map(_whole, value)):
        return tuple(of for each in value for of in parse_layer_sets(each))
    return (None,) if value is None or str(value).strip() == "all" else (parse_layers(value),)


def spell_layers(layers: Layers) -> str:
    """``19-21``, or ``all``."""
    return "all" if layers is None else spell_numbers(layers)


def parse_sizes(value: Any) -> Sizes:
    """Numbers of rows, each from 1 on: ``100,1k,1_000,all,5/class``; None is all rows."""
    sizes: list[int | str | None] = []
    for part in _pieces(value):
        found = re.fullmatch(_SIZE, str(part), re.ASCII)
        if found is None and part not in (None, "all"):
            raise ValueError(
                "numbers of rows from 1 on, all, or of every class: 100,1k,all,5/class; without "
                "leading zeros: 1,000 would be two numbers, write 1_000 or 1k"
            )
        rows = int(found[1]) * (1000 if found[2] else 1) if found else None
        sizes.append(f"{rows}{PER_CLASS}" if found and found[3] else rows)
    return tuple(sizes)


def budget_of(size: int | str | None) -> tuple[int | None, int | None]:
    """Rows of train, and rows of every class, as a recipe has them."""
    if isinstance(size, str):
        return None, int(size.removesuffix(PER_CLASS))
    return size, None


def parse_rates(value: Any) -> tuple[float, ...]:
    """One number or several: ``1e-4,3e-4``."""
    try:
        if not (parts := _pieces(value)) or any(isinstance(one, bool) for one in parts):
            raise TypeError
        return tuple(float(one) + 0.0 for one in parts)  # -0.0 is 0.0
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a number, or several: 1e-4,3e-4") from None


def parse_list(value: Any) -> tuple[str, ...]:
    """One spec or several; commas belong to the options of a spec and do not separate specs."""
    parts = (value,) if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a string, or a list of strings")
    return tuple(parts)


def parse_pools(value: Any) -> tuple[str | None, ...]:
    """One pooling or several: ``mean,last``; None is the first in the cache."""
    pools = _pieces(value)
    if pools != [None] and not all(isinstance(pool, str) and pool for pool in pools):
        raise ValueError("the name of a pooling, or several: mean,last")
    return tuple(pools)


def parse_groups(value: Any) -> str:
    """The name of a kept column, or a file; a ``Path`` is a file, whatever its name."""
    if isinstance(value, PurePath):
        return str(value) if len(value.parts) > 1 else f"./{value}"
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a kept column, or a file")
    return value


def parse_shuffle(value: Any) -> str:
    """``full``, or ``window:ROWS`` in its one spelling."""
    found = re.fullmatch("full|window:0*([1-9][0-9]{,14})", str(value))
    if found is None:
        raise ValueError("full, or window:ROWS with 1 row or more, such as window:100000")
    return f"window:{found[1]}" if found[1] else "full"


def parse_seed_batch(value: Any) -> int | None:
    """``auto`` (None) or a number."""
    try:
        return None if value in ("auto", None) else int(str(value))  # of True or 1.5 there is none
    except ValueError:
        raise ValueError("auto or a number") from None
