"""Lists of whole numbers as text: ``10``, ``0-31``, ``3,5,9``, ``1-8,12``, ``100,1k,all``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

MAX_NUMBERS = 100_000
"""Of one list of seeds or layers: a slip of the finger must not fill the memory."""


def parse_numbers(text: str) -> list[int]:
    """Read numbers and ranges separated by commas: ``1-8,12``, in the order given.

    Raises:
        ValueError: anything else.
    """
    text = text.replace(" ", "")
    if not re.fullmatch(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*,?", text, re.ASCII):
        raise ValueError("a list (3,5,9), a range (0-31), or both (1-8,12)")
    if padded := re.search(r"\b0\d+", text):
        # 1,000 is a thousand to most who write it, and would be 1 and 0
        raise ValueError(
            f"numbers without leading zeros, there is {padded[0]} (a comma parts two numbers, "
            "not the digits of one)"
        )
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"a range that rises: {last}-{first}")
        numbers += range(int(first), min(int(last or first), int(first) + MAX_NUMBERS) + 1)
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


def _each_once(numbers: list[int], what: str) -> tuple[int, ...]:
    if not numbers:
        raise ValueError(f"at least one {what}")
    if len(set(numbers)) != len(numbers):
        twice = next(n for n, count in Counter(numbers).most_common(1))
        raise ValueError(f"each {what} only once, {twice} is there twice")
    return tuple(sorted(numbers))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Read seeds: ``10`` is 0 to 9, ``0-31`` a range, ``3,5,9`` a list; these combine by commas.

    Several texts mean the same as one with commas between them: only a number that stands alone
    is a number of seeds.

    Raises:
        ValueError: anything else.
    """
    several = isinstance(value, (list, tuple))
    parts = list(value) if several else [value]
    if not all(_whole(part) or isinstance(part, str) for part in parts):
        raise ValueError("a number of seeds (10), a range (0-31) or a list (3,5,9)")
    if several and all(map(_whole, parts)):
        if any(not 0 <= seed < 10**9 for seed in parts):
            raise ValueError("seeds from 0 to 999999999")
        return _each_once(parts, "seed")
    text = ",".join(str(part).strip() for part in parts)
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        text = f"0-{int(text) - 1}" if int(text) else ""
    try:
        return _each_once(parse_numbers(text), "seed")
    except ValueError as error:
        raise ValueError(f"a number of seeds (10), or {error}") from None


def parse_layers(value: Any) -> tuple[int, ...]:
    """Read layer numbers: ``19,20,21``, ``19-21`` or ``1-8,12``; 0 is what layer 1 reads.

    Raises:
        ValueError: anything else.
    """
    several = isinstance(value, (list, tuple))
    layers = list(value) if several else parse_numbers(str(value))
    if not all(map(_whole, layers)) or any(layer < 0 for layer in layers):
        raise ValueError("layer numbers from 1 on, or 0 of a cache that has it")
    return _each_once(layers, "layer")


Sizes = tuple[int | str | None, ...]
"""Numbers of rows, or of rows of every class (``5/class``); None is all rows."""
PER_CLASS = "/class"
DRAWN_BY = ("train_rows", "shots")
"""Settings of a recipe that say how many of the training rows are learned from; not there: all."""


def parse_sizes(value: Any) -> Sizes:
    """Read numbers of rows, each from 1 on: ``100,1k,1_000,all,5/class``; None is all rows.

    Raises:
        ValueError: anything else.
    """
    several = isinstance(value, (list, tuple))
    parts: list[Any] = [
        one.strip() if isinstance(one, str) else one
        for part in (value if several else [value])
        for one in (part.split(",") if isinstance(part, str) else [part])
    ]
    sizes: list[int | str | None] = []
    number = rf"([1-9]\d{{0,2}}(?:_\d{{3}})+|[1-9]\d{{0,8}})(k?)({PER_CLASS})?"
    for part in parts:
        found = re.fullmatch(number, str(part), re.ASCII)
        if part is None or part == "all":
            sizes.append(None)
        elif _whole(part) and part > 0:
            sizes.append(int(part))
        elif isinstance(part, str) and found:
            rows = int(found[1]) * (1000 if found[2] else 1)
            sizes.append(f"{rows}{PER_CLASS}" if found[3] else rows)
        elif isinstance(part, str) and re.fullmatch(r"0\d\d", part, re.ASCII):
            # 1,000 is a thousand to most who write it, and would be 1 and 0
            raise ValueError(
                f"numbers without leading zeros, there is {part} (a comma parts two numbers, not "
                "the digits of one: 1_000 or 1k)"
            )
        else:
            raise ValueError(
                "numbers of rows from 1 on, all, or of every class: 100,1k,all,5/class"
            )
    return tuple(sizes)


def spell_size(size: int | str | None) -> str:
    """``100``, ``5/class`` or ``all``."""
    return "all" if size is None else str(size)


def budget_of(size: int | str | None) -> tuple[int | None, int | None]:
    """Rows of train, and rows of every class, as a recipe has them."""
    if isinstance(size, str):
        return None, int(size.removesuffix(PER_CLASS))
    return size, None


def spell_budget(train_rows: int | None, shots: int | None) -> str | None:
    """``1,000 rows`` or ``5 shots``, for people; None is all rows."""
    size = train_rows or shots
    return f"{size:,} {'shot' if shots else 'row'}{'s' * (size > 1)}" if size else None


Layers = tuple[int, ...] | None
"""Ascending layer numbers; None is all layers."""


def parse_layer_sets(value: Any) -> tuple[Layers, ...]:
    """Read one set of layers or several: ``19-21`` is one, ``["1-20", "21-40", "all"]`` are three.

    Numbers in a list are one set: ``[19, 20, 21]``.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, (list, tuple)) and not all(map(_whole, value)):
        return tuple(of for each in value for of in parse_layer_sets(each))
    if value is None or (isinstance(value, str) and value.strip() == "all"):
        return (None,)
    if isinstance(value, str) and value.strip().casefold() == "all":
        raise ValueError("layer numbers (1-8,12) or 'all': did you mean 'all'?")
    return (parse_layers(value),)


def spell_layers(layers: Layers) -> str:
    """``19-21``, or ``all``."""
    return "all" if layers is None else spell_numbers(layers)
