"""Settings that are lists, as text: ``10``, ``0-31``, ``1-8,12``, ``1e-4,3e-4``, ``100,1k,all``.

Every ``parse_`` raises ValueError with what must be there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral
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
_COMMA = "without leading zeros: a comma parts two numbers, not the digits of one"


def _pieces(value: Any) -> list[Any]:
    """What commas part, of one text or of several; what is no text is itself."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    each = (part.split(",") if isinstance(part, str) else [part] for part in parts)
    return [one.strip() if isinstance(one, str) else one for several in each for one in several]


def _are_whole(value: Any) -> bool:
    """Whether it is a list of whole numbers."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(one, Integral) and not isinstance(one, bool) for one in value
    )


def _each_once(numbers: Sequence[Any], what: str) -> tuple[int, ...]:
    found = sorted(map(int, numbers))
    if not found or found[0] < 0 or found[-1] >= 10**9:
        raise ValueError(f"at least one {what}, each from 0 to 999999999")
    if len(set(found)) < len(found):
        raise ValueError(f"each {what} only once")
    return tuple(found)


def parse_numbers(text: str) -> list[int]:
    """Numbers and ranges separated by commas: ``1-8,12``, in the order given."""
    text = text.replace(" ", "")
    if not re.fullmatch(rf"{_RANGE}(,{_RANGE})*,?", text, re.ASCII):
        raise ValueError(f"a list (3,5,9), a range (0-31), or both (1-8,12); {_COMMA}")
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
    if _are_whole(value):
        return _each_once(value, "seed")
    text = ",".join(map(str, _pieces(value)))
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        text = f"0-{int(text) - 1}"
    return _each_once(parse_numbers(text), "seed")


def parse_layers(value: Any) -> tuple[int, ...]:
    """Layer numbers: ``19,20,21``, ``19-21`` or ``1-8,12``; 0 is what layer 1 reads."""
    return _each_once(value if _are_whole(value) else parse_numbers(str(value)), "layer")


def parse_layer_sets(value: Any) -> tuple[Layers, ...]:
    """One set of layers or several: ``19-21`` is one, ``["1-20", "21-40", "all"]`` are three.

    Numbers in a list are one set: ``[19, 20, 21]``.
    """
    if isinstance(value, (list, tuple)) and not _are_whole(value):
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
            raise ValueError(f"numbers of rows, all, or of every class: 100,1k,5/class; {_COMMA}")
        rows = int(found[1]) * (1000 if found[2] else 1) if found else None
        sizes.append(f"{rows}{PER_CLASS}" if found and found[3] else rows)
    return tuple(sizes)


def parse_rates(value: Any) -> tuple[float, ...]:
    """One number or several: ``1e-4,3e-4``."""
    try:
        rates = tuple(float(str(one)) + 0.0 for one in _pieces(value))  # -0.0 is 0.0
    except ValueError:
        rates = ()
    if not rates:
        raise ValueError("a number, or several: 1e-4,3e-4")
    return rates


def parse_list(value: Any) -> tuple[str, ...]:
    """One spec or several; commas belong to the options of a spec and do not separate specs."""
    parts = (value,) if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a string, or a list of strings")
    return tuple(parts)


def parse_shuffle(value: Any) -> str:
    """``full``, or ``window:ROWS``."""
    if not re.fullmatch("full|window:[1-9][0-9]{,14}", str(value), re.ASCII):
        raise ValueError("full, or window:ROWS with 1 row or more, such as window:100000")
    return str(value)
