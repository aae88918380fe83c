"""Settings that say nothing about the data at hand are refused, not ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of

PLAYS_A_PART = {
    "delimiter": "a CSV file",
    "encoding": "a CSV or JSON lines file",
    "text_columns": "a table of texts",
    "label_column": "a table",
    "file_column": "a table of one's own",
    "skip_empty": "a table",
    "allow_outside": "a table on this disk that names files",
    "test_fraction": "a single file, or data with a single split",
    "clip_seconds": "sounds",
    "clip_mode": "sounds",
}
"""Where a setting of rows says something; those that are not here do everywhere."""


def refuse_unused(config: ExtractConfig, fields: Iterable[str], where: str) -> None:
    """Refuse settings that play no part, unless they are at their default.

    Args:
        config: the settings.
        fields: names of those that play none.
        where: in what.

    Raises:
        ConfigError: naming the option.
    """
    defaults = {field.name: field for field in dataclasses.fields(config)}
    for name in fields:
        if getattr(config, name) != defaults[name].default:
            option = defaults[name].metadata.get("option") or option_of(name)
            raise ConfigError(
                f"{option} plays no part here",
                expected=f"{option} for {PLAYS_A_PART[name]}",
                found=f"{option} {getattr(config, name)}",
                where=where,
                hint=f"leave out {option}",
            )
