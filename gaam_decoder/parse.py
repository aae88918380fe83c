"""How the settings of a training are read where they are not plain numbers or words."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any


def parse_list(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """One spec or several; commas belong to the options of a spec and do not separate specs.

    Raises:
        ValueError: anything else.
    """
    parts = (value,) if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a string, or a list of strings")
    return tuple(parts)


def parse_pools(value: Any) -> tuple[str | None, ...]:
    """Read one pooling or several: ``mean,last``; None is the first in the cache.

    Raises:
        ValueError: anything else.
    """
    if value is None or value == (None,):
        return (None,)
    pools = tuple(pool for part in parse_list(value) for pool in part.split(","))
    if not all(pools):
        raise ValueError("the name of a pooling, or several: mean,last")
    return pools


def parse_groups(value: Any) -> str:
    """The name of a kept column, or a file; a ``Path`` is a file, whatever its name.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, PurePath):
        return str(value) if len(value.parts) > 1 else f"./{value}"
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a kept column, or a file")
    return value


def parse_rates(value: Any) -> tuple[float, ...]:
    """Read one number or several: ``1e-4,3e-4``.

    Raises:
        ValueError: anything else.
    """
    parts = value if isinstance(value, (list, tuple)) else [value]
    pieces = [
        one for part in parts for one in (part.split(",") if isinstance(part, str) else [part])
    ]
    try:
        if any(isinstance(piece, bool) for piece in pieces):
            raise TypeError
        rates = tuple(float(piece) + 0.0 for piece in pieces)  # -0.0 is 0.0
    except (TypeError, ValueError, OverflowError):
        rates = ()
    if not rates:
        raise ValueError("a number, or several: 1e-4,3e-4")
    return rates


def parse_shuffle(value: Any) -> str:
    """Read ``full``, or ``window:ROWS`` in its one spelling.

    Raises:
        ValueError: anything else.
    """
    if value == "full":
        return "full"
    found = re.fullmatch("window:0*([1-9][0-9]{,14})", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("full, or window:ROWS with 1 row or more, such as window:100000")
    return f"window:{found[1]}"


def window_of(shuffle: str) -> int | None:
    """ROWS of ``window:ROWS``; None for ``full``."""
    return None if shuffle == "full" else int(shuffle.partition(":")[2])


def parse_seed_batch(value: str | int | None) -> int | None:
    """Read ``auto`` (None) or a number.

    Raises:
        ValueError: anything else.
    """
    if value in ("auto", None):
        return None
    try:
        return int(str(value))  # of True or 1.5 there is none
    except ValueError:
        raise ValueError("auto or a number") from None
