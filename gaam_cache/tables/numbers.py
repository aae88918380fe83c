"""Numbers of JSON as they are spelled, and whether a type has all digits of one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

EXACT = 2**53
"""Whole numbers up to this one are themselves in float64."""
DEEPEST = 100
"""Arrays and objects within one another: what the stack of a thread always has room for."""
SAFE_DIGITS = 15
"""Every number of so many digits can be had back from float64 (DBL_DIG of C), if it is neither as
large nor as small as ``SAFE_RANGE``."""
SAFE_RANGE = (1e-300, 1e300)
"""Inside of the normal numbers of float64, 2.2e-308 to 1.8e308."""
MOST_DIGITS = 800
"""No float64 has more than 767 digits: of a longer number some are lost."""
CONSTANTS = ("NaN", "Infinity", "-Infinity")
"""What Python writes for numbers that JSON does not have."""
_ZEROS = re.compile(r"\A0+|0+\Z")


class Number:
    """A number as it stands in a file: no digit is lost, and none is computed."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        """As it is spelled."""
        return self.text

    @property
    def finite(self) -> bool:
        """Whether JSON has it."""
        return self.text not in CONSTANTS

    @property
    def kind(self) -> str:
        """What has it: 'whole' is in float64 too, 'long' in int64 alone, 'number' in float64.

        'too large' and 'too precise' are in neither.
        """
        if not self.finite or self.text == "-0":  # int64 has no sign of zero
            return "number"
        if self.text.lstrip("-").isdigit():
            size = abs(int(self.text)) if len(self.text) <= 20 else math.inf
            return "whole" if size <= EXACT else "long" if size < 2**63 else "too large"
        if math.isinf(float(self.text)):
            return "too large"
        return "number" if _in_float64(self.text) else "too precise"


def _in_float64(text: str) -> bool:
    """Whether all digits of a number can be had back from the float64 next to it."""
    value = abs(float(text))
    digits = _digits(text.lower().partition("e")[0])
    if not value or not digits:
        return not digits
    if len(digits) <= SAFE_DIGITS and SAFE_RANGE[0] < value < SAFE_RANGE[1]:
        return True
    # the other way round, correctly rounded to as many digits
    back = f"{value:.{len(digits) - 1}e}" if len(digits) <= MOST_DIGITS else ""
    return _digits(back.partition("e")[0]) == digits and float(back) == value


def _digits(mantissa: str) -> str:
    """Those that count."""
    return _ZEROS.sub("", mantissa.lstrip("-").replace(".", ""))


def spelled(value: Any, depth: int = 0) -> str:
    """A value of JSON as JSON; numbers are as they were.

    Args:
        value: as the reader of this module gives it.
        depth: how many arrays and objects it lies in.

    Raises:
        ValueError: a number in it that JSON does not have.
        RecursionError: more than ``DEEPEST`` arrays and objects within one another.
    """
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, Number):
        if not value.finite:
            raise ValueError(value.text)
        return value.text
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(k)}: {spelled(v, depth + 1)}" for k, v in value.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join([spelled(one, depth + 1) for one in value])}]"
    return json.dumps(value)
