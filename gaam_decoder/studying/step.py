"""One command of a study, and its options as the command line spells them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache import settings
from gaam_cache.config import ExtractConfig
from gaam_cache.messages import option_of
from gaam_decoder.config import TrainConfig
from gaam_decoder.plant_config import PlantConfig

CONFIGS: dict[str, Any] = {"extract": ExtractConfig, "plant": PlantConfig, "train": TrainConfig}


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
            if self.command not in CONFIGS:  # gaam ablate
                words += [option_of(name), str(value)]
                continue
            fields = dataclasses.fields(CONFIGS[self.command])
            words += settings.words(next(f for f in fields if f.name == name), value)
        return words
