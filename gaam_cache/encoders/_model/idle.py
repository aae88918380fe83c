"""Settings of the extraction that play no part with an encoder."""

from __future__ import annotations

import dataclasses

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import option_of, shortened


def refuse_idle(config: ExtractConfig, names: tuple[str, ...], reads: str) -> None:
    """Refuse what would be asked for and not done.

    Args:
        config: of the extraction.
        names: of the settings.
        reads: what the encoder reads: 'an audio encoder and feature extractor'.

    Raises:
        ConfigError: one is not at its default.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in names and value != field.default:
            option = option_of(field.name)
            raise ConfigError(
                f"{option} plays no part here",
                expected=f"no {option}: the rows are read by {reads}",
                found=option if value is True else f"{option} {shortened(str(value))}",
            )
