"""One command of a study, and its options as the command line spells them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.messages.checks import option_of
from gaam_decoder.config import TrainConfig
from gaam_decoder.planting.plant_config import PlantConfig

CONFIGS = {"extract": ExtractConfig, "plant": PlantConfig, "train": TrainConfig}
_NOT = {"probe": ["--no-probe"]}
"""What says no where yes is the default; of all other options to leave them out does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command; ``makes`` or ``reads`` name a cache of the study."""

    command: str
    options: Mapping[str, Any]
    """By the names of fields."""
    makes: str | None = None
    reads: str | None = None

    def words(self) -> list[str]:
        """The options as the command line has them."""
        words: list[str] = []
        for name, value in self.options.items():
            option = spelled(CONFIGS.get(self.command), name)
            if isinstance(value, bool):
                words += [option] if value else _NOT.get(name, [])
            else:
                for one in value if isinstance(value, list) else [value]:
                    words += [option, str(one)]
        return words


def spelled(config: type | None, field: str) -> str:
    """A field as an option of the command line."""
    if field == "from_cache":
        return "--from"
    known = {f.name: f.metadata.get("option") for f in dataclasses.fields(config)} if config else {}
    return known.get(field) or option_of(field)
