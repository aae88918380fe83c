"""What people write of runs that are meant, as values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened
from gaam_decoder.number_lists import Layers, parse_layer_sets

Texts = str | Sequence[str] | None
HOURS = {"h": 1, "d": 24, "w": 168}


def layer_sets(given: Texts) -> tuple[Layers, ...]:
    """Sets of layers.

    Raises:
        ConfigError: they are none.
    """
    try:
        return () if given is None else parse_layer_sets(given)
    except ValueError as error:
        raise ConfigError(
            "--where layers is out of range", expected=str(error), found=shortened(str(given))
        ) from None


def rates(given: Texts) -> tuple[float, ...]:
    """Learning rates.

    Raises:
        ConfigError: one that is none.
    """
    several = [given] if isinstance(given, str) else given or []
    try:
        found = tuple(float(part) for text in several for part in str(text).split(","))
    except ValueError:
        found = (-1.0,)
    if any(not 0 <= rate < math.inf for rate in found):
        raise ConfigError(
            "--where lr is out of range",
            expected="learning rates from 0 on, such as 3e-4",
            found=shortened(str(given)),
        )
    return found


def moment(text: str | datetime, now: datetime) -> datetime:
    """A date, or one that long ago.

    Raises:
        ConfigError: neither.
    """
    try:
        if isinstance(text, datetime):
            found = text
        elif ago := re.fullmatch(r"([0-9]{1,6})([hdw])", text.strip()):
            return now - timedelta(hours=int(ago[1]) * HOURS[ago[2]])
        else:
            found = datetime.fromisoformat(text.strip())
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            "--where since is no date",
            expected="a date (2026-11-01, 2026-11-01T09:30, in UTC) or a time span (12h, 3d, 2w)",
            found=f"'{shortened(str(text))}'",
        ) from error
