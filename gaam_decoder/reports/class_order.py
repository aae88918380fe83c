"""The order of classes, for scores of how far a prediction is from its label."""

import math
from collections.abc import Sequence

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief

OPTION = "--class-order"


def parse_order(order: str | Sequence[str]) -> tuple[str, ...]:
    """The names of a person: with commas between them, or as a sequence."""
    names = order.split(",") if isinstance(order, str) else order
    return tuple(name.strip() for name in names)


def class_places(names: Sequence[str], order: Sequence[str] = ()) -> tuple[int, ...]:
    """The place of every class, from 0: by ``order``, else by their numbers.

    Args:
        names: of the classes.
        order: the same names, the lowest first; empty: all names are numbers.

    Raises:
        ConfigError: the order lacks a class or has another, or it is missing and a
            class is no number.
    """
    if order:
        if sorted(order) != sorted(names):
            raise ConfigError(
                f"{OPTION} does not name every class once",
                expected=f"all of: {', '.join(map(brief, names))}",
                found=", ".join(map(brief, order)),
            )
        return tuple(order.index(name) for name in names)

    values = [_number(name) for name in names]
    if any(math.isnan(value) for value in values):
        raise ConfigError(
            "this score needs the order of the classes, and words have none",
            expected=f"{OPTION} with all classes, the lowest first",
            found=", ".join(map(brief, names)),
            hint=f"{OPTION} LOW,MIDDLE,HIGH",
        )
    ascending = sorted(set(values))
    return tuple(ascending.index(value) for value in values)


def _number(name: str) -> float:
    """The number that a name spells; NaN for a word."""
    try:
        value = float(name)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
