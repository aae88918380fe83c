"""How small and how large a setting may be."""

from __future__ import annotations

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import option_of, shortened

LARGEST_NUMBER = 2**31 - 1
"""Of any setting that counts something; more is a slip of the finger."""
SHARD_ROWS = 2048
"""Of one shard at most, where nobody says."""


def check_at_least(config: object, minimum: int, *fields: str) -> None:
    """Refuse values below ``minimum`` or senselessly large; None means not set and passes.

    Raises:
        ConfigError: naming the option, the bounds and the value.
    """
    for field in fields:
        value = getattr(config, field)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            high = f" and at most {LARGEST_NUMBER:,}" if value > LARGEST_NUMBER else ""
            raise ConfigError(
                f"{option_of(field)} is out of range",
                expected=f">= {minimum}{high}",
                found=shortened(str(value)),
            )
